"""Has the golds studied in a process of their own. Blocking; one a suite."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict

from services.verifier.suites.study import GoldStudy, SeedStudy, StudyRequest, read_gold_study, read_seed_study
from shared.settings import REPOSITORY


class StudyCrashed(Exception):
    """The parser died on one of the texts."""


def study(request: StudyRequest, stop: threading.Event) -> Iterator[GoldStudy | SeedStudy]:
    """A study a gold as each is done, then the seed's; ends early when `stop` is set. Raises StudyCrashed."""
    argv = [sys.executable, "-m", "services.verifier.suites.study"]
    process = subprocess.Popen(argv, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("study process without pipes")
    try:
        with process.stdin as sink:
            sink.write(json.dumps(asdict(request)).encode())
        for _ in request.golds:
            if stop.is_set():
                return
            yield read_gold_study(_line(process.stdout.readline()))
        yield read_seed_study(_line(process.stdout.readline()))
    except BrokenPipeError as error:
        raise StudyCrashed from error
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _line(line: bytes) -> bytes:
    if not line:
        raise StudyCrashed
    return line
