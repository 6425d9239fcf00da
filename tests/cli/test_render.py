import csv
import io
from pathlib import Path

import pytest

from cli.curve import draw_reports
from cli.render import REPORT_TITLES, report_cells, report_csv, report_markdown
from shared.contracts.measuring import Estimate, Report, ReportLine
from shared.contracts.rollout import SamplingState
from shared.contracts.verifier import Profile


def report(policy: str, value: float) -> Report:
    estimate = Estimate(value=value, low=value - 0.05, high=value + 0.05)
    shares = dict.fromkeys(("no_sql", "sql_error", "mismatch", "refused", "timeout", "cut", "thought", "distinct"), 0.1)
    line = ReportLine(
        slice="all",
        asked=501,
        tasks=500,
        rows=2000,
        unscorable=3,
        pass_at_1=estimate,
        pass_at_k=estimate,
        pass_hat_k=estimate,
        headroom=0.0,
        sql_error_classes={"22": 0.02, "42": 0.08},
        median_tokens=28.0,
        median_sample_ms=1234.0,
        short_tasks=1,
        pass_at_1_short_failed=0.39,
        detectable_effect=0.03,
        **shares,
    )
    slices = [line, line.model_copy(update={"slice": "style=a|b"})]
    state = SamplingState.DONE
    return Report(
        sampling_id=f"of-{policy}",
        policy=policy,
        adapter_digest="base",
        k=4,
        temperature=0.7,
        profile=Profile.STANDARD,
        state=state,
        lines=slices,
    )


REPORTS = [report("base", 0.4), report("run@40", 0.5)]


def test_markdown_has_a_cell_for_every_title_and_escapes_bars() -> None:
    lines = report_markdown(REPORTS).splitlines()
    assert len(lines) == 2 + 4
    assert all(line.replace(r"\|", "").count("|") == len(REPORT_TITLES) + 1 for line in lines)


def test_csv_carries_every_figure_unrounded_with_its_interval() -> None:
    rows = list(csv.DictReader(io.StringIO(report_csv(REPORTS))))
    assert [row["slice"] for row in rows] == ["all", "style=a|b"] * 2
    assert (rows[2]["policy"], rows[2]["pass_at_1"], rows[2]["pass_at_1_low"]) == ("run@40", "0.5", "0.45")
    assert (rows[0]["unscorable"], rows[0]["sql_error_classes"]) == ("3", "22:0.020 42:0.080")


def test_the_table_names_the_rates_of_each_slice() -> None:
    assert report_cells(REPORTS)[0][:5] == ("of-base", "base k=4", "all", "500", "0.400 [0.350, 0.450]")


@pytest.mark.parametrize("policies", [["base"], ["base", "run@40"], ["base", "endpoint:big", "run@8", "run@40", "b@2"]])
def test_the_chart_is_a_png(tmp_path: Path, policies: list[str]) -> None:
    draw_reports([report(policy, 0.4 + 0.05 * at) for at, policy in enumerate(policies)], tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
