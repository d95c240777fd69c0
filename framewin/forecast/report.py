"""An evaluation as one HTML file that needs nothing else: no script, no link, no other file."""

from __future__ import annotations

import base64
import html
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import framewin
from framewin.forecast.evaluate import Shown, score_charts, title_of_predictor
from framewin.forecast.scoring import MODEL, score_text
from framewin.pictures import charts
from framewin.pictures.figures import lead_text
from framewin.pictures.playback import in_minutes

if TYPE_CHECKING:
    from framewin.forecast.evaluate import EvaluationReport

PALETTES = {
    "light": "--page: #f6f7f9; --card: #ffffff; --ink: #1f2430; --muted: #5d6575; --grid: #e3e6ec; "
    "--accent: #2f6fed; --best: #e9f1ff;",
    "dark": "--page: #14161b; --card: #1d2027; --ink: #e8eaf0; --muted: #a0a8b8; --grid: #333843; "
    "--accent: #7aa5ff; --best: #223253;",
}
"""Colours of the page by theme."""
STYLE = """
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
main { max-width: 1120px; margin: 0 auto; padding: 32px 20px 56px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 36px 0 12px; }
p { margin: 6px 0; }
.muted { color: var(--muted); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); gap: 14px;
  margin-top: 22px; }
.card { background: var(--card); border: 1px solid var(--grid); border-radius: 10px;
  padding: 14px 16px; }
.card .value { font-size: 27px; font-weight: 650; font-variant-numeric: tabular-nums; }
.card .name { font-size: 13px; color: var(--muted); }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--grid);
  border-radius: 10px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 8px 14px; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
thead th { font-size: 13px; font-weight: 600; color: var(--muted);
  border-bottom: 1px solid var(--grid); }
tbody tr + tr td { border-top: 1px solid var(--grid); }
td.best { background: var(--best); font-weight: 600; }
tr.model td:first-child { font-weight: 650; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(360px, 1fr)); gap: 14px; }
.charts .card { padding: 8px; }
.chart { display: block; width: 100%; height: auto; font-family: inherit; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 0 0 10px; font-size: 14px; }
.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 50%;
  margin-right: 6px; }
.forecast { margin-bottom: 14px; }
.forecast h3 { font-size: 15px; margin: 0 0 8px; overflow-wrap: anywhere; }
.forecast .pictures { display: flex; flex-wrap: wrap; gap: 14px; align-items: flex-start; }
.forecast img { display: block; max-width: 100%; height: auto; border-radius: 6px; }
.forecast img + img { flex: 1 1 420px; min-width: 0; max-width: 1320px; }
details { background: var(--card); border: 1px solid var(--grid); border-radius: 10px;
  padding: 10px 16px; margin-top: 10px; }
summary { cursor: pointer; font-weight: 600; }
dl { display: grid; grid-template-columns: minmax(130px, max-content) 1fr; gap: 4px 18px;
  margin: 10px 0 4px; }
dt { color: var(--muted); }
dd { margin: 0; overflow-wrap: anywhere; }
footer { margin-top: 36px; font-size: 13px; color: var(--muted); }
"""

COLUMNS = (
    ("MSE", "mse_pixel", None, "least"),
    ("MSE sum", "mse_sum", None, "least"),
    ("MAE", "mae", None, "least"),
    ("RMSE", "rmse", None, "least"),
    ("PSNR of frames", "psnr_frame_mean", 2, "greatest"),
    ("perfect frames", "perfect_frames", 0, "greatest"),
    ("PSNR of mean MSE", "psnr_of_mean_mse", 2, "greatest"),
    ("SSIM", "ssim", 4, "greatest"),
)
"""Head, score, decimals (None: significant digits), and which is best."""
THRESHOLD_COLUMNS = (
    ("CSI", "greatest"),
    ("POD", "greatest"),
    ("FAR", "least"),
    ("FSS", "greatest"),
)
DEFINITIONS = (
    ("MSE", "mean squared error per pixel and channel, frames scaled to 0..1 (mse_pixel)"),
    ("MSE sum", "squared error summed over a frame, mean of frames, as in the OpenSTL tables of "
     "Moving MNIST (mse_sum)"),
    ("PSNR of frames", "mean of the frames' ratios, each at most 100 dB, which perfect frames "
     "have (psnr_frame_mean)"),
    ("PSNR of mean MSE", "one ratio, of the mean squared error of all frames (psnr_of_mean_mse)"),
    ("SSIM", "Wang et al. 2004, Gaussian window of 11 pixels, sigma 1.5"),
    ("CSI, POD, FAR", "hits / (hits + misses + false alarms), hits / (hits + misses), false "
     "alarms / (hits + false alarms), of pixels at or above the threshold"),
    ("FSS", "fractions skill score, Roberts and Lean 2008"),
    ("skill", "share of the mean squared error of persistence, which repeats the last input, that "
     "the model removes"),
)  # fmt: skip


def report_html(
    report: EvaluationReport, shown: Sequence[Shown], folder: Path, theme: str | None = None
) -> str:
    """The page.

    Args:
        report: What it tells.
        shown: The forecasts it shows.
        folder: Where their pictures are: `best.png`, `best.gif`, ...
        theme: `dark` or `light`; by default that of the reader's browser.
    """
    title = f"{_name(report)}: forecasts of {report.part}"
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{html.escape(title)}</title>\n<style>{_colours(theme)}{STYLE}</style>\n</head>\n<body><main>",
            *_head(report),
            *_scores(report),
            *_charts(report),
            *_forecasts(report, shown, folder),
            *_details(report),
            f"<footer>framewin {html.escape(framewin.__version__)}</footer>",
            "</main></body>\n</html>\n",
        ]
    )


def _colours(theme: str | None) -> str:
    """CSS of the page's colours, one theme's or both with the reader's choice."""
    if theme is not None:
        return f":root {{ color-scheme: {theme}; {PALETTES[theme]} }}"
    dark = f"@media (prefers-color-scheme: dark) {{ :root {{ {PALETTES['dark']} }} }}"
    return f":root {{ color-scheme: light dark; {PALETTES['light']} }}\n{dark}"


def text_tables(report: EvaluationReport) -> list[list[list[str]]]:
    """The tables of total scores as texts: a head, then a row for each predictor."""
    found = []
    for title, heads, rows in _tables(report):
        lines = [[name, *(text for text, _ in cells)] for name, cells in rows]
        found.append([[title, *heads], *lines])
    return found


def lead_table(report: EvaluationReport) -> list[list[str]]:
    """The mean squared error of each lead time: a head, then a row for each predictor."""
    minutes = in_minutes(report.pace.true_seconds)
    heads = ["MSE by lead time", *(lead_text(lead, minutes) for lead in report.leads)]
    rows = [
        [title_of_predictor(name), *(score_text(scores.mse) for scores in leads)]
        for name, leads in report.per_lead_time.items()
    ]
    return [heads, *rows]


def _head(report: EvaluationReport) -> list[str]:
    model, skill = report.total[MODEL], report.skill
    interval = f"95 % interval {skill.low:.1%} to {skill.high:.1%}" if skill.low is not None else (
        "too few groups for an interval"
    )  # fmt: skip
    cards = [
        ("skill against persistence", "undefined" if skill.value is None else f"{skill.value:.1%}",
         f"{interval}, over {skill.groups} {skill.of}"),
        ("MSE per pixel", score_text(model.mse),
         f"persistence {score_text(report.total['persistence'].mse)}"),
        ("PSNR, mean of frames", f"{score_text(model.psnr_frame_mean, 2)} dB",
         f"of the mean MSE {score_text(model.psnr_of_mean_mse, 2)} dB"),
    ]  # fmt: skip
    if model.ssim is not None:
        other = report.total["persistence"].ssim
        cards.append(("SSIM", score_text(model.ssim, 4), f"persistence {score_text(other, 4)}"))
    return [
        f"<h1>{html.escape(_name(report))}</h1>",
        f'<p class="muted">{html.escape(_what(report))}</p>',
        '<div class="cards">',
        *(
            f'<div class="card"><div class="name">{html.escape(name)}</div>'
            f'<div class="value">{html.escape(value)}</div>'
            f'<div class="name">{html.escape(more)}</div></div>'
            for name, value, more in cards
        ),
        "</div>",
    ]


def _name(report: EvaluationReport) -> str:
    """Of the run's folder, also where it was given as the current one."""
    return report.run.absolute().name


def _what(report: EvaluationReport) -> str:
    model = report.settings.get("model", {}).get("name", "model")
    where = (
        f"all {report.windows:,} windows of {report.store.name}, {report.clips:,} clips"
        if report.part.startswith("all")
        else f"the {report.part} part of {report.store.name}: {report.windows:,} windows from "
        f"{report.clips:,} clips"
    )
    minutes = in_minutes(report.pace.true_seconds)
    first, last = (f"{lead * (minutes or 1):g}" for lead in (report.leads[0], report.leads[-1]))
    unit = "frames" if minutes is None else "minutes"
    return f"{model} on {where}, lead times {first} to {last} {unit}"


def _scores(report: EvaluationReport) -> list[str]:
    lines: list[str] = []
    for title, heads, rows in _tables(report):
        lines += [f"<h2>{html.escape(title)}</h2>", '<div class="scroll"><table>']
        lines += [_row("th", ["", *heads], "thead"), "<tbody>"]
        for name, cells in rows:
            kind = ' class="model"' if name == title_of_predictor(MODEL) else ""
            texts = [f"<td>{html.escape(name)}</td>"]
            texts += [
                f'<td class="best">{text}</td>' if best else f"<td>{text}</td>"
                for text, best in cells
            ]
            lines.append(f"<tr{kind}>{''.join(texts)}</tr>")
        lines.append("</tbody></table></div>")
    lines += _notes(report)
    leads = lead_table(report)
    lines += [f"<h2>{leads[0][0]}</h2>", '<div class="scroll"><table>']
    lines.append(_row("th", ["", *leads[0][1:]], "thead"))
    return [*lines, "<tbody>", *(_row("td", row) for row in leads[1:]), "</tbody></table></div>"]


def _notes(report: EvaluationReport) -> list[str]:
    low, high = f"{report.data_range.low:g}", f"{report.data_range.high:g}"
    texts = [
        f"PSNR and SSIM refer to the data range {low} to {high} ({report.data_range.source}).",
        *report.notes,
    ]
    return [f'<p class="muted">{html.escape(text)}</p>' for text in texts]


_Cell = tuple[str, bool]
"""A text, and whether it is the best of its column."""
_Table = tuple[str, list[str], list[tuple[str, list[_Cell]]]]
"""A title, heads, and of each predictor its name and cells."""


def _tables(report: EvaluationReport) -> list[_Table]:
    """The scores of all pixels, and those at or above each threshold."""
    heads: list[str] = []
    columns: list[list[_Cell]] = []
    for head, name, digits, best in COLUMNS:
        values = [getattr(scores, name) for scores in report.total.values()]
        # Of most frames there is nothing to say.
        if any(value is not None for value in values) and (name != "perfect_frames" or any(values)):
            heads.append(head)
            columns.append(_column(values, digits, best))
    found = [_table(report, "Scores", heads, columns)]
    for place, threshold in enumerate(report.thresholds):
        scores = [each.thresholds[place] for each in report.total.values()]
        columns = [
            _column([getattr(each, kind.lower()) for each in scores], 3, best)
            for kind, best in THRESHOLD_COLUMNS
        ]
        title = f"Pixels of {threshold:g} and above"
        found.append(_table(report, title, [kind for kind, _ in THRESHOLD_COLUMNS], columns))
    return found


def _table(
    report: EvaluationReport, title: str, heads: list[str], columns: list[list[_Cell]]
) -> _Table:
    names = [title_of_predictor(name) for name in report.total]
    cells = [list(row) for row in zip(*columns, strict=True)]
    return title, heads, list(zip(names, cells, strict=True))


def _column(values: Sequence[float | None], digits: int | None, best: str) -> list[_Cell]:
    texts = [score_text(value, digits) for value in values]
    known = [value for value in values if value is not None and not math.isnan(value)]
    if not known:
        return [(text, False) for text in texts]
    # What reads the same is the same.
    top = score_text(min(known) if best == "least" else max(known), digits)
    return [(text, text == top) for text in texts]


def _charts(report: EvaluationReport) -> list[str]:
    legend = (
        f'<span><i style="background:{charts.colour_of(place)}"></i>'
        f"{html.escape(title_of_predictor(name))}</span>"
        for place, name in enumerate(report.total)
    )
    return [
        "<h2>Scores against lead time</h2>",
        f'<div class="legend">{"".join(legend)}</div>',
        '<div class="charts">',
        *(f'<div class="card">{charts.svg(chart)}</div>' for chart in score_charts(report)),
        "</div>",
    ]


def _forecasts(report: EvaluationReport, shown: Sequence[Shown], folder: Path) -> list[str]:
    lines = [
        "<h2>Forecasts</h2>",
        '<p class="muted">By mean squared error. The truth is above, the forecast below with an '
        f"orange line; {html.escape(report.pace.gif_note)}.</p>",
    ]
    for each in shown:
        name = html.escape(f"{each.name}: {each.title}, MSE {score_text(each.mse)}")
        lines += [
            f'<div class="card forecast"><h3>{name}</h3><div class="pictures">',
            _image(folder / f"{each.name}.gif", f"{each.name} forecast, moving", "gif"),
            _image(folder / f"{each.name}.png", f"{each.name} forecast, frame by frame", "png"),
            "</div></div>",
        ]
    return lines


def _image(path: Path, text: str, kind: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{html.escape(text)}" src="data:image/{kind};base64,{data}">'


def _details(report: EvaluationReport) -> list[str]:
    where = {
        "run": str(report.run),
        "store": str(report.store),
        "identity of the store": report.identity,
        "part": report.part,
        "windows": f"{report.windows:,}",
        "neighbourhood of FSS": f"{report.fss_window} pixels",
        "bootstrap": f"over {report.skill.groups} {report.skill.of}, seed {report.skill.seed}",
    }
    record = {name: value for name, value in report.settings.items() if name != "settings"}
    return [
        "<h2>What was scored, and how</h2>",
        *_list("Store and part", where.items(), is_open=True),
        *_list("Definitions of the scores", DEFINITIONS),
        *_list("Settings of the training", dict(report.settings.get("settings", {})).items()),
        *_list("Record of the run", record.items()),
    ]


def _list(title: str, pairs: Iterable[tuple[str, Any]], *, is_open: bool = False) -> list[str]:
    lines = [f"<details{' open' if is_open else ''}><summary>{html.escape(title)}</summary><dl>"]
    for name, value in pairs:
        text = value if isinstance(value, str) else json.dumps(value)
        lines.append(f"<dt>{html.escape(str(name))}</dt><dd>{html.escape(text)}</dd>")
    return [*lines, "</dl></details>"]


def _row(kind: str, texts: Sequence[str], around: str | None = None) -> str:
    cells = "".join(f"<{kind}>{html.escape(text)}</{kind}>" for text in texts)
    row = f"<tr>{cells}</tr>"
    return f"<{around}>{row}</{around}>" if around else row
