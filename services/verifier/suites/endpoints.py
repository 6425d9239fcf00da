"""HTTP of suites. Golds go in and come out, so the call needs the `gold` scope."""

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse

from services.verifier.bodies import CheckedRoute
from services.verifier.resources import inline_bundle
from services.verifier.suites.runs import SuiteRuns
from shared.contracts.suites import SuiteRequest

router = APIRouter(prefix="/v1/suites", tags=["suites"], route_class=CheckedRoute)


@router.post("")
async def make_suite(body: SuiteRequest, request: Request) -> StreamingResponse:
    """Further seeds that kill mutants of the golds: progress lines, then the result. Ends when the caller goes away."""
    runs: SuiteRuns = request.app.state.suites
    run = runs.start(inline_bundle(body.bundle), body)
    try:
        first = await run.first()
    except BaseException:
        run.stop()
        raise
    return StreamingResponse(run.lines(first), media_type="application/x-ndjson")
