"""The whole attack list against four configurations: both walls off, each wall alone, both up. Minutes on 2 cores.

    python .ci/attacks.py [CLASS …]

Prints a line for each attack that does not end as its entry says, then a table by class; exit code 1 if there was one.
`tests/verifier/test_walls.py` runs the part of this that CI has time for.
"""

import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from services.verifier.parser import Parser
from services.verifier.sandbox.local import LocalDriver
from tests.verifier.attacks import Attack, load_attacks
from tests.verifier.attacks.behind_both import BehindBoth, fault
from tests.verifier.attacks.behind_grants import BehindGrants
from tests.verifier.attacks.observing import harm
from tests.verifier.attacks.unwalled import Unwalled, stops_parser
from tests.verifier.conftest import temporary_folder

MEMORY_BYTES = 256 * 1024**2

Table = defaultdict[str, Counter[str]]


def main() -> None:
    """Run, print, exit."""
    kinds = sys.argv[1:]
    attacks = [attack for attack in load_attacks() if not kinds or attack.kind in kinds]
    table: Table = defaultdict(Counter)
    wrong: list[str] = []
    with temporary_folder() as folder:
        for run in (_without_walls, _parser_alone, _grants_alone, _both):
            part = folder / run.__name__.strip("_")[:4]
            part.mkdir(mode=0o755)
            run(attacks, part, table, wrong)
    _print(attacks, table)
    print(*wrong, sep="\n")
    print(f"{len(attacks)} attacks, {len(wrong)} do not end as their entry says")
    raise SystemExit(bool(wrong))


def _note(table: Table, wrong: list[str], attack: Attack, result: str, problem: str) -> None:
    table[attack.kind][result] += 1
    if problem:
        wrong.append(f"{attack.kind} / {attack.name}: {result}: {problem}")
    print(f"{attack.kind} / {attack.name}: {result} {problem}", file=sys.stderr, flush=True)


def _without_walls(attacks: list[Attack], folder: Path, table: Table, wrong: list[str]) -> None:
    unwalled = Unwalled(folder)
    for attack in attacks:
        found = stops_parser(attack.sql) if attack.stops_parser else harm(attack, unwalled.run(attack))
        if attack.inert:
            _note(table, wrong, attack, "off: inert", f"it does harm after all: {found}" if found else "")
        else:
            _note(table, wrong, attack, "off: harm" if found else "off: none", "" if found else "it proves nothing")
    unwalled.close()


def _parser_alone(attacks: list[Attack], folder: Path, table: Table, wrong: list[str]) -> None:
    parser = Parser(processes=2)
    analyses, _ = parser.parse([attack.sql for attack in attacks], [])
    for attack in attacks:
        stopped = not analyses[attack.sql].runnable
        unexpected = "" if stopped or attack.inert or "parser" not in attack.walls else "it is let through"
        _note(table, wrong, attack, "parser: refused" if stopped else "parser: passed", unexpected)
    parser.close()


def _grants_alone(attacks: list[Attack], folder: Path, table: Table, wrong: list[str]) -> None:
    driver = LocalDriver(folder, MEMORY_BYTES, None)
    grants = BehindGrants(driver)
    for attack in attacks:
        seen, left = grants.run(attack)
        found = harm(attack, seen)
        claimed = "grants" in attack.walls
        _note(table, wrong, attack, "grants: harm" if found else "grants: none", left or (found if claimed else ""))
    grants.close()
    driver.close()


def _both(attacks: list[Attack], folder: Path, table: Table, wrong: list[str]) -> None:
    both = BehindBoth(folder)
    for attack in attacks:
        seen, verdict, left = both.run(attack)
        problem = ", ".join(filter(None, (harm(attack, seen), fault(verdict), left)))
        if attack.inert and verdict["reward"] == 0.0:
            problem = left
        _note(table, wrong, attack, f"both: {verdict['status']}", problem)
    both.close()


def _print(attacks: list[Attack], table: Table) -> None:
    results = sorted({result for counts in table.values() for result in counts})
    kinds = Counter(attack.kind for attack in attacks)
    width = max(map(len, kinds))
    print(f"{'class':<{width}} attacks  " + "  ".join(results))
    for kind, count in [*sorted(kinds.items()), ("all", len(attacks))]:
        counts = table[kind] if kind in kinds else sum(table.values(), Counter())
        cells = "  ".join(f"{counts[result] or '':>{len(result)}}" for result in results)
        print(f"{kind:<{width}} {count:>7}  {cells}")


if __name__ == "__main__":
    main()
