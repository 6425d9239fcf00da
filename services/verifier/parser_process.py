"""The process in which model-written text is read: a crash of the C parser ends this process and nothing else.

One JSON object a line in, one out: `{"analyse": [sql, …], "plan": [gold, …]}` → `{"analyse": [Analysis, …], "plan":
[GoldPlan, …]}`, or `{"profile": profile, "extract": [[reply, finish reason], …], "analyse_found": bool}` → `{"extract":
[[sql, reason], …], "found": {sql: Analysis, …}}`. Ends when its input ends.
"""

import json
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from services.verifier.gold_plan import plan_gold
from services.verifier.profiles import RULES
from services.verifier.statement import analyse, precheck
from shared.contracts.verifier import FinishReason, Profile

Answer = TypeVar("Answer")

MEMORY_BYTES = 2 * 1024**3
"""Address space: parsing 16 KB needs far less; a runaway ends here."""

CPU_SECONDS = 1.0
"""For one text, after which the process ends. The slowest known text of 16 KB (nested comments) takes 0.13 s. Processor
time, so that a busy machine refuses nothing."""


def main() -> None:
    """Answer requests until end of input."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        request = json.loads(line)
        sys.stdout.write(json.dumps(_extract(request) if "extract" in request else _parse(request)) + "\n")
        sys.stdout.flush()


def _parse(request: dict[str, Any]) -> dict[str, Any]:
    return {
        "analyse": [vars(_bounded(analyse, sql)) for sql in request["analyse"]],
        "plan": [vars(_bounded(plan_gold, sql)) for sql in request["plan"]],
    }


def _extract(request: dict[str, Any]) -> dict[str, Any]:
    extract = RULES[Profile(request["profile"])].extract
    extractions = [
        _bounded(extract, reply, None if finish_reason is None else FinishReason(finish_reason))
        for reply, finish_reason in request["extract"]
    ]
    found = {extraction.sql for extraction in extractions if extraction.sql is not None and request["analyse_found"]}
    return {
        "extract": [(extraction.sql, extraction.reason) for extraction in extractions],
        "found": {sql: vars(_bounded(analyse, sql)) for sql in found if precheck(sql) is None},
    }


def _bounded(work: Callable[..., Answer], *text: Any) -> Answer:
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)  # SIGPROF ends a process that does not handle it
    answer = work(*text)
    signal.setitimer(signal.ITIMER_PROF, 0)
    return answer


if __name__ == "__main__":
    main()
