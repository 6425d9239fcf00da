"""What a plan says, against what the published recipe measured and what a model really holds."""

from pathlib import Path

import pytest

from services.trainer.planning.plan import Lengths, activation_bytes, make_plan, parameters, trainer_memory
from services.trainer.planning.planner import presets, read_shape
from services.trainer.planning.step_flops import lora_parameters
from shared.contracts.planning import Plan, Preset
from shared.contracts.run_config import RunConfig
from tests.models import make_model


def planned(preset: Preset, **changes: object) -> Plan:
    config = RunConfig.model_validate({"domain": "shop", "model": "x", "band_id": "b"} | preset.config | changes)
    assert preset.shape is not None
    return make_plan(
        config, preset.shape, preset.hardware, Lengths(preset.prompt_tokens, preset.reply_tokens), band_prompts=326
    )


@pytest.mark.parametrize("preset", presets().values(), ids=str)
def test_every_preset_is_a_run_and_fits_its_hardware(preset: Preset) -> None:
    config = RunConfig.model_validate({"domain": "shop", "model": "x", "band_id": "b"} | preset.config)
    assert preset.hardware.gpus == 0 or config.max_tokens >= config.evaluation.max_tokens
    if preset.shape is not None:
        plan = planned(preset)
        assert plan.fits, plan.memory
        assert config.workers <= max(1, preset.hardware.gpus)


@pytest.mark.parametrize(("name", "billions"), [("recipe-r5", 4.0), ("recipe-9b-r1", 9.0), ("llama-8b-1gpu", 8.0)])
def test_parameters_are_counted_as_published(name: str, billions: float) -> None:
    shape = presets()[name].shape
    assert shape is not None and parameters(shape) / 1e9 == pytest.approx(billions, rel=0.1)


@pytest.mark.parametrize(("name", "minutes"), [("recipe-r5", 7 * 60 / 50), ("recipe-9b-r1", 12.7)])
def test_a_step_of_the_recipe_is_estimated_within_a_factor_of_two(name: str, minutes: float) -> None:
    estimate = planned(presets()[name]).step_seconds / 60
    assert minutes / 2 < estimate < minutes * 2


def test_learning_costs_what_is_forwarded_and_recomputed() -> None:
    preset = presets()["qwen3-4b-8gpu"]
    shared, apart = planned(preset), planned(preset, shared_prompt="off")
    assert shared.tokens_per_step == apart.tokens_per_step, "what is sampled is the same"
    forwards = 16 * (1200 + 2000) / (1200 + 16 * 2000)
    assert apart.learning_flops > 1.2 * shared.learning_flops and forwards > 1.5
    small = preset.model_copy(update={"hardware": preset.hardware.model_copy(update={"memory_gib": 20.0})})
    assert planned(small).learning_flops > 1.02 * shared.learning_flops, "less room, more is recomputed"
    assert planned(preset, beta=0.01).learning_flops > shared.learning_flops, "the KL of every token to base"


def test_fsdp2_divides_the_frozen_weights_and_shares_no_prompts() -> None:
    preset = presets()["qwen3-4b-8gpu"]
    ddp, fsdp2 = planned(preset), planned(preset, data_parallel="fsdp2")

    def weights(plan: Plan) -> float:
        return sum(line.gib for line in plan.memory if line.device == "trainer" and "weights" in line.part)

    assert weights(ddp) / 2 < weights(fsdp2) < 0.8 * weights(ddp)
    assert fsdp2.learning_flops == planned(preset, shared_prompt="off").learning_flops
    assert planned(preset, data_parallel="fsdp2", workers=1).memory == planned(preset, workers=1).memory


@pytest.mark.parametrize(("name", "kernels"), [("recipe-r5", []), ("recipe-9b-r1", ["fla"])])
def test_a_recipe_preset_is_the_published_recipe(name: str, kernels: list[str]) -> None:
    preset = presets()[name]
    config = RunConfig.model_validate({"domain": "shop", "model": "x", "band_id": "b"} | preset.config)
    assert (config.prompts_per_step, config.k, config.lora.rank, config.lora.alpha) == (32, 16, 16, 32)
    assert (config.loss, config.beta, config.temperature, config.profile) == ("bnpo", 0.01, 0.9, "recipe")
    evaluation = config.evaluation
    assert (evaluation.k, evaluation.temperature, evaluation.top_p, evaluation.max_tokens) == (4, 0.7, 0.95, 4096)
    assert 2e-5 <= config.learning_rate <= 5e-5 and config.max_tokens == 4096 and config.regime.thinking
    assert (config.run_ahead, config.refills, config.start_from) == (0, 0, "base")
    linear = bool(kernels)
    assert (preset.hardware.engine_share, config.steps) == ((0.40, 78) if linear else (0.25, 50))
    assert (config.kernels, config.micro_batch) == (kernels, 1 if linear else None)
    assert preset.prompt_tokens <= 2048


def test_counts_price_and_warnings() -> None:
    plan = planned(presets()["recipe-r5"], steps=50)
    assert (plan.samples_per_step, plan.passes) == (512, pytest.approx(50 * 32 / 326))
    assert plan.dollars == pytest.approx(plan.gpu_hours * 3.0) and plan.gpu_hours == plan.hours
    assert any("passes" in warning for warning in plan.warnings)
    short = planned(presets()["recipe-r5"], max_tokens=1024, prompts_per_step=4)
    assert any("under evaluation's 4096" in warning for warning in short.warnings)
    assert any("64 samples a step" in warning for warning in short.warnings)
    assert planned(presets()["recipe-r5"], max_tokens=100_000).fits is False


def test_shapes_and_activations_agree_with_a_real_model(tmp_path: Path) -> None:
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM

    from services.trainer.learning.settings import lora_config

    folder = make_model(tmp_path / "tiny", hidden=192, layers=4, mlp=512, head_dim=48, vocabulary=1024)
    shape = read_shape(folder)
    assert shape is not None
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert parameters(shape) == pytest.approx(model.num_parameters(), rel=0.01)
    config = RunConfig(domain="shop", model=str(folder), band_id="b")
    trained = get_peft_model(model, lora_config(config)).get_nb_trainable_parameters()[0]
    assert lora_parameters(shape, config.lora.rank) == trained
    assert activation_bytes(shape, 4, recomputed=True) < activation_bytes(shape, 4, recomputed=False)
    short, long = (sum(line.gib for line in trainer_memory(config, shape, 4, prompt)) for prompt in (100, 1100))
    assert (long - short) * 2**30 == pytest.approx(1000 * activation_bytes(shape, 4, recomputed=False))
