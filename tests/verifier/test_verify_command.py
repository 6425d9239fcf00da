"""`sqlclimb verify` against a real verifier: inputs, outputs, faults that name their line, exit codes."""

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from tests.verifier.conftest import VerifierProcess
from tests.verifier.store import FEWER, GOLD, MAIN, SCHEMA

WRONG = "SELECT name, 30 FROM author WHERE id < 3"


@dataclass(frozen=True)
class Done:
    code: object
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Command = Callable[..., Done]


@pytest.fixture
def bundle(tmp_path: Path) -> str:
    folder = tmp_path / "bookstore"
    (folder / "variants").mkdir(parents=True)
    (folder / "domain.toml").write_text('name = "bookstore"\nstatement_timeout_seconds = 2.0\n')
    (folder / "schema.sql").write_text(SCHEMA)
    (folder / "seed.sql").write_text(MAIN)
    (folder / "variants" / "fewer.sql").write_text(FEWER)
    return str(folder)


@pytest.fixture
def verify(
    verifier: VerifierProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    monkeypatch.setenv("SQLCLIMB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SQLCLIMB_VERIFIER_URL", verifier.url)
    monkeypatch.setenv("SQLCLIMB_TOKEN", verifier.token())

    def run(*arguments: str, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "argv", ["sqlclimb", "verify", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Done(ended.value.code, said.out, said.err)

    return run


def jsonl(*items: object) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def test_one_reply_or_statement_is_a_table_of_one(verify: Command, bundle: str) -> None:
    matched = verify("--bundle", bundle, "--sql", GOLD, "--gold", GOLD)
    assert matched.code == 0
    assert "match   1.0     2     2          same result as the gold on 2 seed(s)" in matched.out
    assert "1 of 1 match" in matched.out
    wrong = verify("--bundle", bundle, "--reply", f"Sure:\n```sql\n{WRONG}\n```", "--gold", "SELECT 1", "--gold", GOLD)
    assert wrong.code == 0
    assert "0 of 1 match; mismatch 1" in wrong.out
    assert verify("--bundle", bundle, "--sql", WRONG, "--gold", GOLD, "--check").code == 1


def test_a_domain_by_name_and_a_profile(verify: Command) -> None:
    gold = "SELECT customer_id, customer_name FROM customers"
    swapped = "SELECT customer_name, customer_id FROM customers"
    arguments = ("--domain", "shop", "--sql", swapped + " LIMIT 5", "--gold", gold + " LIMIT 5", "--json")
    assert verify(*arguments).objects[0]["status"] == "match"
    assert verify(*arguments, "--profile", "strict").objects[0]["status"] == "mismatch"


def test_a_file_and_standard_input_give_a_line_an_item_in_order(verify: Command, bundle: str, tmp_path: Path) -> None:
    items = [
        {"item_id": "a", "sql": GOLD, "gold": GOLD},
        {"reply": "I cannot.", "gold": GOLD},
        {"sql": WRONG, "gold": [GOLD, "SELECT 2"], "order_matters": False},
    ]
    content = b"\n" + jsonl(*items)
    file = tmp_path / "replies.jsonl"
    file.write_bytes(content)
    from_file = verify(str(file), "--bundle", bundle, "--json")
    assert from_file.code == 0
    assert [(found["line"], found["item_id"], found["status"]) for found in from_file.objects] == [
        (2, "a", "match"),
        (3, None, "no_sql"),
        (4, None, "mismatch"),
    ]
    assert from_file.err == "1 of 3 match; no_sql 1, mismatch 1\n"
    times = {"exec_ms"}
    piped = verify("-", "--bundle", bundle, "--json", stdin=content)
    assert [{k: v for k, v in found.items() if k not in times} for found in piped.objects] == [
        {k: v for k, v in found.items() if k not in times} for found in from_file.objects
    ]


def test_a_bad_line_names_itself_and_costs_no_other_its_verdict(verify: Command, bundle: str, tmp_path: Path) -> None:
    file = tmp_path / "replies.jsonl"
    good = jsonl({"item_id": "good", "sql": GOLD, "gold": GOLD})
    file.write_bytes(
        good
        + b"not json\n"
        + jsonl({"sql": GOLD}, {"sql": GOLD, "gold": GOLD, "golds": 1}, {"gold": GOLD}, 7)
        + b'{"sql": "\xff", "gold": "x"}\n'
        + b"[" * 100_000
        + b"\n"
        + good
        + jsonl({"item_id": "nul", "sql": "SELECT '\x00'", "gold": GOLD})
        + b'{"item_id": "\\ud800", "reply": "\\udfff", "gold": "SELECT 1"}\n'
    )
    done = verify(str(file), "--bundle", bundle, "--json")
    assert done.code == 2
    assert [(found["line"], found["status"]) for found in done.objects] == [
        (1, "match"),
        (10, "refused"),
        (11, "no_sql"),
    ]
    told = done.err.splitlines()
    assert told[0] == f"{file}:2: is no JSON: Expecting value at column 1"
    assert told[1] == f"{file}:3: gold: Field required"
    assert told[2] == f"{file}:4: golds: Extra inputs are not permitted"
    assert "exactly one of `reply` and `sql`" in told[3] and told[3].startswith(f"{file}:5: ")
    assert told[4].startswith(f"{file}:6: ")
    assert told[5] == f"{file}:7: is not UTF-8: byte 0xff at column 10"
    assert told[6].startswith(f"{file}:8: is no JSON that can be read")
    assert told[7] == f"{file}:9: item_id: 'good' stands on line 1 already"
    assert told[8] == "1 of 3 match; refused 1, no_sql 1; 8 faulty lines"


def test_unscorable_items_are_a_failure(verify: Command, bundle: str) -> None:
    done = verify("-", "--bundle", bundle, stdin=jsonl({"sql": GOLD, "gold": "SELECT no_such FROM author"}))
    assert done.code == 1
    assert "unscorable  null" in done.out
    assert "no_such" not in done.out


def test_explain_shows_the_first_difference_and_both_results(verify: Command, bundle: str) -> None:
    done = verify("--bundle", bundle, "--sql", WRONG, "--gold", GOLD, "--explain")
    assert "seed fewer" in done.out
    assert done.out.count("Ada") >= 2
    as_json = verify("--bundle", bundle, "--sql", WRONG, "--gold", GOLD, "--explain", "--json").objects[0]
    assert as_json["explanation"]["gold"]["rows"] == [["Ada", "7.00"]]
    brackets = verify("--bundle", bundle, "--sql", "SELECT '[/b]' FROM author", "--gold", GOLD, "--explain")
    assert "[/b]" in brackets.out


@pytest.mark.parametrize(
    "arguments, says",
    [
        ((), "give FILE (or `-`), or --gold and one of --reply and --sql"),
        (("--sql", "SELECT 1", "--gold", "SELECT 1"), "give exactly one of --domain NAME and --bundle FOLDER"),
        (("-", "--domain", "a", "--bundle", "b"), "give exactly one of --domain NAME and --bundle FOLDER"),
        (("shop", "--domain", "shop"), "shop is no file (a domain is named by --domain)"),
        (("-", "--domain", "shop", "--gold", "SELECT 1"), "leave out --reply, --sql and --gold"),
        (("-", "--domain", "atlantis"), "no domain 'atlantis'"),
        (("-", "--bundle", "/nowhere"), "domain.toml is missing"),
        (("-", "--domain", "shop", "--profile", "lenient"), "'lenient' is not one of"),
    ],
)
def test_bad_options_exit_2_and_say_what_to_give(verify: Command, arguments: tuple[str, ...], says: str) -> None:
    done = verify(*arguments)
    assert done.code == 2
    assert says in done.err


def test_more_items_than_a_call_takes_keep_their_order(verify: Command, bundle: str) -> None:
    items = [
        {"item_id": str(n), "sql": f"SELECT {n} FROM author", "gold": "SELECT 700 FROM author"} for n in range(1200)
    ]
    done = verify("-", "--bundle", bundle, "--json", stdin=jsonl(*items))
    assert [found["item_id"] for found in done.objects] == [str(n) for n in range(1200)]
    assert [found["line"] for found in done.objects if found["status"] == "match"] == [701]
