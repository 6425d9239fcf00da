"""The Ray job of one attempt of a run: `python -m services.trainer.job --run-id ID --attempt N [--settings FILE]`.

Starts Ray Train workers and waits for them. Settings come from the file, else from SQLCLIMB_* in the environment.
"""

import argparse
import importlib.metadata
import logging
import os
import sys
from pathlib import Path

from services.trainer.failures import Fenced, RunFailed
from services.trainer.job.code_version import code_version
from services.trainer.job.records import RunRecords
from services.trainer.job.worker import WorkerArguments, train_in_worker
from services.trainer.settings import JobSettings
from shared.contracts.run_config import RunConfig
from shared.contracts.trainer import RunState
from shared.telemetry import configure_logging, redact

log = logging.getLogger(__name__)

WORKER_CPUS = 0.1
"""A reservation, not a limit: with whole CPUs a small machine that also runs Serve replicas would never place it."""

PLACEMENT_SECONDS = 120
"""A worker that finds no place in this time fails the run instead of waiting in silence."""

WORKER_ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Read when OpenMP loads, so before our code runs. Threads that wait by spinning made a step five times slower here
whenever another process wanted a core."""

REPORTED_PACKAGES = ("trl", "peft", "torch", "ray", "transformers", "accelerate", "sqlclimb")


def versions() -> dict[str, str]:
    """What this job really runs."""
    return {name: importlib.metadata.version(name) for name in REPORTED_PACKAGES} | {
        "python": ".".join(map(str, sys.version_info[:3]))
    }


def fit(config: RunConfig, arguments: WorkerArguments, folder: Path) -> None:
    """Run the workers to their end. Raises RunFailed, or TrainingFailedError of Ray when one died."""
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", str(PLACEMENT_SECONDS))
    os.environ.setdefault("RAY_TRAIN_ENABLE_PRINT_PATCH", "0")  # it turns libraries' printing into root log lines
    import ray
    import ray.train
    from ray.train.torch import TorchTrainer

    ray.init(log_to_driver=True, logging_level="WARNING")
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if 0 < gpus < config.workers:
        raise RunFailed(
            f"`workers`: {config.workers} workers need a GPU each, Ray has {gpus}. Start the run again, under its id, "
            f"with `--workers {gpus}`: it goes on from its newest checkpoint"
        )
    use_gpu = gpus > 0
    TorchTrainer(
        train_in_worker,
        train_loop_config=dict(arguments),
        scaling_config=ray.train.ScalingConfig(
            num_workers=config.workers,
            use_gpu=use_gpu,
            resources_per_worker={"CPU": WORKER_CPUS} | ({"GPU": 1} if use_gpu else {}),
        ),
        run_config=ray.train.RunConfig(
            name=f"attempt-{arguments['attempt']}",
            storage_path=str(folder / "ray-train"),
            worker_runtime_env={"env_vars": WORKER_ENVIRONMENT},
            failure_config=ray.train.FailureConfig(max_failures=0),  # the API begins an attempt that fences this one
        ),
    ).fit()


def main() -> int:
    """Run one attempt; 0 unless it broke."""
    parser = argparse.ArgumentParser(prog="services.trainer.job", description="one attempt of a training run")
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--attempt", required=True, type=int)
    parser.add_argument("--settings", type=Path, help="JSON file of settings; without it they come from SQLCLIMB_*")
    options = parser.parse_args()
    configure_logging("trainer-job", "INFO")
    settings = JobSettings.read(options.settings)
    records = RunRecords(settings.db.get_secret_value(), options.run_id, options.attempt)
    try:
        config = records.begin(versions(), code_version(settings.image))
        arguments = WorkerArguments(
            settings_file=str(options.settings) if options.settings else None,
            run_id=options.run_id,
            attempt=options.attempt,
            config=config.model_dump(mode="json"),
        )
        fit(config, arguments, settings.checkpoints / options.run_id)
    except Fenced as error:
        log.warning("%s", error)
    except RunFailed as error:
        log.error("%s", error)
        records.finish(RunState.FAILED, str(error))
        return 1
    except Exception as error:  # another attempt may do better: the API begins it, or ends the run
        log.exception("the training job broke")
        records.broke(describe(error))
        return 1
    return 0


def describe(error: Exception) -> str:
    """What broke training, in one line without secrets."""
    cause = next(iter(getattr(error, "worker_failures", {}).values()), error)
    if "actor is dead" in str(cause):
        return "a training worker died: it was killed, or the machine ran out of memory"
    lines = str(cause).strip().splitlines()
    return f"training broke: {redact(lines[-1]) if lines else type(cause).__name__}"[:500].rstrip(".")


if __name__ == "__main__":
    raise SystemExit(main())
