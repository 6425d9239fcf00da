"""A real Prometheus beside a local stack: it scrapes what the chart's monitors select, under the labels they give."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from cli.stack.home import StackHome, StackState, free_ports

PROMETHEUS = shutil.which("prometheus") or os.environ.get("SQLCLIMB_PROMETHEUS")

NAMESPACE = "team"
"""Of the imagined release, which is called `climb`."""

SCRAPE_SECONDS = 1
"""A smoke run is active for a few seconds only."""

READY_SECONDS = 30
STOP_SECONDS = 30


@dataclass(frozen=True)
class Target:
    """What one monitor of the chart selects, and which port of a local stack stands for it."""

    component: str
    endpoint: str
    """Name of the Pod's port."""

    port: str
    """Of the stack, as `StackState.ports` calls it."""


SERVICE_MONITORS = tuple(
    Target(service, "http", service) for service in ("verifier", "author", "inference", "rollout", "trainer")
)
POD_MONITORS = (Target("engine", "engine", "engine"), Target("rollout", "metrics", "ray_metrics"))


class Prometheus:
    """The HTTP API of a running Prometheus, over all that it has scraped."""

    def __init__(self, url: str) -> None:
        self._started = time.time()
        self._api = httpx.Client(base_url=f"{url}/api/v1", timeout=30.0)

    def close(self) -> None:
        """Close its connections."""
        self._api.close()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Every series that the expression has at any second of the scrape: `{"metric": labels, "values": [...]}`."""
        seconds = {"start": self._started, "end": time.time(), "step": SCRAPE_SECONDS}
        found: list[dict[str, Any]] = self._get("query_range", query=expression, **seconds)["result"]
        return found

    def series(self, selector: str) -> list[dict[str, str]]:
        """Labels of every series that the selector matches."""
        found: list[dict[str, str]] = self._get("series", **{"match[]": selector, "start": self._started})
        return found

    def _get(self, path: str, **parameters: Any) -> Any:
        answer = self._api.post(path, data=parameters).json()
        assert answer["status"] == "success", (parameters, answer)
        return answer["data"]


def configuration(state: StackState) -> dict[str, Any]:
    """What Prometheus' operator would write for the monitors: targets under its labels; a metric's own win."""
    jobs = []
    for target in (*SERVICE_MONITORS, *POD_MONITORS):
        labels = {
            "namespace": NAMESPACE,
            "pod": f"climb-sqlclimb-{target.component}-0",
            "container": target.component,
            "endpoint": target.endpoint,
        }
        if target in SERVICE_MONITORS:
            labels["service"] = f"climb-sqlclimb-{target.component}"
        addresses = [f"127.0.0.1:{state.ports[target.port]}"]
        jobs.append(
            {
                "job_name": f"{target.component}-{target.endpoint}",
                "honor_labels": True,
                "static_configs": [{"targets": addresses, "labels": labels}],
            }
        )
    timing = {"scrape_interval": f"{SCRAPE_SECONDS}s", "scrape_timeout": f"{SCRAPE_SECONDS}s"}
    return {"global": timing, "scrape_configs": jobs}


@contextlib.contextmanager
def scraping(home: StackHome, folder: Path) -> Iterator[Prometheus]:
    """Scrape the stack of `home`, which need not be up yet, with Prometheus' files in `folder`."""
    assert PROMETHEUS is not None
    settings, (port,) = folder / "prometheus.yaml", free_ports(1)
    settings.write_text(yaml.safe_dump(configuration(home.prepare())))
    url = f"http://127.0.0.1:{port}"
    argv = [PROMETHEUS, f"--config.file={settings}", f"--storage.tsdb.path={folder / 'data'}"]
    argv += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(argv, stdout=log, stderr=log)
    try:
        _wait_ready(server, url, folder / "log")
        with contextlib.closing(Prometheus(url)) as prometheus:
            yield prometheus
    finally:
        server.terminate()
        server.wait(timeout=STOP_SECONDS)


def _wait_ready(server: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/-/ready").status_code == 200:
                return
        assert server.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
