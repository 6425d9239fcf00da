"""Our verifier as a whileai `Verifier`: for `run_judge`, `data.grade(judge=…)`, `evaluate`."""

import contextlib
import uuid
from collections.abc import Iterable
from typing import Any

import httpx
from whileai.simulations.verify import Verifier

from shared.clients.base import raise_for_problem
from shared.contracts.tasks import PrivilegedTask
from shared.contracts.verifier import (
    Profile,
    Sandbox,
    SandboxRequest,
    Status,
    Verdict,
    VerifyItem,
    VerifyRequest,
    VerifyResponse,
)
from shared.whileai.rows import JUDGE, from_whileai

TIMEOUT_SECONDS = 120.0


class SqlVerifier(Verifier):
    """Judges rows in a sandbox of its own, from several threads at once. Use as `with`: leaving it ends the sandbox.

    The golds come from `tasks` (the author's, with a token of the `gold` scope), not from the rows: they never enter a
    row that whileai might write, export or push.
    """

    kind = "rule"

    def __init__(
        self,
        url: str,
        token: str,
        domain: str,
        tasks: Iterable[PrivilegedTask],
        profile: Profile = Profile.STANDARD,
    ) -> None:
        super().__init__(name=JUDGE)
        self._domain = domain
        self._tasks = {task.id: task for task in tasks}
        self._profile = profile
        self._sandbox_id = f"whileai-{uuid.uuid4().hex[:12]}"
        self._http = httpx.Client(
            base_url=url,
            headers={"authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(TIMEOUT_SECONDS, connect=5),
        )

    def __enter__(self) -> "SqlVerifier":
        request = SandboxRequest(sandbox_id=self._sandbox_id, run_id=self._sandbox_id, domain=self._domain)
        response = self._http.post("/v1/sandboxes", json=request.model_dump(mode="json", exclude_none=True))
        raise_for_problem(response)
        Sandbox.model_validate_json(response.content)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(httpx.TransportError):  # the verifier's own time limit removes it otherwise
            self._http.delete(f"/v1/sandboxes/{self._sandbox_id}")
        self._http.close()

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Reward 1 for a match, 0 for what is wrong, None for what could not be scored; the status in `judge_meta`."""
        try:
            verdict = self._verdict(row)
        except ValueError as error:
            return {"reward": None, "reason": f"{JUDGE}: {error}", "judge_meta": {"verifier": JUDGE}}
        scored = verdict.status is not Status.UNSCORABLE
        return {
            "reward": int(verdict.status is Status.MATCH) if scored else None,
            "reason": verdict.reason,
            "judge_meta": {
                "verifier": JUDGE,
                "status": verdict.status,
                "shaped_reward": verdict.reward,
                "sql": verdict.sql,
            },
        }

    def _verdict(self, row: dict[str, Any]) -> Verdict:
        sampled = from_whileai(row)
        task = self._tasks.get(sampled.task_id)
        if task is None:
            raise ValueError(f"no task asks {row['prompt'][:80]!r}: judge rows of the domain's own tasks")
        item = VerifyItem(
            reply=sampled.reply,
            finish_reason=sampled.finish_reason,
            gold=task.privileged.reference,
            order_matters=task.order_matters,
        )
        request = VerifyRequest(profile=self._profile, items=[item])
        response = self._http.post(
            f"/v1/sandboxes/{self._sandbox_id}/verify", json=request.model_dump(mode="json", exclude_none=True)
        )
        raise_for_problem(response)
        (verdict,) = VerifyResponse.model_validate_json(response.content).verdicts
        return verdict
