"""The grammar teacher: deterministic, readable, right on a real Postgres, generic over schemas."""

import re
from collections import Counter
from pathlib import Path

import pytest

from services.author.catalogue import Catalogue, read_catalogue
from services.author.difficulty import difficulty_of
from services.author.judging import judge
from services.author.statement import read
from services.author.teachers.base import Assignment, Proposal
from services.author.teachers.grammar import GrammarTeacher
from services.author.teachers.grammar.labels import plural, singular
from services.author.teachers.grammar.styles import STYLES
from shared.clients.verifier import VerifierClient
from shared.contracts.tasks import Archetype, Difficulty
from shared.sql import normalise


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
    catalogue: Catalogue, sandbox: tuple[VerifierClient, str]
) -> None:
    proposals = await _proposals(catalogue, 300)
    assert Counter(proposal.archetype for proposal in proposals) == dict.fromkeys(Archetype, 30)
    judged = await judge(*sandbox, 0, proposals)
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
