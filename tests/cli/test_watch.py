from cli.stack.supervisor import Supervised
from cli.stack.watch import changes

RUNNING = {"engine": Supervised(7, "RUNNING"), "author": Supervised(8, "RUNNING")}


def test_nothing_is_said_while_every_process_is_the_same() -> None:
    assert changes(RUNNING, RUNNING) == []


def test_a_part_that_ended_is_named_whether_or_not_it_is_up_again() -> None:
    assert changes(RUNNING, RUNNING | {"engine": Supervised(0, "BACKOFF")}) == [
        "engine (process 7) ended: the supervisor starts it again"
    ]
    assert changes(RUNNING, RUNNING | {"engine": Supervised(9, "STARTING")}) == [
        "engine (process 7) ended and was started again as process 9"
    ]


def test_a_part_that_is_given_up_is_said_once() -> None:
    given_up = RUNNING | {"engine": Supervised(0, "FATAL")}
    assert changes(RUNNING, given_up) == ["engine does not start again: see engine.log"]
    assert changes(given_up, given_up) == []


def test_a_supervisor_that_is_gone_is_said() -> None:
    assert "run the same command again" in changes(RUNNING, {})[0]
    assert changes({}, {}) == []
