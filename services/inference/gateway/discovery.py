"""Where the engines are: a fixed list of addresses, or every address behind a DNS name (a headless Service)."""

import asyncio
import logging
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

log = logging.getLogger(__name__)


class Discovery:
    """The replicas' URLs now."""

    def __init__(self, urls: Sequence[str], dns: str | None) -> None:
        """`dns` is `http://name:port`; without it `urls` is the answer for ever."""
        self._known = list(urls)
        self._dns = None if dns is None else urlsplit(dns)

    async def find(self) -> Sequence[str]:
        """A name that does not resolve keeps the last answer: a DNS outage must not empty the fleet."""
        if self._dns is None:
            return self._known
        host, port = self._dns.hostname, self._dns.port
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            log.warning("%s does not resolve (%s): still %d engines", host, error, len(self._known))
            return self._known
        addresses = sorted({str(entry[4][0]) for entry in found})
        bracketed = (f"[{address}]" if ":" in address else address for address in addresses)
        self._known = [f"{self._dns.scheme}://{address}:{port}" for address in bracketed]
        return self._known
