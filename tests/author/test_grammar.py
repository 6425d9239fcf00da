"""The grammar teacher: deterministic, readable, right on a real Postgres, generic over schemas."""

import re
from collections import Counter
from pathlib import Path

import pytest

from services.author.catalogue import Catalogue, read_catalogue
from services.author.difficulty import difficulty_of
from services.author.grounds import Grounds
from services.author.judging import judge
from services.author.statement import read
from services.author.teachers.base import Assignment, Proposal
from services.author.teachers.grammar import NEEDS, GrammarTeacher
from services.author.teachers.grammar.styles import STYLES
from shared.bundles.from_sql import split_sql
from shared.clients.verifier import VerifierClient
from shared.contracts.tasks import Archetype, Difficulty
from shared.contracts.verifier import BundleSource, ExecuteRequest, SandboxRequest
from shared.sql import normalise
from shared.words import plural, singular
from tests.author.conftest import ServiceProcess
from tests.domains.test_foreign_files import given_text


async def _proposals(catalogue: Catalogue, golds: int, seed: int = 0, phrasings: int = 4) -> list[Proposal]:
    assignment = Assignment(catalogue, seed, golds, phrasings)
    return [proposal async for proposal in GrammarTeacher().propose(assignment)]


async def test_equal_assignments_give_equal_proposals_and_another_seed_others(catalogue: Catalogue) -> None:
    first = await _proposals(catalogue, 200)
    assert first == await _proposals(catalogue, 200)
    others = await _proposals(catalogue, 200, seed=1)
    assert len({p.gold for p in first} & {p.gold for p in others}) < 100
    assert first[:50] == await _proposals(catalogue, 50)


async def test_every_archetype_gives_golds_that_pass_on_the_real_verifier(
    catalogue: Catalogue, grounds: Grounds
) -> None:
    proposals = await _proposals(catalogue, 300)
    assert Counter(proposal.archetype for proposal in proposals) == dict.fromkeys(Archetype, 30)
    judged = await judge(grounds, proposals)
    passed = Counter(entry.proposal.archetype for entry in judged if entry.reason is None)
    assert all(passed[archetype] >= 20 for archetype in Archetype), passed
    assert {difficulty_of(entry.proposal.gold) for entry in judged if entry.reason is None} == set(Difficulty)


async def test_golds_are_distinct_queries_and_sort_only_where_the_question_says_so(catalogue: Catalogue) -> None:
    proposals = await _proposals(catalogue, 600)
    assert len({normalise(proposal.gold) for proposal in proposals}) == len(proposals)
    for proposal in proposals:
        outermost = read(proposal.gold).tree.stmts[0].stmt.select_stmt
        assert proposal.order_matters == bool(outermost.sort_clause), proposal.gold
        said = [re.search(r"first|order|sorted", asked.question) is not None for asked in proposal.phrasings]
        assert all(said) or not proposal.order_matters, proposal


async def test_questions_are_sentences_without_sql_in_distinct_styles(catalogue: Catalogue) -> None:
    for proposal in await _proposals(catalogue, 600):
        assert len({asked.style for asked in proposal.phrasings}) == len(STYLES) == 4
        questions = [asked.question for asked in proposal.phrasings]
        assert len(set(questions)) == len(questions)
        for question in questions:
            assert question[0].isupper(), question
            assert not re.search(r"[{}_]|  |None|\(|count\*|SELECT", question), question
            assert len(question.split()) <= 45, question


def test_words_change_number() -> None:
    pairs = {"category": "categories", "status": "statuses", "box": "boxes", "order item": "order items", "day": "days"}
    for one, many in pairs.items():
        assert (plural(one), singular(many), plural(many)) == (many, one, many)


@pytest.mark.parametrize(
    ("sql", "difficulty"),
    [
        ("SELECT a FROM t WHERE b > 1", Difficulty.EASY),
        ("SELECT count(*) FROM t WHERE b > 1", Difficulty.EASY),
        ("SELECT a, count(*) FROM t GROUP BY a", Difficulty.MEDIUM),
        ("SELECT a FROM t JOIN u USING (c) WHERE b > 1 AND d = 2", Difficulty.MEDIUM),
        ("SELECT a, count(*) FROM t JOIN u USING (c) GROUP BY a HAVING count(*) > 2", Difficulty.HARD),
        ("SELECT a FROM (SELECT a, rank() OVER (ORDER BY b) AS r FROM t) x WHERE r = 1", Difficulty.HARD),
    ],
)
def test_difficulty_is_counted_in_the_parse_tree(sql: str, difficulty: Difficulty) -> None:
    assert difficulty_of(sql) is difficulty


async def test_a_schema_without_keys_dates_or_categories_gives_what_it_can() -> None:
    rows = ", ".join(f"({n}, 'name {n}')" for n in range(30))
    bare = read_catalogue(
        "CREATE TABLE thing (size integer NOT NULL, title text NOT NULL)", f"INSERT INTO thing VALUES {rows}"
    )
    proposals = await _proposals(bare, 100)
    assert {proposal.archetype for proposal in proposals} >= {Archetype.FILTER}
    assert not {proposal.archetype for proposal in proposals} & {
        Archetype.JOIN,
        Archetype.DATE_BUCKETS,
        Archetype.ANTI_JOIN,
    }


async def test_text_keys_are_quoted_and_empty_tables_are_left_alone() -> None:
    rows = ", ".join(f"('t{n}', '{'ab'[n % 2]}', {n})" for n in range(30))
    schema = """CREATE TABLE ticker (code text PRIMARY KEY, kind text NOT NULL, size integer NOT NULL);
        CREATE TABLE trade (trade_id integer PRIMARY KEY, code text NOT NULL REFERENCES ticker, day date NOT NULL);
    """
    proposals = await _proposals(read_catalogue(schema, f"INSERT INTO ticker VALUES {rows}"), 200)
    peers = [proposal.gold for proposal in proposals if "a.code = " in proposal.gold]
    assert peers
    assert all(re.search(r"a\.code = 't\d+'", gold) for gold in peers)
    assert not any("trade" in proposal.gold for proposal in proposals)


async def test_an_empty_schema_gives_nothing() -> None:
    assert await _proposals(read_catalogue("", ""), 10) == []


async def test_rooms_of_the_teacher_know_nothing_of_the_shop(catalogue: Catalogue) -> None:
    folder = Path(__file__).parents[2] / "services" / "author"
    code = "\n".join(
        re.sub(r'""".*?"""|`[^`]*`|#.*', "", path.read_text(), flags=re.DOTALL) for path in folder.rglob("*.py")
    )
    names = {column.name for table in catalogue.tables.values() for column in table.columns if "_" in column.name}
    assert not {name for name in names if re.search(rf"\b{name}\b", code)}


AWKWARD = """
CREATE SCHEMA crm;
CREATE TABLE crm.sbCustomer ("sbCustId" text PRIMARY KEY, "Order" text, sbCustJoinDt text, is_active boolean, bal real);
CREATE TABLE crm.sbVisit (visit_id serial PRIMARY KEY, visitor text NOT NULL REFERENCES crm.sbCustomer ("sbCustId"),
  host text NOT NULL REFERENCES crm.sbCustomer ("sbCustId"), ndc text NOT NULL, -- National Drug Code
  visitedAt timestamp NOT NULL, "limit" integer NOT NULL);
"""
AWKWARD_ROWS = "".join(
    f"INSERT INTO crm.sbCustomer VALUES ('c{n}', '{'xy'[n % 2]}', '2024-0{1 + n % 9}-10', {n % 3 == 0}, {n}.5);"
    for n in range(20)
) + "".join(
    'INSERT INTO crm.sbVisit (visitor, host, ndc, visitedAt, "limit") VALUES '
    f"('c{n % 20}', 'c{n % 7}', '{'abc'[n % 3]}', '2024-0{1 + n % 9}-11 10:00', {n % 13});"
    for n in range(60)
)


async def test_odd_names_several_schemas_and_two_keys_to_one_table_give_golds_that_run(
    verifier: ServiceProcess,
) -> None:
    proposals = await _proposals(read_catalogue(AWKWARD, AWKWARD_ROWS), 300)
    missing = set(Archetype) - {proposal.archetype for proposal in proposals}
    assert missing == {Archetype.ANTI_JOIN}, "`no visits` would not say whether as visitor or as host"
    source = BundleSource(name="awkward", schema_sql=AWKWARD, seed_sql=AWKWARD_ROWS)
    async with VerifierClient(verifier.url, verifier.token("author"), timeout_seconds=300) as client:
        made = await client.create_sandbox(SandboxRequest(run_id="awkward", bundle=source))
        golds = ExecuteRequest(statements=[proposal.gold for proposal in proposals], repeat=1)
        executed = (await client.execute(made.sandbox_id, golds)).results
        await client.delete_sandbox(made.sandbox_id)
    faults = [(result.refused, run.error) for result in executed for run in result.executions]
    assert {fault for fault in faults if fault != (None, None)} <= {(None, "oversized")}
    asked = "\n".join(phrasing.question for proposal in proposals for phrasing in proposal.phrasings)
    for words in ("national drug code", "active flag", "visited date", "visitor order", "host order", "join date"):
        assert words in asked.lower(), words
    assert not re.search(r"sbcust|sbvisit|ndc|visitedat|_", asked.lower())


@pytest.mark.parametrize("name", ["academic", "broker", "car_dealership", "derm_treatment", "geography", "scholar"])
async def test_a_database_of_others_gives_every_archetype_its_rows_allow(name: str) -> None:
    parts = split_sql(given_text(name))
    proposals = await _proposals(read_catalogue(parts.schema_sql, parts.seed_sql), 250)
    found = {proposal.archetype for proposal in proposals}
    has_dates = re.search(r"\b(date|timestamp)\b", parts.schema_sql, re.IGNORECASE) is not None
    assert set(Archetype) - found == (set() if has_dates else {Archetype.DATE_BUCKETS})
    assert set(NEEDS) == set(Archetype)
    assert {difficulty_of(proposal.gold) for proposal in proposals} == set(Difficulty)
    for proposal in proposals:
        for asked in proposal.phrasings:
            assert not re.search(r"[{}]|  |None|total total", asked.question), asked
