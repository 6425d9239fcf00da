"""The 168 given golds and the recipe's twelve match themselves and no constant. No exceptions."""

import pytest

from shared.clients.verifier import VerifierClient
from shared.contracts.verifier import SandboxRequest, Status, VerifyItem, VerifyRequest
from tests.verifier.reference import (
    defog_bundle,
    defog_golds,
    needs_reference_data,
    recipe_bundle,
    recipe_golds,
)

DATABASES = {"academic": 25, "broker": 31, "car_dealership": 31, "derm_treatment": 31, "geography": 25, "scholar": 25}

pytestmark = needs_reference_data


async def match_themselves(client: VerifierClient, sandbox_id: str, golds: list[str]) -> None:
    items = [VerifyItem(reply=f"```sql\n{gold}\n```", gold=gold) for gold in golds]
    verdicts = (await client.verify(sandbox_id, VerifyRequest(items=items))).verdicts
    assert [(v.sql, v.status, v.reason) for v in verdicts if v.status is not Status.MATCH] == []
    constants = ["SELECT -98765.4321", "SELECT NULL", "SELECT 1 WHERE false"]
    items = [VerifyItem(sql=sql, gold=gold) for gold in golds for sql in constants]
    verdicts = (await client.verify(sandbox_id, VerifyRequest(items=items))).verdicts
    assert [(v.sql, v.status) for v in verdicts if v.status is not Status.MISMATCH or v.reward != 0.0] == []


@pytest.mark.parametrize("name, count", DATABASES.items())
async def test_defog_golds_match_themselves_and_no_constant(client: VerifierClient, name: str, count: int) -> None:
    golds = defog_golds()[name]
    assert len(golds) == count
    await client.create_sandbox(SandboxRequest(sandbox_id=name, run_id="tests", bundle=defog_bundle(name)))
    await match_themselves(client, name, golds)
    await client.delete_sandbox(name)


async def test_recipe_golds_match_themselves_and_no_constant(client: VerifierClient) -> None:
    golds = recipe_golds()
    assert len(golds) == 12
    await client.create_sandbox(SandboxRequest(sandbox_id="recipe", run_id="tests", bundle=recipe_bundle()))
    await match_themselves(client, "recipe", golds)
    await client.delete_sandbox("recipe")
