"""Logs as JSON lines without secrets; HTTP metrics every service exports."""

import json
import logging
import re
import sys
from datetime import UTC, datetime

from prometheus_client import Counter, Histogram

REQUESTS = Counter("sqlclimb_http_requests", "HTTP requests", ["service", "method", "route", "status"])
REQUEST_SECONDS = Histogram(
    "sqlclimb_http_request_seconds",
    "HTTP request duration",
    ["service", "method", "route"],
    buckets=(0.005, 0.02, 0.1, 0.5, 2, 10, 60, 300),
)

_SECRETS = re.compile(r"(Bearer\s+|://[^:/@\s]+:)([^\s@\"']+)", re.IGNORECASE)


def redact(text: str) -> str:
    """Bearer tokens and URL passwords replaced by `***`."""
    return _SECRETS.sub(r"\1***", text)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and `extra={"fields": {...}}` merged in."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "service": self._service,
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["exception"] = redact(self.formatException(record.exc_info))
        return json.dumps(line, default=str)


def configure_logging(service: str, level: str) -> None:
    """Route all logging of this process to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(service))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], name != "uvicorn.access"
    logging.getLogger("httpx").setLevel("WARNING")
