"""HTTP of the author."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from services.author.service import Author
from shared.auth import Scope, require
from shared.contracts.author import Authoring, AuthoringRequest
from shared.contracts.tasks import Split, TaskSet
from shared.web import Scopes, needs

router = APIRouter(prefix="/v1")


def _author(request: Request) -> Author:
    author: Author = request.app.state.author
    return author


Held = Annotated[Author, Depends(_author)]


@router.post("/authorings", response_model=Authoring, status_code=202, dependencies=[needs(Scope.AUTHOR)])
async def start(body: AuthoringRequest, author: Held) -> Authoring:
    """Start an authoring, or resume it under the same id; it goes on in the background."""
    return await author.start(body)


@router.get("/authorings/{authoring_id}", response_model=Authoring, dependencies=[needs(Scope.AUTHOR)])
async def authoring(authoring_id: str, author: Held) -> Authoring:
    """How it stands."""
    return await author.authoring(authoring_id)


@router.delete("/authorings/{authoring_id}", response_model=Authoring, dependencies=[needs(Scope.AUTHOR)])
async def cancel(authoring_id: str, author: Held) -> Authoring:
    """Stop it; what landed stays, and the same post again continues."""
    return await author.cancel(authoring_id)


@router.get("/domains/{domain}/tasks", response_model=TaskSet)
async def tasks(
    domain: str, author: Held, scopes: Scopes, split: Split | None = None, privileged: bool = False
) -> TaskSet:
    """The current tasks of a domain. References only where asked for, and only with the `gold` scope."""
    require(scopes, Scope.GOLD if privileged or Scope.GOLD in scopes else Scope.SAMPLE)
    return await author.tasks(domain, split, privileged)
