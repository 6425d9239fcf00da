"""The Grafana dashboards as data: `Climb` (is this run learning and sound) and `Serving` (what saturates)."""

import json
from dataclasses import dataclass
from typing import Any

PANEL_WIDTH, PANEL_HEIGHT, COLUMNS = 8, 8, 3

NO_PROBES = 'route!~"/healthz|/readyz|/metrics"'
"""Requests of callers: a service that waits for another one answers its probe 503, and fails nobody."""


@dataclass(frozen=True)
class Panel:
    """One time series panel; `unit` as Grafana names it."""

    title: str
    query: str
    legend: str
    unit: str = "short"


def share(metric: str, condition: str, by: str = "", among: str = "") -> str:
    """Rate of what meets the condition over the rate of all, or of all that meet `among`."""
    grouped = f" by ({by})" if by else ""
    base = f'namespace="$namespace", {among}' if among else 'namespace="$namespace"'
    part = f"sum{grouped} (rate({metric}{{{base}, {condition}}}[$__rate_interval]))"
    return f"{part} / sum{grouped} (rate({metric}{{{base}}}[$__rate_interval]))"


def rate(metric: str, by: str) -> str:
    """Rate by label."""
    return f'sum by ({by}) (rate({metric}{{namespace="$namespace"}}[$__rate_interval]))'


def quantile(metric: str, by: str = "") -> str:
    """The 95th percentile of a histogram."""
    labels = f"le, {by}" if by else "le"
    inner = f'sum by ({labels}) (rate({metric}_bucket{{namespace="$namespace"}}[$__rate_interval]))'
    return f"histogram_quantile(0.95, {inner})"


def gauge(metric: str) -> str:
    """A gauge as it is."""
    return f'{metric}{{namespace="$namespace"}}'


DASHBOARDS: dict[str, tuple[str, list[Panel]]] = {
    "climb": (
        "sqlclimb / Climb",
        [
            Panel("Reward", gauge("sqlclimb_run_reward"), "{{run}}"),
            Panel("Steps", gauge("sqlclimb_run_step"), "{{run}}"),
            Panel("Groups that teach nothing", gauge("sqlclimb_run_zero_variance"), "{{run}}", "percentunit"),
            Panel("Trainer against engine, nats a token", gauge("sqlclimb_run_logprob_gap"), "{{run}}"),
            Panel("KL to base, nats a token", gauge("sqlclimb_run_kl"), "{{run}}"),
            Panel("Effective sample size", gauge("sqlclimb_run_effective_sample_size"), "{{run}}", "percentunit"),
            Panel("Replies cut by the budget", gauge("sqlclimb_run_cut"), "{{run}}", "percentunit"),
            Panel("Replies without SQL", gauge("sqlclimb_run_no_sql"), "{{run}}", "percentunit"),
            Panel("Where a step's time goes", gauge("sqlclimb_run_step_seconds"), "{{run}} {{phase}}", "s"),
            Panel("Verdicts", rate("sqlclimb_verdicts_total", "status"), "{{status}}", "ops"),
            Panel("Unscorable", share("sqlclimb_verdicts_total", 'status="unscorable"'), "share", "percentunit"),
            Panel("Rows landed", rate("sqlclimb_rollout_rows_total", "status"), "{{status}}", "ops"),
            Panel("Samples given up", rate("sqlclimb_rollout_losses_total", "reason"), "{{reason}}", "ops"),
            Panel("Publishes", rate("sqlclimb_adapter_publishes_total", "outcome"), "{{outcome}}", "ops"),
        ],
    ),
    "serving": (
        "sqlclimb / Serving",
        [
            Panel("Generations", rate("sqlclimb_generations_total", "policy"), "{{policy}}", "reqps"),
            Panel("Tokens", rate("sqlclimb_generated_tokens_total", "policy"), "{{policy}}", "ops"),
            Panel("First token, p95", quantile("sqlclimb_first_token_seconds"), "p95", "s"),
            Panel("Generation, p95", quantile("sqlclimb_generation_seconds"), "p95", "s"),
            Panel("In flight by replica", gauge("sqlclimb_replica_in_flight"), "{{replica}}"),
            Panel("Waiting by replica", gauge("sqlclimb_replica_waiting"), "{{replica}}"),
            Panel("KV cache in use", gauge("vllm:kv_cache_usage_perc"), "{{pod}}", "percentunit"),
            Panel("Refused by the gateway", rate("sqlclimb_generation_refusals_total", "reason"), "{{reason}}", "ops"),
            Panel("Adapters ready", gauge("sqlclimb_adapters_loaded"), "{{pod}}"),
            Panel("Swap phases, p95", quantile("sqlclimb_adapter_swap_seconds", "phase"), "{{phase}}", "s"),
            Panel("Verifier: phases, p95", quantile("sqlclimb_verify_seconds", "phase"), "{{phase}}", "s"),
            Panel("Verifier: items admitted", gauge("sqlclimb_items_admitted"), "{{pod}}"),
            Panel("Sandboxes", gauge("sqlclimb_sandboxes"), "{{pod}}"),
            Panel("Groups with the workers", gauge("sqlclimb_rollout_groups_in_flight"), "{{pod}}"),
            Panel("Requests, p95", quantile("sqlclimb_http_request_seconds", "service"), "{{service}}", "s"),
            Panel(
                "Failed requests",
                share("sqlclimb_http_requests_total", 'status=~"5.."', "service", NO_PROBES),
                "{{service}}",
                "percentunit",
            ),
        ],
    ),
}


def dashboard(name: str) -> dict[str, Any]:
    """Grafana's JSON model of one dashboard."""
    title, panels = DASHBOARDS[name]
    source = {"type": "prometheus", "uid": "${datasource}"}
    query = {"query": "label_values(sqlclimb_http_requests_total, namespace)", "refId": "namespace"}
    return {
        "uid": f"sqlclimb-{name}",
        "title": title,
        "tags": ["sqlclimb"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                {"name": "namespace", "type": "query", "datasource": source, "query": query, "refresh": 2},
            ]
        },
        "panels": [
            {
                "id": number + 1,
                "type": "timeseries",
                "title": panel.title,
                "datasource": source,
                "gridPos": {
                    "x": number % COLUMNS * PANEL_WIDTH,
                    "y": number // COLUMNS * PANEL_HEIGHT,
                    "w": PANEL_WIDTH,
                    "h": PANEL_HEIGHT,
                },
                "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
                "targets": [{"refId": "A", "expr": panel.query, "legendFormat": panel.legend, "datasource": source}],
            }
            for number, panel in enumerate(panels)
        ],
    }


def files() -> dict[str, str]:
    """File name to content."""
    return {f"{name}.json": json.dumps(dashboard(name), indent=1) + "\n" for name in DASHBOARDS}
