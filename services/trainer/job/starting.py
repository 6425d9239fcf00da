"""Where a run's LoRA begins: at zero, or at another run's adapter (round two)."""

import json
from dataclasses import dataclass
from pathlib import Path

from services.trainer.failures import RunFailed
from services.trainer.job.publisher import BASE, Policy
from services.trainer.job.remote import Remote
from shared.artifacts import ArtifactError, adapter_digest, fetch_adapter
from shared.contracts.inference import AdapterRequest
from shared.contracts.run_config import RunConfig
from shared.ids import BASE_POLICY


@dataclass(frozen=True)
class Start:
    """What draws the first batch, and what the learner loads."""

    policy: Policy
    folder: Path | None
    """The adapter's files; None at the base."""


def starting_point(config: RunConfig, remote: Remote, folder: Path) -> Start:
    """The start that `config.start_from` names, served and fetched into `folder`. Raises RunFailed."""
    if config.start_from == BASE_POLICY:
        return Start(BASE, None)
    adapter = remote.adapter(config.start_from)
    try:
        if not folder.exists():  # an earlier attempt fetched it
            folder.parent.mkdir(parents=True, exist_ok=True)
            fetch_adapter(adapter.uri, folder)
        found = adapter_digest(folder)
        rank = int(json.loads((folder / "adapter_config.json").read_text())["r"])
    except (OSError, ValueError, KeyError, ArtifactError) as error:
        raise RunFailed(
            f"`start_from`: {config.start_from} could not be fetched: {error}. Nothing was trained"
        ) from error
    if found != adapter.digest:
        raise RunFailed(
            f"`start_from`: the files of {config.start_from} in {adapter.uri} are {found[:12]}, what was published is "
            f"{adapter.digest[:12]}. Nothing was trained"
        )
    if rank != config.lora.rank:
        raise RunFailed(
            f"`lora.rank`: {config.start_from} has rank {rank}, the run asks for {config.lora.rank}; set it to {rank}. "
            "Nothing was trained"
        )
    remote.publish(adapter.name, AdapterRequest(uri=adapter.uri, base=adapter.base, digest=adapter.digest))
    return Start(Policy(0, config.start_from, adapter.digest, adapter.name, adapter.uri), folder)
