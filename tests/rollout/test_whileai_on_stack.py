"""whileai's own `simulate` and `run_judge` against the whole stack: its verdicts are those of our own sampling."""

import pytest

from cli.stack.home import StackHome
from shared.clients.author import AuthorClient
from shared.clients.inference import InferenceClient
from shared.clients.rollout import RolloutClient
from shared.contracts.tasks import PrivilegedTask, Split
from tests.rollout.whileai_agreement import TASKS, Services, verdicts_agree
from tests.stack import StackHandle

pytestmark = pytest.mark.slow


async def test_whileai_judges_the_small_policy_as_our_own_sampling_does(stack: StackHandle) -> None:
    admin = stack.token("admin")
    async with AuthorClient(stack.urls["author"], admin) as author:
        found = (await author.tasks(stack.domain, Split.HOLDOUT, privileged=True)).tasks[:TASKS]
    async with InferenceClient(stack.urls["inference"], admin) as inference:
        base = (await inference.adapters()).base
    state = StackHome(stack.home).load()
    assert state is not None
    assert state.model is not None
    services = Services(
        gateway=stack.urls["inference"],
        verifier=stack.urls["verifier"],
        gateway_token=admin,
        verifier_token=admin,
        model=base,
        regime=state.model.regime,
    )
    tasks = [task for task in found if isinstance(task, PrivilegedTask)]
    async with RolloutClient(stack.urls["rollout"], admin) as client:
        statuses = await verdicts_agree(services, tasks, client)
    assert len(statuses) > 1  # the small policy is right and wrong
