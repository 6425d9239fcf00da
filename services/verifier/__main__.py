"""`python -m services.verifier`."""

import sys

from services.verifier.app import create_app
from services.verifier.sandbox.local import LocalDriver
from services.verifier.sandbox.pod import PodDriver
from services.verifier.sandbox.protocol import SandboxDriver, SandboxFailed
from services.verifier.settings import VerifierSettings
from shared.embedded_postgres import PostgresUnavailable
from shared.kubernetes import KubernetesApi, KubernetesUnavailable
from shared.settings import load
from shared.telemetry import configure_logging
from shared.web import serve


def open_driver(settings: VerifierSettings) -> SandboxDriver:
    """Pods when a template of theirs is given, else processes here."""
    if settings.pod_template is not None:
        owner = (settings.pod_name, settings.pod_uid)
        return PodDriver(KubernetesApi.in_cluster(), settings.pod_template, owner)
    return LocalDriver(
        settings.sandboxes, settings.sandbox_memory_bytes, settings.isolation, settings.sandbox_total_bytes
    )


def main() -> None:
    """Load settings, open the sandbox driver, serve until SIGTERM. Exits 2 with a sentence when it cannot."""
    settings = load(VerifierSettings)
    configure_logging("verifier", settings.log_level)
    try:
        app = create_app(settings, open_driver(settings))
    except (SandboxFailed, PostgresUnavailable, KubernetesUnavailable, ValueError) as error:
        print(f"verifier: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    serve(app, "verifier", settings)


if __name__ == "__main__":
    main()
