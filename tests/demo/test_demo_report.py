"""Table, page, charts and progress bar, from made-up results."""

import io
import json
import re
from html.parser import HTMLParser

import pytest

import charts
import children
import progress
import report
import settings
import summary as summary_module
import workspace

REQUIRED = {
    "losses_identical",
    "peak_rss_plain_bytes",
    "peak_rss_offloaded_bytes",
    "step_plain_s",
    "step_offloaded_s",
    "step_ratio",
    "activation_bytes",
    "tiers",
}
TIER_KEYS = {"budget_bytes", "peak_bytes", "moved_in_bytes", "moved_out_bytes", "label"}


@pytest.fixture
def summary(make_run):
    plain = [make_run("plain", peak_rss=2 << 30), make_run("plain", peak_rss=(2 << 30) + 1)]
    offloaded = [
        make_run("offloaded", peak_rss=1 << 30, step_s=2.5, dram=200 << 20),
        make_run("offloaded", peak_rss=(1 << 30) + 1, step_s=2.5),
    ]
    return summary_module.summarise(settings.FULL, plain, offloaded, ["<a note>"])


@pytest.fixture
def series(make_run):
    plain, offloaded = make_run("plain"), make_run("offloaded")
    return {
        "timeline": offloaded["timeline"],
        "plain_marks": plain["marks"],
        "offloaded_marks": offloaded["marks"],
        "plain_resident": plain["resident"],
        "offloaded_resident": offloaded["resident"],
    }


def test_summary_has_the_promised_keys(summary):
    assert REQUIRED <= set(summary)
    assert all(set(tier) == TIER_KEYS for tier in summary["tiers"].values())
    assert summary["passed"]


def test_summary_takes_the_less_flattering_peaks(summary):
    assert summary["peak_rss_plain_bytes"] == 2 << 30
    assert summary["peak_rss_offloaded_bytes"] == (1 << 30) + 1
    assert summary["tiers"]["dram"]["peak_bytes"] == 250 << 20


def test_step_times_leave_out_the_warm_up(summary):
    assert [len(run) for run in summary["step_times_s"]["plain"]] == [2, 2]
    assert summary["step_plain_s"] == pytest.approx(2.0)
    assert summary["step_ratio"] == pytest.approx(1.25)


def test_table_is_complete_and_narrow(summary):
    text = report.render_table(summary)
    for part in ("loss, step 2", "peak resident memory", "step time, median", "1.25 times"):
        assert part in text
    assert "emulated: a file without DAX" in text
    assert max(map(len, text.splitlines())) <= 100
    assert "FAILED" not in text


def test_table_names_a_failure(make_run):
    plain, offloaded = [make_run("plain")], [make_run("offloaded", losses=(5.5, 4.0))]
    text = report.render_table(summary_module.summarise(settings.QUICK, plain, offloaded, []))
    assert "DIFFERENT" in text and "FAILED: step 2: plain" in text


class Strict(HTMLParser):
    """Checks that every element is closed, and collects addresses."""

    VOID = {"meta", "line", "path", "br"}

    def __init__(self):
        super().__init__()
        self.open, self.addresses = [], []

    def handle_starttag(self, tag, attributes):
        self.addresses += [value for name, value in attributes if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_report_is_one_well_formed_file(summary, series, tmp_path):
    report.clear_report(tmp_path / "new" / "report")
    report.write_report(tmp_path / "new" / "report", summary, series)
    files = {path.name for path in (tmp_path / "new" / "report").iterdir()}
    assert files == {"index.html", "summary.json"}
    page = (tmp_path / "new/report/index.html").read_text(encoding="utf-8")
    parser = Strict()
    parser.feed(page)
    assert parser.open == [] and parser.addresses == []
    assert "http" not in page and "&lt;a note&gt;" in page
    assert json.loads((tmp_path / "new/report/summary.json").read_text()) == summary


def test_page_data_cannot_end_its_script(summary, series):
    page = report.render_page(summary, series)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    shown = json.loads(data.group(1))
    assert [line["name"] for line in shown["timeline"]["lines"]] == ["DRAM", "pmem", "swap"]
    lengths = {len(line["bytes"]) for line in shown["timeline"]["lines"]}
    assert lengths == {len(shown["timeline"]["time"])}


def test_thinning_keeps_every_peak():
    times = [index / 1000 for index in range(10_000)]
    values = [0] * 10_000
    values[4321] = 99
    _, (thinned,) = charts.thin(times, [values], 10.0, columns=50)
    assert max(thinned) == 99 and sum(thinned) == 99


def test_thinning_holds_a_value_until_the_next():
    _, (thinned,) = charts.thin([0.0, 5.0], [[7, 3]], 10.0, columns=10)
    assert thinned == [7, 7, 7, 7, 7, 3, 3, 3, 3, 3]
    assert charts.thin([], [[], []], 1.0, columns=2)[1] == [[0, 0], [0, 0]]


@pytest.mark.parametrize("top_mib", [1, 5, 370, 1500, 5000])
def test_ticks_are_few_and_inside(top_mib):
    marks = charts.ticks(top_mib << 20)
    assert 2 <= len(marks) <= 6
    assert marks[0] == 0 and marks[-1] <= top_mib << 20


def test_budgets_force_all_tiers():
    activations = 1_482 << 20
    budgets = settings.tier_budgets(activations)
    assert budgets["dram"] <= activations // 4
    assert budgets["dram"] + budgets["pmem"] < 0.6 * activations
    assert sum(budgets.values()) > activations


def test_deaths_are_described():
    text = children.describe_death("plain", 1, "Traceback\n  line\nValueError: too small\n\n")
    assert text == "the plain run failed: ValueError: too small"
    assert "SIGSEGV" in children.describe_death("plain", -11, "")
    assert "memory ran out" in children.describe_death("plain", -9, "")
    assert children.describe_death("plain", 3, "") == (
        "the plain run failed: exit status 3, no message"
    )


def run_progress(stream):
    bar = progress.Progress(2, 2, stream)
    fractions = []
    for name in ("plain", "offloaded"):
        bar.child(name)
        bar.tick({"event": "ready"})
        for index in range(2):
            bar.tick({"event": "step", "index": index})
            bar.tick(None)
            fractions.append(bar.fraction())
    bar.finish()
    return fractions


def test_progress_prints_few_lines_to_a_file():
    stream = io.StringIO()
    run_progress(stream)
    assert stream.getvalue() == "  plain: 2 steps\n  offloaded: 2 steps\n"


def test_progress_redraws_one_line_on_a_terminal():
    stream = io.StringIO()
    stream.isatty = lambda: True
    fractions = run_progress(stream)
    assert fractions == sorted(fractions) and fractions[-1] == pytest.approx(1.0)
    assert "\n" not in stream.getvalue()
    assert "step 2 of 2" in stream.getvalue()
    assert stream.getvalue().endswith(progress.CLEAR_LINE)


def test_workspace_is_removed_after_an_error(tmp_path):
    with pytest.raises(RuntimeError), workspace.workspace(tmp_path / "made") as folder:
        (folder / "swap").mkdir()
        assert folder.parent == tmp_path / "made"
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_too_little_space_is_an_error(tmp_path):
    with pytest.raises(workspace.WorkspaceError, match="--workdir"):
        workspace.check_space(tmp_path, 1 << 60)
