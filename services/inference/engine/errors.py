"""Why an engine ended, in its own words. Pure."""

import re
import signal

_PREFIX = re.compile(r"^\(\w+ pid=\d+\) (?:ERROR \S+ \S+ \[[^\]]+\] ?)?")
"""What vLLM puts before each line of its processes."""

_RAISED = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception)\b(?:: ?| ?$)")
"""The last line of a traceback."""

POINTERS = ("root cause", "See stack trace")
"""Errors that only say that there is another one above."""


LONGEST = 400
"""Characters of an error that are told."""


def why_ended(returncode: int, output: str) -> str:
    """One sentence: the signal, else the last error raised in `output` that is no pointer to another, else its end."""
    if returncode < 0:
        return f"the engine was ended by {signal.Signals(-returncode).name}; out of memory?"
    lines = [_PREFIX.sub("", line).rstrip() for line in output.splitlines()]
    found = ""
    for at, line in enumerate(lines):
        if _RAISED.match(line) and not any(words in line for words in POINTERS):
            detail = lines[at + 1].strip() if line.startswith("pydantic") and at + 1 < len(lines) else ""
            found = f"{line} {detail}".rstrip()
    last = next((line for line in reversed(lines) if line), "it said nothing")
    return f"the engine ended with code {returncode}: {(found or last)[:LONGEST]}"
