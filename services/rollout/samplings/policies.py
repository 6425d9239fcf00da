"""From a policy's name to what the engine serves."""

from services.rollout.samplings.records import Policy
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.clients.inference import InferenceClient
from shared.contracts.inference import AdapterList, AdapterState
from shared.contracts.rollout import SamplingRequest
from shared.errors import Conflict, Invalid, Unavailable
from shared.ids import BASE_DIGEST, ENDPOINT_DIGEST, parse_policy


class PolicyGone(Exception):
    """What is being sampled is no longer served."""


def resolve(policy: str, served: AdapterList) -> Policy:
    """The served model and adapter digest of `base` or `<run>@<step>`. Raises Invalid, Conflict."""
    try:
        wanted = parse_policy(policy)
    except ValueError as error:
        raise Invalid(str(error)) from error
    if wanted is None:
        return Policy(served.base, BASE_DIGEST)
    found = [a for a in served.adapters if a.run_id == wanted.run_id and a.step == wanted.step]
    for adapter in found:  # newest first
        if adapter.state in (AdapterState.READY, AdapterState.RESTORING):  # the gateway asks whoever serves it
            return Policy(adapter.name, adapter.digest)
    state = f"is {found[0].state} {found[0].reason}".rstrip() if found else "was never published"
    raise Conflict(f"policy {policy} {state}; nothing was sampled. `sqlclimb serve {policy}` serves it")


async def policy_of(request: SamplingRequest, inference: InferenceClient) -> Policy:
    """What a sampling samples: a policy served here, or a model elsewhere. Raises as `resolve_now`."""
    if request.endpoint is not None:
        return Policy(request.endpoint.model, ENDPOINT_DIGEST)
    return await resolve_now(request.policy, inference)


async def resolve_now(policy: str, inference: InferenceClient) -> Policy:
    """As `resolve`, asking the gateway. Raises Unavailable too."""
    try:
        return resolve(policy, await inference.adapters())
    except (ServiceUnreachable, ServiceProblem) as error:
        raise Unavailable(f"{error}. Nothing was sampled") from error
