"""The app that a RayService imports builds as Ray Serve builds it, from the environment that the chart writes."""

from importlib import import_module
from pathlib import Path

import pytest
import yaml

from tests.deploy.helm import render
from tests.deploy.manifests import Manifest, of_kind, pod_templates


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    return render("8xh100")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray's own models, when it is imported
def test_the_import_path_builds_an_application(
    manifests: list[Manifest], tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray.serve import Application
    from ray.serve._private.api import call_user_app_builder_with_args_if_necessary

    (service,) = of_kind(manifests, "RayService")
    config = yaml.safe_load(service["spec"]["serveConfigV2"])
    (application,) = config["applications"]
    head = next(pod for pod in pod_templates([service]))
    for variable in head.spec["containers"][0]["env"]:
        if variable["name"].startswith("SQLCLIMB_"):
            monkeypatch.setenv(variable["name"], variable.get("value", "postgresql://u:p@127.0.0.1:1/x"))
    monkeypatch.setenv("SQLCLIMB_TOKENS_FILE", str(tokens))
    module, _, name = application["import_path"].partition(":")
    built = call_user_app_builder_with_args_if_necessary(getattr(import_module(module), name), {})
    assert isinstance(built, Application)
    port = next(port for port in head.spec["containers"][0]["ports"] if port["name"] == "serve")
    assert config["http_options"]["port"] == port["containerPort"]
