"""`serve`, `promote`: what applications call."""

import json
import os
from typing import Annotated

import typer

from cli.adapter_names import canary_line, find_adapter, parse_policy_argument
from cli.context import Connection, UsageError, command, say
from cli.render import delta_table
from shared.contracts.inference import AdapterRequest, AdapterState, AliasRequest
from shared.contracts.measuring import DeltaRequest
from shared.ids import BASE_POLICY


@command
async def serve(
    policy: Annotated[str | None, typer.Argument(help="RUN@STEP, or `base`")] = None,
    base: Annotated[str | None, typer.Option("--base", help="the served base model, by its name")] = None,
) -> None:
    """Make sure a policy is served (load it, prove it by its probe) and print how to call it."""
    if (policy is None) == (base is None):
        raise UsageError("name one of the two: `sqlclimb serve RUN@STEP`, or `sqlclimb serve --base NAME`")
    connection = Connection()
    async with connection.inference() as client:
        known = await client.adapters()
        if base is not None and base not in (known.base, known.model):
            raise UsageError(
                f"--base {base}: this gateway serves {known.base} ({known.model}); a stack serves one base"
            )
        if policy is None or parse_policy_argument(policy) is None:
            name = known.base
        else:
            adapter = find_adapter(known, policy)
            if adapter.state != AdapterState.READY:
                request = AdapterRequest(uri=adapter.uri, base=adapter.base, digest=adapter.digest, kind=adapter.kind)
                adapter = await client.publish(adapter.name, request)
            name = adapter.name
            say(f"{policy} is ready as {name}: {canary_line(adapter)}")
    _say_how_to_call(connection, name)


def _say_how_to_call(connection: Connection, model: str) -> None:
    url = f"{connection.url('inference')}/v1"
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": "…"}]}, ensure_ascii=False)
    say(f"OpenAI URL: {url}   model: {model}")
    token = "$SQLCLIMB_TOKEN" if "SQLCLIMB_TOKEN" in os.environ else f"$(cat {connection.home.token_file})"
    say(f'curl -s {url}/chat/completions -H "Authorization: Bearer {token}" \\')
    say(f"  -H 'Content-Type: application/json' -d '{body}'")


@command
async def promote(
    policy: Annotated[str | None, typer.Argument(help="RUN@STEP")] = None,
    alias: Annotated[str, typer.Option(help="the stable name that applications call")] = "",
    before: Annotated[
        list[str] | None, typer.Option(help="sampling id of what the alias names now; default: newest")
    ] = None,
    after: Annotated[
        list[str] | None, typer.Option(help="sampling id of RUN@STEP; default: its newest evaluation")
    ] = None,
    rollback: Annotated[bool, typer.Option("--rollback", help="back to what the alias named before")] = False,
) -> None:
    """Move the name that applications call to a policy that was measured to be better, or back.

    Shows the delta against what the alias names now (`base` when it is new); one that has not moved is refused.
    """
    if not alias or (policy is None) != rollback:
        raise UsageError(
            "name the alias and one of the two: `promote RUN@STEP --alias NAME`, `promote --alias NAME --rollback`"
        )
    connection = Connection()
    async with connection.inference() as client, connection.rollout() as rollout:
        if policy is None:
            now = {found.name: found for found in (await client.roll_back_alias(alias)).aliases}
            say(
                f"{alias} names {now[alias].policy} again"
                if alias in now
                else f"{alias} named nothing before: it is gone"
            )
            return
        parse_policy_argument(policy)
        present = next((a.policy for a in (await client.aliases()).aliases if a.name == alias), BASE_POLICY)
        if present == policy:
            say(f"{alias} names {policy} already")
            return
        delta = await rollout.delta(DeltaRequest(before=before or [present], after=after or [policy]))
        delta_table(delta)
        moved = await client.move_alias(alias, AliasRequest(policy=policy, delta=delta))
    say(f"{alias} names {moved.policy} ({moved.model}), before it {present}")
    say(f"back: sqlclimb promote --alias {alias} --rollback")
    _say_how_to_call(connection, alias)
