"""Errors a service answers with. The class carries the HTTP status; `shared.web` renders all of them in one place."""

from shared.contracts.base import FieldError


class ServiceError(Exception):
    """A refusal or failure that a caller can act on. `detail` says what happened, what was kept and what to do."""

    status = 500
    title = "Internal error"
    retry_after_seconds: int | None = None

    def __init__(self, detail: str, errors: list[FieldError] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = errors or []


class Unauthenticated(ServiceError):
    status = 401
    title = "Missing or unknown token"


class Forbidden(ServiceError):
    status = 403
    title = "The token lacks the scope"


class NotFound(ServiceError):
    status = 404
    title = "Not found"


class Conflict(ServiceError):
    status = 409
    title = "Conflict"


class Invalid(ServiceError):
    status = 422
    title = "Invalid request"


class TooLarge(ServiceError):
    status = 413
    title = "Body too large"


class UnsupportedMedia(ServiceError):
    status = 415
    title = "Unsupported media type"


class TooMany(ServiceError):
    status = 429
    title = "Too many requests"


class Busy(TooMany):
    """Too many for now: the answer says after how long to repeat the call (clients of `shared.clients` do)."""

    retry_after_seconds = 1


class Unavailable(ServiceError):
    status = 503
    title = "Unavailable"
