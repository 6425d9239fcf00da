"""The teacher that a language model is: deals out cells, reads replies, and answers questions for second opinions."""

import asyncio
import math
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass

from services.author.teachers.base import Assignment, Proposal, TeacherError, Unreadable
from services.author.teachers.cells import CellPlan
from services.author.teachers.endpoint import Completion, Outcome
from services.author.teachers.metered import Call, MeteredModel
from services.author.teachers.prompt import STYLES, proposing_request, teacher_system
from services.author.teachers.replies import ReadItem, read_reply
from shared.contracts.rollout import Regime
from shared.contracts.tasks import Archetype
from shared.domain import Bundle, system_prompt
from shared.ids import sha256_hex

POSITIONS_PER_CALL = 100
"""Room for the items of one call; what a reply holds beyond is dropped."""

BARREN_CALLS = 5
"""Calls in a row without one readable item after which the model is taken to be unable or unwilling."""

CALLS_LIMIT = 2.0
"""Calls that one run makes at most, relative to those that suffice when every reply holds what was asked for."""

ATTEMPT_TOKENS = 8_192


@dataclass(frozen=True)
class Pattern:
    """How the model is asked."""

    per_call: int
    """Proposals a call."""
    max_tokens: int
    """Reply budget of a call, thinking included."""
    show_values: bool
    """Whether values of the main seed are shown."""


class ModelTeacher:
    """A language model that writes proposals and attempts."""

    def __init__(self, name: str, model: MeteredModel, bundle: Bundle, pattern: Pattern, concurrency: int) -> None:
        self.name = name
        self._model = model
        self._bundle = bundle
        self._pattern = pattern
        self._concurrency = concurrency

    async def propose(self, assignment: Assignment) -> AsyncIterator[Proposal | Unreadable]:
        """See `Teacher`. Stored replies first, then calls until `golds` items have come."""
        work = _Work(assignment, self._pattern)
        system = teacher_system(self._bundle, assignment.catalogue, self._pattern.show_values)
        running: dict[asyncio.Task[Completion], Call] = {}
        failure: TeacherError | None = None
        for stored in await self._model.ledger.proposing():
            work.recall(stored.call)
            running[self._start(stored.call, system)] = stored.call
        try:
            while True:
                while failure is None and len(running) < self._concurrency and (new := work.next_call()):
                    running[self._start(new, system)] = new
                if not running:
                    break
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=lambda task: running[task].number):
                    call = running.pop(task)
                    try:
                        completion = task.result()
                    except TeacherError as error:
                        failure = failure or error
                        continue
                    for item in work.items(call, completion):
                        yield item
                failure = failure or work.barren()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        if failure is not None:
            raise failure

    def _start(self, call: Call, system: str) -> asyncio.Task[Completion]:
        return asyncio.create_task(self._model.ask(call, system, self._pattern.max_tokens, structured=True))

    async def attempt(self, question: str, number: int = 0) -> str | None:
        """See `Attempting`. Asked as every policy is: with the domain's own system prompt."""
        call = Call(f"attempt-{sha256_hex(question)[:24]}-{number}", "attempt", question)
        system = system_prompt(self._bundle, Regime())
        tokens = min(ATTEMPT_TOKENS, self._pattern.max_tokens)
        completion = await self._model.ask(call, system, tokens, structured=False)
        return None if completion.outcome is Outcome.REFUSAL else completion.text or None


def items_of(completion: Completion) -> list[ReadItem | None]:
    """The items of a reply, None for each that cannot be read. One that a broken stream cut off never came."""
    if completion.outcome is Outcome.REFUSAL:
        return []
    read = read_reply(completion.text)[:POSITIONS_PER_CALL]
    return read[:-1] if completion.outcome is Outcome.CUT and read and read[-1] is None else read


class _Work:
    """What has been asked for and what has come. No I/O."""

    def __init__(self, assignment: Assignment, pattern: Pattern) -> None:
        self._assignment = assignment
        self._per_call = pattern.per_call
        self._plan = CellPlan(assignment.weights)
        self._styles = assignment.styles or tuple(STYLES)
        self._known: defaultdict[Archetype, list[str]] = defaultdict(list)
        self._calls_left = math.ceil(CALLS_LIMIT * assignment.golds / pattern.per_call) + BARREN_CALLS
        self._next_number = self._first_of_run = 0
        self._come = 0
        self._on_the_way = 0
        self._barren: list[Outcome] = []

    def recall(self, call: Call) -> None:
        """Count a call of an earlier run."""
        self._count(call)
        self._first_of_run = self._next_number

    def _count(self, call: Call) -> None:
        self._next_number = max(self._next_number, call.number + 1)
        self._on_the_way += call.proposals
        if call.cell is not None:
            self._plan.asked(call.cell, call.proposals)

    def next_call(self) -> Call | None:
        """The next call, counted; None while enough is on its way, and at the limit of calls."""
        missing = self._assignment.golds - self._come - self._on_the_way
        if missing <= 0 or self._calls_left <= 0:
            return None
        cell, proposals, number = self._plan.next(), min(missing, self._per_call), self._next_number
        phrasings, known = self._assignment.phrasings, self._known[cell.archetype]
        user = proposing_request(cell, proposals, phrasings, self._styles, known)
        call = Call(f"propose-{number:05d}", "propose", user, number, cell, proposals)
        self._calls_left -= 1
        self._count(call)
        return call

    def items(self, call: Call, completion: Completion) -> list[Proposal | Unreadable]:
        """What a reply holds; a refusal holds nothing."""
        self._on_the_way -= call.proposals
        read = items_of(completion)
        self._come += len(read)
        if call.number >= self._first_of_run:  # what an earlier run left says nothing of the model
            self._barren = [] if any(read) else [*self._barren, completion.outcome]
        asked = Archetype.FILTER if call.cell is None else call.cell.archetype
        found: list[Proposal | Unreadable] = []
        for place, item in enumerate(read):
            position = call.number * POSITIONS_PER_CALL + place
            if item is None:
                found.append(Unreadable(asked, position))
                continue
            archetype = item.archetype or asked
            self._known[archetype].append(item.phrasings[0].question)
            found.append(
                Proposal(
                    item.sql,
                    archetype,
                    item.order_matters,
                    item.phrasings[: self._assignment.phrasings],
                    item.columns,
                    item.difficulty,
                    position,
                )
            )
        return found

    def barren(self) -> TeacherError | None:
        """Why to give up, if so."""
        if len(self._barren) < BARREN_CALLS:
            return None
        ended = ", ".join(sorted(set(self._barren)))
        return TeacherError(
            f"{len(self._barren)} calls in a row brought nothing readable (they ended: {ended}): "
            "a larger `max_tokens`, fewer proposals `per_call` or another model may help"
        )
