"""A step's refills: each exactly once, replayed as the step's own batch, gone with the rows they followed from."""

from services.rollout.samplings.records import batch_sampling_id
from tests.rollout.conftest import Coordinator
from tests.rollout.scripted import Script
from tests.rollout.test_batches import DIGEST, K, batch, groups_and_end, published, train_ids

__all__ = ["published", "train_ids"]  # fixtures


async def test_a_refill_is_a_batch_of_its_own_and_replayed_as_one(
    coordinator: Coordinator, train_ids: list[str], script: Script
) -> None:
    own, more = batch(train_ids[:4]), batch(train_ids[4:], refill=1)
    async with coordinator.client() as client:
        await groups_and_end(client, own)
        groups, end = await groups_and_end(client, more)
        assert {group.task_id for group in groups} == set(train_ids[4:])
        assert end.replayed_rows == 0
        again = more.model_copy(update={"attempt": 2})
        assert (await groups_and_end(client, again))[1].replayed_rows == 2 * K
        assert (await groups_and_end(client, own.model_copy(update={"attempt": 2})))[1].replayed_rows == 4 * K


async def test_a_step_that_starts_afresh_drops_the_refills_that_followed_from_its_rows(
    coordinator: Coordinator, train_ids: list[str], script: Script
) -> None:
    other = "b" * 64
    own, more = batch(train_ids[:4]), batch(train_ids[4:], refill=1)
    async with coordinator.client() as client:
        await groups_and_end(client, own)
        await groups_and_end(client, more)
        script.publish("night", 3, other)
        afresh = {"attempt": 2, "adapter_digest": other}
        assert other != DIGEST
        assert (await groups_and_end(client, own.model_copy(update=afresh)))[1].replayed_rows == 0
        assert (await groups_and_end(client, more.model_copy(update=afresh)))[1].replayed_rows == 0


def test_a_refills_id_still_names_the_run_whose_sandbox_it_uses() -> None:
    assert batch_sampling_id("a.b-1", 7) == "batch.a.b-1.7"
    assert batch_sampling_id("a.b-1", 7, 2).removeprefix("batch.").rpartition(".")[0] == "a.b-1"
