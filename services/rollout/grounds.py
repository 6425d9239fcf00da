"""What samplings and batches stand on: the other services, the workers, the bundles, the ledger."""

from dataclasses import dataclass, field

from services.rollout.batches.stragglers import StragglerRule
from services.rollout.endpoint_keys import EndpointKeys
from services.rollout.measuring.row_repository import RowRepository
from services.rollout.samplings.concurrency import ConcurrencyLimit
from services.rollout.samplings.dispatch import Sampler
from services.rollout.samplings.gate import Obstacle
from services.rollout.samplings.patience import RetryRule
from services.rollout.samplings.policies import PolicyGone, policy_of
from services.rollout.samplings.records import MissingGroup, SamplingRecord
from services.rollout.samplings.repository import Repository
from services.rollout.samplings.tasks import TaskDirectory
from services.rollout.settings import RolloutSettings
from services.rollout.worker.groups import Draw, GroupRequest, SandboxSpec
from shared.clients.author import AuthorClient
from shared.clients.base import ServiceClient, ServiceProblem, ServiceUnreachable
from shared.clients.inference import InferenceClient
from shared.clients.verifier import VerifierClient
from shared.contracts.base import FieldError
from shared.contracts.rollout import ModelEndpoint
from shared.contracts.tasks import PrivilegedTask
from shared.contracts.verifier import SandboxRequest
from shared.domain import Bundle, BundleError, chat, find_bundle
from shared.egress import EgressRefused
from shared.errors import Conflict, Invalid, ServiceError, Unavailable
from shared.ids import sha256_hex


@dataclass(frozen=True)
class Grounds:
    """Open clients and the settings they were opened with."""

    settings: RolloutSettings
    repository: Repository
    rows: RowRepository
    author: AuthorClient
    verifier: VerifierClient
    inference: InferenceClient
    tasks: TaskDirectory
    sampler: Sampler
    limit: ConcurrencyLimit
    keys: EndpointKeys = field(default_factory=EndpointKeys)

    @property
    def retry(self) -> RetryRule:
        """How groups are asked again."""
        return RetryRule(self.settings.group_retries, self.settings.retry_wait_seconds)

    @property
    def stragglers(self) -> StragglerRule:
        """When training batches stop waiting."""
        settings = self.settings
        return StragglerRule(
            settings.straggler_quorum, settings.straggler_grace_share, settings.straggler_grace_seconds
        )

    def limit_of(self, record: SamplingRecord) -> ConcurrencyLimit:
        """How many groups are in flight: what the engines here bear, or what was asked for of an endpoint."""
        endpoint = record.request.endpoint
        return self.limit if endpoint is None else ConcurrencyLimit(self.inference.pressure, endpoint.concurrency)

    async def check_endpoint(self, endpoint: ModelEndpoint) -> None:
        """Raises Invalid for a model that may not be asked from here. Workers check again, at each connection."""
        try:
            await self.settings.egress.check(endpoint.url)
        except EgressRefused as error:
            fault = FieldError(field="endpoint.url", message=str(error))
            raise Invalid(f"`endpoint.url`: {error}. Nothing was started", [fault]) from error

    def bundle(self, domain: str) -> Bundle:
        """A domain's bundle. Raises Invalid."""
        try:
            return find_bundle(domain, self.settings.domains)
        except BundleError as error:
            raise Invalid(str(error)) from error

    def obstacle(self, record: SamplingRecord, *, policy_comes_back: bool = True) -> Obstacle:
        """Why a sampling cannot go on now: a service that is not ready, or its policy no longer served.

        Not `policy_comes_back`: raises PolicyGone instead of waiting for somebody to serve it.
        """

        def gone(reason: str) -> str:
            if not policy_comes_back:
                raise PolicyGone(reason)
            return reason

        async def look() -> str | None:
            endpoint = record.request.endpoint
            clients: list[ServiceClient] = [self.verifier] if endpoint else [self.verifier, self.inference]
            for client in clients:
                if (state := await ready(client)) != "ok":
                    return f"{client.service}: {state}"
            if endpoint is not None:
                return self.keys.obstacle(record.sampling_id, endpoint)
            try:
                policy = await policy_of(record.request, self.inference)
            except Conflict as error:
                return gone(error.detail)
            except ServiceError as error:
                return error.detail
            if policy != record.policy:
                served, wanted = policy.served_model, record.policy.served_model
                return gone(f"{record.request.policy} is now served as {served}, not {wanted}")
            return None

        return look

    async def prepare_sandbox(self, record: SamplingRecord, bundle: Bundle) -> SandboxSpec:
        """Make the sandbox, or find it. Raises Invalid, Unavailable."""
        owner = record.sandbox_owner
        spec = SandboxSpec(f"rollout-{sha256_hex(owner)[:24]}", owner, record.request.domain)
        try:
            sandbox = await self.verifier.create_sandbox(
                SandboxRequest(sandbox_id=spec.sandbox_id, run_id=spec.run_id, domain=spec.domain)
            )
        except ServiceUnreachable as error:
            raise Unavailable(str(error)) from error
        except ServiceProblem as error:
            if error.problem.status >= 500 or error.problem.status == 429:
                raise Unavailable(f"the verifier gave no sandbox: {error}") from error
            raise Invalid(f"the verifier gave no sandbox: {error}") from error
        if sandbox.digest != bundle.digest:
            raise Invalid(
                f"the verifier's bundle of {spec.domain!r} ({sandbox.digest[:12]}) is another than the one prompts are "
                f"rendered from ({bundle.digest[:12]}): give both services the same SQLCLIMB_DOMAINS"
            )
        return spec


def group_requests(
    record: SamplingRecord,
    missing: list[MissingGroup],
    golds: dict[str, PrivilegedTask],
    sandbox: SandboxSpec,
    keys: EndpointKeys,
) -> list[GroupRequest]:
    """What to ask for the groups that miss samples and whose gold is known."""
    parameters = record.request.parameters
    draw = Draw(
        temperature=parameters.temperature,
        top_p=parameters.top_p,
        max_tokens=parameters.max_tokens,
        thinking=record.request.regime.thinking,
    )
    return [
        GroupRequest(
            sampling_id=record.sampling_id,
            task_id=group.task.task_id,
            sample_indices=group.sample_indices,
            messages=tuple(chat(record.system_prompt, group.task.question)),
            draw=draw,
            served_model=record.policy.served_model,
            adapter_digest=record.policy.adapter_digest,
            sandbox=sandbox,
            profile=record.request.profile,
            order_matters=golds[group.task.task_id].order_matters,
            gold=golds[group.task.task_id].privileged.reference,
            endpoint=record.request.endpoint,
            api_key=keys.of(record.sampling_id),
        )
        for group in missing
        if group.task.task_id in golds
    ]


async def ready(client: ServiceClient) -> str:
    """`ok`, or why the service behind a client is not ready."""
    try:
        found = await client.readiness()
    except ServiceUnreachable as error:
        return str(error)
    failing = {name: reason for name, reason in found.checks.items() if reason != "ok"}
    return "ok" if found.ready else f"not ready: {failing}"
