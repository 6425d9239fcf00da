"""`python -m services.inference.engine`: becomes the vLLM API server, so that whatever supervises it owns restarts.

Settings to command line and environment is a pure function. What is set, and why:
- LoRA rules torch.compile out on the CPU; without `--enforce-eager` the first
  requests still waited 17 s (with it, 3 s).
- One process less (`uni` executor, worker in the engine's core) starts about 7 s sooner, with no loss of speed seen;
  vLLM allows it on a CPU only with VLLM_ENABLE_V1_MULTIPROCESSING=0, and then leaves OpenMP to us.
- No chunked prefill: a prompt split over two steps whose request has a seed ends the engine (0.32 rewinds a generator
  offset that CPU generators lack). A step then takes whole prompts, up to BATCHED_TOKENS.
- `--generation-config vllm`: sampling defaults are vLLM's, never a model file's.
- `--logprobs-mode processed_logprobs`: logprobs are of the distribution that was sampled.
"""

import logging
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from services.inference.settings import EngineSettings
from shared.settings import load
from shared.telemetry import configure_logging

log = logging.getLogger("services.inference.engine")

LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/lib64")
TCMALLOC = "libtcmalloc_minimal.so.4"
OPENMP = "libiomp5.so"
BATCHED_TOKENS = 4096
"""Prompt tokens of one engine step."""

SECRETS = ("SQLCLIMB_DB",)
"""Variables of the stack that the engine has no use for."""


@dataclass(frozen=True)
class Preload:
    """Shared libraries for a faster CPU engine; None where not found."""

    tcmalloc: Path | None
    openmp: Path | None


@dataclass(frozen=True)
class Command:
    """What to exec."""

    argv: list[str]
    environment: dict[str, str]


def find_preload(library_folders: Iterable[str] = LIBRARY_FOLDERS, prefix: str = sys.prefix) -> Preload:
    """Look for Debian's tcmalloc and the virtual environment's OpenMP."""
    tcmalloc = next((path for folder in library_folders if (path := Path(folder) / TCMALLOC).exists()), None)
    openmp = Path(prefix) / "lib" / OPENMP
    return Preload(tcmalloc, openmp if openmp.exists() else None)


def engine_command(settings: EngineSettings, preload: Preload, environment: Mapping[str, str]) -> Command:
    """The vLLM server's command line and environment."""
    argv = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    argv += ["--host", settings.host, "--port", str(settings.port)]
    argv += ["--model", settings.model, "--served-model-name", settings.served_name]
    argv += ["--dtype", settings.dtype, "--max-model-len", str(settings.max_model_len)]
    argv += ["--enable-lora", "--max-lora-rank", str(settings.max_lora_rank)]
    argv += ["--max-loras", str(settings.max_loras), "--max-cpu-loras", str(settings.max_loras)]
    argv += ["--logprobs-mode", "processed_logprobs", "--generation-config", "vllm", "--enforce-eager"]
    argv += ["--distributed-executor-backend", "uni", "--worker-cls", "services.inference.cpu_worker.Worker"]
    argv += ["--no-enable-chunked-prefill"]
    argv += ["--max-num-batched-tokens", str(max(BATCHED_TOKENS, settings.max_model_len))]
    argv += ["--disable-uvicorn-access-log"]
    return Command(argv, _engine_environment(settings, preload, environment))


def _engine_environment(settings: EngineSettings, preload: Preload, environment: Mapping[str, str]) -> dict[str, str]:
    found = {name: value for name, value in environment.items() if name not in SECRETS}
    libraries = [str(path) for path in (preload.tcmalloc, preload.openmp) if path is not None]
    libraries += [path for path in environment.get("LD_PRELOAD", "").split(":") if path]
    if libraries:
        found["LD_PRELOAD"] = ":".join(libraries)
    if Path(settings.model).is_dir():
        found["HF_HUB_OFFLINE"] = "1"
    return found | {
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": str(settings.kv_cache_gb),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # pinning gained nothing where others share the cores
        "OMP_NUM_THREADS": str(settings.threads),
        "KMP_BLOCKTIME": "5",  # ms a thread spins after its work: long spins starve the other processes
        "KMP_TPAUSE": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_LOGGING_LEVEL": settings.log_level,
        "VLLM_LOGGING_COLOR": "0",
        "VLLM_DISABLE_LOG_LOGO": "1",
    }


def main() -> None:
    """Load settings and exec vLLM. Exits 2 with a sentence for a faulty setting."""
    settings = load(EngineSettings)
    configure_logging("engine", settings.log_level)
    preload = find_preload()
    if preload.tcmalloc is None:
        log.warning("%s not found: the engine runs slower; `apt-get install libtcmalloc-minimal4`", TCMALLOC)
    if preload.openmp is None:
        log.warning("%s not found in %s: the engine runs slower", OPENMP, sys.prefix)
    command = engine_command(settings, preload, os.environ)
    log.info("starting %s", " ".join(command.argv[1:]))
    os.execvpe(command.argv[0], command.argv, command.environment)


if __name__ == "__main__":
    main()
