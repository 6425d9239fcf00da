"""For users of the whileai SDK: our gateway as its agent, our verifier as its verifier, rows both ways.

    from shared.whileai import GatewayAgent, SqlVerifier, pinned_tasks

    data = whileai.simulate(GatewayAgent(…), tasks=pinned_tasks(tasks), repeats=4, simulator=False)
    scored = run_judge(data, SqlVerifier(…))

`rows` and `agent` need no whileai; `verifier` and `push` need the extra `whileai`.
"""

from typing import TYPE_CHECKING, Any

from shared.whileai.agent import GatewayAgent
from shared.whileai.rows import SampledReply, from_whileai, pinned_tasks, to_whileai

if TYPE_CHECKING:
    from shared.whileai.verifier import SqlVerifier

__all__ = ["GatewayAgent", "SampledReply", "SqlVerifier", "from_whileai", "pinned_tasks", "to_whileai"]


def __getattr__(name: str) -> Any:
    """`SqlVerifier` when it is asked for: it imports whileai."""
    if name == "SqlVerifier":
        from shared.whileai.verifier import SqlVerifier

        return SqlVerifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
