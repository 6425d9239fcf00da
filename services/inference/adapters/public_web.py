"""The web as a store of adapters: fsspec's HTTP client, held to addresses that anybody can reach."""

import errno
import socket
from typing import Any

import aiohttp

from shared.egress import is_public

Place = tuple[int, int, int, str, tuple[Any, ...]]
"""As `socket.getaddrinfo` gives them."""


def _socket(place: Place) -> socket.socket:
    """Asked for before each connection, also of a redirect: what a name leads to now is what is judged."""
    family, kind, protocol, _, address = place
    if not is_public(str(address[0])):
        raise OSError(errno.EACCES, "its name leads to an address that is not public")
    return socket.socket(family, kind, protocol)


async def public_client(**options: Any) -> aiohttp.ClientSession:
    """A `get_client` for fsspec's HTTP file system."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(socket_factory=_socket), **options)
