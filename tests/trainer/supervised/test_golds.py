"""Who may read golds, in which form they are learnt, and that they leave nothing behind."""

from pathlib import Path
from typing import Any

import pytest

from services.trainer.settings import JobSettings
from services.trainer.supervised.golds import GoldReader, gold_lessons, gold_reply
from services.trainer.supervised.intake import Intake
from shared.auth import Scope, read_token, write_tokens
from shared.clients.rollout import RolloutClient
from shared.contracts.rollout import Regime
from shared.contracts.tasks import Split
from shared.domain import find_bundle, messages
from shared.errors import Forbidden, Invalid
from tests.trainer.supervised.conftest import BUNDLES, sft_config
from tests.trainer.supervised.sources import TASKS, Sources, gold, question, task


def reader(settings: JobSettings, **changes: Any) -> GoldReader:
    return GoldReader(settings.model_copy(update=changes), settings.tokens_file)


async def test_every_train_task_is_asked_as_rollout_asks_it_and_answered_with_its_first_gold(
    sources: Sources, settings: JobSettings, model: Path
) -> None:
    sources.tasks[3] = task(3, Split.HOLDOUT)
    regime = Regime(system_prefix="Answer briefly.")
    found = await reader(settings).lessons(sft_config(model, golds=True, regime=regime))
    assert [lesson.task_id for lesson in found.lessons] == [f"t{n}" for n in range(TASKS) if n != 3]
    lesson = found.lessons[1]
    assert lesson.messages == messages(find_bundle("shop", [BUNDLES]), regime, question(1))
    assert lesson.reply == f"```sql\n{gold(1)}\n```", "as the rules of the prompt ask"
    assert gold(1) not in repr(found), "nobody prints one by chance"


def test_a_holdout_gold_that_comes_all_the_same_is_refused() -> None:
    with pytest.raises(Invalid, match="the author sent task t3 of the holdout split"):
        gold_lessons([task(3, Split.HOLDOUT)], find_bundle("shop", [BUNDLES]), Regime())


def test_a_prompt_without_rules_is_answered_with_the_bare_query() -> None:
    assert gold_reply("SELECT 1", Regime(prompt="question")) == "SELECT 1"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gold_token_name": None}, "SQLCLIMB_GOLD_TOKEN_NAME names no token with the `gold` scope"),
        ({"author_url": None}, "SQLCLIMB_AUTHOR_URL no author"),
        ({"gold_token_name": "nobody"}, "holds no token 'nobody'"),
        ({"gold_token_name": "trainer"}, "token 'trainer' .* lacks the `gold` scope"),
    ],
)
def test_a_trainer_without_leave_reads_none(tokens: Path, changes: dict[str, str | None], words: str) -> None:
    settings = JobSettings.model_construct(**{"author_url": "http://x", "gold_token_name": "golds"} | changes)
    with pytest.raises(Forbidden, match=words):
        GoldReader(settings, tokens).token()


async def test_an_author_that_refuses_is_quoted(settings: JobSettings, model: Path, tmp_path: Path) -> None:
    write_tokens(tmp_path / "mine.json", {"golds": [Scope.GOLD]})  # of a file that the author does not know
    with pytest.raises(Forbidden, match="the author refused them: Missing or unknown token"):
        await GoldReader(settings, tmp_path / "mine.json").lessons(sft_config(model, golds=True))


async def test_an_unknown_domain_is_named(settings: JobSettings, model: Path) -> None:
    with pytest.raises(Invalid, match=r"`domain`: no domain 'nowhere' in .* see SQLCLIMB_DOMAINS"):
        await reader(settings).lessons(sft_config(model, golds=True, domain="nowhere"))


async def test_a_dry_run_counts_golds_and_says_none(settings: JobSettings, sources: Sources, model: Path) -> None:
    async with RolloutClient(sources.url, read_token(settings.tokens_file, "trainer")) as rollout:
        intake = Intake(rollout, reader(settings))
        config = sft_config(model, golds=True, max_tokens=20)
        counts = await intake.dry_run(config)
        await intake.check(config)
    assert counts.tasks == TASKS and 0 < counts.kept < TASKS
    assert counts.dropped == {"over_budget": TASKS - counts.kept}
    assert "select" not in counts.model_dump_json()
