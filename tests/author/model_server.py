"""A stand-in for the models' providers: real HTTP, Anthropic's and OpenAI's wire formats, and a bill.

It answers each call by a writer, streams the text in pieces, and does what it is told to go wrong with. `billed` says
how often each call (by its `Idempotency-Key`) was charged. By default the key is ignored, as Anthropic's API ignores it
(a call sent twice is charged twice); with `honours_keys` the second sending is answered from the first, for nothing.
"""

import contextlib
import json
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from services.author.teachers.base import Proposal

PIECE_CHARACTERS = 160


@dataclass(frozen=True)
class Asked:
    """One call as it arrived."""

    key: str
    system: str
    user: str
    body: dict[str, Any]
    headers: dict[str, str]


@dataclass(frozen=True)
class Answer:
    """What a model writes. `stop` in Anthropic's words."""

    text: str
    stop: str = "end_turn"


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one request instead of an answer."""

    status: int = 0
    """An error status at once, charged nothing."""
    retry_after: str = ""
    message: str = "scripted"
    after: int | None = None
    """Characters of the answer that are sent before the stream breaks off."""
    stalls: bool = False
    """The stream goes silent there instead of ending."""


Writer = Callable[[Asked], Answer]


@dataclass
class ModelServer:
    """Use as a context manager. The writer is called from several threads."""

    writer: Writer
    honours_keys: bool = False
    piece_seconds: float = 0.0
    faults: deque[Fault] = field(default_factory=deque)
    """One per request, in order of arrival; then all goes well."""
    key_expected: str = "sk-right"
    models: tuple[str, ...] = ("claude-sonnet-5-5", "big", "big-free")
    refuses_schemas: bool = False
    asked: list[Asked] = field(default_factory=list)
    billed: Counter[str] = field(default_factory=Counter)
    delivered: set[str] = field(default_factory=set)
    """Calls of which the whole reply was sent."""

    def __enter__(self) -> "ModelServer":
        self.lock = threading.Lock()
        self._written: dict[str, Answer] = {}
        handler = type("Handler", (_Handler,), {"owner": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def next_fault(self) -> Fault | None:
        """What the request that has just arrived meets."""
        with self.lock:
            return self.faults.popleft() if self.faults else None

    def answer(self, asked: Asked) -> Answer:
        """The reply to a call, and its charge."""
        with self.lock:
            self.asked.append(asked)
            known = self._written.get(asked.key) if self.honours_keys else None
        if known is not None:
            return known
        written = self.writer(asked)
        with self.lock:
            self.billed[asked.key] += 1
            self._written[asked.key] = written
        return written


class _Handler(BaseHTTPRequestHandler):
    owner: ModelServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    def handle(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # a killed caller
            super().handle()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        is_claude = self.path.endswith("/messages")
        key = (self.headers["authorization"] or "").removeprefix("Bearer ")
        if key != self.owner.key_expected:
            return self._problem(401, f"invalid key {key}")
        if body["model"] not in self.owner.models:
            return self._problem(404, f"model: {body['model']}")
        if self.owner.refuses_schemas and "response_format" in body:
            return self._problem(400, "response_format is not supported")
        fault = self.owner.next_fault()
        if fault is not None and fault.status:
            return self._problem(fault.status, fault.message, fault.retry_after)
        messages = [body["system"][0]["text"], body["messages"][0]["content"]] if is_claude else _texts(body)
        asked = Asked(self.headers["idempotency-key"] or "", messages[0], messages[1], body, dict(self.headers))
        answer = self.owner.answer(asked)
        text = answer.text if fault is None or fault.after is None else answer.text[: fault.after]
        usage = _usage(asked, answer)
        begin, piece, end = (_claude if is_claude else _chat)(body["model"], usage, answer.stop)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            self._chunk(begin)
            for start in range(0, len(text), PIECE_CHARACTERS):
                self._chunk(piece(text[start : start + PIECE_CHARACTERS]))
                time.sleep(self.owner.piece_seconds)
            if fault is not None and fault.after is not None:
                if fault.stalls:
                    time.sleep(5)
                self.close_connection = True
                return None
            self._chunk(end)
            self.wfile.write(b"0\r\n\r\n")
            with self.owner.lock:
                self.owner.delivered.add(asked.key)
        except OSError:
            self.close_connection = True
        return None

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _problem(self, status: int, message: str, retry_after: str = "") -> None:
        data = json.dumps({"type": "error", "error": {"type": "scripted", "message": message}}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        if retry_after:
            self.send_header("retry-after", retry_after)
        self.end_headers()
        self.wfile.write(data)


def _texts(body: dict[str, Any]) -> list[str]:
    return [message["content"] for message in body["messages"]]


def _usage(asked: Asked, answer: Answer) -> dict[str, int]:
    return {"input": len(asked.user) // 4, "cached": len(asked.system) // 4, "output": len(answer.text) // 4}


Pieces = tuple[bytes, Callable[[str], bytes], bytes]


def _claude(model: str, usage: dict[str, int], stop: str) -> Pieces:
    """Anthropic's events."""

    def event(kind: str, **content: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **content})}\n\n".encode()

    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": usage["input"], "cache_read_input_tokens": usage["cached"], "output_tokens": 1},
    }
    begin = event("message_start", message=message) + event(
        "content_block_start", index=0, content_block={"type": "text", "text": ""}
    )
    end = (
        event("content_block_stop", index=0)
        + event(
            "message_delta",
            delta={"stop_reason": stop, "stop_sequence": None},
            usage={"output_tokens": usage["output"]},
        )
        + event("message_stop")
    )
    return (
        begin,
        lambda text: event("content_block_delta", index=0, delta={"type": "text_delta", "text": text}),
        end,
    )


def _chat(model: str, usage: dict[str, int], stop: str) -> Pieces:
    """OpenAI's chunks."""
    reasons = {"end_turn": "stop", "max_tokens": "length", "refusal": "content_filter"}

    shared = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": model}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return f"data: {json.dumps({**shared, 'choices': [choice]})}\n\n".encode()

    prompt = usage["input"] + usage["cached"]
    total = {
        "prompt_tokens": prompt,
        "completion_tokens": usage["output"],
        "total_tokens": prompt + usage["output"],
        "prompt_tokens_details": {"cached_tokens": usage["cached"]},
    }
    last = {**shared, "choices": [], "usage": total}
    return (
        chunk({"role": "assistant", "content": ""}),
        lambda text: chunk({"content": text}),
        chunk({}, reasons[stop]) + f"data: {json.dumps(last)}\n\ndata: [DONE]\n\n".encode(),
    )


def reply_of(proposals: Sequence[Proposal]) -> str:
    """Proposals as a model writes them."""
    return json.dumps({"proposals": [item_of(proposal) for proposal in proposals]})


def item_of(proposal: Proposal) -> dict[str, Any]:
    """One of them."""
    return {
        "questions": [{"style": asked.style, "question": asked.question} for asked in proposal.phrasings],
        "sql": proposal.gold,
        "columns": list(proposal.columns),
        "order_matters": proposal.order_matters,
        "archetype": str(proposal.archetype),
        "difficulty": "easy",
    }


class Knowing:
    """A writer that knows good proposals: call n of an authoring gets the n-th slice, an attempt its gold."""

    def __init__(self, proposals: Sequence[Proposal], per_call: int) -> None:
        self._proposals = proposals
        self._per_call = per_call
        self._golds = {asked.question: proposal.gold for proposal in proposals for asked in proposal.phrasings}

    def __call__(self, asked: Asked) -> Answer:
        if asked.user in self._golds:
            return Answer(f"```sql\n{self._golds[asked.user]}\n```")
        return Answer(reply_of(list(self.wanted(asked))))

    def wanted(self, asked: Asked) -> Iterator[Proposal]:
        """What the call asks for."""
        number = int(asked.key.rsplit("-", 1)[-1])
        count = re.search(r"exactly (\d+) proposals", asked.user)
        assert count is not None, asked.user
        start = number * self._per_call
        yield from self._proposals[start : start + int(count[1])]
