"""Settings of the author."""

from pydantic import Field

from services.author.teachers.settings import TeacherSettings
from shared.settings import DatabaseSettings, DomainSettings, ServiceSettings


class AuthorSettings(ServiceSettings, DatabaseSettings, DomainSettings, TeacherSettings):
    """What `python -m services.author` reads."""

    verifier_url: str = Field(
        pattern="^https?://", description="where the verifier answers, e.g. http://127.0.0.1:8001"
    )
    rollout_url: str | None = Field(
        default=None, pattern="^https?://", description="where rollout answers; needed for `from_report` only"
    )
