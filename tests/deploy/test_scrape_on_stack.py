"""Dashboards and alerts against what a real Prometheus scraped while `demo --smoke` ran."""

import math
import re
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from deploy.dashboards import DASHBOARDS
from tests.deploy.helm import CHART, render
from tests.deploy.manifests import of_kind
from tests.prometheus import NAMESPACE, POD_MONITORS, PROMETHEUS, SERVICE_MONITORS, Prometheus
from tests.stack import StackHandle

pytestmark = pytest.mark.skipif(
    PROMETHEUS is None, reason="prometheus is not installed: apt install prometheus, or SQLCLIMB_PROMETHEUS"
)

RATE_INTERVAL = "15s"
"""Grafana's `$__rate_interval` is at least four scrapes; short, for a run of seconds."""

WITHOUT_DATA = {
    "Failed requests": "no request of a smoke demo fails, and a share without failures has no series",
    "SqlclimbErrors": "no request of a smoke demo fails",
}
"""Panels and alerts whose query returns nothing on this stack, and why it cannot."""

_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\bby\s*\(([^)]*)\)")
_THRESHOLD = re.compile(r"\s(?:==|!=|>=|<=|>|<)\s*[\d.]+")


@dataclass(frozen=True)
class Query:
    """One expression that somebody looks at."""

    where: str
    """The panel's title, or the alert's name."""

    expression: str
    shown: frozenset[str]
    """Labels that its legend or its annotations print."""

    @property
    def metrics(self) -> set[str]:
        """Every metric that it selects."""
        return {name for name, _ in _SELECTOR.findall(self.expression)}

    @property
    def labels(self) -> set[str]:
        """Every label that it selects by or groups by."""
        matched = {label for _, inner in _SELECTOR.findall(self.expression) for label in _MATCHER.findall(inner)}
        grouped = {label.strip() for inner in _GROUPING.findall(self.expression) for label in inner.split(",")}
        return matched | grouped


def panel_queries() -> list[Query]:
    """Of all dashboards, as Grafana would send them."""
    return [
        Query(
            panel.title,
            panel.query.replace("$namespace", NAMESPACE).replace("$__rate_interval", RATE_INTERVAL),
            frozenset(re.findall(r"\{\{\s*(\w+)\s*\}\}", panel.legend)),
        )
        for _, panels in DASHBOARDS.values()
        for panel in panels
    ]


def alert_queries() -> list[Query]:
    """Of all alerts, without their thresholds: what they judge."""
    rules = [yaml.safe_load(path.read_text()) for path in sorted((CHART / "alerts").glob("*.yaml"))]
    return [
        Query(
            rule["alert"],
            _THRESHOLD.sub("", rule["expr"].replace("NAMESPACE", NAMESPACE)),
            frozenset(re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))),
        )
        for rule in rules
    ]


PANELS, ALERTS = panel_queries(), alert_queries()


@pytest.fixture
def prometheus(stack: StackHandle) -> Prometheus:
    assert stack.prometheus is not None
    return stack.prometheus


def has_data(series: dict[str, Any]) -> bool:
    """Whether it has a number at any time."""
    return any(math.isfinite(float(value)) for _, value in series["values"])


def test_what_is_scraped_is_what_the_charts_monitors_select() -> None:
    manifests = render("cpu-trial")
    for kind, targets, endpoints in (
        ("ServiceMonitor", SERVICE_MONITORS, "endpoints"),
        ("PodMonitor", POD_MONITORS, "podMetricsEndpoints"),
    ):
        drawn = [
            (monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"], endpoint["port"])
            for monitor in of_kind(manifests, kind)
            for endpoint in monitor["spec"][endpoints]
            if endpoint["honorLabels"]
        ]
        assert sorted(drawn) == sorted((target.component, target.endpoint) for target in targets)


def test_every_target_answers(prometheus: Prometheus) -> None:
    answered = {series["metric"]["job"] for series in prometheus.query("up == 1")}
    assert answered == {f"{target.component}-{target.endpoint}" for target in (*SERVICE_MONITORS, *POD_MONITORS)}


@pytest.mark.parametrize("query", [*PANELS, *ALERTS], ids=lambda query: query.where)
def test_every_metric_and_label_of_a_query_is_in_the_scrape(query: Query, prometheus: Prometheus) -> None:
    assert query.metrics
    for metric in query.metrics:
        series = prometheus.series(f'{metric}{{namespace="{NAMESPACE}"}}')
        assert series, metric
        missing = query.labels - set().union(*series)
        assert not missing, (metric, missing)


@pytest.mark.parametrize("query", [*PANELS, *ALERTS], ids=lambda query: query.where)
def test_every_query_returns_data_with_the_labels_it_shows_or_a_reason(query: Query, prometheus: Prometheus) -> None:
    found = [series for series in prometheus.query(query.expression) if has_data(series)]
    if query.where in WITHOUT_DATA and not found:
        return
    assert found, query.expression
    for series in found:
        assert query.shown <= series["metric"].keys(), (query.shown, series["metric"])


def test_every_reason_is_for_a_query_that_exists() -> None:
    assert WITHOUT_DATA.keys() <= {query.where for query in [*PANELS, *ALERTS]}
