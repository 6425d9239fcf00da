"""An adapter's files: fetched into a folder never used before, verified by digest, checked against the base."""

import asyncio
import hashlib
import secrets
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from services.inference.base_model import Linear, find_folder, read_modules
from services.inference.checks import AdapterRefused, check_adapter
from shared.artifacts import ArtifactError, adapter_digest, fetch_adapter
from shared.contracts.inference import AdapterRequest


@dataclass(frozen=True)
class Files:
    """An adapter's files, fetched and checked."""

    folder: Path
    config_digest: str
    """SHA-256 of adapter_config.json, which the adapter's own digest leaves out: alpha scales what is served."""
    tensors_placed: int


class Fetcher:
    """Fills the folder that gateway and engines share."""

    def __init__(self, cache: Path, model: str, max_rank: int) -> None:
        self._cache = cache.resolve()  # the engine's working folder is another
        self.model = model
        self.max_rank = max_rank
        self._modules: Mapping[str, Linear] | None = None

    async def fetch(self, name: str, request: AdapterRequest) -> Files:
        """Fetch and check. Raises AdapterRefused with the reason, BaseUnreadable; then nothing is left behind."""
        folder = self._cache / f"{name}.{secrets.token_hex(4)}"
        try:
            return await asyncio.to_thread(self._fetch, request, folder)
        except BaseException:
            await self.discard(folder)
            raise

    def _fetch(self, request: AdapterRequest, folder: Path) -> Files:
        if self._modules is None:
            self._modules = read_modules(find_folder(self.model))
        try:
            fetch_adapter(request.uri, folder)
            found = adapter_digest(folder)
        except ArtifactError as error:
            raise AdapterRefused(str(error)) from error
        if found != request.digest:
            raise AdapterRefused(f"the tensors' digest is {found[:12]}…, the request says {request.digest[:12]}…")
        placed = check_adapter(folder, self._modules, self.max_rank, request.kind)
        config_digest = hashlib.sha256((folder / "adapter_config.json").read_bytes()).hexdigest()
        return Files(folder, config_digest, placed)

    async def discard(self, folder: Path) -> None:
        """Delete a folder that no engine reads any more."""
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def keep_only(self, names: Collection[str]) -> None:
        """At start: delete the folders of adapters that are no longer ready."""
        self._cache.mkdir(parents=True, exist_ok=True)
        for folder in self._cache.iterdir():
            if folder.name not in names:
                shutil.rmtree(folder, ignore_errors=True)
