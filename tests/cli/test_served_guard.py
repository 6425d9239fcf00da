"""The `served` guard's arithmetic."""

import pytest

from cli.served_guard import compare


def test_rewards_are_compared_task_by_task() -> None:
    found = compare({"a": [1.0, 0.1], "b": [1.0, 1.0], "c": [1.0]}, {"a": [0.1], "b": [1.0, 0.0], "d": [0.0]})
    assert found.tasks == 2
    assert found.trained == pytest.approx(0.775)
    assert found.served == pytest.approx(0.3)
    assert found.gap == pytest.approx(0.475)
    assert not found.holds


def test_an_adapter_that_earns_as_in_training_or_more_holds() -> None:
    assert compare({"a": [0.5]}, {"a": [0.25]}).holds
    assert compare({"a": [0.1]}, {"a": [1.0]}).holds


def test_nothing_in_common_is_no_pass() -> None:
    with pytest.raises(ValueError, match="no prompt was scored"):
        compare({"a": [1.0], "b": []}, {"b": [1.0], "c": [1.0]})
