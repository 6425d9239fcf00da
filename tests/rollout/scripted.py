"""Stand-ins, over real HTTP, of the services around the coordinator, whose faults are scripted by the test.

The engine answers `SELECT <n>`: the gold of every task is `SELECT 1`, and a task's question says how many of its
samples are right. The stand-ins hold no logic of ours: contracts in, contracts out.
"""

import asyncio
import json
import re
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from shared.contracts.base import Problem, Readiness
from shared.contracts.inference import (
    ADAPTER_DIGEST_HEADER,
    SERVED_MODEL_HEADER,
    Adapter,
    AdapterKind,
    AdapterList,
    AdapterState,
    Pressure,
)
from shared.contracts.tasks import Archetype, Difficulty, Privileged, PrivilegedTask, Provenance, Split, TaskSet
from shared.contracts.verifier import (
    ExplainRequest,
    Explanation,
    ResultPreview,
    Sandbox,
    SandboxRequest,
    Status,
    Verdict,
    VerifyRequest,
    VerifyResponse,
)
from shared.domain import Bundle
from shared.ids import served_name, sha256_hex, task_id

GOLD = "SELECT 1 AS gold_marker"
BASE = "small-base"
BROKEN = "SELECT broken"
FAULTY = "SELECT no_such_column"
ODD_CHARACTERS = "\x85\u2028\x1c\x0b\U0001f600"
"""Line ends to some readers, and a character beyond 16 bits: a model writes anything."""


def make_task(number: int, right: int, split: Split = Split.HOLDOUT, broken: bool = False) -> PrivilegedTask:
    """A task of which the scripted engine answers `right` samples of every group rightly; `broken`: unscorable."""
    question = f"Question {number}{' (broken)' if broken else ''}: {right} right"
    provenance = Provenance(
        teacher="grammar",
        authoring_id="a",
        domain="shop",
        domain_digest="d",
        gold_key=sha256_hex(question)[:16],
        fold=number % 2,
    )
    return PrivilegedTask(
        id=task_id(question),
        question=question,
        archetype=list(Archetype)[number % 10],
        difficulty=list(Difficulty)[number % 3],
        style="terse" if number % 2 else "polite",
        order_matters=False,
        split=split,
        provenance=provenance,
        privileged=Privileged(reference=GOLD),
    )


@dataclass
class Script:
    """What the stand-ins have and do; a test changes it while they run."""

    bundle: Bundle
    tasks: list[PrivilegedTask]
    adapters: list[Adapter] = field(default_factory=list)
    latency_seconds: float = 0.0
    slow: Callable[[str, int], bool] = lambda question, place: False
    """Which replies (question, place in the group) end `slow_seconds` after the others."""
    slow_seconds: float = 0.0
    stream_seconds: float = 0.0
    """From the answer's headers to its first event."""
    engine_faults: deque[int | str] = field(default_factory=deque)
    """Taken one a generation: an HTTP status, `wrong-adapter`, `no-ids`; `abort`, `empty` (so its last reply ends),
    `broken-stream` (cut before its last reply)."""
    busy: set[str] = field(default_factory=set)
    """Questions that are answered 429, for as long as they are here."""
    pressure: Pressure | None = None
    """What `/v1/pressure` says; None: 404, as of a gateway that has none."""
    in_engine: int = 0
    """Generations that have begun and not ended."""
    most_in_engine: int = 0
    engine_up: bool = True
    down_after: int = -1
    """The engine goes away, once, after so many answers."""
    verifier_up: bool = True
    right_at_most: int = 64
    """Right replies of a group, whatever its question says."""
    unscorable: int = 0
    """Verdicts to come that say unscorable."""
    sandboxes: set[str] = field(default_factory=set)
    judged: set[str] = field(default_factory=set)
    """Replies that the verifier was sent."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    """Bodies of the generations answered."""
    entered: int = 0
    """Generations that have begun."""
    hold: threading.Event | None = None
    """While set and not fired, generations wait."""
    held_after: int = 0
    """All but the first so many."""

    def publish(self, run_id: str, step: int, digest: str, state: AdapterState = AdapterState.READY) -> None:
        """An adapter in the registry, newest first."""
        name = served_name(run_id, step, digest)
        adapter = Adapter(
            name=name,
            run_id=run_id,
            step=step,
            uri="file:///x",
            base=BASE,
            digest=digest,
            kind=AdapterKind.TRAINED,
            state=state,
        )
        self.adapters.insert(0, adapter)


def _problem(status: int, detail: str) -> Response:
    body = Problem(title=f"scripted {status}", status=status, detail=detail)
    return JSONResponse(body.model_dump(), status, media_type="application/problem+json")


def _readiness(service: str, up: bool) -> Response:
    body = Readiness(ready=up, service=service, checks={"it": "ok" if up else "down"}, versions={})
    return JSONResponse(body.model_dump(), 200 if up else 503)


def _author(script: Script) -> FastAPI:
    app = FastAPI()

    @app.get("/readyz")
    def readyz() -> Response:
        return _readiness("author", True)

    @app.get("/v1/domains/{domain}/tasks")
    def tasks(domain: str) -> Response:
        if domain != "shop":
            return _problem(404, f"no domain {domain}")
        return JSONResponse(TaskSet(domain=domain, digest="d" * 64, tasks=list(script.tasks)).model_dump(mode="json"))

    return app


def _verifier(script: Script) -> FastAPI:
    app = FastAPI()

    @app.get("/readyz")
    def readyz() -> Response:
        return _readiness("verifier", script.verifier_up)

    @app.post("/v1/sandboxes")
    def create(body: SandboxRequest) -> Response:
        script.sandboxes.add(str(body.sandbox_id))
        sandbox = Sandbox(
            sandbox_id=str(body.sandbox_id),
            run_id=body.run_id,
            domain="shop",
            digest=script.bundle.digest,
            postgres="18",
            isolation="process",
            seeds=["main"],
            ready_ms=1.0,
        )
        return JSONResponse(sandbox.model_dump())

    @app.delete("/v1/sandboxes/{sandbox_id}")
    def delete(sandbox_id: str) -> Response:
        script.sandboxes.discard(sandbox_id)
        return Response(status_code=204)

    @app.post("/v1/sandboxes/{sandbox_id}/verify")
    def verify(sandbox_id: str, body: VerifyRequest) -> Response:
        if not script.verifier_up:
            return _problem(503, "verifier is scripted to be away")
        if sandbox_id not in script.sandboxes:
            return _problem(404, "no such sandbox")
        assert all(item.gold == GOLD for item in body.items)
        script.judged.update(str(item.reply) for item in body.items)
        verdicts = [_verdict(script, str(item.item_id), str(item.reply)) for item in body.items]
        return JSONResponse(VerifyResponse(verdicts=verdicts).model_dump(mode="json"))

    @app.post("/v1/sandboxes/{sandbox_id}/explain")
    def explain(sandbox_id: str, body: ExplainRequest) -> Response:
        assert body.gold == GOLD
        status = Status.MATCH if body.sql == "SELECT 1" else Status.MISMATCH
        result = ResultPreview(columns=["n"], rows=[["1"]], row_count=1)
        found = Explanation(
            status=status,
            difference=f"scripted for {body.sql}",
            gold_index=0,
            seed="main",
            gold=result,
            candidate=result,
        )
        return JSONResponse(found.model_dump(mode="json"))

    return app


def _verdict(script: Script, item_id: str, reply: str) -> Verdict:
    if script.unscorable > 0 or reply == BROKEN:
        script.unscorable -= reply != BROKEN
        return Verdict(item_id=item_id, status=Status.UNSCORABLE, reward=None, sql=None, reason="scripted")
    if reply == FAULTY:
        error = Status.SQL_ERROR
        return Verdict(item_id=item_id, status=error, reward=0.0, sql=reply, reason="scripted", sqlstate="42703")
    if reply == "SELECT 1":
        return Verdict(item_id=item_id, status=Status.MATCH, reward=1.0, sql=reply, reason="equal")
    return Verdict(item_id=item_id, status=Status.MISMATCH, reward=0.1, sql=reply, reason="wrong")


def _inference(script: Script) -> FastAPI:
    app = FastAPI()

    @app.get("/readyz")
    def readyz() -> Response:
        return _readiness("inference", script.engine_up)

    @app.get("/v1/adapters")
    def adapters() -> AdapterList:
        return AdapterList(base=BASE, adapters=script.adapters)

    @app.get("/v1/pressure")
    def pressure() -> Response:
        if script.pressure is None:
            return _problem(404, "scripted to have none")
        return JSONResponse(script.pressure.model_dump(mode="json"))

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        body = await request.json()
        script.entered += 1
        number = script.entered
        await asyncio.sleep(script.latency_seconds)
        if script.hold is not None and number > script.held_after:
            await asyncio.to_thread(script.hold.wait)
        if len(script.asked) == script.down_after:
            script.engine_up, script.down_after = False, -1
        if not script.engine_up:
            return _problem(503, "engine is scripted to be away")
        fault = script.engine_faults.popleft() if script.engine_faults else None
        if isinstance(fault, int):
            return _problem(fault, "scripted fault")
        if body["messages"][-1]["content"] in script.busy:
            return _problem(429, "scripted to be busy")
        script.asked.append(body)
        return _completion(script, body, fault)

    return app


def _reply(question: str, right: bool, index: int) -> str:
    if "broken" in question:
        return BROKEN
    if "faulty" in question:
        return FAULTY
    return "SELECT 1" if right else f"SELECT {index + 2} --\x00{ODD_CHARACTERS}"


def _completion(script: Script, body: dict[str, Any], fault: str | None) -> Response:
    digest = next((a.digest for a in script.adapters if a.name == body["model"]), "base")
    headers = {
        SERVED_MODEL_HEADER: body["model"],
        ADAPTER_DIGEST_HEADER: "f" * 64 if fault == "wrong-adapter" else digest,
    }
    return StreamingResponse(_counted(script, body, fault), media_type="text/event-stream", headers=headers)


async def _counted(script: Script, body: dict[str, Any], fault: str | None) -> AsyncIterator[bytes]:
    script.in_engine += 1
    script.most_in_engine = max(script.most_in_engine, script.in_engine)
    try:
        await asyncio.sleep(script.stream_seconds)
        async for data in _events(script, body, fault):
            yield data
    finally:
        script.in_engine -= 1


async def _events(script: Script, body: dict[str, Any], fault: str | None) -> AsyncIterator[bytes]:
    """As vLLM streams: roles and prompt ids first, then each reply's chunks, at the end `[DONE]`."""

    def event(index: int, delta: dict[str, Any], **more: Any) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None} | more
        chunk = {"id": "x", "model": body["model"], "choices": [choice]}
        if "role" in delta:
            chunk["prompt_token_ids"] = [7, 8, 9]
        return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"

    question = body["messages"][-1]["content"]
    right = min(script.right_at_most, int(re.findall(r"(\d+) right", question)[0]))
    for index in range(body["n"]):
        yield event(index, {"role": "assistant", "content": ""})
    last = body["n"] - 1
    late = [index for index in range(body["n"]) if script.slow(question, index)]
    for index in sorted(range(body["n"]), key=lambda index: index in late):
        if late and index == late[0]:
            await asyncio.sleep(script.slow_seconds)
        if index == last and fault == "broken-stream":
            raise ConnectionError("scripted")
        if index == last and fault == "empty":
            yield event(index, {"content": ""}, finish_reason="stop", token_ids=[])
            continue
        reply, tokens = _reply(question, index < right, index), [1, 2, 3]
        end = "abort" if index == last and fault == "abort" else "stop"
        for place, token in enumerate(tokens):
            yield event(
                index,
                {"content": reply if place == 0 else ""},
                logprobs={"content": [{"token": "t", "logprob": -0.5, "top_logprobs": []}]},
                token_ids=None if fault == "no-ids" else [token],
                finish_reason=end if token == tokens[-1] else None,
            )
    yield b"data: [DONE]\n\n"


def stand_ins(script: Script) -> FastAPI:
    """All three services under `/author`, `/verifier`, `/inference`."""
    app = FastAPI()
    app.mount("/author", _author(script))
    app.mount("/verifier", _verifier(script))
    app.mount("/inference", _inference(script))
    return app
