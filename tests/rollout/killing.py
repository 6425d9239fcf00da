"""Killing parts of a running stack while it samples, and what must hold of the rows afterwards."""

import random
from collections import Counter
from collections.abc import Sequence

import psutil

from cli.stack.home import StackHome
from cli.stack.reaper import stack_processes
from cli.stack.supervisor import Supervisor
from shared.clients.author import AuthorClient
from shared.clients.verifier import VerifierClient
from shared.contracts.rollout import Row
from shared.contracts.tasks import PrivilegedTask
from shared.contracts.verifier import SandboxRequest, Status, VerifyItem, VerifyRequest

ACTORS = {"coordinator": "Coordinator", "worker": "RolloutWorker", "proxy": "ProxyActor"}
"""Parts that Ray runs under a sampling, and their actor classes."""

TRAINING = {"trainer-worker": "RayTrainWorker", "driver": "-m services.trainer.job"}
"""Parts that Ray runs under a training run, and what their command lines hold."""

SUPERVISED = ("verifier", "inference", "engine", "postgres")
"""Parts that are killed with everything they started; the supervisor starts them again."""

VICTIMS = (*ACTORS, "sandbox", *SUPERVISED)

ITEMS_PER_CALL = 200


def victims(home: StackHome, part: str, draw: random.Random) -> list[psutil.Process]:
    """The processes to kill: a whole group, or of a sandbox's servers one. Empty when there is none now."""
    if mark := (ACTORS | TRAINING).get(part):
        return [process for process in stack_processes(home) if mark in command(process)]
    if part == "sandbox":
        servers = [process for process in _group(home, "verifier") if "postgres" in command(process)]
        return [draw.choice(servers)] if servers else []
    return _group(home, part)


def _group(home: StackHome, program: str) -> list[psutil.Process]:
    pid = Supervisor(home).processes()[program].pid
    if not pid:
        return []
    first = psutil.Process(pid)
    return [first, *first.children(recursive=True)]


def command(process: psutil.Process) -> str:
    """Its command line; empty when it is gone."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def kill(processes: Sequence[psutil.Process]) -> int:
    """SIGKILL to each that still runs; returns how many did."""
    killed = 0
    for process in processes:
        try:
            process.kill()
            killed += 1
        except psutil.NoSuchProcess:
            continue
    return killed


def faults_of(rows: Sequence[Row], tasks: int, k: int) -> list[str]:
    """What is wrong with the rows of a sampling that is done: one twice, one missing, one without its verdict."""
    counts = Counter((row.task_id, row.sample_index) for row in rows)
    twice = [key for key, count in counts.items() if count > 1]
    unscored = [row.row_id for row in rows if row.status is Status.UNSCORABLE]
    found = [f"{len(twice)} rows are there twice: {twice[:3]}"] if twice else []
    if len(counts) != tasks * k:
        found.append(f"{len(counts)} of {tasks * k} rows are there")
    if unscored:
        found.append(f"{len(unscored)} rows have no verdict: {unscored[:3]}")
    return found


async def wrong_verdicts(rows: Sequence[Row], domain: str, author: AuthorClient, verifier: VerifierClient) -> list[str]:
    """Rows whose reply gets another verdict now, in a sandbox of its own. Statuses and rewards are compared."""
    tasks = {task.id: task for task in (await author.tasks(domain, privileged=True)).tasks}
    name = "rechecked"
    await verifier.create_sandbox(SandboxRequest(sandbox_id=name, run_id=name, domain=domain))
    wrong = []
    for start in range(0, len(rows), ITEMS_PER_CALL):
        part = rows[start : start + ITEMS_PER_CALL]
        found = await verifier.verify(name, VerifyRequest(items=[_item(row, tasks[row.task_id]) for row in part]))
        for row, verdict in zip(part, found.verdicts, strict=True):
            if (row.status, row.reward) != (verdict.status, verdict.reward):
                wrong.append(f"row {row.row_id}: {row.status} {row.reward}, now {verdict.status} {verdict.reward}")
    await verifier.delete_sandbox(name)
    return wrong


def _item(row: Row, task: object) -> VerifyItem:
    assert isinstance(task, PrivilegedTask)
    return VerifyItem(
        item_id=str(row.row_id),
        reply=row.reply,
        finish_reason=row.finish_reason,
        gold=task.privileged.reference,
        order_matters=task.order_matters,
    )
