"""From texts of golds to usable golds with valid mutants, and the material of candidate seeds. Blocking."""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from services.verifier.parser import Parser
from services.verifier.sandbox.protocol import MAIN_SEED
from services.verifier.suites.generation import Material
from services.verifier.suites.material import seed_material
from services.verifier.suites.measuring import Cancelled, Gold, Measuring, has_rows
from services.verifier.suites.mutation import ColumnFacts, Facts, Mutant
from services.verifier.suites.study import GoldStudy, SeedStudy, StudyRequest
from services.verifier.suites.study_process import study
from services.verifier.suites.tables import Contents, Table
from services.verifier.suites.workbench import Workbench
from services.verifier.verdicts import GoldResult
from shared.contracts.suites import SkippedGold

VALUES_A_COLUMN = 40
"""Distinct values of a column that mutations may draw on."""


@dataclass
class Subject:
    """What a suite is made for."""

    golds: list[Gold]
    skipped: list[SkippedGold]
    material: Material
    invalid: int = 0
    """Mutants left out: refused by the parse wall, or by Postgres whatever the rows."""

    @property
    def mutants(self) -> dict[int, Mutant]:
        """All of them, by number."""
        return {number: mutant for gold in self.golds for number, mutant in gold.mutants.items()}

    def skip(self, gold: Gold, reason: str) -> None:
        """Leave a gold out."""
        self.golds.remove(gold)
        self.skipped.append(SkippedGold(gold=gold.sql, reason=reason))


def prepare(
    bench: Workbench, parser: Parser, texts: Sequence[str], request: StudyRequest, stop: threading.Event
) -> Subject:
    """Parse and study the golds. `request` lacks its golds and facts.

    Raises WorkbenchFailed, Cancelled, StudyCrashed.
    """
    analyses, plans = parser.parse(texts, texts)
    skipped, usable = [], []
    for text in texts:
        reason = plans[text].error or analyses[text].refused or analyses[text].syntax_error
        if reason is None:
            usable.append(text)
        else:
            skipped.append(SkippedGold(gold=text, reason=f"{reason} (a reply with it would be refused)"))
    every_column = bench.read_tables()
    facts = column_facts(every_column, bench.read_rows(every_column))
    studies: dict[str, GoldStudy] = {}
    seed = SeedStudy()
    for found in study(replace(request, golds=usable, facts=facts), stop):
        if isinstance(found, SeedStudy):
            seed = found
        else:
            studies[usable[len(studies)]] = found
    if stop.is_set():
        raise Cancelled
    skipped += [
        SkippedGold(gold=text, reason=found.error) for text, found in studies.items() if found.error is not None
    ]
    valid, invalid = _numbered(parser, studies)
    golds = [
        Gold(text, plans[text], found.tables, valid[text]) for text, found in studies.items() if found.error is None
    ]
    material = _material(bench, bench.read_tables(seed.written), studies.values(), seed)
    return Subject(golds, skipped, material, invalid)


def column_facts(tables: Sequence[Table], rows: Contents) -> Facts:
    """What mutations need of every column."""
    return {
        table.name: [
            ColumnFacts(
                column.name,
                column.type,
                column.nullable,
                sorted({value for row in rows[table.name] if (value := row[index]) is not None})[:VALUES_A_COLUMN],
            )
            for index, column in enumerate(table.columns)
        ]
        for table in tables
    }


def _numbered(parser: Parser, studies: Mapping[str, GoldStudy]) -> tuple[dict[str, dict[int, Mutant]], int]:
    """The mutants that the parse wall lets through, numbered; and how many it does not."""
    analyses, _ = parser.parse((mutant.sql for found in studies.values() for mutant in found.mutants), ())
    valid: dict[str, dict[int, Mutant]] = {}
    number = refused = 0
    for text, found in studies.items():
        valid[text] = {}
        for mutant in found.mutants:
            if analyses[mutant.sql].runnable:
                valid[text][number] = mutant
                number += 1
            else:
                refused += 1
    return valid, refused


def _material(bench: Workbench, tables: Sequence[Table], studies: Iterable[GoldStudy], seed: SeedStudy) -> Material:
    studies = list(studies)
    constants = dict.fromkeys(constant for found in studies for constant in found.constants)
    values = {}
    for constant in constants:
        if constant.expression not in values and (value := bench.value(constant.expression)) is not None:
            values[constant.expression] = value
    clock = {(c.table, c.column) for c in constants if c.follows_clock} | set(seed.clock)
    return seed_material(tables, bench.read_rows(tables), studies, values, clock)


def on_bundle_seeds(bench: Workbench, measuring: Measuring, subject: Subject) -> Iterator[frozenset[int]]:
    """Run golds and mutants on each seed of the bundle, main first: the mutants that are alive after each.

    Golds that verification could not score are skipped, mutants that are wrong whatever the rows are left out.
    Raises WorkbenchFailed, Cancelled.
    """
    results: dict[str, dict[str, GoldResult]] = {}
    for seed in bench.seeds:

        def run(gold: Gold, seed: str = seed) -> GoldResult:
            return bench.gold(gold.plan, seed)

        results[seed] = {gold.sql: result for gold, result in measuring.each(run, subject.golds)}
        for gold in list(subject.golds):
            result = results[seed][gold.sql]
            if result.table is None or (seed == MAIN_SEED and not has_rows(result)):
                subject.skip(gold, f"seed {seed}: {result.problem or 'no row, so no reply can be scored'}")
    _drop_invalid(bench, measuring, subject)
    alive = frozenset(subject.mutants)
    for seed in bench.seeds:

        def kills(gold: Gold, seed: str = seed, alive: frozenset[int] = alive) -> frozenset[int]:
            return measuring.kills(seed, gold, results[seed][gold.sql], alive)

        alive -= frozenset().union(*(killed for _, killed in measuring.each(kills, subject.golds)))
        yield alive


def _drop_invalid(bench: Workbench, measuring: Measuring, subject: Subject) -> None:
    """Leave out the mutants that fail both on the main seed and without any row: wrong types, ungrouped columns."""

    def valid(gold: Gold) -> Gold:
        kept = {
            number: mutant
            for number, mutant in gold.mutants.items()
            if bench.is_valid(bench.scratches[0], mutant.sql) or bench.is_valid(MAIN_SEED, mutant.sql)
        }
        return replace(gold, mutants=kept)

    before = len(subject.mutants)
    kept = {gold.sql: found for gold, found in measuring.each(valid, subject.golds)}
    subject.golds = [kept[gold.sql] for gold in subject.golds]
    subject.invalid += before - len(subject.mutants)
