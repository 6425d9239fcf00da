"""Alerts fire on their planted series and on nothing else; dashboards and alerts use metrics that exist."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

import services.author.metrics
import services.inference.metrics
import services.rollout.metrics
import services.trainer.metrics
import services.verifier.metrics  # noqa: F401  # each module registers its metrics
import shared.telemetry  # noqa: F401
from deploy import dashboards
from shared.settings import REPOSITORY
from tests.deploy.helm import render
from tests.deploy.manifests import Manifest, of_kind, pod_templates

PROMTOOL = shutil.which("promtool") or os.environ.get("SQLCLIMB_PROMTOOL")

PLANTED = {
    "SqlclimbRolloutStalled": [
        ("sqlclimb_rollout_groups_in_flight", {}, "24x200"),
        ("sqlclimb_rollout_rows_total", {"status": "match"}, "0+10x10 100x190"),
    ],
    "SqlclimbRunStalled": [("sqlclimb_run_step", {"run": "r1"}, "0+1x10 10x190")],
    "SqlclimbRunRestarts": [("sqlclimb_run_restarts_total", {}, "0+1x200")],
    "SqlclimbZeroVarianceHigh": [("sqlclimb_run_zero_variance", {"run": "r1"}, "0.8x200")],
    "SqlclimbTrainerEngineGap": [("sqlclimb_run_logprob_gap", {"run": "r1"}, "0.4x200")],
    "SqlclimbAdapterNotReady": [("sqlclimb_replica_state", {"replica": "e1", "state": "restoring"}, "1x200")],
    "SqlclimbUnscorableBurst": [
        ("sqlclimb_verdicts_total", {"status": "unscorable"}, "0+2x200"),
        ("sqlclimb_verdicts_total", {"status": "match"}, "0+10x200"),
    ],
    "SqlclimbSandboxCrashLoop": [("sqlclimb_sandbox_rebuilds_total", {}, "0+1x200")],
    "SqlclimbVerifierSaturated": [("sqlclimb_requests_refused_total", {}, "0+1x200")],
    "SqlclimbErrors": [
        ("sqlclimb_http_requests_total", {"service": "author", "status": "500"}, "0+1x200"),
        ("sqlclimb_http_requests_total", {"service": "author", "status": "200"}, "0+9x200"),
    ],
}
"""Alert to the series under which it fires: name, labels, values one a minute."""

HEALTHY = [
    ("sqlclimb_rollout_groups_in_flight", {}, "24x200"),
    ("sqlclimb_rollout_rows_total", {"status": "match"}, "0+10x200"),
    ("sqlclimb_run_step", {"run": "r1"}, "0+1x200"),
    ("sqlclimb_run_restarts_total", {}, "0x100 2x100"),
    ("sqlclimb_run_zero_variance", {"run": "r1"}, "0.3x200"),
    ("sqlclimb_run_logprob_gap", {"run": "r1"}, "0.01x200"),
    ("sqlclimb_replica_state", {"replica": "e1", "state": "serving"}, "1x200"),
    ("sqlclimb_verdicts_total", {"status": "unscorable"}, "0x200"),
    ("sqlclimb_verdicts_total", {"status": "match"}, "0+10x200"),
    ("sqlclimb_sandbox_rebuilds_total", {}, "0x100 1x100"),
    ("sqlclimb_requests_refused_total", {}, "0x200"),
    ("sqlclimb_http_requests_total", {"service": "author", "status": "500"}, "0x100 1x100"),
    ("sqlclimb_http_requests_total", {"service": "author", "status": "200"}, "0+9x200"),
]

OUR_METRICS = {
    sample.name for metric in REGISTRY.collect() if metric.name.startswith("sqlclimb_") for sample in metric.samples
} | {name for metric in REGISTRY.collect() for name in (metric.name, f"{metric.name}_total", f"{metric.name}_bucket")}

VLLM_METRICS = {"vllm:kv_cache_usage_perc"}
"""Of vLLM 0.32, as services/inference/gateway/engine_metrics.py reads it."""


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    return render("8xh100")


@pytest.fixture(scope="module")
def rules(manifests: list[Manifest]) -> list[dict[str, Any]]:
    (rule,) = of_kind(manifests, "PrometheusRule")
    found: list[dict[str, Any]] = rule["spec"]["groups"][0]["rules"]
    return found


def metrics_in(query: str) -> set[str]:
    """Names that look like a metric of ours or of vLLM."""
    return set(re.findall(r"(?:sqlclimb_|vllm:)[a-z0-9_]+", query))


def test_queries_use_metrics_that_exist(rules: list[dict[str, Any]]) -> None:
    queries = {rule["alert"]: rule["expr"] for rule in rules}
    queries |= {panel.title: panel.query for _, panels in dashboards.DASHBOARDS.values() for panel in panels}
    for where, query in queries.items():
        assert metrics_in(query), where
        assert metrics_in(query) <= OUR_METRICS | VLLM_METRICS, (where, metrics_in(query) - OUR_METRICS)


def test_vllm_has_the_metric_that_is_shown() -> None:
    source = (REPOSITORY / "services/inference/gateway/engine_metrics.py").read_text()
    assert all(name.removeprefix("vllm:") in source for name in VLLM_METRICS)


def test_every_alert_has_a_runbook_and_a_planted_series(rules: list[dict[str, Any]]) -> None:
    assert {rule["alert"] for rule in rules} == set(PLANTED)
    page = (REPOSITORY / "docs/kubernetes-troubleshooting.md").read_text()
    for rule in rules:
        anchor = rule["annotations"]["runbook_url"].rsplit("#", 1)[1]
        assert f"### {rule['alert']}" in page and anchor == rule["alert"].lower()
        assert "NAMESPACE" not in rule["expr"] and 'namespace="team"' in rule["expr"]


def test_everything_that_tells_metrics_is_asked_for_them(manifests: list[Manifest]) -> None:
    """With KubeRay; without it: test_scrape_on_stack.py."""
    asked = {
        (monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"], endpoint["port"])
        for kind, endpoints in (("ServiceMonitor", "endpoints"), ("PodMonitor", "podMetricsEndpoints"))
        for monitor in of_kind(manifests, kind)
        for endpoint in monitor["spec"][endpoints]
    }
    services = {(service, "http") for service in ("verifier", "author", "inference", "trainer")}
    ray = {("rollout", "serve"), ("rollout", "metrics"), ("trainer-job", "metrics")}
    assert asked == services | ray | {("engine", "engine")}
    for component, port in asked:
        found = [pod for pod in pod_templates(manifests) if pod.component == component]
        assert any(port == each["name"] for pod in found for box in pod.containers for each in box.get("ports", []))


def test_dashboards_reach_grafanas_sidecar(manifests: list[Manifest]) -> None:
    found = [
        manifest
        for manifest in of_kind(manifests, "ConfigMap")
        if "grafana_dashboard" in manifest["metadata"]["labels"]
    ]
    assert len(found) == 2
    for manifest in found:
        (model,) = (json.loads(text) for text in manifest["data"].values())
        assert model["panels"] and len({panel["id"] for panel in model["panels"]}) == len(model["panels"])


def promtool_test(tmp_path: Path, rules: list[dict[str, Any]], planted: list[Any], expected: set[str]) -> str:
    """Runs `promtool test rules` at 2 h 50 min; what it complains of."""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "sqlclimb", "rules": rules}]}))
    series = []
    for name, labels, values in planted:
        inner = ",".join(f'{label}="{value}"' for label, value in ({"namespace": "team"} | labels).items())
        series.append({"series": f"{name}{{{inner}}}", "values": values})
    fires = [
        {"eval_time": "170m", "alertname": rule["alert"], "exp_alerts": []}
        for rule in rules
        if rule["alert"] not in expected
    ]
    found = [
        {"expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})', "eval_time": "170m",
         "exp_samples": [{"labels": "{}", "value": 1}]}
        for alert in expected
    ]  # fmt: skip
    test = {"interval": "1m", "input_series": series, "alert_rule_test": fires, "promql_expr_test": found}
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(document))
    argv = [PROMTOOL or "promtool", "test", "rules", "test.yaml"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: apt install prometheus, or SQLCLIMB_PROMTOOL")
@pytest.mark.parametrize("alert", PLANTED)
def test_an_alert_fires_on_its_planted_series_and_on_nothing_else(
    alert: str, rules: list[dict[str, Any]], tmp_path: Path
) -> None:
    assert promtool_test(tmp_path, rules, PLANTED[alert], {alert}) == ""


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: apt install prometheus, or SQLCLIMB_PROMTOOL")
def test_a_healthy_climb_alarms_nobody(rules: list[dict[str, Any]], tmp_path: Path) -> None:
    assert promtool_test(tmp_path, rules, HEALTHY, set()) == ""
