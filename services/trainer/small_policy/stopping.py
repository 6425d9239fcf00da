"""When a warm start ends. Pure: what was measured in, a decision out."""

from shared.contracts.policy import SliceMeasure, StopReason


def stop_reason(measures: list[SliceMeasure], target: float, maximum_steps: int) -> StopReason | None:
    """None to go on. A policy stops as soon as its last measured pass@1 reaches the target: it has to keep headroom."""
    if not measures:
        return None
    last = measures[-1]
    if last.pass_1.value >= target:
        return StopReason.TARGET
    return StopReason.STEPS if last.step >= maximum_steps else None
