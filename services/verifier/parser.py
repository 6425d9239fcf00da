"""What a few parser processes read of replies, statements and golds: results cached, crashed processes replaced.

Model-written text is read there for two reasons: whatever it does to a reader ends that process alone, and the
service's own process has one interpreter lock.
"""

import contextlib
import json
import logging
import queue
import select
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import IO, Any, Generic, TypeVar

from services.verifier.extraction import Extraction
from services.verifier.gold_plan import GoldPlan
from services.verifier.statement import Analysis, precheck
from shared.contracts.verifier import FinishReason, Profile
from shared.settings import REPOSITORY

log = logging.getLogger(__name__)

ANSWER_SECONDS = 20.0
"""A parser that has not answered a chunk by then is replaced. Long, for a busy machine: what hangs on a text ends
itself after a second of processor time (see `parser_process`)."""

CHUNK = 32
"""Statements a request: about 5 ms of work."""

KEPT_BYTES = 16 * 1024**2
"""Memory for analyses, and again for plans."""

Answer = TypeVar("Answer")

Reply = tuple[str, FinishReason | None]


class ParserCrashed(Exception):
    """The process died or hung on what it was given."""


class _Kept(Generic[Answer]):
    """Answers by text; the oldest make room."""

    def __init__(self) -> None:
        self._answers: dict[str, Answer] = {}
        self._bytes = 0

    def among(self, texts: Iterable[str]) -> dict[str, Answer]:
        """Those that are kept."""
        return {text: self._answers[text] for text in texts if text in self._answers}

    def add(self, answers: Iterable[tuple[str, Answer]]) -> None:
        """Keep further ones."""
        for text, answer in answers:
            if text not in self._answers:
                self._answers[text] = answer
                self._bytes += _entry_bytes(text)
        while self._bytes > KEPT_BYTES:
            oldest = next(iter(self._answers))
            del self._answers[oldest]
            self._bytes -= _entry_bytes(oldest)


def _entry_bytes(text: str) -> int:
    """Memory, estimated from above: the text, twice where the answer holds it, and the objects around it."""
    return 2 * len(text) + 500


class _Process:
    """One parser process; not thread-safe."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def parse(self, analyse: Sequence[str], plan: Sequence[str]) -> tuple[list[Analysis], list[GoldPlan]]:
        """Answers in order. Raises ParserCrashed, after which the next call starts a fresh process."""
        answer = self._ask({"analyse": analyse, "plan": plan})
        plans = [
            GoldPlan(**{**fields, "sort_keys": None if fields["sort_keys"] is None else tuple(fields["sort_keys"])})
            for fields in answer["plan"]
        ]
        return [Analysis(**fields) for fields in answer["analyse"]], plans

    def extract(
        self, profile: Profile, replies: Sequence[Reply], analyse: bool
    ) -> tuple[list[Extraction], dict[str, Analysis]]:
        """In order, and where `analyse` is set the analyses of what was found. Raises as `parse`."""
        answer = self._ask({"profile": profile, "extract": replies, "analyse_found": analyse})
        analyses = {sql: Analysis(**fields) for sql, fields in answer["found"].items()}
        return [Extraction(sql, reason) for sql, reason in answer["extract"]], analyses

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._process is None:
            argv = [sys.executable, "-m", "services.verifier.parser_process"]
            self._process = subprocess.Popen(argv, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        source, sink = self._process.stdin, self._process.stdout
        if source is None or sink is None:
            raise RuntimeError("parser process without pipes")
        try:
            source.write(json.dumps(request).encode() + b"\n")
            source.flush()
            line = self._read_line(sink)
        except (BrokenPipeError, TimeoutError) as error:
            self.close()
            raise ParserCrashed from error
        if not line:
            self.close()
            raise ParserCrashed
        answer: dict[str, Any] = json.loads(line)
        return answer

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
        self._analyses: _Kept[Analysis] = _Kept()
        self._plans: _Kept[GoldPlan] = _Kept()

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
            analyses |= self._analyses.among(statements)
            plans |= self._plans.among(golds)
        new_statements = [sql for sql in statements if sql not in analyses]
        new_golds = [gold for gold in golds if gold not in plans]
        for start in range(0, max(len(new_statements), len(new_golds)), CHUNK):
            chunk = slice(start, start + CHUNK)
            self._ask(new_statements[chunk], new_golds[chunk], analyses, plans)
        return analyses, plans

    def extract(self, profile: Profile, replies: Iterable[Reply]) -> dict[Reply, Extraction]:
        """The extraction from each distinct reply. What they hold is analysed on the way, so that `parse` knows it."""
        distinct = list(dict.fromkeys(replies))
        found: dict[Reply, Extraction] = {}
        for start in range(0, len(distinct), CHUNK):
            self._extract(profile, distinct[start : start + CHUNK], found, analyse=True)
        return found

    def _extract(self, profile: Profile, replies: list[Reply], found: dict[Reply, Extraction], analyse: bool) -> None:
        """Fill in the extractions. A reply that ends the process by itself holds no statement; its neighbours may."""
        process = self._idle.get()
        try:
            extractions, analyses = process.extract(profile, replies, analyse)
        except ParserCrashed:
            extractions, analyses = [Extraction(None, "the reply takes too long to read")] * len(replies), {}
            crashed = True
        else:
            crashed = False
        finally:
            self._idle.put(process)
        if crashed and (analyse or len(replies) > 1):  # one by one, and without what is not needed yet
            for reply in replies:
                self._extract(profile, [reply], found, analyse=False)
            return
        if crashed:
            log.warning("a reply could not be read, and the parser process was replaced")
        found.update(zip(replies, extractions, strict=True))
        with self._lock:
            self._analyses.add(analyses.items())

    def _ask(
        self, statements: list[str], golds: list[str], analyses: dict[str, Analysis], plans: dict[str, GoldPlan]
    ) -> None:
        """Fill in the answers. A text that crashes the parser by itself is refused; its neighbours are not."""
        process = self._idle.get()
        try:
            found, planned = process.parse(statements, golds)
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
            self._analyses.add(zip(statements, found, strict=True))
            self._plans.add(zip(golds, planned, strict=True))

    def close(self) -> None:
        """End all processes."""
        for process in self._all:
            process.close()
