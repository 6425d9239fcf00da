"""Each wall by itself and both together against the attack list. `.ci/attacks.py` runs the whole matrix.

Here: the parser against all of it; the grants and both walls against all but the slow ones, of which a sample runs; and
a sample of each class without walls, where it must do its harm. There: everything, each attack by itself, watched.
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from services.verifier.parser import Parser, ParserCrashed, _Process
from services.verifier.sandbox.local import LocalDriver
from services.verifier.statement import MAXIMUM_BYTES
from tests.verifier.attacks import GIVEN, Attack, load_attacks
from tests.verifier.attacks.behind_both import BehindBoth, fault, honest
from tests.verifier.attacks.behind_grants import BehindGrants
from tests.verifier.attacks.observing import harm
from tests.verifier.attacks.unwalled import Unwalled, stops_parser
from tests.verifier.conftest import temporary_folder

MEMORY_BYTES = 256 * 1024**2

ATTACKS = load_attacks()
KINDS = sorted({attack.kind for attack in ATTACKS})
SLOW = {"exhaustion", "parser"}
"""Too slow here without walls."""

NOT_BY_GRANTS = {"chance": 1, "leaks": 4, "notation": 3, "protocol": 1, "session": 1}
"""How many of a class the grants alone do not stop; each says why."""
NOT_BY_PARSER = {"exhaustion": 37, "leaks": 1, "notation": 1}
"""How many of a class the parser lets through; each says why."""

LIMITS_SAMPLE = ["cross join", "repeat", "sort on disk", "endless recursion, returned", "sleep", "grouping sets"]
"""One exhausting attack for each limit that ends them."""


def of(kind: str, attacks: list[Attack] = ATTACKS) -> list[Attack]:
    return [attack for attack in attacks if attack.kind == kind]


def quick(kind: str) -> list[Attack]:
    """What of a class runs here."""
    return [attack for attack in of(kind) if kind != "exhaustion" or attack.name in LIMITS_SAMPLE]


def test_the_list_has_five_of_each_class_and_says_why_where_a_wall_lets_one_through() -> None:
    counts = Counter(attack.kind for attack in ATTACKS)
    assert sum(counts.values()) - counts[GIVEN] >= 200
    assert min(counts.values()) >= 5
    assert len({(attack.kind, attack.name) for attack in ATTACKS}) == len(ATTACKS)
    assert Counter(attack.kind for attack in ATTACKS if "grants" not in attack.walls) == NOT_BY_GRANTS
    assert Counter(attack.kind for attack in ATTACKS if "parser" not in attack.walls) == NOT_BY_PARSER
    assert [attack.name for attack in ATTACKS if len(attack.walls) < 2 and not attack.why] == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_parser_alone_refuses_and_judges_neighbours_as_ever(kind: str) -> None:
    parser = Parser(processes=1)
    neighbours = [f"SELECT name FROM author WHERE id = {number}" for number, _ in enumerate(of(kind))]
    batch = [sql for pair in zip([attack.sql for attack in of(kind)], neighbours, strict=True) for sql in pair]
    analyses, _ = parser.parse(batch, ())
    parser.close()
    passed = [attack.name for attack in of(kind) if analyses[attack.sql].runnable]
    inert = {attack.name for attack in of(kind) if attack.inert}
    claimed = [attack.name for attack in of(kind) if "parser" not in attack.walls]
    assert [name for name in passed if name not in inert] == claimed
    assert all(analyses[sql].runnable and analyses[sql].reads_table for sql in neighbours)
    refused = [analyses[attack.sql] for attack in of(kind) if attack.name not in passed]
    assert all(analysis.refused or analysis.syntax_error for analysis in refused)


@pytest.fixture(scope="module")
def grants() -> Iterator[BehindGrants]:
    with temporary_folder() as folder:
        driver = LocalDriver(folder, MEMORY_BYTES, None)
        opened = BehindGrants(driver)
        yield opened
        opened.close()
        driver.close()


@pytest.mark.parametrize("kind", KINDS)
def test_the_grants_alone_stop_it_and_the_sandbox_is_as_before(grants: BehindGrants, kind: str) -> None:
    wrong = []
    for attack in quick(kind):
        if len(attack.sql) > MAXIMUM_BYTES:
            continue  # Postgres' own lexer may take longer than its timeout; that is for the parser's length limit
        seen, left = grants.run(attack)
        found = harm(attack, seen) if "grants" in attack.walls else ""
        if found or left:
            wrong.append((attack.name, found, left))
    assert wrong == []


@pytest.fixture(scope="module")
def both() -> Iterator[BehindBoth]:
    with temporary_folder() as folder:
        opened = BehindBoth(folder)
        yield opened
        opened.close()


@pytest.mark.parametrize("kind", KINDS)
def test_with_both_walls_nothing_succeeds_and_neighbours_are_judged_as_ever(both: BehindBoth, kind: str) -> None:
    attacks = [attack for attack in quick(kind) if not attack.inert] or of(kind)
    before = both.state()
    verdicts = both.verify(*(sql for attack in attacks for sql in (attack.sql, honest())), honest())
    faults = [(attack.name, fault(verdict)) for attack, verdict in zip(attacks, verdicts[::2], strict=False)]
    assert [(name, why) for name, why in faults if why] == []
    assert {verdict["status"] for verdict in [*verdicts[1::2], verdicts[-1]]} == {"match"}
    assert both.state() == before


@pytest.fixture(scope="module")
def unwalled() -> Iterator[Unwalled]:
    with temporary_folder() as folder:
        opened = Unwalled(folder)
        yield opened
        opened.close()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in SLOW])
def test_without_walls_it_does_its_harm(unwalled: Unwalled, kind: str) -> None:
    sample = [attack for attack in of(kind) if not attack.inert][:3]
    assert [attack.name for attack in sample if not harm(attack, unwalled.run(attack))] == []


def test_without_limits_a_parser_crashes_or_stalls() -> None:
    sample = [attack for attack in of("parser") if attack.name in ("100,000 terms of a sum", "nested CASE")]
    assert [bool(stops_parser(attack.sql)) for attack in sample] == [True, True]


def test_a_text_that_stalls_the_parser_ends_its_process_and_nothing_else() -> None:
    process = _Process()
    try:
        with pytest.raises(ParserCrashed):
            process.parse([f"SELECT {'/*' * 60_000}{'*/' * 60_000} 1"], [])  # too long for the check before it
        (analysis,), _ = process.parse(["SELECT 1 FROM t"], [])
        assert analysis.reads_table
    finally:
        process.close()
