"""`sqlclimb tasks …` as a user types it, against a real author and verifier."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from shared.bundles.from_sql import write_bundle
from shared.contracts.review import TaskCheck
from shared.database import migrate
from shared.ids import split_of
from tests.author.conftest import SHOP, ServiceProcess, call, verifier  # noqa: F401  (a fixture)
from tests.domains.test_foreign_files import DATA, given_text

GIVEN = ("shop-recipe", "derm_treatment")
RECIPE_FILE = DATA / "shop-recipe" / "tasks.sample.jsonl"
DEFOG_FILE = DATA / "defog" / "golds.jsonl"


@dataclass(frozen=True)
class Workplace:
    """Services of their own, whose bundles a test may change."""

    author: ServiceProcess
    bundles: Path


@pytest.fixture(scope="module")
def workplace(
    verifier: ServiceProcess,  # noqa: F811
    control_cluster: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Workplace]:
    """An author and a verifier that know the shop and, where they are there, two of the given databases."""
    folder = tmp_path_factory.mktemp("tasks")
    bundles = folder / "domains"
    shutil.copytree(SHOP, bundles / "shop")
    for name in GIVEN if DATA.exists() else ():
        write_bundle(name, given_text(name), bundles / name)
    with psycopg.connect(control_cluster, autocommit=True) as connection:
        connection.execute("CREATE DATABASE tasks_command")
    dsn = control_cluster.rsplit("/", 1)[0] + "/tasks_command"
    migrate(dsn)
    known = {"DOMAINS": json.dumps([str(bundles)])}
    own = ServiceProcess("verifier", verifier.tokens, folder, {"SANDBOXES": str(folder / "s"), **known})
    author = ServiceProcess("author", verifier.tokens, folder, {"DB": dsn, **known})
    try:
        own.start()
        author.settings["VERIFIER_URL"] = own.url
        author.start()
        yield Workplace(author, bundles)
    finally:
        author.stop()
        own.stop()


@pytest.fixture
def author(workplace: Workplace) -> ServiceProcess:
    """Its author."""
    return workplace.author


def _sqlclimb(author: ServiceProcess, *words: str, answers: str = "", code: int = 0) -> str:
    environment = {"SQLCLIMB_AUTHOR_URL": author.url, "SQLCLIMB_TOKEN": author.token("author")}
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", *words],
        env=os.environ | environment,
        input=answers,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, (words, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


needs_given = pytest.mark.skipif(not DATA.exists(), reason=f"{DATA} is absent: it holds the given databases and tasks")


@pytest.mark.slow
def test_a_check_names_the_tasks_that_a_changed_schema_breaks(workplace: Workplace, tmp_path: Path) -> None:
    author, shop = workplace.author, workplace.bundles / "shop"
    italians = "Which suppliers come from Italy? Names only, please."
    rows = [
        {"question": italians, "sql": "SELECT supplier_name FROM suppliers WHERE origin = 'Italy'"},
        {
            "question": "How many customers live in Spain?",
            "sql": "SELECT count(*) FROM customers WHERE country = 'Spain'",
        },
    ]
    file = tmp_path / "own.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    _sqlclimb(author, "tasks", "import", str(file), "--domain", "shop")
    whole: TaskCheck = call(author, lambda client: client.check("shop"))
    assert (whole.tasks, whole.broken) == (2, [])
    for part in [shop / "schema.sql", shop / "seed.sql", *shop.glob("variants/*.sql")]:
        part.write_text(part.read_text().replace("origin", "homeland"))
    found: TaskCheck = call(author, lambda client: client.check("shop"))
    assert found.authored_digest == whole.current_digest != found.current_digest
    assert [(one.question, one.reason) for one in found.broken] == [(italians, "error")]


@needs_given
def test_published_tasks_come_in_are_looked_at_and_go_out_again(author: ServiceProcess, tmp_path: Path) -> None:
    rejected = tmp_path / "rejected.jsonl"
    printed = _sqlclimb(
        *(author, "tasks", "import", str(RECIPE_FILE), "--domain", "shop-recipe", "--split", "id-hash"),
        *("--rejected", str(rejected)),
    )
    assert "kept 10 tasks over 10 golds of 12 rows" in printed
    lines = [json.loads(line) for line in rejected.read_text().splitlines()]
    assert {(line["row"], line["reason"]) for line in lines} == {(6, "literal_key"), (11, "extra_column")}
    assert "SELECT" not in printed + rejected.read_text()

    waiting = _sqlclimb(author, "tasks", "review", "shop-recipe", "--show")
    assert "2 questions wait" in waiting
    assert "category_id = 4" in waiting
    by_reason = {line["reason"]: line["task_id"] for line in lines}
    ruled = (
        "SELECT round(avg(unit_price), 2) FROM products p JOIN categories c USING (category_id) WHERE c.name = 'Audio'"
    )
    edited = _sqlclimb(author, "tasks", "review", "shop-recipe", "--edit", by_reason["literal_key"], "--gold", ruled)
    assert "edit stored" in edited
    assert "edit not stored: error" in _sqlclimb(
        *(author, "tasks", "review", "shop-recipe", "--edit", by_reason["extra_column"]),
        *("--gold", "SELECT nothing FROM products"),
        code=1,
    )
    asked = _sqlclimb(author, "tasks", "review", "shop-recipe", "--by", "ada", answers="r\n")
    assert "1 decisions" in asked
    assert "0 questions wait" in _sqlclimb(author, "tasks", "review", "shop-recipe", "--show")

    out = tmp_path / "out.jsonl"
    _sqlclimb(author, "tasks", "export", "shop-recipe", "--to", str(out), "--format", "recipe", "--with-privileged")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    given = {row["id"]: row for row in map(json.loads, RECIPE_FILE.read_text().splitlines())}
    assert len(rows) == 11
    assert set(rows[0]) == set(given[rows[0]["id"]])
    assert all(row["_split"] == given[row["id"]]["_split"] == split_of(row["id"]) for row in rows)
    assert _sqlclimb(author, "tasks", "list", "shop-recipe", "--limit", "3").count("t2s_") == 3
    assert "exists" in _fault(author, "tasks", "export", "shop-recipe", "--to", str(out))


@needs_given
def test_golds_of_the_clock_with_ties_or_beyond_reading_are_rejected_with_their_rows(author: ServiceProcess) -> None:
    printed = _sqlclimb(author, "tasks", "import", str(DEFOG_FILE), "--domain", "derm_treatment")
    table = {line.split()[0]: line for line in printed.splitlines() if line.startswith(" ") and len(line.split()) > 2}
    assert table["clock_or_random"].split()[1] == "7"
    assert table["tie_cut"].split()[1] == "1"
    assert table["tie_cut"].split()[-1] == "162"
    assert table["question_length"].split()[1] == "5"
    assert "kept 18 tasks" in printed
    assert "--database" in _fault(author, "tasks", "import", str(DEFOG_FILE), "--domain", "shop-recipe")


def _fault(author: ServiceProcess, *words: str) -> str:
    """What a command that is refused says."""
    environment = {"SQLCLIMB_AUTHOR_URL": author.url, "SQLCLIMB_TOKEN": author.token("author")}
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", *words],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    return done.stderr
