"""An adapter's files: fetched into a folder never used before, verified by digest, checked against the base."""

import asyncio
import hashlib
import secrets
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from services.inference.adapters.archives import is_archive, pack, unpack
from services.inference.adapters.base_model import Linear, find_folder, read_modules
from services.inference.adapters.checks import AdapterRefused, check_adapter
from services.inference.adapters.public_web import public_client
from services.inference.adapters.translation import is_served_layout, translate
from shared.artifacts import ArtifactError, StoreUnavailable, adapter_digest, fetch_adapter, fetch_file
from shared.contracts.inference import AdapterRequest, Layout
from shared.egress import EgressRefused, EgressRule

MAXIMUM_CONFIG_BYTES = 4 * 1024**2
"""With a pattern for each of a thousand layers it has a tenth of this."""


@dataclass(frozen=True)
class Files:
    """An adapter's files, fetched and checked."""

    folder: Path
    config_digest: str
    """SHA-256 of adapter_config.json, which the adapter's own digest leaves out: alpha scales what is served."""
    tensors_placed: int
    translated: bool
    """The files were rewritten in the base's names and projections."""


class Fetcher:
    """Fills the folder that gateway and engines share."""

    def __init__(self, cache: Path, model: str, max_rank: int, egress: EgressRule) -> None:
        self.cache = cache.resolve()  # the engine's working folder is another
        self.model = model
        self.max_rank = max_rank
        self._egress = egress
        self._modules: Mapping[str, Linear] | None = None

    async def fetch(self, name: str, request: AdapterRequest) -> Files:
        """Fetch and check; on an error nothing is left behind.

        Raises AdapterRefused with the reason, BaseUnreadable, StoreUnavailable.
        """
        folder = self.cache / f"{name}.{secrets.token_hex(4)}"
        options = await self._options(request.uri)
        try:
            return await asyncio.to_thread(self._fetch, request, folder, options)
        except BaseException:
            await self.discard(folder)
            raise

    async def archive(self, name: str, request: AdapterRequest, layout: Layout) -> Path:
        """A tar of the two files in a layout, fetched anew. Raises as `fetch`."""
        folder = self.cache / f"{name}.{secrets.token_hex(4)}"
        archive = folder.with_suffix(".tar")
        options = await self._options(request.uri)
        try:
            await asyncio.to_thread(self._fetch, request, folder, options, layout)
            await asyncio.to_thread(pack, folder, archive)
        except BaseException:
            archive.unlink(missing_ok=True)
            raise
        finally:
            await self.discard(folder)
        return archive

    async def _options(self, uri: str) -> dict[str, Any]:
        """How a caller's web address is opened. Raises AdapterRefused for one that only this service may reach."""
        if not uri.startswith(("http://", "https://")):
            return {}
        try:
            await self._egress.check(uri)
            return {} if self._egress.lists(uri) else {"get_client": public_client}
        except EgressRefused as error:
            raise AdapterRefused(str(error)) from error

    def _fetch(
        self, request: AdapterRequest, folder: Path, options: dict[str, Any], layout: Layout = Layout.VLLM
    ) -> Files:
        if self._modules is None:
            self._modules = read_modules(find_folder(self.model))
        try:
            if is_archive(request.uri):
                self._fetch_archive(request.uri, folder, options)
            else:
                fetch_adapter(request.uri, folder, **options)
            found = adapter_digest(folder)
        except StoreUnavailable:
            raise
        except ArtifactError as error:
            raise AdapterRefused(str(error)) from error
        if found != request.digest:
            raise AdapterRefused(f"the tensors' digest is {found[:12]}…, the request says {request.digest[:12]}…")
        config = folder / "adapter_config.json"
        if config.stat().st_size > MAXIMUM_CONFIG_BYTES:
            raise AdapterRefused(f"adapter_config.json has over {MAXIMUM_CONFIG_BYTES} bytes: no adapter's has")
        config_digest = hashlib.sha256(config.read_bytes()).hexdigest()
        checked = check_adapter(folder, self._modules, self.max_rank, request.kind)
        translated = layout is Layout.VLLM and not is_served_layout(checked.placements)
        if translated:
            translate(folder, checked.placements, checked.config)
        return Files(folder, config_digest, checked.tensors, translated)

    def _fetch_archive(self, uri: str, folder: Path, options: dict[str, Any]) -> None:
        archive = folder.with_name(f"{folder.name}.archive{PurePosixPath(uri).suffix}")
        self.cache.mkdir(parents=True, exist_ok=True)
        try:
            fetch_file(uri, archive, **options)
            unpack(archive, folder)
        finally:
            archive.unlink(missing_ok=True)

    async def discard(self, folder: Path) -> None:
        """Delete a folder that no engine reads any more."""
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def keep_only(self, names: Collection[str]) -> None:
        """At start: delete the folders of adapters that are no longer ready."""
        self.cache.mkdir(parents=True, exist_ok=True)
        for folder in self.cache.iterdir():
            if folder.is_file():
                folder.unlink()  # an archive that was being sent
            elif folder.name not in names:
                shutil.rmtree(folder, ignore_errors=True)
