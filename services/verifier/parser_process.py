"""The process in which model-written SQL is parsed: a crash of the C parser ends this process and nothing else.

One JSON object a line in, one out: `{"analyse": [sql, …], "plan": [gold, …]}` → `{"analyse": [Analysis, …], "plan":
[GoldPlan, …]}`. Ends when its input ends.
"""

import json
import resource
import sys
from dataclasses import asdict

from services.verifier.gold_plan import plan_gold
from services.verifier.statement import analyse

MEMORY_BYTES = 2 * 1024**3
"""Address space: parsing 16 KB needs far less; a runaway ends here."""


def main() -> None:
    """Answer requests until end of input."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        request = json.loads(line)
        answer = {
            "analyse": [asdict(analyse(sql)) for sql in request["analyse"]],
            "plan": [asdict(plan_gold(sql)) for sql in request["plan"]],
        }
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
