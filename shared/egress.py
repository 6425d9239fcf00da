"""Where an address that a caller names may lead: public https, and what the operator lists.

A service that opens a caller's address can be made to ask what only it reaches: a cloud's metadata, a database's port,
another service of the cluster (server-side request forgery). So names are judged by the addresses they lead to, and
whoever connects must connect to those very addresses: a name may lead elsewhere a second later (DNS rebinding).
"""

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import AfterValidator

PUBLIC = "public"
"""The entry that stands for https at every public address."""

SCHEME_PORTS = {"http": 80, "https": 443}

NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""IPv6 addresses that a gateway maps to the IPv4 address in their last 32 bits (RFC 6052)."""

CLOUD_HOST = ipaddress.ip_address("168.63.129.16")
"""Azure's host as its machines see it, among public addresses. Other clouds' metadata is private or link-local."""


class EgressRefused(ValueError):
    """The address may not be asked; the message names the setting that would allow it."""


def _entry(entry: str) -> str:
    if entry == PUBLIC:
        return entry
    try:
        parts = urlsplit(entry)
        faulty = parts.scheme not in SCHEME_PORTS or not parts.hostname or parts.query or parts.fragment or "@" in entry
        _ = parts.port
    except ValueError:
        faulty = True
    if faulty:
        raise ValueError(f"{entry!r} is neither {PUBLIC!r} nor a URL's beginning, http(s)://host[:port][/path]")
    return entry


EgressEntry = Annotated[str, AfterValidator(_entry)]
"""`public`, or the beginning of a URL: scheme and host, a port (without one: any), and whole steps of a path."""


@dataclass(frozen=True)
class EgressRule:
    """Which addresses callers may have a service ask."""

    allowed: tuple[EgressEntry, ...]
    setting: str
    """The environment variable that holds `allowed`, named in refusals."""

    def lists(self, url: str) -> bool:
        """True when an entry allows the URL, wherever its name leads. Raises EgressRefused for what is none."""
        asked = self._split(url)
        return any(_covers(urlsplit(entry), asked) for entry in self.allowed if entry != PUBLIC)

    async def public_addresses(self, url: str) -> list[str]:
        """The IP addresses of a URL that no entry lists, all of them public: connect to these and to no others.

        Raises EgressRefused, and socket.gaierror for a name that leads nowhere.
        """
        asked = self._split(url)
        if PUBLIC not in self.allowed:
            raise self._refused(url, "is not listed")
        if asked.scheme != "https":
            raise self._refused(url, "is not listed, and not https")
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(asked.hostname, asked.port or SCHEME_PORTS["https"], type=socket.SOCK_STREAM)
        addresses = [str(place[0]) for *_, place in found]
        if not addresses or not all(is_public(address) for address in addresses):
            raise self._refused(url, "leads to an address that is not public (private, loopback, link-local, metadata)")
        return addresses

    async def check(self, url: str) -> None:
        """Raises EgressRefused. A name that leads nowhere passes: whoever asks it finds out, and may ask again."""
        try:
            if not self.lists(url):
                await self.public_addresses(url)
        except socket.gaierror:
            return

    def _split(self, url: str) -> SplitResult:
        try:
            parts = urlsplit(url)
            (parts.hostname or "").encode("idna")
            if parts.hostname and parts.port != 0:
                return parts
        except ValueError:
            pass
        raise self._refused(url, "is no address of a server")

    def _refused(self, url: str, reason: str) -> EgressRefused:
        return EgressRefused(f"{url} {reason}: only what {self.setting} lists may be asked")


def _covers(entry: SplitResult, asked: SplitResult) -> bool:
    if (entry.scheme, entry.hostname) != (asked.scheme, asked.hostname):
        return False
    if entry.port is not None and entry.port != (asked.port or SCHEME_PORTS[asked.scheme]):
        return False
    wanted, steps = entry.path.strip("/"), unquote(asked.path).strip("/").split("/")
    return not wanted or (".." not in steps and steps[: wanted.count("/") + 1] == wanted.split("/"))


def is_public(address: str) -> bool:
    """True for an address that anybody on the internet can reach, judged by the IPv4 address inside an IPv6 one."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        found = _inside(found) or found
    return found.is_global and not found.is_multicast and found != CLOUD_HOST


def _inside(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address in NAT64 or int(address) >> 32 == 0:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour
