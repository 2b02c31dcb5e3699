"""The report as one HTML file that needs nothing else: no network, no fonts, no script to be read.

The script only adds a cursor with values to two of the charts; all figures are in the text.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from charts import Frame, resident_chart, thin, tier_panel, tier_timeline
from compare import describe_saving
from kinds import device_label, kind_of, peaks_of
from overlap import render_overlap
from settings import TIER_TITLES, as_size, as_time
from summary import machine_lines

# Style and script of all pages, the command line's, too.
PAGE = Path(__file__).parents[2] / "bindings" / "page"


def relative(
    marks: list[list[float]], times: list[float]
) -> tuple[list[float], list[float], float]:
    """(step starts, times, end) in seconds since the first step started."""
    origin = marks[0][0]
    starts = [mark[0] - origin for mark in marks]
    return starts, [time - origin for time in times], marks[-1][-1] - origin


def card(label: str, figure: str, *details: str) -> str:
    """One figure; `label` is HTML, all else text."""
    lines = "<br>".join(escape(detail) for detail in details)
    return (
        f'<div class="card"><h2>{label}</h2><p class="figure">{escape(figure)}</p>'
        f'<p class="detail">{lines}</p></div>'
    )


def typographic(text: str) -> str:
    """A real minus sign, and a narrow space before the percent sign."""
    return text.replace("-", "\u2212").replace("%", "\u202f%")


def where_of(name: str) -> str:
    """A tier's name as a place in a sentence."""
    return "device memory" if name == "device" else TIER_TITLES[name]


def render_cards(summary: dict) -> str:
    """The four figures that the demo is about."""
    kind = kind_of(summary)
    plain, offloaded = peaks_of(summary)
    fastest, tier = next(iter(summary["tiers"].items()))
    label = f" {tag('device', summary)}" if device_label(summary) == "emulated" else ""
    same = summary["losses_identical"] and summary["weights_identical"]
    count = len(summary["losses"]["plain"])
    return "".join(
        [
            card(
                f"Peak {kind.memory}{label}",
                typographic(f"{(offloaded - plain) / plain:+.0%}"),
                f"plain {as_size(plain)}",
                f"offloaded {as_size(offloaded)}",
            ),
            card(
                f"Step time{label}",
                f"{summary['step_ratio']:.2f}\u202f\u00d7",
                f"plain {as_time(summary['step_plain_s'])}",
                f"offloaded {as_time(summary['step_offloaded_s'])}",
            ),
            card(
                "Result",
                "bit-identical" if same else "different",
                f"{count} losses and all weights,",
                "compared bit by bit",
            ),
            card(
                kind.moves.capitalize(),
                as_size(summary["kept_bytes"]),
                kind.kept,
                f"at most {as_size(tier['budget_bytes'])} may stay in {where_of(fastest)}",
            ),
        ]
    )


def render_verdict(summary: dict) -> str:
    if summary["passed"]:
        text = "\u2713 Losses and weights are bit-identical; every tier stayed within its budget."
        return f'<p class="verdict good">{text}</p>'
    failed = "; ".join(check["detail"] for check in summary["checks"] if not check["passed"])
    return f'<p class="verdict bad">\u2717 Failed: {escape(failed)}</p>'


def tag(name: str, summary: dict) -> str:
    """The label of a tier, visible wherever the tier is named."""
    label = summary["tiers"][name]["label"]
    return f'<span class="tag {"" if label == "real" else "emulated"}">{escape(label)}</span>'


def legend(summary: dict) -> str:
    items = [
        f'<li><i class="key {name}"></i>{TIER_TITLES[name]} {tag(name, summary)}</li>'
        for name in reversed(summary["tiers"])  # in the order in which they are stacked
    ]
    return f'<ul class="legend">{"".join(items)}</ul>'


def table(head: list[str], rows: list[list[str]], caption: str) -> str:
    """Cells are HTML; the first column heads its row."""
    titles = "".join(f'<th scope="col">{title}</th>' for title in head)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def tier_table(summary: dict) -> str:
    steps = max(summary["offloaded_steps"], 1)
    rows = []
    for name, tier in summary["tiers"].items():
        sizes = [
            as_size(tier["budget_bytes"]),
            as_size(tier["peak_bytes"]),
            as_size(tier["moved_in_bytes"] // steps),
            as_size(tier["moved_out_bytes"] // steps),
        ]
        rows.append([f'<i class="key {name}"></i>{TIER_TITLES[name]}', *sizes, tag(name, summary)])
    head = ["Tier", "Budget", "Peak", "Moved in, each step", "Moved out, each step", "Label"]
    return table(head, rows, "Tiers: what they may hold, what they held, what moved")


def loss_table(summary: dict) -> str:
    """Every loss of both modes, with its exact bits in hexadecimal."""
    rows = []
    for step, plain in enumerate(summary["losses"]["plain"]):
        offloaded = (summary["losses"]["offloaded"][step : step + 1] or [float("nan")])[0]
        bits = [summary["losses_hex"][mode][step : step + 1] for mode in ("plain", "offloaded")]
        same = "same bits" if bits[0] == bits[1] else '<strong class="bad">different</strong>'
        exact = f"<code>{escape(bits[1][0] if bits[1] else '')}</code>"
        rows.append([f"{step + 1}", f"{plain:.9f}", f"{offloaded:.9f}", exact, same])
    head = ["Step", "Loss, plain", "Loss, offloaded", "Exact, offloaded", ""]
    return table(head, rows, "Losses of each step, in nats per byte")


def time_table(summary: dict) -> str:
    """Medians of a step and of its parts, the range of the steps, and peak memory."""
    rows = []
    for title, key in (("Forward", "forward_s"), ("Backward", "backward_s")):
        if key not in summary:
            continue
        plain, offloaded = summary[key]["plain"], summary[key]["offloaded"]
        rows.append([title, as_time(plain), as_time(offloaded), f"{offloaded / plain:.2f}"])
    whole = summary["step_plain_s"], summary["step_offloaded_s"]
    ratio = f"{summary['step_ratio']:.2f}"
    rows.append(["Whole step", *map(as_time, whole), ratio])
    spread = [summary["step_spread_s"][mode] for mode in ("plain", "offloaded")]
    ranges = [f"{as_time(low)} to {as_time(high)}" for low, high in spread]
    rows.append(["Lowest to highest step", *ranges, ""])
    peaks = peaks_of(summary)
    saving = escape(describe_saving(*peaks))
    rows.append([f"Peak {kind_of(summary).memory}", *map(as_size, peaks), saving])
    return table(["", "Plain", "Offloaded", "Ratio"], rows, "Medians over all timed steps")


def hover_data(times: list[float], lines: dict[str, list[int]], end_s: float) -> dict:
    """What the script needs to show values at the cursor: lists of equal length."""
    return {
        "end": round(end_s, 4),
        "margins": [Frame.left, Frame.right],
        "time": [round(t, 3) for t in times],
        "lines": [{"name": name, "bytes": values} for name, values in lines.items()],
    }


def render_tiers(summary: dict, series: dict) -> tuple[str, dict]:
    """The stacked timeline, a panel for each tier and the table; and the timeline's hover data."""
    timeline, kind = series["timeline"], kind_of(summary)
    starts, times, end_s = relative(series["offloaded_marks"], timeline["time_s"])
    names = list(summary["tiers"])
    values = [timeline[name] for name in names]
    shown_times, shown = thin(times, values, end_s)
    tiers = dict(zip(names, shown))
    chart = tier_timeline(
        shown_times,
        tiers,
        starts,
        end_s,
        (f"all {kind.moves}", summary["kept_bytes"]),
        (f"{TIER_TITLES[names[0]]} budget", summary["tiers"][names[0]]["budget_bytes"]),
    )
    panels = []
    for name, own in zip(names, values):
        panel_times, (panel_values,) = thin(times, [own], end_s, columns=150)
        budget = summary["tiers"][name]["budget_bytes"]
        drawing = tier_panel(name, panel_times, panel_values, starts, end_s, budget)
        caption = f"<figcaption>{TIER_TITLES[name]} {tag(name, summary)}</figcaption>"
        panels.append(f"<figure>{caption}{drawing}</figure>")
    html = (
        f"<section><h2>Where the {kind.moves} were</h2>"
        f"<p>One offloaded run. {kind.hills} While a tensor moves, it takes room in two tiers.</p>"
        f'{legend(summary)}<div class="chart" data-chart="timeline">{chart}</div>'
        '<p class="readout" id="timeline-values" aria-live="polite"></p>'
        f'<h3>Each tier against its budget</h3><div class="panels">{"".join(panels)}</div>'
        f"{tier_table(summary)}</section>"
    )
    named = {TIER_TITLES[name]: tiers[name] for name in names}
    return html, hover_data(shown_times, named, end_s)


def render_resident(summary: dict, series: dict) -> tuple[str, dict | None]:
    """Resident memory of both processes on one axis, and its hover data; nothing where that is not
    the memory that the demo is about."""
    if series["plain_resident"] is None:
        return "", None
    runs, end_s = {}, 0.0
    for mode in ("plain", "offloaded"):
        samples = series[f"{mode}_resident"]
        _, times, end = relative(series[f"{mode}_marks"], [sample[0] for sample in samples])
        runs[mode] = times, [sample[1] for sample in samples]
        end_s = max(end_s, end)
    drawn = {}
    for mode, (times, resident) in runs.items():
        shown_times, (drawn[mode],) = thin(times, [resident], end_s)
    peaks = dict(zip(("plain", "offloaded"), peaks_of(summary)))
    chart = resident_chart(shown_times, drawn, end_s, peaks)
    html = (
        "<section><h2>Memory of the process</h2>"
        "<p>Resident memory, sampled 25 times a second; both runs start together here, although "
        "they ran one after the other.</p>"
        '<ul class="legend"><li><i class="key plain"></i>plain</li>'
        '<li><i class="key offloaded"></i>offloaded</li></ul>'
        f'<div class="chart" data-chart="resident">{chart}</div>'
        '<p class="readout" id="resident-values" aria-live="polite"></p></section>'
    )
    return html, hover_data(shown_times, drawn, end_s)


def render_facts(summary: dict) -> str:
    """How it was measured: the notes, then the run in one line."""
    shape = summary["plan"]["shape"]
    run = (
        f"{shape['layers']} layers, width {shape['width']}, {shape['heads']} heads, batch of "
        f"{shape['batch']} \u00d7 {shape['context']} bytes, {summary['parameters']:,} weights, "
        f"AdamW; {'; '.join(machine_lines(summary))}; Python {summary['versions']['python']}."
    )
    items = "".join(f"<li>{escape(note)}</li>" for note in summary["notes"])
    return (
        "<section><h2>How this was measured</h2>"
        f'<ul class="notes">{items}<li>{escape(run)}</li></ul></section>'
    )


def render_page(summary: dict, series: dict) -> str:
    """The whole page. `series` has, all times in monotonic seconds of one process:

    timeline: {"time_s" and each tier by its name}, lists of equal length, in bytes;
    plain_marks, offloaded_marks: per step its start, its end, and maybe between them those of the
    forward and the backward pass;
    plain_resident, offloaded_resident: samples (time, resident bytes, of these from files), or
    None;
    operations: what ran on the device, see overlap.py, or None.
    """
    tiers, timeline_data = render_tiers(summary, series)
    resident, resident_data = render_resident(summary, series)
    # "</" inside a script element would end it; JSON may write the slash escaped.
    shown = {"timeline": timeline_data, "resident": resident_data}
    data = json.dumps(shown).replace("</", "<\\/")
    style = (PAGE / "page.css").read_text(encoding="utf-8")
    script = (PAGE / "page.js").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Frostline demo: training below the frost line</title>
<style>
{style}</style>
</head>
<body>
<header><p class="name">Frostline</p>
<h1>The same training, with cold {kind_of(summary).moves} below the frost line</h1>
{render_verdict(summary)}</header>
<main>
<div class="cards">{render_cards(summary)}</div>
{tiers}
{resident}
{render_overlap(summary, series)}
<section><h2>Losses and times</h2>{loss_table(summary)}{time_table(summary)}</section>
{render_facts(summary)}
</main>
<script type="application/json" id="data">{data}</script>
<script>
{script}</script>
</body>
</html>
"""
