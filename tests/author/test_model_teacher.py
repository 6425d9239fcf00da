"""A model teacher on a real ledger and a local provider: what is asked, kept, paid, and never asked twice."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from services.author.catalogue import Catalogue
from services.author.ledger import StoredLedger
from services.author.ownership import OwnedElsewhere, Ownership
from services.author.teachers import Teachers
from services.author.teachers.base import Assignment, Attempting, OverBudget, Proposal, TeacherError, Unreadable
from services.author.teachers.cells import Cell, CellPlan
from services.author.teachers.grammar import GrammarTeacher
from services.author.teachers.pricing import Price, Usage, cost_of, price_of, worst_cost
from services.author.teachers.settings import TeacherSettings
from shared.contracts.author import AuthoringRequest
from shared.contracts.tasks import Archetype, Difficulty
from shared.domain import Bundle
from shared.errors import Invalid
from tests.author.model_server import Answer, Asked, Fault, Knowing, ModelServer, item_of
from tests.author.test_endpoints_of_models import settings

PER_CALL = 4
GOLDS = 20
MAX_TOKENS = 1000


@pytest.fixture(scope="session")
def known(catalogue: Catalogue) -> list[Proposal]:
    """What the stand-in knows: the grammar's proposals."""

    async def drawn() -> list[Proposal]:
        return [one async for one in GrammarTeacher().propose(Assignment(catalogue, 7, 2 * GOLDS, 1))]

    return asyncio.run(drawn())


class Desk:
    """One authoring's teacher, opened as a service opens it."""

    def __init__(self, dsn: str, bundle: Bundle, catalogue: Catalogue, found: TeacherSettings) -> None:
        self._dsn = dsn
        self._bundle = bundle
        self._catalogue = catalogue
        self._settings = found

    def request(self, **more: Any) -> AuthoringRequest:
        """A small one."""
        body = {
            "authoring_id": "a",
            "domain": "shop",
            "teacher": "anthropic",
            "golds": GOLDS,
            "phrasings": 1,
            "per_call": PER_CALL,
            "max_tokens": MAX_TOKENS,
            "concurrency": 2,
        }
        return Teachers(self._settings).resolve(AuthoringRequest.model_validate({**body, **more}))

    async def propose(self, **more: Any) -> AsyncIterator[Proposal | Unreadable]:
        """What the teacher yields for a request."""
        request = self.request(**more)
        teachers = Teachers(self._settings)
        owner = await Ownership.take(self._dsn, "a")
        try:
            ledger = StoredLedger(owner, "a")
            teacher = teachers.open(request, self._bundle, ledger, await ledger.spent_usd())
            assignment = Assignment(self._catalogue, 0, request.golds, request.phrasings, tuple(request.styles))
            async for landed in teacher.propose(assignment):
                yield landed
        finally:
            await owner.release()
            await teachers.close()

    async def attempt(self, question: str, number: int = 0) -> str | None:
        """A second opinion."""
        teachers = Teachers(self._settings)
        owner = await Ownership.take(self._dsn, "a")
        try:
            teacher = teachers.open(self.request(), self._bundle, StoredLedger(owner, "a"), 0.0)
            assert isinstance(teacher, Attempting)
            return await teacher.attempt(question, number)
        finally:
            await owner.release()
            await teachers.close()

    def calls(self) -> list[tuple[Any, ...]]:
        """Key, state, outcome, doubts."""
        with psycopg.connect(self._dsn) as connection:
            return connection.execute(
                "SELECT call_key, state, outcome, doubts FROM author.calls ORDER BY call_key"
            ).fetchall()

    def spent(self) -> float:
        """Paid and in doubt."""
        with psycopg.connect(self._dsn) as connection:
            row = connection.execute("SELECT sum(coalesce(cost_usd, 0) + doubt_usd) FROM author.calls").fetchone()
        assert row is not None
        return float(row[0])


Opened = Callable[..., Desk]


@pytest.fixture
def open_desk(control_db: str, shop: Bundle, catalogue: Catalogue) -> Opened:
    """A desk at a server, with a stored authoring."""
    with psycopg.connect(control_db) as connection:
        connection.execute(
            "INSERT INTO author.authorings (authoring_id, domain, domain_digest, request, state)"
            " VALUES ('a', 'shop', '', %s, 'running')",
            (Jsonb({}),),
        )
    return lambda server, **more: Desk(control_db, shop, catalogue, settings(server.url, **more))


def all_of(desk: Desk, **more: Any) -> list[Proposal | Unreadable]:
    async def collect() -> list[Proposal | Unreadable]:
        return [landed async for landed in desk.propose(**more)]

    return asyncio.run(collect())


def golds_of(landed: list[Proposal | Unreadable]) -> list[str]:
    return [one.gold for one in landed if isinstance(one, Proposal)]


@pytest.mark.parametrize("teacher", ["anthropic", "openai"])
def test_it_proposes_what_was_asked_for_and_pays_each_call_once(
    open_desk: Opened, known: list[Proposal], teacher: str
) -> None:
    with ModelServer(Knowing(known, PER_CALL)) as server:
        desk = open_desk(server, openai_model="big")
        landed = all_of(desk, teacher=teacher)
        assert sorted(golds_of(landed)) == sorted(proposal.gold for proposal in known[:GOLDS])
        assert sorted(one.position or 0 for one in landed) == [
            100 * call + place for call in range(GOLDS // PER_CALL) for place in range(PER_CALL)
        ]
        again = all_of(desk, teacher=teacher)
        assert sorted(golds_of(again)) == sorted(golds_of(landed))
        assert set(server.billed.values()) == {1}
        assert server.billed.total() == GOLDS // PER_CALL
        first, later = server.asked[0], server.asked[-1]
        assert "CREATE TABLE" in first.system
        assert "Net revenue" in first.system
        assert first.system == later.system
        assert not [gold for gold in golds_of(landed) if gold in "".join(asked.user for asked in server.asked)]


def test_a_call_says_which_cell_to_fill_and_which_questions_exist(open_desk: Opened, known: list[Proposal]) -> None:
    with ModelServer(Knowing(known, PER_CALL)) as server:
        all_of(open_desk(server), golds=2 * GOLDS, concurrency=1, styles=["terse"])
    kinds = [next(kind for kind in Archetype if f"Kind: {kind} " in asked.user) for asked in server.asked]
    assert set(kinds) == set(Archetype)
    assert all("terse (" in asked.user and "polite (" not in asked.user for asked in server.asked)
    shown = [asked.user for asked in server.asked if "exist already" in asked.user]
    assert shown
    assert all(any(one.phrasings[0].question in text for one in known) for text in shown)


def test_cells_are_asked_for_in_proportion_to_their_weights() -> None:
    plan = CellPlan({Archetype.WINDOW: 1.0, Archetype.FILTER: 0.5})
    dealt = []
    for _ in range(18):
        cell = plan.next()
        plan.asked(cell, 5)
        dealt.append(cell)
    assert {cell.archetype for cell in dealt} == {Archetype.WINDOW, Archetype.FILTER}
    assert sum(cell.archetype is Archetype.WINDOW for cell in dealt) == 12
    assert {cell.difficulty for cell in dealt} == set(Difficulty)
    assert len({CellPlan({}).next(), Cell(Archetype.FILTER, Difficulty.EASY)}) == 1


def test_bad_items_refusals_and_cut_replies_lose_only_themselves(open_desk: Opened, known: list[Proposal]) -> None:
    writer = Knowing(known, PER_CALL)

    def write(asked: Asked) -> Answer:
        number = int(asked.key.rsplit("-", 1)[-1])
        items = [item_of(proposal) for proposal in writer.wanted(asked)]
        text = json.dumps({"proposals": items})
        if number == 0:
            return Answer(f"Gladly!\n```json\n{text}\n```")
        if number == 1:
            return Answer("I would rather not.", "refusal")
        if number == 2:
            return Answer(text.replace('"sql": "', '"sql": ', 1))
        if number == 3:
            return Answer(text[: text.rindex('"sql"')], "max_tokens")
        return Answer(text)

    with ModelServer(write) as server:
        desk = open_desk(server)
        landed = all_of(desk)
    lost = [one for one in landed if isinstance(one, Unreadable)]
    assert sorted(one.position for one in lost) == [200, 303]
    assert len(landed) == GOLDS
    expected = [known[place].gold for place in (*range(4), *range(9, 12), *range(12, 15), *range(16, 24))]
    assert sorted(golds_of(landed)) == sorted(expected)
    assert [outcome for _, _, outcome, _ in desk.calls()][:5] == [
        "complete",
        "refusal",
        "complete",
        "length",
        "complete",
    ]


def test_a_model_that_gives_nothing_is_given_up_with_advice(open_desk: Opened) -> None:
    with (
        ModelServer(lambda asked: Answer("no", "refusal")) as server,
        pytest.raises(TeacherError, match=r"in a row.*refusal"),
    ):
        all_of(open_desk(server), golds=1000)
    assert server.billed.total() <= 6


def test_money_stops_it_before_the_limit_and_more_money_continues(open_desk: Opened, known: list[Proposal]) -> None:
    with ModelServer(Knowing(known, PER_CALL)) as server:
        desk = open_desk(server)
        whole = 0.035
        with pytest.raises(OverBudget, match="max_cost_usd"):
            all_of(desk, max_cost_usd=whole)
        paid, calls = desk.spent(), server.billed.total()
        assert 0 < paid <= whole
        assert 0 < calls < GOLDS // PER_CALL
        landed = all_of(desk, max_cost_usd=1.0)
        assert sorted(golds_of(landed)) == sorted(proposal.gold for proposal in known[:GOLDS])
        assert server.billed.total() == GOLDS // PER_CALL
        assert desk.spent() <= 1.0


def test_what_a_killed_author_left_in_flight_is_kept_or_sent_once_more_and_owned_up_to(
    open_desk: Opened, known: list[Proposal], control_db: str
) -> None:
    with ModelServer(Knowing(known, PER_CALL)) as server:
        desk = open_desk(server)
        all_of(desk)
        reply = json.dumps({"proposals": [item_of(proposal) for proposal in known[:3]]})
        with psycopg.connect(control_db) as connection:  # as a `kill -9` leaves them
            connection.execute(
                "UPDATE author.calls SET state = 'sent', outcome = NULL, cost_usd = NULL, reply = %s WHERE number = 0",
                (reply[:-30],),
            )
            connection.execute(
                "UPDATE author.calls SET state = 'sent', outcome = NULL, cost_usd = NULL, reply = '' WHERE number = 1"
            )
        again = all_of(desk)
    assert {proposal.gold for proposal in known[:2]} <= set(golds_of(again))
    assert server.billed["a:propose-00000"] == 1
    assert server.billed["a:propose-00001"] == 2
    found = {key: (state, outcome, doubts) for key, state, outcome, doubts in desk.calls()}
    assert found["propose-00000"] == ("landed", "cut", 0)
    assert found["propose-00001"] == ("landed", "complete", 1)
    assert len(again) == GOLDS
    assert len(found) == GOLDS // PER_CALL + 1, "what the cut reply lacked is asked for anew"


def test_a_refused_call_costs_nothing_and_is_made_again(open_desk: Opened, known: list[Proposal]) -> None:
    with ModelServer(Knowing(known, PER_CALL)) as server:
        server.faults.append(Fault(400, message="too long"))
        desk = open_desk(server)
        with pytest.raises(TeacherError, match="too long"):
            all_of(desk, concurrency=1)
        assert [(state, doubts) for _, state, _, doubts in desk.calls()] == [("withdrawn", 0)]
        assert len(all_of(desk)) == GOLDS
        assert server.billed.total() == GOLDS // PER_CALL


def test_an_attempt_sees_the_question_alone_and_is_paid_once(open_desk: Opened, known: list[Proposal]) -> None:
    question, gold = known[0].phrasings[0].question, known[0].gold
    with ModelServer(Knowing(known, PER_CALL)) as server:
        desk = open_desk(server)
        first, second = asyncio.run(_twice(lambda: desk.attempt(question)))
        assert first == second == f"```sql\n{gold}\n```"
        asyncio.run(desk.attempt(question, 1))
    assert [asked.user for asked in server.asked] == [question, question]
    assert "You write PostgreSQL queries" in server.asked[0].system


def test_half_an_attempt_is_no_opinion_and_is_made_again(open_desk: Opened, known: list[Proposal]) -> None:
    question, gold = known[0].phrasings[0].question, known[0].gold
    with ModelServer(Knowing(known, PER_CALL)) as server:
        server.faults.append(Fault(after=12))
        desk = open_desk(server)
        assert asyncio.run(desk.attempt(question)) == f"```sql\n{gold}\n```"
        assert [(state, doubts) for _, state, _, doubts in desk.calls()] == [("landed", 1)]
        server.faults.extend([Fault(after=12)] * 3)
        with pytest.raises(TeacherError, match="broke off"):
            asyncio.run(desk.attempt(question, 1))


async def _twice(work: Callable[[], Awaitable[str | None]]) -> tuple[str | None, str | None]:
    return await work(), await work()


def test_an_authoring_has_one_owner_until_the_owner_is_gone(control_db: str) -> None:
    async def contend() -> None:
        first = await Ownership.take(control_db, "a")
        other = await Ownership.take(control_db, "b")
        with pytest.raises(OwnedElsewhere):
            await Ownership.take(control_db, "a")
        await first.release()
        second = await Ownership.take(control_db, "a")
        await second.release()
        await other.release()

    asyncio.run(contend())


def test_an_owner_whose_connection_was_cut_goes_on_unless_another_was_faster(control_db: str) -> None:
    async def cut() -> None:
        owner = await Ownership.take(control_db, "a")
        terminate = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        with psycopg.connect(control_db, autocommit=True) as connection:
            connection.execute(terminate)
        assert await owner.execute("SELECT 1 AS one", ()) == [{"one": 1}]
        with pytest.raises(OwnedElsewhere):
            await Ownership.take(control_db, "a")
        with psycopg.connect(control_db, autocommit=True) as connection:
            connection.execute(terminate)
        thief = await Ownership.take(control_db, "a")
        with pytest.raises(OwnedElsewhere):
            await owner.execute("SELECT 1", ())
        await thief.release()

    asyncio.run(cut())


def test_costs_are_of_the_table_or_of_the_setting() -> None:
    sonnet = price_of("claude-sonnet-5-5", {})
    assert sonnet is not None
    assert cost_of(sonnet, Usage(1_000_000, 100_000, 1_000_000, 1_000_000)) == pytest.approx(2 + 1 + 0.1 + 2.5)
    assert price_of("claude-haiku-4-5-20251001", {}) == price_of("claude-haiku-4-5", {})
    assert price_of("our-own", {}) is None
    own = price_of("our-own", {"our-own": Price(input=1, output=2)})
    assert own is not None
    assert cost_of(own, Usage(input=10, cache_read=10)) == pytest.approx(20 / 1e6)
    assert worst_cost(sonnet, "x" * 4000, 1000) > cost_of(sonnet, Usage(1000, 1000))


@pytest.mark.parametrize(
    ("fault", "field", "words"),
    [
        ({"teacher": "oracle"}, "teacher", "no teacher 'oracle'"),
        ({"styles": ["rude"]}, "styles", "there are"),
        ({"teacher": "openai"}, "model", "SQLCLIMB_OPENAI_MODEL"),
        ({"model": "ours", "max_cost_usd": 1}, "max_cost_usd", "SQLCLIMB_TEACHER_PRICES"),
        ({"teacher": "grammar", "max_cost_usd": 1}, "max_cost_usd", "costs nothing"),
        ({"teacher": "grammar", "model": "x"}, "model", "no model"),
    ],
)
def test_what_cannot_be_done_is_refused_by_field(fault: dict[str, Any], field: str, words: str) -> None:
    body = {"authoring_id": "a", "domain": "shop", "teacher": "anthropic", **fault}
    with pytest.raises(Invalid, match=words) as refused:
        Teachers(settings("http://127.0.0.1:9")).resolve(AuthoringRequest.model_validate(body))
    assert refused.value.errors[0].field == field


@pytest.mark.parametrize("teacher", ["anthropic", "openai"])
def test_a_teacher_without_its_key_says_which_setting(teacher: str) -> None:
    request = AuthoringRequest(authoring_id="a", domain="shop", teacher=teacher, model="m")
    with pytest.raises(Invalid, match=f"SQLCLIMB_{teacher.upper()}_API_KEY"):
        Teachers(TeacherSettings(_env_file=None)).resolve(request)
