"""Stand-ins, over real HTTP, of providers of models: OpenAI's chat completions and Anthropic's messages in one app.

They answer like the scripted engine: a question says how many of a task's samples are right.
"""

import asyncio
import re
import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

KEY = "sk-proj-0123456789-right"
REPLY_TOKENS = 12


@dataclass
class Providers:
    """What they do; a test changes it while they run."""

    most_choices: int = 64
    """Choices of one answer at most: many servers know only one."""
    refuses_several: bool = False
    """`n` above 1 is a 400."""
    refuses_drawing: bool = False
    """So are `temperature` and `top_p`, as of models that have them fixed."""
    faults: deque[int | str] = field(default_factory=deque)
    """Taken one a request: a status, `html`, or 0 for none."""
    reply_tokens: int = REPLY_TOKENS
    hold: threading.Event | None = None
    """While set and not fired, requests wait."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    replies: Counter[str] = field(default_factory=Counter)
    """Question to replies given so far."""

    def texts(self, question: str, count: int) -> list[str]:
        """The next replies to a question."""
        right = int(re.findall(r"(\d+) right", question)[0])
        first = self.replies[question]
        self.replies[question] += count
        return ["SELECT 1" if index < right else f"SELECT {index + 2}" for index in range(first, first + count)]


def providers_app(script: Providers) -> FastAPI:
    """Both APIs under one URL."""
    app = FastAPI()

    async def refused(request: Request) -> Response | dict[str, Any]:
        """What goes wrong, else the body."""
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        if key != KEY:
            return JSONResponse({"error": {"message": f"invalid key {key}", "type": "auth"}}, 401)
        fault = script.faults.popleft() if script.faults else None
        if fault == "html":
            return HTMLResponse("<html>It works!</html>")
        if isinstance(fault, int) and fault:
            return JSONResponse({"error": {"message": f"scripted for {key}", "type": "scripted"}}, fault)
        if script.hold is not None:
            await asyncio.to_thread(script.hold.wait)
        body: dict[str, Any] = await request.json()
        script.asked.append(body)
        return body

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Any:
        body = await refused(request)
        if isinstance(body, Response):
            return body
        if script.refuses_drawing and body.keys() & {"temperature", "top_p"}:
            return JSONResponse({"error": {"message": "temperature is fixed", "type": "invalid"}}, 400)
        wanted = body.get("n", 1)
        if script.refuses_several and wanted > 1:
            return JSONResponse({"error": {"message": "n must be 1", "type": "invalid"}}, 400)
        texts = script.texts(body["messages"][-1]["content"], min(wanted, script.most_choices))
        choices = [
            {"index": at, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            for at, text in enumerate(texts)
        ]
        tokens = script.reply_tokens * len(texts)
        usage = {"prompt_tokens": 5, "completion_tokens": tokens, "total_tokens": 5 + tokens}
        head = {"id": "c", "object": "chat.completion", "created": 1, "model": body["model"]}
        return head | {"choices": choices, "usage": usage}

    @app.post("/v1/messages")
    async def messages(request: Request) -> Any:
        body = await refused(request)
        if isinstance(body, Response):
            return body
        (text,) = script.texts(body["messages"][-1]["content"], 1)
        return {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 5, "output_tokens": script.reply_tokens},
        }

    return app
