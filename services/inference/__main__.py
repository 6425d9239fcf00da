"""`python -m services.inference`: the gateway. The engine is `python -m services.inference.engine`."""

import sys

from services.inference.app import create_app
from services.inference.settings import GatewaySettings
from shared.settings import load
from shared.web import serve


def main() -> None:
    """Load settings, serve until SIGTERM. Exits 2 with a sentence when it cannot."""
    settings = load(GatewaySettings)
    try:
        app = create_app(settings)
    except ValueError as error:
        print(f"inference: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    serve(app, "inference", settings, settings.shutdown_seconds)


if __name__ == "__main__":
    main()
