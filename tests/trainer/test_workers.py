"""Two Ray Train workers (gloo) learn what one learns, each with all weights or with its share, and resume as one."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.models import make_adapter, make_model
from tests.trainer.test_learner import run_config
from tests.trainer.test_losses import GROUPS, MAX_TOKENS, K, relative, samples

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray Train's uses of Ray Data

REPOSITORY = Path(__file__).resolve().parents[2]


def train(arguments: dict[str, Any]) -> None:
    """One worker: train on the same samples every step; the gradient of the last step and the weights go to files."""
    import torch

    from services.trainer.learning import learner as module
    from tests.trainer.stock import KeepGradient

    torch.set_num_threads(1)
    model, adapter, folder, workers, steps, until, data_parallel = (arguments[name] for name in train_arguments)
    if arguments.get("recompute"):
        module.CHECKPOINTING_PARAMETERS = 0
    kept, rollouts = KeepGradient(), []

    def rollout(prompts: list[str], learner: Any) -> dict[str, Any]:
        rollouts.append(prompts)
        return samples(Path(model))

    config = run_config(
        Path(model),
        steps=steps,
        prompts_per_step=GROUPS,
        k=K,
        max_tokens=MAX_TOKENS,
        workers=workers,
        data_parallel=data_parallel,
        beta=0.04,  # then the gradient holds the base's log-probabilities, adapter off, too
    )
    checkpoints = sorted(Path(folder).glob("checkpoint-*"))
    batch = [f"p{group}" for group in range(GROUPS)]
    todo = steps - len(checkpoints)
    learner = module.build_learner(config, Path(folder), [batch] * todo, rollout, lambda: None, [kept], Path(adapter))
    learner.args.max_grad_norm = 0.0
    learner.args.max_steps = until
    kept.model = learner.model
    learner.train(resume_from_checkpoint=str(checkpoints[-1]) if checkpoints else None)
    rank = learner.accelerator.process_index
    assert rollouts == ([] if rank else [[prompt for prompt in batch for _ in range(K)]] * len(rollouts))
    weights = torch.cat([weight.detach().flatten() for weight in learner.model.parameters() if weight.requires_grad])
    found = {"gradient": kept.gradient, "weights": weights, "agreement": learner.agreement}
    base = [
        weight for name, weight in learner.model.named_parameters() if "lora_" not in name
    ]  # TRL keeps two adapters
    found["base"] = sum(held(weight).numel() for weight in base)
    torch.save(found | {"steps": learner.state.global_step}, Path(folder) / f"worker-{rank}.pt")


def held(weight: Any) -> Any:
    """What this worker holds of a weight."""
    return weight.to_local() if hasattr(weight, "to_local") else weight


train_arguments = ("model", "adapter", "folder", "workers", "steps", "until", "data_parallel")


@pytest.fixture(scope="module")
def ray_here() -> Any:
    import ray

    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


def on_two_workers(arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """What both workers kept."""
    import ray.train
    import torch
    from ray.train.torch import TorchConfig, TorchTrainer

    folder = Path(arguments["folder"])
    TorchTrainer(
        train,
        train_loop_config=arguments,
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 0.1}),
        run_config=ray.train.RunConfig(
            storage_path=str(folder / "ray-train"),
            worker_runtime_env={"env_vars": {"PYTHONPATH": str(REPOSITORY)}},
        ),
    ).fit()
    return [torch.load(folder / f"worker-{rank}.pt", weights_only=False) for rank in range(2)]


def test_a_run_with_a_kl_term_that_began_at_an_adapter_resumes_its_own(tmp_path: Path) -> None:
    import torch

    model = make_model(tmp_path / "tiny")
    adapter = make_adapter(model, tmp_path / "adapter", rank=4)

    def trained(name: str, until: int) -> Any:
        (tmp_path / name).mkdir(exist_ok=True)
        values = (str(model), str(adapter), str(tmp_path / name), 1, 2, until, "ddp")
        train(dict(zip(train_arguments, values, strict=True)))
        return torch.load(tmp_path / name / "worker-0.pt", weights_only=False)["weights"]

    trained("broken", 1)
    assert torch.equal(trained("broken", 2), trained("whole", 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data_parallel", "recompute"),
    [("ddp", False), ("fsdp2", False), ("fsdp2", True)],
    ids=["ddp", "fsdp2", "fsdp2, activations recomputed"],
)
def test_two_workers_have_the_gradient_of_one_and_resume_as_one(
    ray_here: Any, tmp_path: Path, data_parallel: str, recompute: bool
) -> None:
    import torch

    model = make_model(tmp_path / "tiny")
    adapter = make_adapter(model, tmp_path / "adapter", rank=4)

    def arguments(name: str, workers: int, until: int = 3) -> dict[str, Any]:
        (tmp_path / name).mkdir(exist_ok=True)
        values = (str(model), str(adapter), str(tmp_path / name), workers, 3, until, data_parallel)
        return dict(zip(train_arguments, values, strict=True)) | {"recompute": recompute}

    train(arguments("one", 1) | {"recompute": False})
    alone = torch.load(tmp_path / "one" / "worker-0.pt", weights_only=False)
    first, second = on_two_workers(arguments("two", 2))
    assert (first["steps"], second["steps"]) == (3, 3)
    assert torch.equal(first["weights"], second["weights"])
    print("gradient", relative(first["gradient"], alone["gradient"]), first["agreement"], alone["agreement"])
    assert relative(first["gradient"], alone["gradient"]) < 1e-5
    assert relative(first["weights"], alone["weights"]) < 1e-5
    assert first["agreement"].logprob_gap == pytest.approx(alone["agreement"].logprob_gap, rel=1e-5)
    assert first["agreement"].kl == pytest.approx(alone["agreement"].kl, rel=1e-5)
    print("frozen weights held", first["base"], second["base"], "of", alone["base"])
    shares = 2 if data_parallel == "fsdp2" else 1
    assert first["base"] == second["base"] == alone["base"] / shares

    on_two_workers(arguments("broken", 2, until=1))
    shutil.copytree(tmp_path / "broken", tmp_path / "fewer")
    resumed, _ = on_two_workers(arguments("broken", 2))
    assert resumed["steps"] == 3
    assert torch.equal(resumed["weights"], first["weights"])
    train(arguments("fewer", 1) | {"recompute": False})
    fewer = torch.load(tmp_path / "fewer" / "worker-0.pt", weights_only=False)
    assert fewer["steps"] == 3
    assert relative(fewer["weights"], alone["weights"]) < 1e-5
