"""`sample` and `control`: a policy, or anybody's model, asked and verified."""

import os
import re
from collections.abc import Mapping
from typing import Annotated

import typer

from cli.context import BAD_INPUT, FAILED, Connection, UsageError, asked_as, command, say, say_error
from cli.follow import follow, patiently
from cli.render import delta_table
from cli.stack.stack import StackError
from shared.clients.rollout import RolloutClient
from shared.contracts.measuring import DeltaRequest, DeltaVerdict
from shared.contracts.rollout import (
    EndpointApi,
    ModelEndpoint,
    Purpose,
    Regime,
    Sampling,
    SamplingParameters,
    SamplingRequest,
    SamplingState,
)
from shared.contracts.tasks import Split
from shared.contracts.verifier import Profile
from shared.ids import BASE_POLICY, sha256_hex

ENDED = (SamplingState.DONE, SamplingState.CANCELLED, SamplingState.FAILED)

UNMOVED = (DeltaVerdict.NO_CHANGE_DETECTED, DeltaVerdict.WITHIN_EVAL_NOISE)
"""What a control may say."""

KEY_VARIABLE = typer.Option("--api-key-env", help="environment variable that holds the endpoint's API key")


@command
async def sample(
    domain: Annotated[str, typer.Argument(help="domain whose tasks are sampled")],
    policy: Annotated[str | None, typer.Option(help="`base` (the default) or RUN@STEP")] = None,
    k: Annotated[int, typer.Option("-k", help="samples per task")] = 4,
    split: Annotated[Split, typer.Option()] = Split.HOLDOUT,
    fold: Annotated[int | None, typer.Option(help="only this half (0 or 1) of the split")] = None,
    limit: Annotated[int | None, typer.Option(help="at most this many tasks, a seeded draw")] = None,
    temperature: Annotated[float, typer.Option()] = 0.7,
    top_p: Annotated[float, typer.Option()] = 0.95,
    max_tokens: Annotated[int | None, typer.Option(help="reply budget; default from the model's card")] = None,
    seed: Annotated[int, typer.Option()] = 0,
    purpose: Annotated[
        Purpose, typer.Option(help="`evaluation`, or `band` for prompts to train on")
    ] = Purpose.EVALUATION,
    prompt: Annotated[str | None, typer.Option(help="`full` or `question`; default from the model's card")] = None,
    profile: Annotated[Profile, typer.Option(help="comparison rule of the verdicts")] = Profile.STANDARD,
    sampling_id: Annotated[str | None, typer.Option("--id", help="the same id again resumes")] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="URL of an API elsewhere: sample its --model instead of a policy served here")
    ] = None,
    model: Annotated[str | None, typer.Option(help="the model's name at --endpoint")] = None,
    api: Annotated[EndpointApi, typer.Option(help="what --endpoint speaks")] = EndpointApi.OPENAI,
    api_key_env: Annotated[str | None, KEY_VARIABLE] = None,
    concurrency: Annotated[int, typer.Option(help="requests in flight at --endpoint")] = 8,
) -> None:
    """Sample and verify K replies a task. Rows are kept as they land; the same command again continues."""
    connection = Connection()
    elsewhere = _elsewhere(policy, endpoint, model, api, api_key_env, concurrency)
    regime, budget = await _asked_as(connection, elsewhere)
    regime = asked_as(regime, prompt)
    parameters = SamplingParameters(
        k=k, temperature=temperature, top_p=top_p, max_tokens=max_tokens or budget, seed=seed
    )
    who = {"policy": policy or BASE_POLICY} if elsewhere is None else {"endpoint": elsewhere}
    request = SamplingRequest.model_validate(
        {
            "sampling_id": sampling_id or "pending",
            "purpose": purpose,
            "domain": domain,
            "regime": regime,
            "parameters": parameters,
            "profile": profile,
            "split": split,
            "fold": fold,
            "limit": limit,
        }
        | who
    )
    if sampling_id is None:
        digest = sha256_hex(request.model_dump_json())[:8]
        name = re.sub(r"[^A-Za-z0-9._@-]", "-", f"{domain}-{request.policy}")[:100]
        request = request.model_copy(update={"sampling_id": f"{name}-{digest}"})
    async with connection.rollout() as client:
        await carry_out(client, request, api_key(api_key_env))


def _elsewhere(
    policy: str | None, url: str | None, model: str | None, api: EndpointApi, key_variable: str | None, concurrency: int
) -> ModelEndpoint | None:
    """The endpoint that the options name, if any. Raises UsageError."""
    if url is None:
        if model is not None or key_variable is not None:
            raise UsageError("--model and --api-key-env are of a model elsewhere: give its URL by --endpoint")
        return None
    if model is None:
        raise UsageError("--endpoint needs --model: which of its models?")
    if policy is not None:
        raise UsageError("--policy names what is served here, --endpoint a model elsewhere: give one of them")
    return ModelEndpoint(
        url=url.rstrip("/"), model=model, api=api, with_key=key_variable is not None, concurrency=concurrency
    )


async def _asked_as(connection: Connection, elsewhere: ModelEndpoint | None) -> tuple[Regime, int]:
    """Regime and reply budget: those of the model served here, so that a model elsewhere can be compared with it."""
    try:
        served = await connection.model()
    except UsageError:
        if elsewhere is None:
            raise
        return Regime(), SamplingParameters().max_tokens
    thinking = served.regime.thinking and elsewhere is None  # an endpoint's own setting decides there
    return served.regime.model_copy(update={"thinking": thinking}), served.max_tokens


def api_key(variable: str | None) -> str | None:
    """The key in an environment variable. Raises UsageError when it is not set."""
    if variable is None:
        return None
    if not (key := os.environ.get(variable, "").strip()):
        raise UsageError(f"--api-key-env {variable}: that variable is not set, or empty")
    if not (key.isascii() and key.isprintable()):
        raise UsageError(f"--api-key-env {variable}: its value holds what no API key does (a line break, an accent)")
    return key


async def carry_out(client: RolloutClient, request: SamplingRequest, key: str | None) -> None:
    """Start a sampling or go on with it, and follow it to its end. Raises StackError unless it is done."""
    name = request.sampling_id

    async def look() -> Sampling:
        found = await client.sampling(name)
        # A coordinator that was started again has lost the key.
        return await client.start(request, key) if key and found.state is SamplingState.PAUSED else found

    await patiently(lambda: client.start(request, key))
    done = await follow(look, lambda found: found.state in ENDED, _line)
    say(f"sampling {name}: {done.state}, {_line(done)}")
    if done.state != SamplingState.DONE:
        raise StackError(f"sampling {name} is {done.state}: {done.error}; rows that landed are kept")


def _by_reason(samples: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in sorted(samples.items())) or "none"


def _line(found: Sampling) -> str:
    progress = found.progress
    rerolled, lost = _by_reason(progress.rerolls), _by_reason(progress.lost)
    eta = "" if progress.eta_seconds is None else f", ETA {progress.eta_seconds:.0f} s"
    why = f" ({found.error})" if found.error else ""
    return (
        f"{found.state}{why}: {progress.landed}/{progress.wanted} landed, re-rolled {rerolled}, lost {lost}, "
        f"{progress.rows_per_second:.1f} rows/s, {progress.tokens_per_second:.0f} tokens/s{eta}"
    )


@command
async def control(
    sampling: Annotated[str, typer.Argument(help="a sampling that is done")],
    control_id: Annotated[str | None, typer.Option("--id", help="of the second sampling; again resumes")] = None,
    api_key_env: Annotated[str | None, KEY_VARIABLE] = None,
) -> None:
    """Sample the same thing again and compare: must read no change. Exit 1 when it reads one.

    What moves without any training is the measurement itself: too few tasks, another model behind a name, an engine
    that answers differently under load.
    """
    async with Connection().rollout() as client:
        first = await client.sampling(sampling)
        if first.state is not SamplingState.DONE:
            raise UsageError(f"sampling {sampling} is {first.state}: a control repeats one that is done")
        parameters = first.request.parameters.model_copy(update={"seed": first.request.parameters.seed + 1})
        again = first.request.model_copy(
            update={"sampling_id": control_id or f"{sampling}-control", "parameters": parameters}
        )
        await carry_out(client, again, api_key(api_key_env))
        found = await client.delta(DeltaRequest(before=[sampling], after=[again.sampling_id]))
    delta_table(found)
    if found.verdict not in UNMOVED:
        say_error(f"the control reads {found.verdict}: no delta of this evaluation can be believed until it does not")
        raise typer.Exit(BAD_INPUT if found.verdict is DeltaVerdict.NOT_COMPARABLE else FAILED)
