from services.rollout.measuring.scan import Rewarded, scan

GOLD_KEYS = {"a": "1", "b": "2", "c": "3", "a-again": "1"}


def kinds(*rows: Rewarded) -> list[tuple[int, str]]:
    return [(found.row_id, found.kind) for found in scan(rows, GOLD_KEYS)]


def test_an_ordinary_answer_is_not_found() -> None:
    assert kinds(Rewarded(1, "a", "SELECT name FROM customers -- random()\nWHERE note = 'now() pg_class'")) == []


def test_a_constant_is_found_also_behind_the_word_from_in_a_string() -> None:
    assert kinds(Rewarded(1, "a", "SELECT 'from', 7")) == [(1, "no_table")]
    assert kinds(Rewarded(2, "a", "VALUES (1), (2)")) == [(2, "no_table")]


def test_what_changes_from_run_to_run_and_what_reads_the_catalog_are_found() -> None:
    assert kinds(Rewarded(1, "a", "SELECT id FROM t WHERE random () < 2")) == [(1, "volatile")]
    assert kinds(Rewarded(2, "a", "SELECT id FROM t WHERE day < current_date")) == [(2, "volatile")]
    assert kinds(Rewarded(3, "a", "SELECT relname FROM pg_catalog.pg_class")) == [(3, "catalog")]


def test_one_statement_for_many_golds_is_found_and_for_phrasings_of_one_is_not() -> None:
    same = "SELECT count(*) FROM orders"
    phrasings = [
        Rewarded(1, "a", same),
        Rewarded(2, "a-again", same + ";"),
        Rewarded(3, "b", "select  COUNT(*) from orders"),
    ]
    assert kinds(*phrasings) == []
    assert kinds(*phrasings, Rewarded(4, "c", same)) == [(row, "one_for_many") for row in (1, 2, 3, 4)]
