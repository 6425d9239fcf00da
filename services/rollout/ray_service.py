"""The rollout app as a RayService asks for it: `import_path: services.rollout.ray_service:build`.

Settings come from the environment of Ray's Pods, which the chart writes.
"""

from typing import Any

from services.rollout.deployments import serve_app
from services.rollout.settings import RolloutSettings
from shared.auth import TokenFile


def build(arguments: dict[str, str]) -> Any:
    """The application. Ray Serve calls it with the `args` of its config, of which there are none."""
    settings = RolloutSettings()
    TokenFile(settings.tokens_file)  # refuse a faulty file before any replica starts
    return serve_app(settings)
