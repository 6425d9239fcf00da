"""Replies as a GRPO step sends them: groups of 16 for one task, half of them word-for-word duplicates.

Tasks are the author's own (grammar teacher, domain shop). A distinct reply is written anew for every group (a numbered
comment), so that nothing but golds and a group's own duplicates can ever be answered from a cache.
"""

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from services.author.catalogue import read_catalogue
from services.author.teachers.base import Assignment, Proposal
from services.author.teachers.grammar.teacher import GrammarTeacher
from shared.domain import Bundle, load_bundle

SHOP = Path(__file__).resolve().parents[2] / "domains" / "shop"
GROUP = 16
DISTINCT = 8


@dataclass(frozen=True)
class Group:
    """One prompt's samples."""

    gold: str
    order_matters: bool
    replies: tuple[str, ...]


def shop() -> Bundle:
    """The bundle that ships."""
    return load_bundle(SHOP)


def proposals(bundle: Bundle, count: int) -> list[Proposal]:
    """Questions' golds by the grammar teacher, archetypes interleaved; ungated."""
    assignment = Assignment(read_catalogue(bundle.schema_sql, bundle.seed_sql), seed=7, golds=count, phrasings=1)

    async def collect() -> list[Proposal]:
        return [proposal async for proposal in GrammarTeacher().propose(assignment)]

    return asyncio.run(collect())


def groups(tasks: list[Proposal], seed: int) -> Iterator[Group]:
    """Groups without end; tasks come round again as epochs do."""
    random = Random(seed)
    number = 0
    while True:
        for task in random.sample(tasks, len(tasks)):
            distinct = []
            for _ in range(DISTINCT):
                number += 1
                distinct.append(_reply(task.gold, random, f"{seed}-{number}"))
            replies = distinct * (GROUP // DISTINCT)
            random.shuffle(replies)
            yield Group(task.gold, task.order_matters, tuple(replies))


def _reply(gold: str, random: Random, mark: str) -> str:
    write: Callable[[str, Random], str | None] = random.choices(
        [_rewritten, _wrong, _faulty, _refused, _without_sql], weights=[40, 36, 12, 4, 8]
    )[0]
    sql = write(gold, random)
    if sql is None:
        return f"{_REASONING}</think>\n\nThe schema does not say what to count here, so I cannot answer it ({mark})."
    return f"{_REASONING}</think>\n\nThis answers the question:\n\n```sql\n{sql}\n-- {mark}\n```\n"


_REASONING = "<think>\n" + "The question names one measure and one condition; I need the table that holds both. " * 12


def _rewritten(gold: str, random: Random) -> str:
    """The same query in other words."""
    broken = re.sub(r" (FROM|WHERE|GROUP BY|ORDER BY|HAVING|LIMIT) ", r"\n\1 ", gold)
    return random.choice([gold, broken, f"WITH answer AS (\n{gold}\n)\nSELECT * FROM answer"])


def _wrong(gold: str, random: Random) -> str:
    """One edit; now and then it makes no difference, as with real answers."""
    edits: list[tuple[str, Callable[[re.Match[str]], str]]] = [
        (r"\b\d+\b(?!-)", lambda found: str(int(found[0]) + 1)),
        (r"'\d{4}", lambda found: "'2022" if found[0] == "'2023" else "'2023"),
        (r" WHERE .*?(?= GROUP| ORDER| LIMIT| INTERSECT| UNION| EXCEPT|\)|$)", lambda _: ""),
        (r"\bsum\(", lambda _: "avg("),
        (r"\bcount\(\*\)", lambda _: "count(*) + 1"),
        (r"(?<= )(>=|<=)(?= )", lambda found: found[0][0]),
        (r" DESC\b", lambda _: ""),
        (r"^SELECT (DISTINCT )?(\w+),", lambda found: f"SELECT {found[1] or ''}{found[2]}, {found[2]},"),
        (r" AND [a-z_.]+ IS NOT NULL", lambda _: ""),
        (r"^", lambda _: "SELECT * FROM orders LIMIT 20 -- "),
    ]
    pattern, edit = random.choice([found for found in edits[:-1] if re.search(found[0], gold)] or edits[-1:])
    return re.sub(pattern, edit, gold, count=1)


def _faulty(gold: str, random: Random) -> str:
    """A column or table that does not exist, or a typo."""
    edits = [
        (r" FROM (\w+)", r" FROM \1_table"),
        (r"^SELECT (DISTINCT )?", r"SELECT \1total_value, "),
        (r" FROM ", " FORM "),
    ]
    pattern, replacement = random.choice(edits)
    return re.sub(pattern, replacement, gold, count=1)


def _refused(gold: str, random: Random) -> str:
    return random.choice(["DELETE FROM orders", "UPDATE orders SET freight = 0", "CREATE TABLE answer (n int)"])


def _without_sql(gold: str, random: Random) -> None:
    return None
