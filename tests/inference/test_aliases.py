"""Aliases, pins and removals, through the gateway to a real vLLM."""

import asyncio
import os
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from shared.clients.base import ServiceProblem
from shared.contracts.inference import ADAPTER_DIGEST_HEADER, SERVED_MODEL_HEADER, AdapterState, AliasRequest
from shared.contracts.measuring import Delta, DeltaLine, DeltaVerdict, Estimate
from tests.inference.support import SLOTS, Gateway, publication

BODY = {"prompt": [5, 6, 7], "max_tokens": 2, "temperature": 0}


def delta(before: str, after: str, verdict: DeltaVerdict = DeltaVerdict.MOVED) -> Delta:
    """What the rollout service would answer."""
    estimate = Estimate(value=0.1, low=0.05, high=0.15)
    line = DeltaLine(slice="all", metric="pass@1", tasks=100, before=0.5, after=0.6, delta=estimate, p_value=0.001)
    return Delta(
        before=["b"],
        after=["a"],
        before_policy=before,
        after_policy=after,
        verdict=verdict,
        sentence="More reliable.",
        differences=[],
        detectable_effect=0.04,
        lines=[line],
        gained=[],
        lost=[],
    )


async def problem(call: object) -> tuple[int, str]:
    """Status and detail of a call that is refused."""
    with pytest.raises(ServiceProblem) as caught:
        await call  # type: ignore[misc]
    return caught.value.problem.status, caught.value.problem.detail


async def test_alias_moves_to_what_was_measured_and_back_and_keeps_its_adapter(gateway: Gateway) -> None:
    first, request = publication(gateway, gateway.adapter(seed=51), "better", 1)
    second, other = publication(gateway, gateway.adapter(seed=52), "better", 2)
    async with gateway.client("admin") as client, gateway.http() as http, gateway.client() as user:
        await client.publish(first, request)
        await client.publish(second, other)
        moved = AliasRequest(policy="better@1", delta=delta("base", "better@1"))
        assert (await problem(user.move_alias("analyst", moved)))[0] == 403
        alias = await client.move_alias("analyst", moved)
        assert (alias.policy, alias.model, alias.previous) == ("better@1", first, None)
        assert await client.move_alias("analyst", moved) == alias
        answer = await http.post("/v1/completions", json=BODY | {"model": "analyst"})
        assert answer.headers[SERVED_MODEL_HEADER] == first
        assert answer.headers[ADAPTER_DIGEST_HEADER] == request.digest
        same = await http.post("/v1/completions", json=BODY | {"model": first})
        assert answer.json()["choices"][0]["text"] == same.json()["choices"][0]["text"]
        assert "analyst" in [model["id"] for model in (await http.get("/v1/models")).json()["data"]]

        for refused, words in (
            (delta("better@1", "better@2", DeltaVerdict.NO_CHANGE_DETECTED), "has not moved against better@1"),
            (delta("better@1", "better@2", DeltaVerdict.MOVED_UNREPLICATED), "has not moved against better@1"),
            (delta("base", "better@2"), "it must compare those"),
        ):
            status, detail = await problem(client.move_alias("analyst", AliasRequest(policy="better@2", delta=refused)))
            assert (status, words in detail) == (422, True), detail
        for name, policy, status in (("base", "better@2", 409), (first, "better@2", 409), ("new", "other@7", 404)):
            request_ = AliasRequest(policy=policy, delta=delta("base", policy))
            assert (await problem(client.move_alias(name, request_)))[0] == status

        await client.move_alias("analyst", AliasRequest(policy="better@2", delta=delta("better@1", "better@2")))
        answer = await http.post("/v1/completions", json=BODY | {"model": "analyst"})
        assert answer.headers[SERVED_MODEL_HEADER] == second
        status, detail = await problem(client.remove(second))
        assert (status, "named by an alias" in detail) == (409, True)

        for step in range(3, 3 + SLOTS):  # room is made for each, never of the alias's adapter
            name, more = publication(gateway, gateway.adapter(seed=60 + step), "more", step)
            await client.publish(name, more)
        assert (await client.adapter(first)).state is AdapterState.UNLOADED
        assert (await client.adapter(second)).state is AdapterState.READY

        (now,) = (await client.roll_back_alias("analyst")).aliases  # serves it again before it moves
        assert (now.policy, now.model) == ("better@1", first)
        answer = await http.post("/v1/completions", json=BODY | {"model": "analyst"})
        assert answer.headers[SERVED_MODEL_HEADER] == first
        assert (await client.roll_back_alias("analyst")).aliases == []
        assert (await http.post("/v1/completions", json=BODY | {"model": "analyst"})).status_code == 404
        assert (await problem(client.roll_back_alias("analyst")))[0] == 404


@contextmanager
def rollout_that_answers(found: Delta) -> Iterator[str]:
    """A stand-in of the rollout service that measured this delta."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(found.model_dump_json().encode())

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


async def test_promote_shows_the_delta_moves_the_name_and_takes_it_back(gateway: Gateway, tmp_path: Path) -> None:
    name, request = publication(gateway, gateway.adapter(seed=55), "promoted", 3)
    async with gateway.client() as client:
        await client.publish(name, request)
    with rollout_that_answers(delta("base", "promoted@3")) as rollout:
        variables = {
            "SQLCLIMB_HOME": str(tmp_path),
            "SQLCLIMB_INFERENCE_URL": gateway.url,
            "SQLCLIMB_ROLLOUT_URL": rollout,
            "SQLCLIMB_TOKEN": gateway.token("admin"),
        }

        async def sqlclimb(*words: str) -> str:
            argv = [sys.executable, "-m", "cli.main", *words]
            child = await asyncio.create_subprocess_exec(*argv, env=os.environ | variables, stdout=PIPE, stderr=PIPE)
            out, errors = await child.communicate()
            assert child.returncode == 0, errors.decode()
            return out.decode()

        moved = await sqlclimb("promote", "promoted@3", "--alias", "analyst-2")
        assert "+0.100 [+0.050, +0.150]" in moved
        assert f"analyst-2 names promoted@3 ({name}), before it base" in moved
        assert '"model": "analyst-2"' in moved
        assert "names promoted@3 already" in await sqlclimb("promote", "promoted@3", "--alias", "analyst-2")
        assert f"alias analyst-2 -> promoted@3 ({name})" in await sqlclimb("adapters", "list")
        assert "it is gone" in await sqlclimb("promote", "--alias", "analyst-2", "--rollback")


async def test_pinned_adapters_stay_and_leave_a_slot_free(gateway: Gateway) -> None:
    async with gateway.client() as client:
        names = []
        for step in range(1, SLOTS + 1):
            name, request = publication(gateway, gateway.adapter(seed=70 + step), "pinned", step)
            await client.publish(name, request)
            names.append(name)
        for name in names[: SLOTS - 1]:
            assert (await client.pin(name)).pinned
        status, detail = await problem(client.pin(names[-1]))
        assert (status, "no run could publish" in detail) == (409, True)
        assert "is pinned" in (await problem(client.remove(names[0])))[1]
        newest, request = publication(gateway, gateway.adapter(seed=79), "pinned", 9)
        await client.publish(newest, request)
        states = [(await client.adapter(name)).state for name in names]
        assert states == [AdapterState.READY] * (SLOTS - 1) + [AdapterState.UNLOADED]
        assert "not served now" in (await problem(client.pin(names[-1])))[1]
        for name in names[: SLOTS - 1]:
            assert not (await client.pin(name, pinned=False)).pinned
        await client.remove(names[0])
        assert (await problem(client.pin(names[0])))[0] == 404


async def test_removal_lets_requests_end_and_turns_new_ones_away(gateway: Gateway) -> None:
    name, request = publication(gateway, gateway.adapter(seed=81), "leaving")
    body = {"model": name, "prompt": [5, 6, 7], "max_tokens": 1000, "ignore_eos": True, "stream": True}
    async with gateway.client() as client, gateway.http() as http, gateway.client() as other:
        await client.publish(name, request)
        async with http.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.aiter_lines()
            assert (await anext(lines)).startswith("data:")
            removal = asyncio.create_task(client.remove(name))
            while (turned_away := await http.post("/v1/completions", json=BODY | {"model": name})).status_code == 200:
                assert not removal.done()
            assert turned_away.status_code == 409
            assert "being unloaded" in turned_away.json()["detail"]
            assert (await problem(other.remove(name)))[0] == 409
            assert (await problem(other.publish(name, request)))[0] == 409
            assert not removal.done()
            rest = [line async for line in lines]
            assert rest[-1] == "" or rest[-2] == "data: [DONE]"
            assert len([line for line in rest if line.startswith("data: {")]) > 200
        await removal
        assert (await problem(other.adapter(name)))[0] == 404
        assert name not in await gateway.engine_models()
        assert (await other.publish(name, request)).state is AdapterState.READY  # as itself it may come back
