"""Rollout and author as a supervised run sees them, over real HTTP: a finished sampling's rows, tasks with golds."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from cli.stack.home import free_ports
from services.trainer.small_policy.examples import prompt_ids, reply_ids
from shared.auth import Scope, TokenFile, require
from shared.contracts.rollout import (
    Message,
    Progress,
    Regime,
    Row,
    Sampling,
    SamplingParameters,
    SamplingRequest,
    SamplingState,
)
from shared.contracts.tasks import Archetype, Difficulty, Privileged, PrivilegedTask, Provenance, Split, Task, TaskSet
from shared.contracts.verifier import FinishReason, Status
from shared.errors import NotFound
from shared.web import Scopes, create_app, needs
from tests.serving import served
from tests.trainer.sampling import load_tokenizer

SAMPLING = "base-train"
TASKS = 10
K = 2
QUESTION_ONLY = Regime(prompt="question")


def question(number: int) -> str:
    return f"how many orders for t{number}"


def gold(number: int) -> str:
    """Long enough that nobody says it by chance."""
    return "select count from orders " + "where total and price " * (number % 4 + 1) + f"order by t{number}"


def task(number: int, split: Split = Split.TRAIN) -> PrivilegedTask:
    provenance = Provenance(
        teacher="grammar", authoring_id="a", domain="shop", domain_digest="d", gold_key="k", fold=number % 2
    )
    return PrivilegedTask(
        id=f"t{number}",
        question=question(number),
        archetype=Archetype.FILTER,
        difficulty=Difficulty.EASY,
        style="terse",
        order_matters=False,
        split=split,
        provenance=provenance,
        privileged=Privileged(reference=[gold(number), "select another"]),
    )


def row(tokenizer: Any, number: int, index: int, status: Status = Status.MATCH, **changes: Any) -> Row:
    """A right reply of the policy, with the ids that its engine saw and drew; `changes` make it another."""
    messages = [Message(role="user", content=question(number))]
    reply = f"select {index} from t{number}"
    fields: dict[str, Any] = {
        "row_id": number * 100 + index,
        "sampling_id": SAMPLING,
        "task_id": f"t{number}",
        "sample_index": index,
        "messages": messages,
        "prompt_hash": "h",
        "reply": reply,
        "prompt_token_ids": prompt_ids(tokenizer, messages),
        "token_ids": reply_ids(tokenizer, reply),
        "logprobs": [],
        "finish_reason": FinishReason.STOP,
        "sample_ms": 1.0,
        "verify_ms": 1.0,
        "status": status,
        "reward": None if status is Status.UNSCORABLE else float(status is Status.MATCH),
        "sql": reply,
        "reason": "",
        "served_model": "tiny",
        "adapter_digest": "base",
        "landed_at": datetime.now(UTC),
        "split": Split.TRAIN,
    }
    return Row(**fields | changes)


def sampling(request: SamplingRequest | None = None, **changes: Any) -> Sampling:
    """The finished sampling of the train split."""
    parameters = SamplingParameters(k=K)
    asked = request or SamplingRequest(
        sampling_id=SAMPLING, domain="shop", regime=QUESTION_ONLY, parameters=parameters, split=Split.TRAIN
    )
    wanted = TASKS * K
    progress = Progress(
        wanted=wanted, landed=wanted, rerolled=0, lost={}, rows_per_second=0, tokens_per_second=0, eta_seconds=None
    )
    fields: dict[str, Any] = {
        "sampling_id": asked.sampling_id,
        "request": asked,
        "state": SamplingState.DONE,
        "progress": progress,
        "policy_name": "tiny",
        "adapter_digest": "base",
        "task_set_digest": "",
        "prompt_hash": "",
        "created_at": datetime.now(UTC),
    }
    return Sampling(**fields | changes)


class Sources:
    """What the server answers, and what it was asked to measure."""

    def __init__(self, model: Path) -> None:
        self.tokenizer = load_tokenizer(model)
        self.sampling = sampling()
        self.rows = [row(self.tokenizer, number, index) for number in range(TASKS) for index in range(K)]
        self.tasks = [task(number) for number in range(TASKS)]
        self.measured: list[SamplingRequest] = []
        self.url = f"http://127.0.0.1:{free_ports(1)[0]}"


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield


def _app(sources: Sources, tokens: Path) -> FastAPI:
    app = create_app("sources", TokenFile(tokens), _lifespan, {}, dict)

    @app.get("/v1/samplings/{sampling_id}", dependencies=[needs(Scope.SAMPLE)])
    def one(sampling_id: str) -> Sampling:
        if sampling_id != SAMPLING:
            raise NotFound(f"there is no sampling {sampling_id!r}")
        return sources.sampling

    @app.get("/v1/samplings/{sampling_id}/rows", dependencies=[needs(Scope.SAMPLE)])
    def rows(sampling_id: str) -> StreamingResponse:
        return StreamingResponse(found.model_dump_json() + "\n" for found in sources.rows)

    @app.post("/v1/samplings", dependencies=[needs(Scope.SAMPLE)])
    def measure(request: SamplingRequest) -> Sampling:
        sources.measured.append(request)
        return sampling(request, state=SamplingState.RUNNING)

    @app.get("/v1/domains/{domain}/tasks", response_model=TaskSet)
    def tasks(domain: str, scopes: Scopes, split: Split | None = None, privileged: bool = False) -> TaskSet:
        require(scopes, Scope.GOLD if privileged or Scope.GOLD in scopes else Scope.SAMPLE)
        chosen: list[PrivilegedTask | Task] = [found for found in sources.tasks if split in (None, found.split)]
        return TaskSet(domain=domain, digest="d", tasks=chosen)

    return app


@contextlib.contextmanager
def serving_sources(model: Path, tokens: Path) -> Iterator[Sources]:
    """Sources on a free port, in a thread."""
    sources = Sources(model)
    with served(_app(sources, tokens), int(sources.url.rpartition(":")[2])):
        yield sources
