"""Supervised runs over the runs API: what is refused before any job, and whose golds are whose."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.trainer.job.records import RunRecords
from services.trainer.settings import JobSettings
from shared.auth import read_token
from tests.trainer.peer_app import serving
from tests.trainer.peers import Peers
from tests.trainer.runs_api import ScriptedLauncher, runs_app
from tests.trainer.supervised.conftest import sft_config
from tests.trainer.supervised.sources import SAMPLING, TASKS, Sources, sampling

GOLDS = {"sft": {"golds": True}}


@pytest.fixture
def peers(model: Path, tokens: Path) -> Iterator[Peers]:
    with serving(model, tokens) as found:
        yield found


class Api:
    """The API as two callers see it: one may see golds, the other may not."""

    def __init__(self, http: httpx.AsyncClient, launcher: ScriptedLauncher, model: Path, tokens: Path) -> None:
        self._http, self.launcher, self._tokens = http, launcher, tokens
        self._config = sft_config(model).model_dump(mode="json")

    async def post(self, path: str, body: dict[str, Any] | None = None, token: str = "trainer") -> httpx.Response:
        headers = {"authorization": f"Bearer {read_token(self._tokens, token)}"}
        return await self._http.post(path, json=body, headers=headers)

    async def start(self, changes: dict[str, Any], token: str = "trainer") -> httpx.Response:
        return await self.post("/v1/runs", {"run_id": "night", "config": self._config | changes}, token)

    async def dry_run(self, changes: dict[str, Any], token: str = "trainer") -> httpx.Response:
        return await self.post("/v1/dry-runs", {"config": self._config | changes}, token)


@pytest.fixture
async def api(control_db: str, tokens: Path, peers: Peers, settings: JobSettings, model: Path) -> AsyncIterator[Api]:
    launcher = ScriptedLauncher()
    settings.inference_url = peers.url
    async with (
        runs_app(settings, control_db, tokens, launcher) as app,
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://trainer") as http,
    ):
        yield Api(http, launcher, model, tokens)


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"band_id": "band"}, "config", "`band_id` mean nothing under method sft"),
    ({"k": 8, "loss": "grpo", "rewards": "shuffled"}, "config", "`k`, `loss`, `rewards` mean nothing"),
    ({"guards": {"sync": "off"}}, "config", "`guards.sync` mean nothing under method sft"),
    ({"sft": None}, "config", "say what to learn from"),
    ({"sft": {}}, "config.sft", "set one of `sampling_id`"),
    ({"sft": {"golds": True, "sampling_id": SAMPLING}}, "config.sft", "set one of `sampling_id`"),
    ({"method": "grpo", "band_id": "band"}, "config", "`sft` means nothing under method grpo"),
    (GOLDS | {"regime": {"thinking": True}}, "config", "would unlearn the thinking"),
    ({"data_parallel": "fsdp2"}, "config", "`data_parallel`: method sft"),
    ({"sft": {"sampling_id": "nowhere"}}, "config.sft.sampling_id", "no sampling 'nowhere'"),
    ({"sft": {"sampling": SAMPLING}}, "config.sft.sampling", "not permitted"),
    ({"regime": {}}, "config.sft.sampling_id", "asked under another regime"),
    ({"workers": 3}, "config.workers", "4 prompts a step cannot be shared out to 3 evenly"),
]


async def test_a_run_that_cannot_work_is_refused_before_any_job(api: Api) -> None:
    for changes, field, words in REFUSED:
        answer = await api.start(changes, "admin")
        problem = answer.json()
        assert answer.status_code == 422 and words in problem["detail"], (changes, problem)
        assert [fault["field"] for fault in problem["errors"]] == [field], changes
    assert api.launcher.jobs == {}


async def test_a_supervised_run_starts_by_its_own_learning_rate_and_keeps_its_config(api: Api, model: Path) -> None:
    config = {"method": "sft", "domain": "shop", "model": str(model), "sft": {"sampling_id": SAMPLING}}
    body = {"run_id": "night", "config": config | {"regime": {"prompt": "question"}, "prompts_per_step": 4}}
    run = (await api.post("/v1/runs", body)).json()
    assert (run["state"], run["config"]["learning_rate"]) == ("pending", 2e-4)
    again = await api.post("/v1/runs", {"run_id": "night", "config": run["config"]})
    assert again.status_code == 200 and list(api.launcher.jobs) == [("night", 1)]
    other = await api.start({"learning_rate": 1e-5, "lora": {}})
    assert other.status_code == 409 and "learning_rate: 0.0002 there, 1e-05 here" in other.json()["detail"]


async def test_golds_are_for_callers_who_may_see_them(api: Api, settings: JobSettings) -> None:
    for call in (api.start, api.dry_run):
        refused = await call(GOLDS)
        assert refused.status_code == 403
        assert "the caller's token needs the `gold` scope" in refused.json()["detail"]
    assert api.launcher.jobs == {}
    assert (await api.start(GOLDS, "admin")).status_code == 200
    RunRecords(settings.db.get_secret_value(), "night", 1)
    assert (await api.post("/v1/runs/night/resume")).status_code == 403, "a resume learns them as well"
    assert (await api.post("/v1/runs/night/stop")).status_code == 200


async def test_golds_are_refused_by_a_trainer_that_has_no_leave(
    api: Api, settings: JobSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "gold_token_name", None)
    for call in (api.start, api.dry_run):
        refused = await call(GOLDS, "admin")
        assert refused.status_code == 403 and "SQLCLIMB_GOLD_TOKEN_NAME" in refused.json()["detail"]


async def test_a_dry_run_counts_and_starts_nothing(api: Api, sources: Sources) -> None:
    del sources.rows[10:]
    counts = (await api.dry_run({})).json()
    assert (counts["tasks"], counts["kept"], counts["dropped"]) == (TASKS, 5, {"unscored": 5})
    assert (await api.dry_run(GOLDS, "admin")).json()["kept"] == TASKS
    assert api.launcher.jobs == {}
    sources.sampling = sampling(state="running")
    assert (await api.dry_run({})).status_code == 422
    planned = await api.post("/v1/plans", {"config": sft_config(Path("x")).model_dump(mode="json")})
    assert planned.status_code == 422 and "`--dry-run` counts" in planned.json()["detail"]
    grpo = await api.post("/v1/dry-runs", {"config": {"domain": "shop", "model": "x", "band_id": "b"}})
    assert grpo.status_code == 422 and "counts what method sft learns from" in grpo.json()["detail"]
