"""Golds as lessons, read from the author with a token that the trainer's operator has named for it.

The trainer's own token lacks the `gold` scope, and stays so: it reads golds only where its operator names another token
that has it, and a caller who has it too asks for them. They are held in memory as long as they are learnt or counted:
no file, row, log line, metric or probe gets one.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from services.trainer.settings import TrainingSettings
from services.trainer.supervised.lessons import Found, Lesson
from services.trainer.supervised.refusal import unusable
from shared.auth import Scope, TokenFile, read_token
from shared.clients.author import AuthorClient
from shared.clients.base import ServiceProblem
from shared.contracts.rollout import Regime
from shared.contracts.run_config import RunConfig
from shared.contracts.tasks import PrivilegedTask, Split, Task
from shared.domain import Bundle, BundleError, find_bundle, messages
from shared.errors import Forbidden


class GoldReader:
    """Reads golds where that is allowed."""

    def __init__(self, settings: TrainingSettings, tokens_file: Path) -> None:
        self._settings = settings
        self._tokens_file = tokens_file

    def token(self) -> str:
        """The token to read them with. Raises Forbidden."""
        name = self._settings.gold_token_name
        if name is None or self._settings.author_url is None:
            raise Forbidden(
                "`sft.golds`: this trainer may not read golds: SQLCLIMB_GOLD_TOKEN_NAME names no token with the `gold` "
                "scope for it, or SQLCLIMB_AUTHOR_URL no author. Have its operator set both, or learn from a "
                "sampling's verified replies (`sft.sampling_id`). Nothing was trained"
            )
        try:
            token = read_token(self._tokens_file, name)
            scopes = TokenFile(self._tokens_file).scopes_of(f"Bearer {token}")
        except (OSError, KeyError, ValueError) as error:
            raise Forbidden(
                f"`sft.golds`: the trainer's tokens file holds no token {name!r} (SQLCLIMB_GOLD_TOKEN_NAME). Nothing "
                "was trained"
            ) from error
        if not scopes & {Scope.GOLD, Scope.ADMIN}:
            raise Forbidden(
                f"`sft.golds`: token {name!r} (SQLCLIMB_GOLD_TOKEN_NAME) lacks the `gold` scope. Nothing was trained"
            )
        return token

    async def lessons(self, config: RunConfig) -> Found:
        """A reply that holds the gold, for each train task. Raises Forbidden, Invalid, and as the client does."""
        token, url = self.token(), self._settings.author_url
        assert url is not None, "`token` saw to it"
        try:
            bundle = find_bundle(config.domain, self._settings.domains)
        except BundleError as error:
            raise unusable("domain", f"{error}; the trainer renders its prompts, see SQLCLIMB_DOMAINS") from error
        try:
            async with AuthorClient(url, token) as author:
                tasks = (await author.tasks(config.domain, Split.TRAIN, privileged=True)).tasks
        except ServiceProblem as error:
            if error.problem.status not in (401, 403):
                raise
            raise Forbidden(f"`sft.golds`: the author refused them: {error}. Nothing was trained") from error
        return Found(gold_lessons(tasks, bundle, config.regime), len(tasks), Counter())


def gold_lessons(tasks: Iterable[PrivilegedTask | Task], bundle: Bundle, regime: Regime) -> list[Lesson]:
    """A lesson a task, as rollout would ask it and as its policy ought to answer. Raises Invalid."""
    lessons = []
    for task in tasks:
        if not isinstance(task, PrivilegedTask):
            raise unusable("sft.golds", "the author sent tasks without golds: the token needs the `gold` scope")
        if task.split is not Split.TRAIN:
            raise unusable("sft.golds", f"the author sent task {task.id} of the {task.split} split as one to train on")
        asked = messages(bundle, regime, task.question)
        lessons.append(Lesson(task.id, asked, gold_reply(task.privileged.golds[0], regime), [], []))
    return sorted(lessons, key=lambda lesson: lesson.task_id)


def gold_reply(gold: str, regime: Regime) -> str:
    """The gold in the form that the prompt asks for; one without rules is answered with the bare query."""
    return gold if regime.prompt == "question" else f"```sql\n{gold}\n```"
