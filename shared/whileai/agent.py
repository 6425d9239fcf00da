"""Our gateway as the agent of whileai's `simulate`: a question in, the policy's first turn out."""

from typing import Any

import httpx

from shared.clients.base import raise_for_problem
from shared.contracts.inference import ADAPTER_DIGEST_HEADER
from shared.contracts.rollout import SamplingParameters
from shared.domain import chat

TIMEOUT_SECONDS = 300.0


class GatewayAgent:
    """Callable as `agent(message)`, from several threads at once. Use as `with`, or call `close`.

    `system_prompt` is the domain's (`shared.domain.system_prompt`), so that replies are as our own sampling's.
    """

    def __init__(
        self,
        url: str,
        token: str,
        model: str,
        system_prompt: str,
        parameters: SamplingParameters,
        thinking: bool = False,
    ) -> None:
        self.__name__ = model
        """What whileai calls the agent."""
        self._model = model
        self._system_prompt = system_prompt
        self._parameters = parameters
        self._thinking = thinking
        self._http = httpx.Client(
            base_url=url,
            headers={"authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(TIMEOUT_SECONDS, connect=5),
        )

    def __call__(self, message: str) -> dict[str, Any]:
        """One trajectory of one step. Raises ServiceProblem and httpx.TransportError, which whileai rolls again."""
        response = self._http.post(
            "/v1/chat/completions",
            json={
                "model": self._model,
                "messages": [turn.model_dump() for turn in chat(self._system_prompt, message)],
                "temperature": self._parameters.temperature,
                "top_p": self._parameters.top_p,
                "top_k": -1,
                "max_tokens": self._parameters.max_tokens,
                "logprobs": True,
                "chat_template_kwargs": {"enable_thinking": self._thinking},
            },
        )
        raise_for_problem(response)
        (choice,) = response.json()["choices"]
        reply = choice["message"]["content"] or ""
        logprobs = [token["logprob"] for token in choice["logprobs"]["content"]]
        step = {
            "text": reply,
            "logprob": sum(logprobs),
            "token_logprobs": logprobs,
            "n_tokens": len(logprobs),
            "truncated": choice["finish_reason"] == "length",
            "adapter_digest": response.headers.get(ADAPTER_DIGEST_HEADER),
        }
        return {"steps": [step], "final_text": reply}

    def close(self) -> None:
        """Give back connections."""
        self._http.close()

    def __enter__(self) -> "GatewayAgent":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
