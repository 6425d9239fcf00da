"""How long a sandbox takes to its first answer, and what it costs when idle (A5 of issue 3). Domain shop.

Ours: a copy of the warm template under the isolation a verifier would choose. The rival: `initdb`, start, load every
seed, as without a template. For information, a third series: `CREATE DATABASE … TEMPLATE` for every seed in one shared
cluster, which is no cluster of the run's own. Each series ends with a query answered for the candidate (the rivals:
for the administrator). In turn, raw series printed; then idle cost, with the two seed variants shop has and with four.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import psycopg
from support.grpo_mix import shop
from support.running_verifier import temporary_folder

from services.verifier.execution import Limits
from services.verifier.sandbox.loading import database_names
from services.verifier.sandbox.local import LocalCluster, LocalDriver
from services.verifier.sandbox.protocol import MAIN_SEED, Role
from services.verifier.sandbox.session import Sessions
from services.verifier.sandbox.template import folder_bytes
from services.verifier.sandboxes import RunningSandbox
from shared.domain import Bundle
from shared.embedded_postgres import program, unprivileged

MEMORY_BYTES = 256 * 1024**2
OURS_IN_TURN = 6
"""Starts of ours for one of each rival."""
TARGET_MS = 150.0
TARGET_IDLE_BYTES = 40 * 1024**2
LIMITS = Limits(rows=10, bytes=10_000)
QUERY = "SELECT count(*) FROM customers"


def main() -> None:
    """Print the measurements; the last line is the benchmark's JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--isolation", choices=("bubblewrap", "process"))
    arguments = parser.parse_args()
    bundle = shop()
    four = replace(bundle, variants=bundle.variants | {f"{name}-again": sql for name, sql in bundle.variants.items()})
    with temporary_folder() as folder:
        driver = LocalDriver(folder / "ours", MEMORY_BYTES, arguments.isolation)
        try:
            measure(driver, bundle, four, folder, arguments.alternations)
        finally:
            driver.close()


def measure(driver: LocalDriver, bundle: Bundle, four: Bundle, folder: Path, alternations: int) -> None:
    """All series."""
    print(f"isolation: {driver.isolation}; seeds: {1 + len(bundle.variants)} and {1 + len(four.variants)}")
    for warmed in (bundle, four):
        print(f"cold start (template made): {milliseconds(lambda warmed=warmed: start(driver, warmed)):.0f} ms")
    series: dict[str, list[float]] = {"ours": [], "ours, 4 variants": [], "initdb": [], "shared cluster": []}
    shared = SharedCluster(folder / "shared", bundle)
    try:
        for _ in range(alternations):
            for _ in range(OURS_IN_TURN):
                series["ours"].append(milliseconds(lambda: start(driver, bundle)))
            for _ in range(OURS_IN_TURN):
                series["ours, 4 variants"].append(milliseconds(lambda: start(driver, four)))
            series["initdb"].append(milliseconds(lambda: from_initdb(folder / "rival", bundle)))
            series["shared cluster"].append(milliseconds(shared.databases_from_template))
    finally:
        shared.stop()
    for name, times in series.items():
        print(f"{name}: median {statistics.median(times):.0f} ms of {[round(value) for value in times]}")
    idle = [idle_bytes(driver, held) for held in (bundle, four)]
    for held, (memory, files) in zip((bundle, four), idle, strict=True):
        print(
            f"idle, {len(held.variants)} variants: {memory / 1024**2:.1f} MB PSS + {files / 1024**2:.1f} MB files = "
            f"{(memory + files) / 1024**2:.1f} MB (target {TARGET_IDLE_BYTES // 1024**2})"
        )
    ours, rival = statistics.median(series["ours"]), statistics.median(series["initdb"])
    print(
        json.dumps(
            {"name": "sandbox_start", "ours": round(ours, 1), "rival": round(rival, 1), "ratio": round(rival / ours, 1),
             "target": TARGET_MS, "unit": "ms"}
        )
    )  # fmt: skip


def milliseconds(work: Callable[[], Callable[[], None]]) -> float:
    """Wall time of `work`; what it answers tidies up, untimed."""
    started = time.perf_counter()
    tidy = work()
    elapsed = time.perf_counter() - started
    tidy()
    return elapsed * 1000


def start(driver: LocalDriver, bundle: Bundle) -> Callable[[], None]:
    """As the service does it: from the request to a candidate's first rows."""
    sandbox = RunningSandbox("bench", "bench", bundle, driver)
    sandbox.start()
    outcome = sandbox.run(Role.CANDIDATE, MAIN_SEED, QUERY, LIMITS)
    assert outcome.failure is None, outcome.reason
    return sandbox.close


def run_postgres(folder: Path) -> "subprocess.Popen[bytes]":
    """A stock server on `folder/data`, with as little waiting for disks as ours."""
    quick = ["-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "listen_addresses="]
    argv = [str(program("postgres")), "-D", str(folder / "data"), "-k", str(folder), *quick]
    process = subprocess.Popen(unprivileged(argv, folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:
        try:
            connect(folder, "postgres").close()
            return process
        except psycopg.OperationalError:
            assert process.poll() is None, "the rival did not start"
            time.sleep(0.004)


def connect(folder: Path, database: str) -> "psycopg.Connection[tuple[object, ...]]":
    """As the administrator."""
    return psycopg.connect(host=str(folder), user="postgres", dbname=database, autocommit=True)


def initialise(folder: Path) -> None:
    """A stock cluster."""
    folder.mkdir(mode=0o755)
    argv = [str(program("initdb")), "-D", str(folder / "data"), "-U", "postgres", "-A", "trust", "--no-sync"]
    subprocess.run(unprivileged([*argv, "--locale=C", "--encoding=UTF8"], folder), check=True, capture_output=True)


def load(folder: Path, bundle: Bundle) -> None:
    """Every seed into a database of its own."""
    for seed, database in database_names(bundle).items():
        with connect(folder, "postgres") as admin:
            admin.execute(f"CREATE DATABASE {database}")
        with connect(folder, database) as owner:
            owner.execute((bundle.schema_sql + bundle.variants.get(seed, bundle.seed_sql)).encode())


def end(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    """Kill a stock server and remove its folder."""
    family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):  # its children end by themselves, at once
            member.kill()
    process.wait()
    psutil.wait_procs(family, timeout=5)
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def from_initdb(folder: Path, bundle: Bundle) -> Callable[[], None]:
    """Without a template: from nothing to a first answer."""
    initialise(folder)
    process = run_postgres(folder)
    load(folder, bundle)
    with connect(folder, database_names(bundle)[MAIN_SEED]) as session:
        session.execute(QUERY).fetchall()
    return lambda: end(process, folder)


class SharedCluster:
    """One stock cluster with a loaded template database a seed."""

    def __init__(self, folder: Path, bundle: Bundle) -> None:
        self._folder = folder
        self._templates = list(database_names(bundle).values())
        initialise(folder)
        self._process = run_postgres(folder)
        load(folder, bundle)

    def databases_from_template(self) -> Callable[[], None]:
        """A run's databases, to a first answer."""
        with connect(self._folder, "postgres") as admin:
            for name in self._templates:
                admin.execute(f"CREATE DATABASE run_{name} TEMPLATE {name}")
        with connect(self._folder, f"run_{self._templates[0]}") as session:
            session.execute(QUERY).fetchall()
        return self._drop

    def _drop(self) -> None:
        with connect(self._folder, "postgres") as admin:
            for name in self._templates:
                admin.execute(f"DROP DATABASE run_{name} (FORCE)")

    def stop(self) -> None:
        """Kill it."""
        end(self._process, self._folder)


def idle_bytes(driver: LocalDriver, bundle: Bundle) -> tuple[int, int]:
    """PSS and bytes of files of one sandbox that has answered on every seed and let its connections go."""
    cluster = driver.start(bundle)
    try:
        sessions = Sessions(cluster, statement_timeout_seconds=5)
        for seed in database_names(bundle):
            with sessions.session(Role.CANDIDATE, seed) as session:
                session.run(QUERY, LIMITS.rows, LIMITS.bytes)
        sessions.close()
        time.sleep(0.5)  # backends end after their connections
        return proportional_bytes(cluster), folder_bytes(Path(cluster.host).parent)
    finally:
        cluster.stop()


def proportional_bytes(cluster: LocalCluster) -> int:
    """PSS of its processes."""
    root = psutil.Process(int((Path(cluster.host).parent / "pid").read_text()))
    return sum(process.memory_full_info().pss for process in [root, *root.children(recursive=True)])


if __name__ == "__main__":
    main()
