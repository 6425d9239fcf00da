"""`python -m services.author`."""

import sys

from services.author.app import create_app
from services.author.settings import AuthorSettings
from shared.settings import load
from shared.web import serve


def main() -> None:
    """Load settings, serve until SIGTERM. Exits 2 with a sentence when the tokens file cannot be used."""
    settings = load(AuthorSettings)
    try:
        app = create_app(settings)
    except (ValueError, KeyError) as error:
        print(f"author: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    serve(app, "author", settings)


if __name__ == "__main__":
    main()
