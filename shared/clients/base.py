"""What every client does alike: the bearer token, retries of unreachable servers, problems raised as exceptions."""

from collections.abc import AsyncIterator, Callable, Generator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import stamina
from pydantic import BaseModel, ValidationError

from shared.contracts.base import Problem, Readiness

Answer = TypeVar("Answer", bound=BaseModel)

UNREACHABLE_ATTEMPTS = 6
"""Tries against a server that cannot be reached: about 15 s, enough for a supervised restart."""


class ServiceProblem(Exception):
    """A service answered with a problem document."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.title}: {problem.detail}" if problem.detail else problem.title)
        self.problem = problem


class ServiceUnreachable(Exception):
    """No usable answer: connection refused or cut, or a timeout. The call may be repeated (ids make it idempotent)."""


class WrongAnswer(ServiceUnreachable):
    """An answer, and not of the kind asked for: another program is at that address. Asking again changes nothing."""


class _NotNow(Exception):
    """An answer that another try may better."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(response.status_code)
        self.response = response


class _Busy(_NotNow):
    """The service asks to repeat the call a little later."""


class _Elsewhere(_NotNow):
    """A proxy on the way answered: it does not reach the service, or was just started and knows no routes yet."""


PROXY_ANSWERS = (404, 502, 503, 504)
"""What proxies say of a service behind them, as text or HTML; services and engines say JSON."""


def _again(error: Exception) -> bool | float:
    """Whether a call is repeated, or after how many seconds."""
    if isinstance(error, _Busy):
        return float(error.response.headers["retry-after"])
    return isinstance(error, httpx.TransportError | _Elsewhere)


class _Bearer(httpx.Auth):
    """Sends the token of the moment."""

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["authorization"] = f"Bearer {self._token()}"
        yield request


class ServiceClient:
    """An async client of one service. Use as `async with`."""

    service = "service"

    def __init__(self, url: str, token: str | Callable[[], str], timeout_seconds: float = 60.0) -> None:
        """`token`: the secret, or what says it at each request."""
        self.url = url.rstrip("/")
        self._http = httpx.AsyncClient(
            base_url=self.url,
            auth=_Bearer(token if callable(token) else lambda: token),
            timeout=httpx.Timeout(timeout_seconds, connect=5.0),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def readiness(self) -> Readiness:
        """`GET /readyz`, ready or not. Raises ServiceUnreachable."""
        try:
            response = await self._http.get("/readyz")
            return Readiness.model_validate_json(response.content)
        except (httpx.TransportError, ValidationError) as error:
            raise self.unreachable(error) from error

    async def call(
        self,
        method: str,
        path: str,
        answer: type[Answer],
        body: BaseModel | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One call. Raises ServiceProblem for a problem answer, ServiceUnreachable when no answer of its kind came."""
        response = await self.send(method, path, body, params, headers)
        try:
            return answer.model_validate_json(response.content)
        except ValidationError as error:
            kind = response.headers.get("content-type", "nothing")
            raise WrongAnswer(
                f"{self.service} at {self.url} answers {path} with {kind}, which is no {answer.__name__}: "
                "is that its address, and are both of one version?"
            ) from error

    async def send(
        self,
        method: str,
        path: str,
        body: BaseModel | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """As `call`, the raw response. A service that says 429 with Retry-After is asked again after that time."""
        content = None if body is None else body.model_dump_json(exclude_none=True)
        sent = {} if content is None else {"content-type": "application/json"}
        sent |= headers or {}
        try:
            async for attempt in stamina.retry_context(on=_again, attempts=UNREACHABLE_ATTEMPTS):
                with attempt:
                    response = await self._http.request(method, path, content=content, headers=sent, params=params)
                    if response.status_code == 429 and response.headers.get("retry-after", "").isdigit():
                        raise _Busy(response)
                    if from_proxy(response):
                        raise _Elsewhere(response)
        except httpx.TransportError as error:
            raise self.unreachable(error) from error
        except _Elsewhere as last:
            raise self.elsewhere(last.response) from last
        except _Busy as busy:
            response = busy.response
        raise_for_problem(response)
        return response

    async def lines(self, method: str, path: str, body: BaseModel | None = None) -> AsyncIterator[bytes]:
        """The lines of an NDJSON answer as they come, however long they take.

        Raises ServiceProblem, ServiceUnreachable, and httpx.TransportError when the stream is cut. Not repeated.
        """
        content = None if body is None else body.model_dump_json()
        headers = {} if content is None else {"content-type": "application/json"}
        timeout = httpx.Timeout(None, connect=5.0)
        async with self._http.stream(method, path, content=content, headers=headers, timeout=timeout) as response:
            if response.status_code >= 400:
                await response.aread()
            if from_proxy(response):
                raise self.elsewhere(response)
            raise_for_problem(response)
            async for line in split_lines(response):
                yield line

    def unreachable(self, error: Exception) -> ServiceUnreachable:
        """What to raise when no usable answer came."""
        return ServiceUnreachable(
            f"{self.service} at {self.url} gave no answer ({type(error).__name__}): is it up? `sqlclimb status` tells"
        )

    def elsewhere(self, response: httpx.Response) -> ServiceUnreachable:
        """What to raise when a proxy answered for the service."""
        return ServiceUnreachable(
            f"{self.service} is not behind {self.url} now: HTTP {response.status_code} ({response.text[:100]}). Is "
            "that its address, and is it up? `sqlclimb status` tells"
        )


def from_proxy(response: httpx.Response) -> bool:
    """Whether a proxy on the way answered in the service's place."""
    return response.status_code in PROXY_ANSWERS and "json" not in response.headers.get("content-type", "")


async def split_lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """The lines of a streamed answer that hold anything, as they come. Raises httpx.TransportError when it is cut."""
    rest = b""
    async for chunk in response.aiter_bytes():  # `aiter_lines` also splits at U+0085 and such inside a reply
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line


def raise_for_problem(response: httpx.Response) -> None:
    """Raises ServiceProblem for a 4xx or 5xx answer, also for one that is no problem document."""
    if response.status_code < 400:
        return
    try:
        problem = Problem.model_validate_json(response.content)
    except ValidationError:
        text = response.text[:300]
        problem = Problem(
            title=f"HTTP {response.status_code} from {response.url}", status=response.status_code, detail=text
        )
    raise ServiceProblem(problem)
