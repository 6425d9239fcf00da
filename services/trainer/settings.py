"""Settings of the trainer's API and of its jobs."""

import json
import os
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from shared.settings import ArtifactSettings, DatabaseSettings, DomainSettings, ServiceSettings


class TrainingSettings(DatabaseSettings, ArtifactSettings, DomainSettings):
    """What API and job both need."""

    checkpoints: Path = Field(description="folder of checkpoints, one subfolder a run; API and Ray nodes must share it")
    rollout_url: str = Field(description="address of the rollout service")
    inference_url: str = Field(description="address of the inference gateway")
    author_url: str | None = Field(default=None, description="address of the author; only golds are read from it")
    gold_token_name: str | None = Field(
        default=None,
        description="which token of the tokens file reads golds for runs of method sft, when their caller has the "
        "`gold` scope too; without it such runs are refused",
    )
    image: str = Field(default="", description="the container image this runs in, which each attempt of a run records")
    learner_threads: int = Field(
        default_factory=lambda: len(os.sched_getaffinity(0)), ge=1, description="CPU threads of a training worker"
    )


class JobSettings(TrainingSettings):
    """What a job reads: from the file its launcher wrote, else from the environment."""

    tokens_file: Path = Field(description="JSON file of bearer tokens and their scopes")
    token_name: str = Field(default="trainer", description="which token of the file the job uses to call others")

    def write(self, path: Path) -> None:
        """Write them for a job, readable by the owner only: they hold the database's password."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(self.model_dump(mode="json") | {"db": self.db.get_secret_value()}, file)
        temporary.replace(path)

    @classmethod
    def read(cls, path: Path | None) -> "JobSettings":
        """The settings `write` wrote, else the environment's. Raises OSError, pydantic.ValidationError."""
        return cls(**json.loads(path.read_text()) if path else {})


class TrainerSettings(ServiceSettings, TrainingSettings):
    """The trainer: `/v1/runs`, each run a Ray job."""

    ray_dashboard_url: str | None = Field(default=None, description="address of the Ray dashboard, which takes jobs")
    rayjob_template: Path | None = Field(
        default=None, description="in a cluster with KubeRay: JSON of the RayJob to make for each attempt of a run"
    )

    @model_validator(mode="after")
    def _one_launcher(self) -> Self:
        if (self.ray_dashboard_url is None) == (self.rayjob_template is None):
            raise ValueError("set either SQLCLIMB_RAY_DASHBOARD_URL or SQLCLIMB_RAYJOB_TEMPLATE")
        return self

    def for_job(self) -> JobSettings:
        """The part of these settings that a job needs."""
        return JobSettings(
            db=self.db,
            artifacts=self.artifacts,
            checkpoints=self.checkpoints.resolve(),
            rollout_url=self.rollout_url,
            inference_url=self.inference_url,
            author_url=self.author_url,
            gold_token_name=self.gold_token_name,
            domains=[folder.resolve() for folder in self.domains],
            learner_threads=self.learner_threads,
            tokens_file=self.tokens_file.resolve(),
            token_name=self.token_name,
        )
