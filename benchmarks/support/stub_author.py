"""A stub of the author: one domain with as many holdout tasks as asked for, and some to train on.

Run as a program: `--port P --tasks N`.
"""

import argparse

from shared.contracts.tasks import Archetype, Difficulty, Privileged, PrivilegedTask, Provenance, Split, TaskSet
from shared.ids import sha256_hex, task_id

from .stub_http import Answer, StubApp, serve_stub

TRAIN_TASKS = 64


def train_tasks(domain: str) -> list[PrivilegedTask]:
    """Those that a batch may hold."""
    return make_tasks(TRAIN_TASKS, domain, Split.TRAIN, first=10**6)


def make_tasks(count: int, domain: str, split: Split = Split.HOLDOUT, first: int = 0) -> list[PrivilegedTask]:
    """Distinct tasks of every kind."""
    tasks = []
    for number in range(first, first + count):
        question = f"What is the average price of active products in each category, without order {number}?"
        provenance = Provenance(
            teacher="stub",
            authoring_id="stub",
            domain=domain,
            domain_digest="0" * 64,
            gold_key=sha256_hex(question)[:16],
            fold=number % 2,
        )
        task = PrivilegedTask(
            id=task_id(question),
            question=question,
            archetype=list(Archetype)[number % len(Archetype)],
            difficulty=list(Difficulty)[number % len(Difficulty)],
            style="terse",
            order_matters=False,
            split=split,
            provenance=provenance,
            privileged=Privileged(reference=f"SELECT {number}"),
        )
        tasks.append(task)
    return tasks


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--domain", default="shop")
    options = parser.parse_args()
    tasks_of_both = make_tasks(options.tasks, options.domain) + train_tasks(options.domain)
    task_set = TaskSet(domain=options.domain, digest="0" * 64, tasks=tasks_of_both)
    content = task_set.model_dump_json().encode()

    async def tasks(path: str, body: bytes) -> Answer:
        return Answer(content)

    serve_stub(StubApp("author", [("GET", f"/v1/domains/{options.domain}/tasks", tasks)]), options.port)


if __name__ == "__main__":
    main()
