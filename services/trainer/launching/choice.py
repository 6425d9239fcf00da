"""Which launcher the settings ask for."""

from services.trainer.launching.launcher import Launcher, RayJobLauncher
from services.trainer.launching.rayjob import KubernetesLauncher
from services.trainer.settings import TrainerSettings
from shared.kubernetes import KubernetesApi


def open_launcher(settings: TrainerSettings) -> Launcher:
    """RayJobs of the cluster when a template of them is given, else jobs of one running Ray.

    Raises ValueError for a faulty template, KubernetesUnavailable outside a cluster.
    """
    if settings.rayjob_template is not None:
        return KubernetesLauncher(KubernetesApi.in_cluster(), settings.rayjob_template)
    assert settings.ray_dashboard_url is not None, "the settings have one of the two"
    return RayJobLauncher(settings.ray_dashboard_url, settings.for_job())
