"""What a publish request must say for itself, before anything is fetched. Pure."""

from services.inference.adapters.probe import shape_fault
from services.inference.adapters.repository import Record
from shared.contracts.inference import AdapterRequest, AdapterState, Probe
from shared.errors import Conflict, Invalid
from shared.ids import ServedName, parse_served_name


def check_request(name: str, request: AdapterRequest, base: str) -> ServedName:
    """The name's parts. Raises Invalid for a request that contradicts its name, its probe or the served base."""
    try:
        parts = parse_served_name(name)
    except ValueError as error:
        raise Invalid(f"{error}. Nothing was loaded") from error
    if not request.digest.startswith(parts.digest8):
        raise Invalid(f"the name says digest {parts.digest8}…, the body {request.digest[:8]}…. Nothing was loaded")
    if request.base != base:
        raise Invalid(f"base {request.base!r} is not served here: {base!r} is. Nothing was loaded")
    if request.probe is not None and (problem := shape_fault(request.probe)):
        raise Invalid(f"{problem}. Nothing was loaded")
    return parts


def agree(known: Record | None, request: AdapterRequest) -> Probe:
    """The probe to use. Raises Conflict when the name stands for something else, Invalid without a probe."""
    if known is not None:
        same = (known.adapter.digest, known.adapter.base, known.adapter.kind)
        if same != (request.digest, request.base, request.kind):
            raise Conflict(
                f"{known.name} stands for digest {known.adapter.digest[:12]}… (base {known.adapter.base}, "
                f"{known.adapter.kind}); names are never reused. Nothing was loaded; publish under a new name"
            )
        if request.probe is None or known.adapter.state is not AdapterState.REFUSED:
            return known.probe
    if request.probe is None:
        raise Invalid("`probe` is needed to publish a new name: without it nothing proves what is served")
    return request.probe
