"""A stub of the verifier: the verify contract, every reply a match. Run as a program: `--port P --domain shop`."""

import argparse
import json

from shared.contracts.verifier import Sandbox, Status, Verdict
from shared.domain import Bundle, find_bundle
from shared.settings import REPOSITORY

from .stub_http import Answer, StubApp, serve_stub

STATEMENT = "SELECT category, round(avg(price), 2) FROM products WHERE active GROUP BY category"


class StubVerifier:
    """Sandboxes that are ready at once, and one fixed verdict."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        verdict = Verdict(
            item_id="", status=Status.MATCH, reward=1.0, sql=STATEMENT, reason="equal results", rows=12, gold_rows=12
        )
        self._verdict = verdict.model_dump(mode="json")

    def app(self) -> StubApp:
        """To be served."""
        return StubApp(
            "verifier",
            [
                ("POST", "/v1/sandboxes", self._create),
                ("POST", "/v1/sandboxes/[^/]+/verify", self._verify),
                ("DELETE", "/v1/sandboxes/[^/]+", self._delete),
            ],
        )

    async def _create(self, path: str, body: bytes) -> Answer:
        asked = json.loads(body)
        sandbox = Sandbox(
            sandbox_id=asked["sandbox_id"],
            run_id=asked["run_id"],
            domain=self._bundle.name,
            digest=self._bundle.digest,
            postgres="stub",
            isolation="process",
            seeds=["main"],
            ready_ms=0.0,
        )
        return Answer(sandbox.model_dump_json().encode())

    async def _delete(self, path: str, body: bytes) -> Answer:
        return Answer(b"", status=204)

    async def _verify(self, path: str, body: bytes) -> Answer:
        items = json.loads(body)["items"]
        verdicts = [self._verdict | {"item_id": item["item_id"]} for item in items]
        return Answer(json.dumps({"verdicts": verdicts}).encode())


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--domain", default="shop")
    options = parser.parse_args()
    bundle = find_bundle(options.domain, [REPOSITORY / "domains"])
    serve_stub(StubVerifier(bundle).app(), options.port)


if __name__ == "__main__":
    main()
