"""`frostline plan`: what it prints and writes, and that others find the same of its schedules."""

import json
import os
import pty
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from conftest import ROOT
from test_command_line import PROGRAM, refused, run

REFEREE = ROOT.parent / "shared" / "referee" / "referee.py"
MIB = 1 << 20
LAYERS = 8
POLICIES = ["lru-on-demand", "lru", "lru-prefetch", "belady", "fifo-offload", "g10", "planner"]
FIGURES = {"legal", "step_ns", "ideal_ns", "slowdown", "bound_ns", "plan_s", "peak_bytes",
           "moved_bytes"}


def training_step(kernel_ns=5_000_000, tensor_bytes=8 * MIB):
    """Layers that keep their output for the way back, each with a weight of a quarter's size."""
    lines = ["frostline-trace 1"]
    for layer in range(LAYERS):
        lines.append(f"tensor {layer} {tensor_bytes // 4} weight")
        lines.append(f"tensor {100 + layer} {tensor_bytes} activation")
    for layer in range(LAYERS):
        reads = f"{layer}" + (f",{99 + layer}" if layer else "")
        lines.append(f"kernel {layer} {kernel_ns} forward<{layer}> {reads} {100 + layer}")
    for index, layer in enumerate(reversed(range(LAYERS)), LAYERS):
        lines.append(f"kernel {index} {kernel_ns} backward<{layer}> {layer},{100 + layer} {layer}")
    return "\n".join(lines) + "\n"


MACHINE = {
    "name": "a small one",
    "device": "gpu",
    "tiers": [{"name": "gpu", "bytes": 1 << 30}, {"name": "dram", "bytes": 4 << 30}],
    "resources": {"out": 16e9, "in": 16e9},
    "links": [{"from": "gpu", "to": "dram", "resources": ["out"], "latency_ns": 5000},
              {"from": "dram", "to": "gpu", "resources": ["in"], "latency_ns": 5000}],
}


@pytest.fixture
def places(tmp_path):
    """A trace and a machine, as the command line wants them."""
    (tmp_path / "step.trace").write_text(training_step())
    (tmp_path / "machine.json").write_text(json.dumps(MACHINE))
    return [tmp_path / "step.trace", "--machine", tmp_path / "machine.json"]


def planned(*arguments):
    done = run("plan", *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, ""), done
    return json.loads(done.stdout)


def test_with_room_for_all_nothing_costs_anything(places):
    figures = planned(*places)
    assert FIGURES <= set(figures)
    assert figures["legal"] is True and figures["policy"] == "planner"
    assert figures["ideal_ns"] == 2 * LAYERS * 5_000_000
    assert figures["step_ns"] == figures["bound_ns"] == figures["ideal_ns"]
    assert figures["slowdown"] == 1 and figures["above_bound"] == 0
    assert figures["moved_bytes"] == {"gpu->dram": 0, "dram->gpu": 0}
    assert figures["peak_bytes"]["gpu"] <= 1 << 30


def test_device_memory_takes_the_place_of_the_machines(places):
    figures = planned(*places, "--device-memory", "48MiB")
    assert figures["device_bytes"] == 48 * MIB
    assert 0 < figures["peak_bytes"]["gpu"] <= 48 * MIB
    assert figures["moved_bytes"]["gpu->dram"] > 0
    assert figures["ideal_ns"] <= figures["bound_ns"] <= figures["step_ns"]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_referee_finds_the_same(places, tmp_path, policy):
    if not REFEREE.exists():
        print("there is no shared/referee/referee.py beside this tree: not judged")
        return
    schedule = tmp_path / "schedule"
    figures = planned(*places, "--device-memory", "48MiB", "--policy", policy, "-o", schedule)
    (tmp_path / "cut.json").write_text(json.dumps(
        {**MACHINE, "tiers": [{"name": "gpu", "bytes": 48 * MIB}, MACHINE["tiers"][1]]}))
    judged = subprocess.run([sys.executable, REFEREE, places[0], tmp_path / "cut.json", schedule],
                            capture_output=True, text=True, timeout=60)
    verdict = json.loads(judged.stdout)
    assert verdict["legal"] and figures["legal"], verdict
    for key in ("steps", "ideal_ns", "step_ns", "peak_bytes"):
        assert verdict[key] == figures[key], key
    assert verdict["slowdown"] == pytest.approx(figures["slowdown"], abs=1e-6)
    for link, moved in verdict["moved_bytes_per_step"].items():
        assert abs(figures["moved_bytes"][link] - moved) <= 1, link


def test_the_result_as_text(places):
    done = run("plan", *places, "--device-memory", "48MiB")
    assert (done.returncode, done.stderr) == (0, "")
    for expected in (r"^policy +planner$", r"^legal +yes, by replay of 5 steps$",
                     r"^step time +\d+\.\d+ ms, \d\.\d+ times infinite memory$",
                     r"^lower bound +\d+\.\d+ ms, .* \d+\.\d+ % above it$",
                     r"^planning +\d+\.\d+ s$", r"^gpu +[\d.]+ MiB +48\.0 MiB$",
                     r"^gpu->dram +[\d.]+ MiB$"):
        assert re.search(expected, done.stdout, re.MULTILINE), (expected, done.stdout)


def test_all_policies_in_one_table(places):
    done = run("plan", *places, "--device-memory", "48MiB", "--policy", "all")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert rows[-len(POLICIES) - 1:] == [*POLICIES, "lower"], done.stdout
    together = planned(*places, "--device-memory", "48MiB", "--policy", "all")
    assert [each["policy"] for each in together["plans"]] == POLICIES
    for each in together["plans"]:
        assert FIGURES - {"ideal_ns", "bound_ns"} <= set(each)
        assert together["bound_ns"] <= each["step_ns"]


class Page(HTMLParser):
    """What a page consists of, and what it would fetch from elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.fetched, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.fetched += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "line", "rect", "path", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in ("meta", "line", "rect", "path", "br"):
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_needs_nothing_else(places, tmp_path):
    planned(*places, "--device-memory", "30MiB", "--html", tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    page = Page()
    page.feed(html)
    assert page.open == [] and page.fetched == [] and "@import" not in html
    for expected in ("gpu holds at most", "dram->gpu copies", "Kernels wait", "The longest stalls",
                     "ward<"):
        assert expected in page.text
    data = json.loads(re.search(r'id="data">(.*?)</script>', html).group(1))["timeline"]
    assert [line["name"] for line in data["lines"]] == ["gpu", "dram"]
    held = data["lines"][0]["bytes"]
    assert len(held) == len(data["time"]) and 0 < max(held) <= 30 * MIB
    for colour in ("area device", "area dram", "lane stall", "lane to_device"):
        assert f'class="{colour}" d="M' in html


@pytest.mark.parametrize("change,expected", [
    ([], ["which machine", "--machine"]),
    (["--machine", "m", "--policy", "lur"], ["policy", "lur", "belady", "planner", "all"]),
    (["--machine", "m", "--device-memory", "12Q"], ["device-memory", "12Q"]),
    (["--machine", "m", "--device-memory", "0"], ["device-memory"]),
    (["--machine", "m", "--device-memory", "-1GiB"], ["device-memory"]),
    (["--machine", "m", "--time-limit", "soon"], ["time-limit", "soon"]),
    (["--machine", "m", "--time-limit", "-1"], ["time-limit"]),
    (["--machine", "m", "--time-limit", "nan"], ["time-limit"]),
    (["--machine", "m", "--time-limit", "1e999"], ["time-limit"]),
    (["--machine", "m", "--policy", "all", "-o", "s"], ["policy", "-o"]),
    (["--machine", "m", "-o", ""], ["output"]),
    (["--machine", "m", "other.trace"], []),
    (["--machine", "m", "--jsno"], ["jsno"]),
], ids=lambda value: " ".join(value))
def test_a_command_line_that_cannot_be_used(change, expected):
    line = refused(2, "plan", "step.trace", *change)
    for part in expected:
        assert part in line
    assert line.endswith("; see frostline plan --help")


def test_no_trace():
    assert "which trace" in refused(2, "plan", "--machine", "m")


def test_files_that_cannot_be_read(places, tmp_path):
    trace, _, machine = places
    gone = tmp_path / "gone"
    assert str(gone) in refused(1, "plan", gone, "--machine", machine)
    assert str(gone) in refused(1, "plan", trace, "--machine", gone)
    (tmp_path / "bad.trace").write_text("frostline-trace 1\ntensor 0 -5 weight\n")
    assert "bad.trace:2:" in refused(1, "plan", tmp_path / "bad.trace", "--machine", machine)
    (tmp_path / "bad.json").write_text('{"device": "gpu",\n "tiers": 3}')
    assert "bad.json:2:" in refused(1, "plan", trace, "--machine", tmp_path / "bad.json")


@pytest.mark.parametrize("option", ["-o", "--html"])
def test_places_that_cannot_be_written_are_told_before_planning(places, tmp_path, option):
    for place in (tmp_path / "gone" / "file", tmp_path):
        done = run("plan", *places, option, place)
        assert (done.returncode, done.stdout) == (1, "")
        assert str(place) in done.stderr and len(done.stderr.splitlines()) == 1


def test_what_is_read_is_not_overwritten(places, tmp_path):
    before = places[0].read_text()
    (tmp_path / "link").hardlink_to(places[0])
    for place in (places[0], places[2], tmp_path / "link"):
        assert "would be overwritten" in refused(1, "plan", *places, "-o", place)
    assert places[0].read_text() == before
    both = tmp_path / "both"
    assert "name two places" in refused(1, "plan", *places, "-o", both, "--html", both)
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refused(1, "plan", *places, "-o", tmp_path / "pipe")


def test_a_machine_of_one_tier_and_names_that_look_like_html(places, tmp_path):
    places[0].write_text(places[0].read_text().replace("forward<0>", "</script><b>"))
    alone = {**MACHINE, "tiers": MACHINE["tiers"][:1], "resources": {}, "links": []}
    (tmp_path / "machine.json").write_text(json.dumps(alone))
    figures = planned(*places, "--html", tmp_path / "page.html")
    assert figures["moved_bytes"] == {} and list(figures["peak_bytes"]) == ["gpu"]
    html = (tmp_path / "page.html").read_text()
    page = Page()
    page.feed(html)
    assert page.open == [] and html.count("</script>") == 2 and "<b>" not in html
    assert "\nlink" not in run("plan", *places).stdout


def test_a_kernel_that_fits_nowhere_is_named_with_what_is_missing(places):
    for policy in ("planner", "all", "lru"):
        line = refused(1, "plan", *places, "--device-memory", "12MiB", "--policy", policy)
        assert "kernel 1 (forward<1>)" in line and f"{6 * MIB} bytes are missing" in line
        assert line.endswith(f"--device-memory {18 * MIB}")


def test_tiers_that_are_too_small_together(places, tmp_path):
    small = {**MACHINE, "tiers": [MACHINE["tiers"][0], {"name": "dram", "bytes": 4096}]}
    (tmp_path / "machine.json").write_text(json.dumps(small))
    line = refused(1, "plan", *places, "--device-memory", "32MiB")
    assert "bytes are missing in all tiers" in line and "give it larger tiers" in line


class OnATerminal:
    """The program, whose standard error is a terminal."""

    def __init__(self, *arguments):
        self.ours, theirs = pty.openpty()
        self.seen = ""
        self.program = subprocess.Popen([PROGRAM, "plan", *map(str, arguments)],
                                        stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)

    def read_until(self, text=None):
        """Until that was printed, or everything was."""
        while text is None or text not in self.seen:
            try:
                piece = os.read(self.ours, 4096)
            except OSError:  # what Linux says when the other side is closed
                piece = b""
            if not piece:
                break
            self.seen += piece.decode()

    def end(self):
        self.read_until()
        os.close(self.ours)
        return self.program.wait(60)


def test_what_takes_no_second_says_nothing_of_its_progress(places):
    terminal = OnATerminal(*places)
    assert terminal.end() == 0 and terminal.seen == ""


def test_what_takes_long_says_what_it_does_and_wipes_it_out(places):
    trace = places[0].read_text()
    places[0].unlink()
    os.mkfifo(places[0])
    terminal = OnATerminal(*places)
    terminal.read_until("reading ")  # nothing else lets it go on
    places[0].write_text(trace)
    assert terminal.end() == 0
    assert str(places[0]) in terminal.seen
    assert "\n" not in terminal.seen and terminal.seen.endswith("\r\x1b[K")
