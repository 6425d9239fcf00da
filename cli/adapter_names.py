"""From what a user types (a served name, RUN@STEP, `base`) to an adapter."""

from cli.context import UsageError
from shared.contracts.inference import Adapter, AdapterList
from shared.ids import RunStep, parse_policy


def parse_policy_argument(policy: str) -> RunStep | None:
    """As `shared.ids.parse_policy`, a usage error for another shape."""
    try:
        return parse_policy(policy)
    except ValueError as error:
        raise UsageError(str(error)) from error


def find_adapter(known: AdapterList, name: str) -> Adapter:
    """By served name, or the newest of RUN@STEP. Raises UsageError when there is none."""
    for adapter in known.adapters:  # newest first
        if name in (adapter.name, policy_of(adapter)):
            return adapter
    raise UsageError(f"no adapter {name} was published; `sqlclimb adapters list` shows those that were")


def policy_of(adapter: Adapter) -> str:
    """RUN@STEP."""
    return f"{adapter.run_id}@{adapter.step}"


def canary_line(adapter: Adapter) -> str:
    """What the probe measured, and the share that a publish bounds by a tenth."""
    probe = adapter.probe
    if probe is None:
        return "no probe"
    share = probe.served_minus_publisher / probe.base_minus_publisher if probe.base_minus_publisher else float("nan")
    return (
        f"canary: mean |served - trainer| {probe.served_minus_publisher:.2e}, |base - trainer| "
        f"{probe.base_minus_publisher:.2e} (share {share:.4f}) over {probe.tokens} tokens"
    )
