"""Analyses of statements and plans of golds from a few parser processes; results cached, crashed processes replaced."""

import contextlib
import json
import logging
import queue
import select
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import IO, TypeVar

from services.verifier.gold_plan import GoldPlan
from services.verifier.statement import Analysis, precheck
from shared.settings import REPOSITORY

log = logging.getLogger(__name__)

ANSWER_SECONDS = 20.0
"""A parser that has not answered a chunk by then is replaced."""

CHUNK = 32
"""Statements a request: about 5 ms of work."""

CACHED = 20_000
"""Analyses and plans kept."""

Answer = TypeVar("Answer")


class ParserCrashed(Exception):
    """The process died or hung on what it was given."""


class _Process:
    """One parser process; not thread-safe."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, analyse: Sequence[str], plan: Sequence[str]) -> tuple[list[Analysis], list[GoldPlan]]:
        """Answers in order. Raises ParserCrashed, after which the next call starts a fresh process."""
        if self._process is None:
            argv = [sys.executable, "-m", "services.verifier.parser_process"]
            self._process = subprocess.Popen(argv, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        source, sink = self._process.stdin, self._process.stdout
        if source is None or sink is None:
            raise RuntimeError("parser process without pipes")
        try:
            source.write(json.dumps({"analyse": analyse, "plan": plan}).encode() + b"\n")
            source.flush()
            line = self._read_line(sink)
        except (BrokenPipeError, TimeoutError) as error:
            self.close()
            raise ParserCrashed from error
        if not line:
            self.close()
            raise ParserCrashed
        answer = json.loads(line)
        plans = [
            GoldPlan(**{**fields, "sort_keys": None if fields["sort_keys"] is None else tuple(fields["sort_keys"])})
            for fields in answer["plan"]
        ]
        return [Analysis(**fields) for fields in answer["analyse"]], plans

    def _read_line(self, sink: IO[bytes]) -> bytes:
        ready, _, _ = select.select([sink], [], [], ANSWER_SECONDS)
        if not ready:
            raise TimeoutError
        return sink.readline()

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # its buffer has no reader left
                    pipe.close()


class Parser:
    """Thread-safe; blocking."""

    def __init__(self, processes: int) -> None:
        self._idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        self._all = [_Process() for _ in range(processes)]
        for process in self._all:
            self._idle.put(process)
        self._lock = threading.Lock()
        self._analyses: dict[str, Analysis] = {}
        self._plans: dict[str, GoldPlan] = {}

    def parse(self, statements: Iterable[str], golds: Iterable[str]) -> tuple[dict[str, Analysis], dict[str, GoldPlan]]:
        """The analysis of each statement and the plan of each gold, by text."""
        statements, golds = list(dict.fromkeys(statements)), list(dict.fromkeys(golds))
        analyses: dict[str, Analysis] = {}
        plans: dict[str, GoldPlan] = {}
        for sql in statements:
            if (reason := precheck(sql)) is not None:
                analyses[sql] = Analysis(refused=reason)
        for gold in golds:
            if (reason := precheck(gold)) is not None:
                plans[gold] = GoldPlan(gold, error=reason)
        with self._lock:
            analyses |= {sql: self._analyses[sql] for sql in statements if sql in self._analyses}
            plans |= {gold: self._plans[gold] for gold in golds if gold in self._plans}
        new_statements = [sql for sql in statements if sql not in analyses]
        new_golds = [gold for gold in golds if gold not in plans]
        for start in range(0, max(len(new_statements), len(new_golds)), CHUNK):
            chunk = slice(start, start + CHUNK)
            self._ask(new_statements[chunk], new_golds[chunk], analyses, plans)
        return analyses, plans

    def _ask(
        self, statements: list[str], golds: list[str], analyses: dict[str, Analysis], plans: dict[str, GoldPlan]
    ) -> None:
        """Fill in the answers. A text that crashes the parser by itself is refused; its neighbours are not."""
        process = self._idle.get()
        try:
            found, planned = process.ask(statements, golds)
        except ParserCrashed:
            if len(statements) + len(golds) == 1:
                log.warning("a statement crashed the parser; refused, and the parser process was replaced")
            found = [Analysis(refused="cannot be parsed safely") for _ in statements]
            planned = [GoldPlan(gold, error="cannot be parsed safely") for gold in golds]
            crashed = True
        else:
            crashed = False
        finally:
            self._idle.put(process)
        if crashed and len(statements) + len(golds) > 1:  # only the one that crashes it by itself is refused
            for sql in statements:
                self._ask([sql], [], analyses, plans)
            for gold in golds:
                self._ask([], [gold], analyses, plans)
            return
        analyses.update(zip(statements, found, strict=True))
        plans.update(zip(golds, planned, strict=True))
        with self._lock:
            _keep(self._analyses, zip(statements, found, strict=True))
            _keep(self._plans, zip(golds, planned, strict=True))

    def close(self) -> None:
        """End all processes."""
        for process in self._all:
            process.close()


def _keep(answers: dict[str, Answer], new: Iterable[tuple[str, Answer]]) -> None:
    """Add answers; the oldest make room."""
    answers.update(new)
    while len(answers) > CACHED:
        del answers[next(iter(answers))]
