"""whileai's own `simulate` and `run_judge` against a real gateway and a real verifier, over an engine that is scripted:
its verdicts are those of our own sampling.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse

from shared.auth import read_token
from shared.contracts.rollout import Regime
from shared.contracts.tasks import Privileged, PrivilegedTask
from shared.contracts.verifier import Status
from shared.ids import task_id
from tests.inference.conftest import started_gateway
from tests.inference.scripted_engine import METRICS
from tests.inference.support import Gateway, Service
from tests.rollout.conftest import Coordinator
from tests.rollout.scripted import Script, make_task
from tests.rollout.whileai_agreement import TASKS, K, Services, verdicts_agree
from tests.serving import served
from tests.verifier.conftest import VerifierProcess, start_verifier, temporary_folder

pytestmark = pytest.mark.slow

COLUMNS = {
    ("orders", "status"): ("pending", "paid", "shipped", "delivered", "cancelled"),
    ("orders", "channel"): ("app", "market", "phone", "web"),
    ("customers", "segment"): ("business", "private", "school"),
    ("customers", "country"): ("Austria", "Belgium", "Denmark", "France", "Germany", "Spain"),
    ("employees", "team"): ("board", "finance", "logistics", "sales", "support"),
}
WANTED = [(table, column, value) for (table, column), values in COLUMNS.items() for value in values][:TASKS]
QUESTIONS = {f"How many {table} have {column} {value}?": (table, column, value) for table, column, value in WANTED}
WRITTEN = itertools.cycle(
    (
        "<think>count them</think>```sql\nSELECT count(*) AS n FROM {table} WHERE {column} = '{value}'\n```",
        "SELECT count(*) FROM {table}",
        "SELECT count(*) FROM {table} WHERE no_such_column = 1",
        "I cannot tell.",
        "```sql\nDELETE FROM {table}\n```",
        "SELECT sum(({column} = '{value}')::int) FROM {table};",
        "SELECT ",
    )
)
"""Of every kind of verdict, dealt out as the questions come in: seven kinds, so no two questions get the same four."""


def tasks() -> list[PrivilegedTask]:
    found = []
    for question, (table, column, value) in QUESTIONS.items():
        gold = Privileged(reference=f"SELECT count({column}) FROM {table} AS t WHERE t.{column} = '{value}'")
        of_its_own = {"question": question, "id": task_id(question), "privileged": gold}
        found.append(make_task(0, right=0).model_copy(update=of_its_own))
    return found


def engine() -> FastAPI:
    """As vLLM answers the gateway's looks, and chat completions that are not streamed."""
    app = FastAPI()

    @app.get("/v1/models")
    def models() -> dict[str, Any]:
        return {"data": [{"id": "base"}]}

    @app.get("/metrics")
    def metrics() -> PlainTextResponse:
        return PlainTextResponse(METRICS)

    @app.get("/version")
    def version() -> dict[str, str]:
        return {"version": "0.scripted"}

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> dict[str, Any]:
        question = (await request.json())["messages"][-1]["content"]
        table, column, value = QUESTIONS[question]
        text = next(WRITTEN).format(table=table, column=column, value=value)
        content = [{"token": "t", "logprob": -0.5, "top_logprobs": []}]
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "logprobs": {"content": content}, "finish_reason": "stop"}
        return {"model": "base", "choices": [choice], "usage": {"completion_tokens": 1}}

    return app


@pytest.fixture
def verifier(tokens: Path) -> Iterator[VerifierProcess]:
    with temporary_folder() as folder:
        (folder / "tokens.json").write_bytes(tokens.read_bytes())
        process = start_verifier(folder)
        yield process
        process.stop()


@pytest.fixture
def gateway(control_cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("gateway")
    with served(engine()) as url:
        service = Service("", url, "", {}, folder)
        with started_gateway([service], Path("model"), control_cluster, folder) as found:
            found.service.wait_ready()
            yield found


@pytest.fixture
def settings_changes(verifier: VerifierProcess) -> dict[str, object]:
    return {"verifier_url": verifier.url}


async def test_whileai_judges_replies_of_every_kind_as_our_own_sampling_does(
    coordinator: Coordinator, script: Script, verifier: VerifierProcess, gateway: Gateway, tokens: Path
) -> None:
    script.tasks = tasks()
    services = Services(
        gateway=gateway.url,
        verifier=verifier.url,
        gateway_token=gateway.token(),
        verifier_token=read_token(tokens, "rollout"),
        model="base",
        regime=Regime(),
    )
    async with coordinator.client() as client:
        statuses = await verdicts_agree(services, script.tasks, client)
    kinds = {Status.MATCH: 23, Status.MISMATCH: 23, Status.SQL_ERROR: 12, Status.NO_SQL: 11, Status.REFUSED: 11}
    assert statuses == kinds
    assert sum(kinds.values()) == TASKS * K
