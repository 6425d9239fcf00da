"""The verifier without HTTP, for tests that need a statement's rows beside its verdict. Real clusters all the same."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from services.verifier.execution import Limits, Outcome
from services.verifier.parser import Parser
from services.verifier.sandbox.local import LocalDriver
from services.verifier.sandbox.protocol import MAIN_SEED, Role
from services.verifier.sandboxes import RunningSandbox
from services.verifier.service import Verifier
from shared.contracts.verifier import ExplainRequest, Profile, Verdict, VerifyItem, VerifyRequest
from shared.domain import Bundle

LIMITS = Limits(rows=200, bytes=1_000_000)
"""The service's defaults."""

MEMORY_BYTES = 256 * 1024**2


@dataclass(frozen=True)
class InProcess:
    """One bundle's sandbox and the verifier on it."""

    sandbox: RunningSandbox
    verifier: Verifier

    def verdicts(self, items: list[VerifyItem], profile: Profile = Profile.STANDARD) -> list[Verdict]:
        """In the order of the items."""
        request = VerifyRequest(profile=profile, items=items)
        return self.verifier.verify(self.sandbox, request, self.verifier.lane()).verdicts

    def difference(self, gold: str | list[str], sql: str) -> str:
        """The first difference in words."""
        request = ExplainRequest(gold=gold, sql=sql)
        return self.verifier.explain(self.sandbox, request, self.verifier.lane()).difference

    def outcome(self, sql: str) -> Outcome:
        """A statement's rows on the main seed."""
        return self.sandbox.run(Role.CANDIDATE, MAIN_SEED, sql, LIMITS)


@dataclass(frozen=True)
class Workshop:
    """What bundles share: a driver, a parser."""

    driver: LocalDriver
    verifier: Verifier

    @contextlib.contextmanager
    def opened(self, bundle: Bundle) -> Iterator[InProcess]:
        """The bundle's sandbox, for as long as it is needed."""
        sandbox = RunningSandbox(bundle.name, "tests", bundle, self.driver)
        try:
            sandbox.start()
            yield InProcess(sandbox, self.verifier)
        finally:
            sandbox.close()


@contextlib.contextmanager
def workshop(folder: Path) -> Iterator[Workshop]:
    """Everything started below `folder` is stopped in the end."""
    driver = LocalDriver(folder, MEMORY_BYTES, None)
    parser = Parser(processes=1)
    verifier = Verifier(parser, LIMITS, workers=2, cache_bytes=2**24)
    try:
        yield Workshop(driver, verifier)
    finally:
        driver.close()
        verifier.close()
        parser.close()
