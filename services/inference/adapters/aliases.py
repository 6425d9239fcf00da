"""Aliases: the stable names that applications call, moved only to what was measured to be better, and back."""

import asyncio
import logging

from services.inference.adapters.alias_repository import AliasRepository
from services.inference.adapters.service import AdapterService
from shared.contracts.inference import Alias, AliasList, AliasRequest
from shared.contracts.measuring import Delta, DeltaVerdict
from shared.errors import Conflict, Invalid, NotFound
from shared.ids import BASE_POLICY, parse_policy, parse_served_name

log = logging.getLogger(__name__)

MOVED = frozenset({DeltaVerdict.MOVED, DeltaVerdict.MOVED_REPLICATED})
"""Verdicts that allow a move."""


class AliasService:
    """Moves aliases, and tells the registry which adapters they name."""

    def __init__(self, repository: AliasRepository, adapters: AdapterService) -> None:
        self._repository = repository
        self._adapters = adapters
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        """Take up where the aliases are; before the registry chooses which adapters keep their slots."""
        self._adapters.keeping.name({alias.name: alias.model for alias in await self._repository.all()})

    async def aliases(self) -> AliasList:
        """All aliases, by name."""
        return AliasList(aliases=await self._repository.all())

    async def alias(self, name: str) -> Alias:
        """One alias. Raises NotFound."""
        found = await self._find(name)
        if found is None:
            raise NotFound(f"there is no alias {name!r}; `sqlclimb promote RUN@STEP --alias {name}` makes it")
        return found

    async def move(self, name: str, request: AliasRequest) -> Alias:
        """Serve the policy everywhere, then let the alias name it. The same move again answers the same.

        Raises Invalid for a delta that does not show a gain over what the alias names now, Conflict, Unavailable.
        """
        self._check_name(name)
        async with self._lock:
            now = await self._find(name)
            if now is not None and now.policy == request.policy:
                return now
            check_delta(request.policy, now.policy if now is not None else BASE_POLICY, request.delta)
            adapter = await self._adapters.serve_policy(request.policy)
            await self._repository.move(name, adapter.name, request)
            await self.start()
        log.info("alias moved", extra={"fields": {"alias": name, "policy": request.policy, "model": adapter.name}})
        return await self.alias(name)

    async def roll_back(self, name: str) -> Alias | None:
        """Undo the newest move; None when it was the first, and the alias is gone. Raises NotFound, Unavailable."""
        async with self._lock:
            now = await self.alias(name)
            before = await self._repository.model_before(name)
            if before is not None:
                await self._adapters.serve(before)
            await self._repository.undo(name)
            await self.start()
            log.info("alias rolled back", extra={"fields": {"alias": name, "from": now.model, "to": before}})
            return await self._find(name)

    async def _find(self, name: str) -> Alias | None:
        return next((alias for alias in await self._repository.all() if alias.name == name), None)

    def _check_name(self, name: str) -> None:
        try:
            parse_served_name(name)
        except ValueError:
            if name not in (self._adapters.fleet.base, BASE_POLICY):
                return
        raise Conflict(f"{name!r} names a base or an adapter; an alias needs a name of its own")


def check_delta(policy: str, present: str, delta: Delta) -> None:
    """Raises Invalid unless the delta shows that `policy` is better than `present`, by what was measured."""
    try:
        if parse_policy(policy) is None:
            raise ValueError(f"{policy!r} is the base; roll the alias back instead")
    except ValueError as error:
        raise Invalid(f"{error}. The alias was not moved") from error
    if (delta.before_policy, delta.after_policy) != (present, policy):
        raise Invalid(
            f"the delta compares {delta.before_policy} with {delta.after_policy}; to move from {present} to {policy} "
            f"it must compare those. The alias was not moved"
        )
    if delta.verdict not in MOVED:
        raise Invalid(f"{policy} has not moved against {present}: {delta.verdict}. {delta.sentence} The alias was kept")
