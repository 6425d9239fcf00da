"""What the command does: fetch tasks, reuse a policy or build one, save it."""

from pathlib import Path

import torch

from services.trainer.small_policy import store
from services.trainer.small_policy.build import build
from services.trainer.small_policy.measure import MeasureFailed, judge_through
from services.trainer.small_policy.settings import PolicySettings
from services.trainer.small_policy.tasks import TasksUnusable, choose, policy_digest
from shared.auth import read_token
from shared.clients.author import AuthorClient
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.clients.verifier import VerifierClient
from shared.contracts.tasks import Split
from shared.contracts.verifier import SandboxRequest
from shared.domain import BundleError, find_bundle

EXPECTED = (ServiceProblem, ServiceUnreachable, BundleError, TasksUnusable, MeasureFailed, OSError)
"""Failures that a caller can act on."""


def say(line: str) -> None:
    """A progress line, at once."""
    print(line, flush=True)


async def run(settings: PolicySettings) -> Path:
    """The policy's folder, built unless it is there. Raises one of EXPECTED."""
    torch.set_num_threads(settings.threads)
    try:
        token = read_token(settings.tokens_file, settings.token_name)
    except KeyError as error:
        raise TasksUnusable(f"{settings.tokens_file} holds no token named {settings.token_name!r}") from error
    bundle = find_bundle(settings.domain, settings.domains)
    async with AuthorClient(settings.author_url, token) as author:
        task_set = await author.tasks(settings.domain, Split.TRAIN, privileged=True)
    tasks = choose(task_set.tasks, settings.recipe.slice_tasks, settings.seed)
    digest = policy_digest(tasks, bundle.digest, settings.recipe, settings.seed)
    if (card := store.find(settings.out, digest)) is not None:
        say(f"reused: policy {digest[:12]}, pass@1 {card.measured.pass_1.value:.2f} at step {card.steps}")
        return settings.out / digest
    async with VerifierClient(settings.verifier_url, token, timeout_seconds=300.0) as verifier:
        run_id = f"policy-{digest[:12]}"
        sandbox = await verifier.create_sandbox(
            SandboxRequest(sandbox_id=run_id, run_id=run_id, domain=settings.domain)
        )
        try:
            judge = judge_through(verifier, sandbox.sandbox_id)
            policy = await build(bundle, tasks, settings.recipe, settings.seed, judge, say)
        finally:
            await verifier.delete_sandbox(sandbox.sandbox_id)
    card = policy.card
    path = store.save(settings.out, card, policy.model, policy.tokenizer)
    say(f"saved: pass@1 {card.measured.pass_1.value:.2f} after {card.steps} steps in {card.seconds:.0f} s")
    return path
