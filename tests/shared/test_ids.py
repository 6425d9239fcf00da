import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.contracts.tasks import Split
from shared.ids import fold_of, gold_key, parse_policy, parse_served_name, served_name, split_of, task_id


def test_task_id_follows_the_published_formula() -> None:
    question = (
        "  Which customers have never placed a single order? Give me their customer id, first name, and last name. "
    )
    assert task_id(question) == "t2s_ec9787528ffc"


def test_split_is_the_first_32_bits_of_the_hash_against_a_fifth() -> None:
    for key in ("SELECT 1", "SELECT 2", "SELECT a FROM b"):
        position = int(hashlib.sha256(key.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF
        assert (split_of(key) == Split.HOLDOUT) == (position < 0.2)


def test_a_fifth_of_the_keys_is_held_out_and_folds_halve_both_sides() -> None:
    keys = [f"SELECT {number}" for number in range(20_000)]
    holdout = [key for key in keys if split_of(key) == Split.HOLDOUT]
    assert 0.19 < len(holdout) / len(keys) < 0.21
    assert 0.48 < sum(fold_of(gold_key(key)) for key in holdout) / len(holdout) < 0.52


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,30}", fullmatch=True), st.integers(0, 10**6))
def test_served_names_read_back(run_id: str, step: int) -> None:
    digest = hashlib.sha256(run_id.encode()).hexdigest()
    parsed = parse_served_name(served_name(run_id, step, digest))
    assert (parsed.run_id, parsed.step, parsed.digest8) == (run_id, step, digest[:8])


@pytest.mark.parametrize("name", ["base", "run-s3", "run-s3-xyz", "-s3-01234567", "run-3-01234567"])
def test_other_shapes_are_no_served_names(name: str) -> None:
    with pytest.raises(ValueError, match="no served adapter name"):
        parse_served_name(name)


def test_policies_are_base_or_run_at_step() -> None:
    assert parse_policy("base") is None
    found = parse_policy("night-1@40")
    assert found is not None
    assert (found.run_id, found.step) == ("night-1", 40)
    for wrong in ("night-1", "@4", "run@", "run@x"):
        with pytest.raises(ValueError, match="expected `base` or"):
            parse_policy(wrong)
