"""The SDKs' way out: every request is judged by the egress rule, and sent to where it was judged to lead."""

from collections.abc import AsyncIterator
from urllib.request import getproxies, proxy_bypass

import httpx2

from services.rollout.worker.endpoint_models.base import AnswerRefused
from shared.egress import EgressRule

MAXIMUM_ANSWER_BYTES = 32 * 1024**2
"""An answer of 64 replies of 8,192 tokens has a tenth of this."""


class _Limited(httpx2.AsyncByteStream):
    """An answer's body, as far as any honest one goes: a worker serves other samplings too."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        async for part in self._body:
            received += len(part)
            if received > MAXIMUM_ANSWER_BYTES:
                raise AnswerRefused(f"its answer has over {MAXIMUM_ANSWER_BYTES} bytes")
            yield part

    async def aclose(self) -> None:
        await self._body.aclose()


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Resolves a name once and connects to the addresses that were checked; TLS and `Host` keep the name.

    A proxy of the environment (`HTTPS_PROXY`) resolves names itself: what is sent through it is checked here, and where
    it goes is the proxy's to decide.
    """

    def __init__(self, rule: EgressRule, connections: int) -> None:
        self._rule = rule
        limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._direct = httpx2.AsyncHTTPTransport(limits=limits)
        self._proxies = {
            scheme: httpx2.AsyncHTTPTransport(limits=limits, proxy=proxy)
            for scheme, proxy in getproxies().items()
            if scheme in ("http", "https")
        }

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises EgressRefused, AnswerRefused (also while the body is read), and httpx2's errors."""
        request.headers["accept-encoding"] = "identity"
        response = await self._send(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise AnswerRefused("its answer is compressed, which was not asked for, and may unpack to any size")
        response.stream = _Limited(response.stream)
        return response

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        proxy = None if proxy_bypass(request.url.host) else self._proxies.get(request.url.scheme)
        if self._rule.lists(str(request.url)):
            return await (proxy or self._direct).handle_async_request(request)
        try:
            addresses = await self._rule.public_addresses(str(request.url))
        except OSError as error:
            raise httpx2.ConnectError(str(error), request=request) from error
        if proxy is not None:
            return await proxy.handle_async_request(request)
        return await self._to_one_of(addresses, request)

    async def _to_one_of(self, addresses: list[str], request: httpx2.Request) -> httpx2.Response:
        """The first that can be connected to; nothing was sent to those before it."""
        failed: httpx2.TransportError | None = None
        for address in addresses:
            pinned = httpx2.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={"sni_hostname": request.url.host, **request.extensions},
            )
            try:
                return await self._direct.handle_async_request(pinned)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failed = error
        raise failed or httpx2.ConnectError(f"{request.url.host} has no address", request=request)

    async def aclose(self) -> None:
        """Give back connections."""
        for transport in (self._direct, *self._proxies.values()):
            await transport.aclose()
