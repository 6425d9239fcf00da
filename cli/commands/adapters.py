"""`adapters`: what the gateway knows, keeps, proves and hands out."""

import secrets
from pathlib import Path
from typing import Annotated

import typer

from cli.adapter_export import Measured, model_card, push_folder, unpack, write_card
from cli.adapter_names import canary_line, find_adapter, policy_of
from cli.context import Connection, UsageError, command, say
from cli.follow import follow
from cli.served_guard import GAP, PROMPTS, compare
from cli.stack.stack import StackError
from shared.clients.base import ServiceProblem
from shared.clients.rollout import RolloutClient
from shared.contracts.inference import Adapter, Layout
from shared.contracts.measuring import DeltaRequest
from shared.contracts.rollout import Purpose, Sampling, SamplingParameters, SamplingRequest, SamplingState
from shared.contracts.run_config import RunConfig
from shared.contracts.tasks import Split
from shared.ids import BASE_POLICY

app = typer.Typer(help="Adapters the gateway knows.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="served name, or RUN@STEP")]

ENDED = (SamplingState.DONE, SamplingState.CANCELLED, SamplingState.FAILED)


@app.command("list")
@command
async def list_() -> None:
    """All adapters, newest first, and the aliases."""
    async with Connection().inference() as client:
        known, aliases = await client.adapters(), (await client.aliases()).aliases
    say(f"base {known.base}")
    for alias in aliases:
        say(f"alias {alias.name} -> {alias.policy} ({alias.model})")
    for adapter in known.adapters:
        pinned = "pinned " if adapter.pinned else ""
        say(f"{adapter.name:<40} {adapter.state:<9} {pinned}{adapter.reason or canary_line(adapter)}")


@app.command()
@command
async def show(name: Name) -> None:
    """One adapter: where it came from, what of it was placed, what its probe measured."""
    async with Connection().inference() as client:
        adapter = find_adapter(await client.adapters(), name)
        named = [alias.name for alias in (await client.aliases()).aliases if alias.model == adapter.name]
    load = "-" if adapter.load_ms is None else f"{adapter.load_ms:.0f} ms"
    for label, value in (
        ("name", adapter.name),
        ("policy", policy_of(adapter)),
        ("state", f"{adapter.state} {adapter.reason}".rstrip()),
        ("kind", adapter.kind),
        ("base", adapter.base),
        ("digest", adapter.digest),
        ("files", adapter.uri),
        ("placed", f"{adapter.tensors_placed} tensors{', translated into the base’s names' * adapter.translated}"),
        ("probe", canary_line(adapter)),
        ("loaded in", load),
        ("pinned", "yes" if adapter.pinned else "no"),
        ("aliases", ", ".join(named) or "-"),
    ):
        say(f"{label:<10} {value}")


@app.command()
@command
async def rm(name: Name) -> None:
    """Let its requests end, unload it everywhere, forget it. Its files in the artifact store stay."""
    async with Connection().inference() as client:
        adapter = find_adapter(await client.adapters(), name)
        await client.remove(adapter.name)
    say(f"{adapter.name} is removed; its files are still in {adapter.uri}")


@app.command()
@command
async def pin(name: Name, off: Annotated[bool, typer.Option("--off", help="undo")] = False) -> None:
    """Never unload it to make room for another."""
    async with Connection().inference() as client:
        adapter = await client.pin(find_adapter(await client.adapters(), name).name, pinned=not off)
    say(f"{adapter.name} is {'pinned' if adapter.pinned else 'no longer pinned'}")


@app.command()
@command
async def verify(
    name: Name, prompts: Annotated[int, typer.Option(min=1, help="how many are asked again")] = PROMPTS
) -> None:
    """Ask the served adapter prompts it trained on, and compare its reward with the trainer's own (guard `served`)."""
    connection = Connection()
    async with connection.inference() as inference, connection.trainer() as trainer, connection.rollout() as rollout:
        adapter = find_adapter(await inference.adapters(), name)
        config = (await trainer.run(adapter.run_id)).config
        trained = await _trained_rewards(rollout, adapter, prompts)
        if not trained:
            raise UsageError(
                f"{name}: the ledger holds no training batch of run {adapter.run_id} up to step {adapter.step}"
            )
        sampling = await rollout.start(_again(adapter, config, sorted(trained)))
        await follow(lambda: rollout.sampling(sampling.sampling_id), lambda found: found.state in ENDED, _line)
        served: dict[str, list[float]] = {}
        async for row in rollout.rows(sampling.sampling_id):
            if row.reward is not None:
                served.setdefault(row.task_id, []).append(row.reward)
    try:
        found = compare(trained, served)
    except ValueError as error:
        raise StackError(f"{error}: sampling {sampling.sampling_id} has the reasons") from error
    say(
        f"{adapter.name} on {found.tasks} prompts it trained on: reward {found.served:.3f} served, {found.trained:.3f} "
        f"in training, gap {found.gap:+.3f} (limit {GAP})"
    )
    if not found.holds:
        raise StackError(f"served: {adapter.name} does not serve what was trained; `sqlclimb adapters show {name}`")


async def _trained_rewards(rollout: RolloutClient, adapter: Adapter, prompts: int) -> dict[str, list[float]]:
    """Of the newest batches up to the one that this adapter itself was sampled for."""
    found: dict[str, list[float]] = {}
    for step in range(adapter.step, -1, -1):
        try:
            await rollout.sampling(f"batch.{adapter.run_id}.{step}")
        except ServiceProblem as error:
            if error.problem.status != 404:
                raise
            continue
        batch: dict[str, list[float]] = {}
        async for row in rollout.rows(f"batch.{adapter.run_id}.{step}"):
            if row.reward is not None:
                batch.setdefault(row.task_id, []).append(row.reward)
        for task_id, rewards in batch.items():
            if len(found) < prompts:
                found.setdefault(task_id, rewards)
        if len(found) >= prompts:
            break
    return found


def _again(adapter: Adapter, config: RunConfig, task_ids: list[str]) -> SamplingRequest:
    """As in training, but not a measurement of the policy: no report or delta takes it for an evaluation."""
    return SamplingRequest(
        sampling_id=f"verify-{adapter.name}-{secrets.token_hex(3)}",
        purpose=Purpose.BAND,
        domain=config.domain,
        policy=policy_of(adapter),
        regime=config.regime,
        parameters=SamplingParameters(
            k=min(config.k, 4), temperature=config.temperature, top_p=1.0, max_tokens=config.max_tokens
        ),
        profile=config.profile,
        split=Split.TRAIN,
        task_ids=task_ids,
    )


def _line(found: Sampling) -> str:
    return f"{found.state}: {found.progress.landed}/{found.progress.wanted} replies verified"


@app.command()
@command
async def export(
    name: Name,
    layout: Annotated[
        Layout, typer.Option(help="`peft`: as trained; `vllm`: in the served base's names")
    ] = Layout.PEFT,
    out: Annotated[Path | None, typer.Option(help="folder to write; default: the adapter's name")] = None,
    push: Annotated[str | None, typer.Option(help="OWNER/NAME on the hub of HF_ENDPOINT; needs HF_TOKEN")] = None,
) -> None:
    """Write a folder that others can load, with a model card: base, run, digest, the delta and how it was measured."""
    connection = Connection()
    async with connection.inference() as client, connection.rollout() as rollout:
        known = await client.adapters()
        adapter = find_adapter(known, name)
        folder = out or Path(adapter.name)
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(f"--out {folder} is not empty; name another folder")
        rank = unpack(await client.files(adapter.name, layout), folder)
        measured = await _measured(rollout, policy_of(adapter))
    write_card(folder, model_card(adapter, known.model, layout, rank, measured))
    say(f"{adapter.name} is in {folder} ({layout}): {', '.join(sorted(path.name for path in folder.iterdir()))}")
    if push is not None:
        say(f"pushed: {push_folder(folder, push)}")


async def _measured(rollout: RolloutClient, policy: str) -> Measured | None:
    """The delta of the newest evaluations; None when the two were not measured."""
    try:
        delta = await rollout.delta(DeltaRequest(before=[BASE_POLICY], after=[policy]))
        return Measured(delta, await rollout.sampling(delta.after[0]))
    except ServiceProblem as error:
        if error.problem.status >= 500:
            raise
        return None
