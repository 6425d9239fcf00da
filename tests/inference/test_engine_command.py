"""Settings to vLLM's command line and environment."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from services.inference.engine.command import Preload, engine_command, find_device, find_preload
from services.inference.settings import Device, EngineSettings, GatewaySettings

NOTHING = Preload(None, None)
CPU, CUDA = Device.CPU, Device.CUDA


def settings(**fields: object) -> EngineSettings:
    return EngineSettings.model_validate({"port": 8000, "model": "org/name"} | fields)


def test_every_setting_reaches_the_server() -> None:
    made = settings(
        served_name="policy", dtype="bfloat16", max_model_len=512, max_loras=5, max_lora_rank=32, host="::1"
    )
    argv = engine_command(made, CPU, NOTHING, {}).argv
    pairs = dict(itertools.pairwise(argv))
    wanted = {
        "--host": "::1",
        "--port": "8000",
        "--model": "org/name",
        "--served-model-name": "policy",
        "--dtype": "bfloat16",
        "--max-model-len": "512",
        "--max-loras": "5",
        "--max-cpu-loras": "5",
        "--max-lora-rank": "32",
        "--logprobs-mode": "processed_logprobs",
        "--default-chat-template-kwargs": '{"enable_thinking": false}',
        "--shutdown-timeout": "20",
        "--generation-config": "vllm",
    }
    assert {flag: pairs[flag] for flag in wanted} == wanted
    assert argv[:3] == [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    assert {"--enable-lora", "--enable-prefix-caching"} <= set(argv)
    assert not any("parser" in word for word in argv)  # parsers move text out of the raw turn


def test_gpu_gets_its_share_of_memory_and_nothing_made_for_cpus(tmp_path: Path) -> None:
    template = tmp_path / "chat.jinja"
    template.touch()
    made = settings(gpu_memory_share=0.4, tensor_parallel=2, chat_template=template, thinking=True)
    command = engine_command(made, CUDA, NOTHING, {})
    pairs = dict(itertools.pairwise(command.argv))
    wanted = {
        "--gpu-memory-utilization": "0.4",
        "--tensor-parallel-size": "2",
        "--dtype": "bfloat16",
        "--chat-template": str(template),
        "--default-chat-template-kwargs": '{"enable_thinking": true}',
        "--logprobs-mode": "processed_logprobs",
    }
    assert {flag: pairs[flag] for flag in wanted} == wanted
    assert not {"--worker-cls", "--enforce-eager", "--no-enable-chunked-prefill"} & set(command.argv)
    assert not [name for name in command.environment if "CPU" in name or "OMP" in name]


def test_build_that_is_installed_decides_the_device() -> None:
    assert find_device() is CPU


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "set either this or SQLCLIMB_ENGINE_URLS"),
        ({"engine_urls": ["http://a:1"], "engine_dns": "http://b:1"}, "set either"),
        ({"engine_urls": ["a:1"]}, "write http://host:port"),
        ({"engine_dns": "http://engines"}, "write http://host:port"),
    ],
)
def test_gateway_without_one_way_to_its_engines_says_how(fields: dict[str, object], words: str) -> None:
    there = {"port": 8000, "model": "x", "tokens_file": "t", "db": "postgresql://u@h/d", "adapters_cache": "c"}
    with pytest.raises(ValueError, match=words):
        GatewaySettings.model_validate(there | fields)


def test_environment_keeps_what_is_there_but_secrets() -> None:
    there = {"PATH": "/bin", "SQLCLIMB_DB": "postgresql://u:secret@h/d", "SQLCLIMB_STACK": "/home/stack"}
    command = engine_command(settings(kv_cache_gb=3, threads=7), CPU, NOTHING, there)
    found = command.environment
    assert (found["PATH"], found["SQLCLIMB_STACK"]) == ("/bin", "/home/stack")
    assert "secret" not in str(command)
    assert found["VLLM_CPU_KVCACHE_SPACE"] == "3"
    assert found["OMP_NUM_THREADS"] == "7"
    assert found["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "True"
    assert found["VLLM_NO_USAGE_STATS"] == "1"
    assert "LD_PRELOAD" not in found


def test_folder_is_served_offline_and_a_name_may_be_fetched(tmp_path: Path) -> None:
    assert engine_command(settings(model=str(tmp_path)), CPU, NOTHING, {}).environment["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in engine_command(settings(), CPU, NOTHING, {}).environment


def test_libraries_are_preloaded_before_those_already_asked_for(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libiomp5.so").touch()
    (tmp_path / "libtcmalloc_minimal.so.4").touch()
    preload = find_preload([str(tmp_path / "none"), str(tmp_path)], str(tmp_path))
    found = engine_command(settings(), CPU, preload, {"LD_PRELOAD": "/x.so"}).environment["LD_PRELOAD"]
    assert found == f"{tmp_path}/libtcmalloc_minimal.so.4:{tmp_path}/lib/libiomp5.so:/x.so"
    assert find_preload([str(tmp_path / "none")], str(tmp_path / "none")) == NOTHING


@pytest.mark.parametrize("module", ["services.inference", "services.inference.engine"])
def test_faulty_setting_is_named_and_ends_the_program(module: str) -> None:
    environment = {"PATH": "/bin", "SQLCLIMB_PORT": "99999", "SQLCLIMB_MAX_LORA_RANK": "17"}
    done = subprocess.run([sys.executable, "-m", module], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "SQLCLIMB_PORT: " in done.stderr
    assert "SQLCLIMB_MODEL: Field required" in done.stderr
    assert "SQLCLIMB_MAX_LORA_RANK: Input should be 8, 16, 32" in done.stderr
