"""Archives that callers send: kept in the artifact store under the hash of their bytes, to be published from there."""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.requests import ClientDisconnect

from services.inference.adapters.archives import GZIP_MAGIC, ZIP_MAGIC
from shared.artifacts import MAXIMUM_ADAPTER_BYTES, store_file
from shared.errors import Invalid, ServiceError, TooLarge, Unavailable


class Uploads:
    """The gateway's part of the artifact store."""

    def __init__(self, store: str | None, scratch: Path) -> None:
        self._store = store
        self._scratch = scratch

    async def receive(self, parts: AsyncIterator[bytes]) -> str:
        """Keep one zip or tar as it comes; its address. Raises Invalid, TooLarge, Unavailable."""
        if self._store is None:
            raise Unavailable("SQLCLIMB_ARTIFACTS is not set here: publish by the address of a store")
        await asyncio.to_thread(self._scratch.mkdir, parents=True, exist_ok=True)
        path = self._scratch / f"upload-{secrets.token_hex(4)}"
        try:
            return await self._receive(parts, path, self._store)
        except ServiceError:
            raise
        except ClientDisconnect as error:
            raise Invalid("the body ended before its end. Nothing was kept") from error
        except Exception as error:  # each store has errors of its own
            raise Unavailable(
                f"the upload could not be kept ({type(error).__name__}: {error}); send it again"
            ) from error
        finally:
            await asyncio.to_thread(path.unlink, missing_ok=True)

    async def _receive(self, parts: AsyncIterator[bytes], path: Path, store: str) -> str:
        digest, size, magic = hashlib.sha256(), 0, b""
        with await asyncio.to_thread(path.open, "wb") as file:
            async for part in parts:
                size += len(part)
                if size > MAXIMUM_ADAPTER_BYTES:
                    raise TooLarge(f"the body has over {MAXIMUM_ADAPTER_BYTES} bytes: no adapter is that large")
                magic = (magic + part)[:4] if len(magic) < 4 else magic
                digest.update(part)
                await asyncio.to_thread(file.write, part)
        if not size:
            raise Invalid("the body is empty: send a zip or a tar of the adapter's folder")
        suffix = ".zip" if magic == ZIP_MAGIC else ".tar.gz" if magic.startswith(GZIP_MAGIC) else ".tar"
        return await asyncio.to_thread(store_file, path, store, "uploads", digest.hexdigest() + suffix)
