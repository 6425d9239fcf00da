"""A step's samples over real HTTP: refills, pauses, and what an attempt that resumes draws again."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.trainer.failures import RunFailed
from services.trainer.job import drawing
from services.trainer.job.drawing import Ahead, Drawer
from services.trainer.job.publisher import BASE, Policy
from services.trainer.job.remote import Remote
from services.trainer.job.replies import teaches
from services.trainer.job.schedule import Place
from services.trainer.settings import JobSettings
from shared.contracts.run_config import GuardAction, GuardName
from shared.contracts.trainer import EventKind
from tests.models import make_model
from tests.trainer.peer_app import serving
from tests.trainer.peers import BAND_TASKS, Peers
from tests.trainer.test_learner import PROMPTS, K, run_config

Made = Callable[..., Drawer]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    torch.set_num_threads(1)
    return make_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def peers(model: Path, tokens: Path) -> Iterator[Peers]:
    with serving(model, tokens) as peers:
        yield peers


@pytest.fixture
def told() -> list[tuple[EventKind, str]]:
    return []


@pytest.fixture
def served() -> list[Policy]:
    """Policies that were to be served again."""
    return []


@pytest.fixture
def drawer(
    peers: Peers,
    tokens: Path,
    tmp_path: Path,
    told: list[tuple[EventKind, str]],
    served: list[Policy],
    monkeypatch: pytest.MonkeyPatch,
) -> Made:
    monkeypatch.setattr(drawing, "PAUSE_SECONDS", 0.01)
    settings = JobSettings(
        db="postgresql://nobody@127.0.0.1:1/none",
        artifacts=tmp_path.as_uri(),
        checkpoints=tmp_path,
        rollout_url=peers.url,
        inference_url=peers.url,
        tokens_file=tokens,
    )

    def make(attempt: int = 1, **changes: object) -> Drawer:
        config = run_config(peers.model, **changes)
        tell: drawing.Tell = lambda kind, message: told.append((kind, message))  # noqa: E731
        return Drawer(Remote(settings), config, "night", attempt, BAND_TASKS, tell, served.append)

    return make


def test_groups_that_teach_nothing_give_way_until_the_batch_is_full(peers: Peers, drawer: Made) -> None:
    peers.script.equal_tasks = set(BAND_TASKS[::3])
    drawn = drawer(refills=9).draw(1, BASE, Place())
    assert len(drawn.chosen) == PROMPTS and all(teaches(drawn.groups[task]) for task in drawn.chosen)
    assert drawn.refilled and not set(drawn.chosen) & peers.script.equal_tasks
    assert set(drawn.learnt) == set(drawn.chosen), "what gave way does not reach the learner"
    assert len(set(drawn.asked)) == len(drawn.asked) == PROMPTS + drawn.refilled
    rounds = [request.task_ids for request in peers.requests]
    assert [request.refill for request in peers.requests] == list(range(len(rounds))), "each refill once"
    assert list(itertools.chain(*rounds)) == drawn.asked


def test_a_band_that_is_used_up_fills_the_batch_with_what_there_is(peers: Peers, drawer: Made) -> None:
    peers.script.equal_tasks = set(BAND_TASKS)
    drawn = drawer(refills=9).draw(1, BASE, Place())
    assert sorted(drawn.asked) == sorted(BAND_TASKS) and len(drawn.chosen) == PROMPTS


def test_without_refills_groups_stay(peers: Peers, drawer: Made) -> None:
    peers.script.equal_tasks = set(BAND_TASKS)
    drawn = drawer(refills=0).draw(1, BASE, Place())
    assert drawn.chosen == drawn.asked and drawn.refilled == 0 and len(peers.requests) == 1


def test_a_policy_that_lost_its_slot_is_served_again_and_its_batch_asked_for_again(
    peers: Peers, drawer: Made, served: list[Policy]
) -> None:
    peers.script.unserved = 1
    assert drawer().draw(1, BASE, Place()).groups and served == [BASE]
    peers.script.unserved = 2
    with pytest.raises(RunFailed, match=r"rollout refused: .*lost its slot"):
        drawer().draw(2, BASE, Place())


def test_an_attempt_that_resumes_draws_the_same_and_goes_on_behind_it(peers: Peers, drawer: Made) -> None:
    peers.script.equal_tasks = {"t1", "t4"}
    first = drawer()
    one = first.draw(1, BASE, Place())
    two = first.draw(2, BASE, one.place)
    before = dict(peers.batches)
    again = drawer(attempt=2).draw(2, BASE, one.place)
    assert peers.batches == before, "nothing is drawn twice"
    assert (again.asked, again.chosen, again.groups, again.place) == (two.asked, two.chosen, two.groups, two.place)


def test_a_step_ahead_is_the_step_itself_and_its_failure_is_raised_where_it_is_taken(
    peers: Peers, drawer: Made
) -> None:
    ahead = Ahead(drawer())
    one = ahead.take(1, BASE, Place())
    ahead.begin(2, BASE, one.place)
    assert ahead.take(2, BASE, one.place).asked == drawer().draw(2, BASE, one.place).asked
    peers.script.other_policy = True
    ahead.begin(3, BASE, one.place)
    peers.batches.clear()
    with pytest.raises(RunFailed, match="drawn by someone-else"):
        ahead.take(3, BASE, one.place)


def test_samples_that_the_infrastructure_lost_pause_the_run_until_it_is_back(
    peers: Peers, drawer: Made, told: list[tuple[EventKind, str]]
) -> None:
    peers.script.lose_calls = 2
    drawn = drawer(refills=0).draw(1, BASE, Place())
    assert all(sample.reward is not None for group in drawn.groups.values() for sample in group.samples)
    assert [kind for kind, _ in told] == [EventKind.PAUSED, EventKind.RESUMED]
    assert "100% of 16 samples are unscorable (engine_unreachable 16)" in told[0][1]
    assert len(peers.requests) == 3, "the same batch again"


def test_a_pause_ends_and_says_what_was_kept(peers: Peers, drawer: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "PATIENCE_SECONDS", 0.05)
    peers.script.lose_calls = 1000
    with pytest.raises(RunFailed, match=r"100% .* unscorable.*Steps before this one are kept"):
        drawer().draw(1, BASE, Place())


@pytest.mark.parametrize("action", [GuardAction.WARN, GuardAction.OFF])
def test_told_not_to_stop_it_learns_from_what_is_there(peers: Peers, drawer: Made, action: GuardAction) -> None:
    peers.script.lose = {(1, index) for index in range(K - 2)}
    drawn = drawer(refills=0, guards={GuardName.UNSCORABLE: action}).draw(1, BASE, Place())
    assert drawn.lost == {"engine_unreachable": (K - 2) * PROMPTS}
    peers.script.lose_calls = 1
    with pytest.raises(RunFailed, match="100%"):  # nothing to learn from
        drawer(refills=0, guards={GuardName.UNSCORABLE: action}).draw(2, BASE, drawn.place)
