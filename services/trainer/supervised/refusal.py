"""How data that a run cannot learn from is refused: by the API as a 422, by the job as its run's end."""

from shared.contracts.base import FieldError
from shared.errors import Invalid


def unusable(field: str, message: str) -> Invalid:
    """The refusal of one field of a run's config."""
    return Invalid(f"`{field}`: {message}. Nothing was trained", [FieldError(field=f"config.{field}", message=message)])
