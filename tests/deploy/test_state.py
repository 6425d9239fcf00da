"""What holds work or keys: sandboxes, backups, retention, accounts, Secrets."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.deploy.chosen import CHOSEN, named, pods_of
from tests.deploy.helm import render
from tests.deploy.manifests import Manifest, of_kind


@pytest.fixture(scope="module")
def chosen() -> list[Manifest]:
    return render("8xh100", values=CHOSEN)


def test_a_sandbox_is_a_pod_without_a_token_in_memory_that_ends_by_itself(chosen: list[Manifest]) -> None:
    (sandbox,) = pods_of(chosen, "sandbox")
    assert sandbox.spec["automountServiceAccountToken"] is False and sandbox.spec["restartPolicy"] == "Never"
    assert sandbox.spec["runtimeClassName"] == "gvisor" and sandbox.spec["activeDeadlineSeconds"] == 600
    rooms = {volume["name"]: volume["emptyDir"] for volume in sandbox.spec["volumes"]}
    assert rooms["sandbox"] == {"medium": "Memory", "sizeLimit": "512Mi"}
    assert all(room["medium"] == "Memory" for room in rooms.values())
    rules = named(chosen, "Role", "-verifier")["rules"]
    assert rules == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "create", "delete"]}]


def test_a_dump_is_whole_before_the_oldest_goes(chosen: list[Manifest], tmp_path: Path) -> None:
    job = named(chosen, "CronJob", "-database-backup")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    argv = [word.replace("/backups/", f"{tmp_path}/") for word in job["containers"][0]["command"]]
    for day in (1, 2):
        (tmp_path / f"sqlclimb-2026010{day}T021700Z.dump").touch()
    program = tmp_path / "pg_dump"
    program.write_text('#!/bin/sh\n[ -z "$FAIL" ] && echo whole > "${2#--file=}"\n')
    program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert subprocess.run(argv, env=environment | {"FAIL": "1"}, check=False).returncode != 0
    assert len(list(tmp_path.glob("*.dump"))) == 2, "a dump that fails costs no other"
    subprocess.run(argv, env=environment, check=True)
    kept = sorted(tmp_path.glob("*.dump"))
    assert len(kept) == 2 and kept[0].name == "sqlclimb-20260102T021700Z.dump" and kept[1].read_text() == "whole\n"


def test_a_cloud_identity_reaches_every_account_that_speaks_to_s3() -> None:
    annotations = {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/climb"}
    services = {name: {"serviceAccountAnnotations": annotations} for name in ("inference", "trainer", "engine")}
    manifests = render("multi-node", values={**services, "artifacts": {"s3": {"existingSecret": ""}}})
    for account in ("inference", "trainer", "trainer-job", "engine"):
        assert named(manifests, "ServiceAccount", f"-{account}")["metadata"]["annotations"] == annotations, account


def test_cloudnative_pg_takes_base_backups_beside_its_log() -> None:
    manifests = render("multi-node", values={"database": {"cnpg": {"backupDestination": "s3://bucket/pg"}}})
    (cluster,) = of_kind(manifests, "Cluster")
    assert cluster["spec"]["backup"]["barmanObjectStore"]["s3Credentials"]["accessKeyId"]["name"] == "sqlclimb-s3"
    (backup,) = of_kind(manifests, "ScheduledBackup")
    assert backup["spec"]["cluster"] == {"name": cluster["metadata"]["name"]}
    assert len(backup["spec"]["schedule"].split()) == 6, "CloudNativePG counts seconds too"
    assert not of_kind(render("multi-node"), "ScheduledBackup")


def test_old_checkpoints_and_their_copies_go_and_nothing_else_does(chosen: list[Manifest], tmp_path: Path) -> None:
    job = named(chosen, "CronJob", "-retention")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    argv = [word.replace("/shared/", f"{tmp_path}/") for word in job["containers"][0]["args"]]
    (tmp_path / "checkpoints").mkdir()
    subprocess.run(argv, check=True)  # before any run
    long_ago = time.time() - 40 * 86400
    for run, age in (("old", long_ago), ("new", time.time())):
        for folder in (tmp_path / "checkpoints" / run, tmp_path / "artifacts/runs" / run / "checkpoints"):
            (folder / "3-1").mkdir(parents=True)
            os.utime(folder / "3-1", (long_ago, long_ago))  # of a run that goes on, too
            os.utime(folder, (age, age))
        (tmp_path / "artifacts" / f"{run}-s3-abc").mkdir()
        os.utime(tmp_path / "artifacts" / f"{run}-s3-abc", (long_ago, long_ago))
    subprocess.run(argv, check=True)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["new"]
    assert not (tmp_path / "artifacts/runs/old/checkpoints").exists()
    assert (tmp_path / "artifacts/runs/new/checkpoints/3-1").is_dir()
    assert (tmp_path / "artifacts/old-s3-abc").is_dir(), "adapters stay"


def test_secrets_that_exist_are_used_and_none_is_made(chosen: list[Manifest]) -> None:
    assert not of_kind(chosen, "Secret")
    (author,) = pods_of(chosen, "author")
    container = author.spec["containers"][0]
    assert container["image"] == "ghcr.io/sqlclimb/author@sha256:" + "a" * 64
    assert container["envFrom"] == [{"secretRef": {"name": "teachers"}}]
    (engine,) = pods_of(chosen, "engine")
    token = next(each for each in engine.spec["containers"][0]["env"] if each["name"] == "HF_TOKEN")
    assert token["valueFrom"] == {"secretKeyRef": {"name": "hub", "key": "token"}}
