"""`python -m services.verifier`."""

import sys

from services.verifier.app import create_app
from services.verifier.sandbox.local import LocalDriver
from services.verifier.sandbox.protocol import SandboxFailed
from services.verifier.settings import VerifierSettings
from shared.embedded_postgres import PostgresUnavailable
from shared.settings import load
from shared.telemetry import configure_logging
from shared.web import serve


def main() -> None:
    """Load settings, open the sandbox driver, serve until SIGTERM. Exits 2 with a sentence when it cannot."""
    settings = load(VerifierSettings)
    configure_logging("verifier", settings.log_level)
    try:
        driver = LocalDriver(
            settings.sandboxes, settings.sandbox_memory_bytes, settings.isolation, settings.sandbox_total_bytes
        )
        app = create_app(settings, driver)
    except (SandboxFailed, PostgresUnavailable, ValueError) as error:
        print(f"verifier: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    serve(app, "verifier", settings)


if __name__ == "__main__":
    main()
