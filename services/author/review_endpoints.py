"""HTTP of import, review, check and audit."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from services.author.endpoints import Held
from services.author.gates import Reason
from services.author.inspection import Inspection
from services.author.review import Review
from shared.auth import Scope
from shared.contracts.author import Authoring
from shared.contracts.review import Audit, AuditRequest, DecisionsRequest, DecisionsResponse, ReviewQueue, TaskCheck
from shared.contracts.tasks import ImportRequest, RejectedTasks
from shared.web import needs

router = APIRouter(prefix="/v1")


def _review(request: Request) -> Review:
    review: Review = request.app.state.review
    return review


def _inspection(request: Request) -> Inspection:
    inspection: Inspection = request.app.state.inspection
    return inspection


Reviewing = Annotated[Review, Depends(_review)]
Inspecting = Annotated[Inspection, Depends(_inspection)]


@router.post("/imports", status_code=202, dependencies=[needs(Scope.AUTHOR), needs(Scope.GOLD)])
async def start_import(body: ImportRequest, author: Held) -> Authoring:
    """Put tasks from elsewhere before the gates, in the background; the same id again resumes."""
    return await author.start_import(body)


@router.get("/authorings/{authoring_id}/rejections", dependencies=[needs(Scope.AUTHOR)])
async def rejections(authoring_id: str, review: Reviewing) -> RejectedTasks:
    """Every question of an authoring that is no task, and why; without golds."""
    return await review.rejections(authoring_id)


@router.get("/domains/{domain}/review", dependencies=[needs(Scope.GOLD)])
async def queue(
    domain: str,
    review: Reviewing,
    reason: Annotated[Reason | None, Query(description="only questions with this reason")] = None,
    task: Annotated[str | None, Query(description="only this task id, decided or not")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 20,
) -> ReviewQueue:
    """What waits for a person: questions that a gate stopped by reading their meaning, with golds and rows."""
    return await review.queue(domain, reason, task, limit)


@router.post("/domains/{domain}/decisions", dependencies=[needs(Scope.GOLD)])
async def decide(domain: str, body: DecisionsRequest, review: Reviewing) -> DecisionsResponse:
    """Accept, reject or edit; an edit passes the gates first. What is stored counts in every authoring to come."""
    return await review.decide(domain, body)


@router.post("/domains/{domain}/tasks/check", dependencies=[needs(Scope.AUTHOR)])
async def check(domain: str, inspection: Inspecting) -> TaskCheck:
    """Which current tasks the bundle, as it is now, no longer bears; without golds. Takes a second per 100 tasks."""
    return await inspection.check(domain)


@router.post("/domains/{domain}/audits", dependencies=[needs(Scope.GOLD)])
async def audit(domain: str, body: AuditRequest, inspection: Inspecting) -> Audit:
    """Suspect golds: samples agree with each other and not with the gold."""
    return await inspection.audit(domain, body)
