"""Settings of the author."""

from pydantic import Field

from shared.settings import DatabaseSettings, DomainSettings, ServiceSettings


class AuthorSettings(ServiceSettings, DatabaseSettings, DomainSettings):
    """What `python -m services.author` reads."""

    verifier_url: str = Field(
        pattern="^https?://", description="where the verifier answers, e.g. http://127.0.0.1:8001"
    )
