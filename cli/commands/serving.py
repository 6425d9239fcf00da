"""`serve`, `adapters`: what the gateway serves."""

import json
from typing import Annotated

import typer

from cli.context import Connection, UsageError, command, say
from shared.contracts.inference import Adapter, AdapterRequest, AdapterState
from shared.ids import RunStep, parse_policy

app = typer.Typer(help="Adapters the gateway knows.", no_args_is_help=True)


@command
async def serve(policy: Annotated[str, typer.Argument(help="RUN@STEP, or `base`")]) -> None:
    """Make sure a policy is served (load it, prove it by its probe) and print how to call it."""
    connection = Connection()
    wanted = parse_policy_argument(policy)
    async with connection.inference() as client:
        known = await client.adapters()
        if wanted is None:
            name = known.base
        else:
            matching = [a for a in known.adapters if (a.run_id, a.step) == (wanted.run_id, wanted.step)]
            if not matching:
                raise UsageError(
                    f"no adapter of {policy} was published; `sqlclimb adapters list` shows those that were"
                )
            adapter = matching[0]
            if adapter.state != AdapterState.READY:
                request = AdapterRequest(uri=adapter.uri, base=adapter.base, digest=adapter.digest, kind=adapter.kind)
                adapter = await client.publish(adapter.name, request)
            name = adapter.name
            say(f"{policy} is ready as {name}: {canary_line(adapter)}")
    url = f"{connection.url('inference')}/v1"
    body = json.dumps({"model": name, "messages": [{"role": "user", "content": "…"}]}, ensure_ascii=False)
    say(f"OpenAI URL: {url}   model: {name}")
    say(f'curl -s {url}/chat/completions -H "Authorization: Bearer $(cat {connection.home.token_file})" \\')
    say(f"  -H 'Content-Type: application/json' -d '{body}'")


def parse_policy_argument(policy: str) -> RunStep | None:
    """As `shared.ids.parse_policy`, a usage error for another shape."""
    try:
        return parse_policy(policy)
    except ValueError as error:
        raise UsageError(str(error)) from error


def canary_line(adapter: Adapter) -> str:
    """What the probe measured, and the share that A5 of the design bounds by a tenth."""
    probe = adapter.probe
    if probe is None:
        return "no probe"
    share = probe.served_minus_publisher / probe.base_minus_publisher if probe.base_minus_publisher else float("nan")
    return (
        f"canary: mean |served - trainer| {probe.served_minus_publisher:.2e}, |base - trainer| "
        f"{probe.base_minus_publisher:.2e} (share {share:.4f}) over {probe.tokens} tokens"
    )


@app.command("list")
@command
async def list_() -> None:
    """All adapters, newest first."""
    async with Connection().inference() as client:
        known = await client.adapters()
    say(f"base {known.base}")
    for adapter in known.adapters:
        say(f"{adapter.name:<40} {adapter.state:<9} {adapter.reason or canary_line(adapter)}")
