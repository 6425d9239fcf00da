"""Where the gates of one authoring run golds: a sandbox of the domain, and one whose rows lie in the opposite order."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from services.author.catalogue import Catalogue, catalogue_of
from services.author.gates import infrastructure_failure
from services.author.gates.knowledge import Knowledge
from shared.clients.base import ServiceProblem, ServiceUnreachable
from shared.clients.verifier import VerifierClient
from shared.contracts.verifier import (
    BundleSource,
    ExecutedStatement,
    ExecuteRequest,
    ExplainRequest,
    ResultPreview,
    SandboxRequest,
    Verdict,
    VerifyItem,
    VerifyRequest,
)
from shared.domain import Bundle

STATEMENTS_PER_CALL = 1024
"""Of one call to the verifier; a batch of tasks with many acceptable golds, or many attempts, has more."""

REVERSE_ROWS = """
SET CONSTRAINTS ALL IMMEDIATE;
DO $reverse$
DECLARE
  one record;
  place tid;
BEGIN
  FOR one IN
    SELECT c.oid::regclass AS name, c.relhastriggers AS triggers, (
      SELECT a.attname FROM pg_attribute a
      WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND a.attidentity <> 'a'
      ORDER BY a.attnum LIMIT 1) AS field
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND n.nspname <> 'information_schema' AND left(n.nspname, 3) <> 'pg_'
  LOOP
    CONTINUE WHEN one.field IS NULL;
    IF one.triggers THEN
      EXECUTE format('ALTER TABLE %s DISABLE TRIGGER USER', one.name);
    END IF;
    FOR place IN EXECUTE format('SELECT ctid FROM ONLY %s ORDER BY ctid DESC', one.name) LOOP
      EXECUTE format('UPDATE ONLY %s SET %I = %I WHERE ctid = $1', one.name, one.field, one.field) USING place;
    END LOOP;
  END LOOP;
END $reverse$;
"""
"""An update writes a row anew behind all others, also one that changes nothing. Run after a seed, from the last row to
the first, it turns the physical order of every table around and leaves every value, key and sequence as it was."""


class GroundsBroken(Exception):
    """The sandbox failed under a statement, or is of another bundle: nothing is judged, and it may be tried again."""


class Grounds:
    """Both sandboxes and what the domain tells. Calls raise GroundsBroken, ServiceProblem, ServiceUnreachable."""

    def __init__(self, verifier: VerifierClient, bundle: Bundle, knowledge: Knowledge, sandbox_id: str) -> None:
        self.knowledge = knowledge
        self._verifier = verifier
        self._bundle = bundle
        self._plain = sandbox_id
        self._reversed = f"{sandbox_id}-reversed"
        self._made: set[str] = set()
        self._making = asyncio.Lock()

    async def open(self) -> None:
        """Make the plain sandbox; the reversed one is made when a gold needs it."""
        request = SandboxRequest(sandbox_id=self._plain, run_id=self._plain, domain=self._bundle.name)
        self._made.add(self._plain)  # before: a call that is cut may have made it
        sandbox = await self._verifier.create_sandbox(request)
        if sandbox.digest != self._bundle.digest:
            raise GroundsBroken(f"the verifier has another version of {self._bundle.name!r}: point both at one folder")

    async def close(self) -> None:
        """Remove what was made; a verifier that is gone has removed it already."""
        for sandbox_id in self._made:
            with contextlib.suppress(ServiceProblem, ServiceUnreachable):
                await self._verifier.delete_sandbox(sandbox_id)

    async def execute(self, statements: Sequence[str], repeat: int) -> list[ExecutedStatement]:
        """Each statement on every seed, `repeat` times."""
        return await self._execute(self._plain, statements, repeat)

    async def execute_reversed(self, statements: Sequence[str]) -> list[ExecutedStatement]:
        """Each statement on every seed with its rows in the opposite physical order."""
        async with self._making:
            if not statements:
                return []
            if self._reversed not in self._made:
                self._made.add(self._reversed)
                await self._verifier.create_sandbox(self._reversed_request())
        return await self._execute(self._reversed, statements, repeat=1)

    async def verify(self, items: Sequence[VerifyItem]) -> list[Verdict]:
        """Verdicts in order."""
        verdicts: list[Verdict] = []
        for start in range(0, len(items), STATEMENTS_PER_CALL):
            part = list(items[start : start + STATEMENTS_PER_CALL])
            verdicts += (await self._verifier.verify(self._plain, VerifyRequest(items=part))).verdicts
        return verdicts

    async def preview(self, gold: str) -> ResultPreview:
        """What a gold returns on the main seed, for people."""
        return (await self._verifier.explain(self._plain, ExplainRequest(gold=gold, sql=gold))).gold

    async def _execute(self, sandbox_id: str, statements: Sequence[str], repeat: int) -> list[ExecutedStatement]:
        results: list[ExecutedStatement] = []
        for start in range(0, len(statements), STATEMENTS_PER_CALL):
            part = list(statements[start : start + STATEMENTS_PER_CALL])
            results += (
                await self._verifier.execute(sandbox_id, ExecuteRequest(statements=part, repeat=repeat))
            ).results
        broken = next((failure for result in results if (failure := infrastructure_failure(result))), None)
        if broken is not None:
            raise GroundsBroken(f"the verifier could not run a statement: {broken}")
        return results

    def _reversed_request(self) -> SandboxRequest:
        bundle = self._bundle
        source = BundleSource(
            name=bundle.name,
            schema_sql=bundle.schema_sql,
            seed_sql=bundle.seed_sql + REVERSE_ROWS,
            variants={name: seed + REVERSE_ROWS for name, seed in bundle.variants.items()},
        )
        return SandboxRequest(sandbox_id=self._reversed, run_id=self._reversed, bundle=source)


@contextlib.asynccontextmanager
async def open_grounds(
    verifier: VerifierClient, bundle: Bundle, sandbox_id: str, catalogue: Catalogue | None = None
) -> AsyncIterator[Grounds]:
    """Grounds that are removed at the end, however it comes. `catalogue`: the bundle's, where it is read already."""
    if catalogue is None:
        catalogue = await asyncio.to_thread(catalogue_of, bundle)
    grounds = Grounds(verifier, bundle, Knowledge.of(bundle, catalogue), sandbox_id)
    try:
        await grounds.open()
        yield grounds
    finally:
        await asyncio.shield(grounds.close())
