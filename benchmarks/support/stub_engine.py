"""A stub of gateway and engine: chat completions as ours answer them, paced by sleep. Run as a program.

    python -m benchmarks.support.stub_engine --port P [--latency-seconds 1] [--slow-share 0.05 --slow-factor 50]

Every reply is the same statement, of a given number of tokens. A streamed answer ends sample by sample, evenly over the
latency, in chunks of the request's `stream_interval` as vLLM sends them. With `--slots` so many sequences run at once
and the others wait in order, as in an engine whose batch is full.
"""

import argparse
import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from shared.contracts.inference import ADAPTER_DIGEST_HEADER, SERVED_MODEL_HEADER, AdapterList, Pressure
from shared.ids import BASE_DIGEST

from .stub_http import Answer, StubApp, serve_stub

BASE = "stub-base"
PROMPT_TOKENS = 400
OPENING = "```sql\nSELECT category, round(avg(price), 2) FROM products WHERE active GROUP BY category"
"""A reply's first word; more follow until it has its tokens."""


@dataclass(frozen=True)
class Pace:
    """How long requests take."""

    latency_seconds: float
    spread: float
    """Requests take the latency times 1 - spread to 1 + spread, so that they do not end in step."""
    slow_share: float
    slow_factor: float

    def seconds(self, draw: random.Random) -> float:
        """Of one request."""
        factor = self.slow_factor if draw.random() < self.slow_share else 1.0
        return self.latency_seconds * factor * draw.uniform(1 - self.spread, 1 + self.spread)


def words(reply_tokens: int) -> list[str]:
    """The reply, a token each."""
    return [OPENING, *(f" -- {number}" for number in range(reply_tokens - 1))]


def token_of(word: str) -> dict[str, Any]:
    """A token as vLLM tells its log-probability."""
    return {"token": word, "logprob": -0.6931471805599453, "bytes": list(word.encode()), "top_logprobs": []}


@lru_cache(maxsize=256)
def completion(model: str, n: int, reply_tokens: int) -> bytes:
    """The whole answer, not streamed."""
    reply = words(reply_tokens)
    choice = {
        "message": {"role": "assistant", "content": "".join(reply)},
        "logprobs": {"content": [token_of(word) for word in reply]},
        "finish_reason": "stop",
        "token_ids": list(range(reply_tokens)),
    }
    answer = {
        "id": "chatcmpl-stub",
        "object": "chat.completion",
        "model": model,
        "choices": [{"index": index} | choice for index in range(n)],
        "usage": {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": n * reply_tokens},
        "prompt_token_ids": list(range(PROMPT_TOKENS)),
    }
    return json.dumps(answer).encode()


def _event(model: str, choices: list[dict[str, Any]], **fields: object) -> bytes:
    chunk = {"id": "chatcmpl-stub", "object": "chat.completion.chunk", "model": model, "choices": choices} | fields
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


@lru_cache(maxsize=256)
def stream_parts(model: str, n: int, reply_tokens: int, interval: int) -> tuple[bytes, tuple[bytes, ...]]:
    """The first events (roles, prompt ids), then all events of each sample: its first token, then `interval` each."""
    role = {"delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    ids = list(range(PROMPT_TOKENS))
    first = b"".join(_event(model, [{"index": index} | role], prompt_token_ids=ids) for index in range(n))
    reply = words(reply_tokens)
    starts = [0, *range(1, reply_tokens, interval)]
    samples = []
    for index in range(n):
        events = []
        for start, end in zip(starts, [*starts[1:], reply_tokens], strict=True):
            choice = {
                "index": index,
                "delta": {"content": "".join(reply[start:end])},
                "logprobs": {"content": [token_of(word) for word in reply[start:end]]},
                "finish_reason": "stop" if end == reply_tokens else None,
                "token_ids": list(range(start, end)),
            }
            events.append(_event(model, [choice]))
        samples.append(b"".join(events))
    return first, tuple(samples)


class Slots:
    """Sequences that run at once; requests beyond wait in order. None: no limit."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._turn = asyncio.Lock()
        self._freed = asyncio.Condition()
        self.running = 0
        self.waiting = 0

    @asynccontextmanager
    async def taken(self, sequences: int) -> AsyncIterator[None]:
        """While the block runs."""
        self.waiting += sequences
        try:
            async with self._turn, self._freed:
                await self._freed.wait_for(lambda: self._limit is None or self.running + sequences <= self._limit)
                self.running += sequences
        finally:
            self.waiting -= sequences
        try:
            yield
        finally:
            self.running -= sequences
            async with self._freed:
                self._freed.notify_all()


class StubEngine:
    """The gateway's routes that samplings use."""

    def __init__(self, pace: Pace, slots: int | None, reply_tokens: int, seed: int) -> None:
        self._pace = pace
        self._slots = Slots(slots)
        self._reply_tokens = reply_tokens
        self._draw = random.Random(seed)

    def app(self) -> StubApp:
        """To be served."""
        return StubApp(
            "inference",
            [
                ("GET", "/v1/adapters", self._adapters),
                ("GET", "/v1/pressure", self._pressure),
                ("POST", "/v1/chat/completions", self._chat),
            ],
        )

    async def _adapters(self, path: str, body: bytes) -> Answer:
        return Answer(AdapterList(base=BASE, adapters=[]).model_dump_json().encode())

    async def _pressure(self, path: str, body: bytes) -> Answer:
        now = Pressure(replicas=[], serving=1, running=self._slots.running, waiting=self._slots.waiting, kv_use=0.0)
        return Answer(now.model_dump_json().encode())

    async def _chat(self, path: str, body: bytes) -> Answer:
        asked = json.loads(body)
        model, n = str(asked["model"]), int(asked.get("n") or 1)
        seconds = self._pace.seconds(self._draw)
        identity = [
            (SERVED_MODEL_HEADER.encode(), model.encode()),
            (ADAPTER_DIGEST_HEADER.encode(), BASE_DIGEST.encode()),
        ]
        if asked.get("stream"):
            parts = stream_parts(model, n, self._reply_tokens, int(asked.get("stream_interval") or 1))
            return Answer(self._stream(*parts, seconds), headers=[(b"content-type", b"text/event-stream"), *identity])
        async with self._slots.taken(n):
            await asyncio.sleep(seconds)
        return Answer(
            completion(model, n, self._reply_tokens), headers=[(b"content-type", b"application/json"), *identity]
        )

    async def _stream(self, first: bytes, samples: tuple[bytes, ...], seconds: float) -> AsyncIterator[bytes]:
        async with self._slots.taken(len(samples)):
            yield first
            for sample in samples:
                await asyncio.sleep(seconds / len(samples))
                yield sample
        yield b"data: [DONE]\n\n"


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--latency-seconds", type=float, default=0.0)
    parser.add_argument("--spread", type=float, default=0.0)
    parser.add_argument("--slow-share", type=float, default=0.0)
    parser.add_argument("--slow-factor", type=float, default=1.0)
    parser.add_argument("--slots", type=int, help="sequences at once; default: no limit")
    parser.add_argument("--reply-tokens", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    pace = Pace(options.latency_seconds, options.spread, options.slow_share, options.slow_factor)
    serve_stub(StubEngine(pace, options.slots, options.reply_tokens, options.seed).app(), options.port)


if __name__ == "__main__":
    main()
