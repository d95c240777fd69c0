"""A trained run on windows that it never saw, beside baselines, with pictures and a report."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from framewin.dataset import FrameWindowDataset
from framewin.errors import StoreError, TrainingError, one_line
from framewin.forecast.baselines import BASELINES, TITLES
from framewin.forecast.runs import Run, load_run
from framewin.forecast.scoring import (
    FULL_RANGE_DTYPES,
    MODEL,
    DataRange,
    WindowScores,
    as_stored,
    data_range_of,
    dtype_limits,
    filled,
    score_windows,
)
from framewin.forecast.validation import examples_of, title_of
from framewin.metrics import (
    FSS_WINDOW,
    SSIM_WINDOW,
    Scores,
    bootstrap_skill,
)
from framewin.optional import require
from framewin.pictures import charts
from framewin.pictures.drawing import VECTOR_SUFFIXES
from framewin.pictures.figures import PLAIN, THEME, Example, Look, animation, sheet, write_gif
from framewin.pictures.playback import Pace, in_minutes, true_pace, write_video
from framewin.remote import Location, refuse_url
from framewin.scaling import shown_values
from framewin.schema import Progress
from framewin.stores import durable

DEFAULT_FOLDER = "evaluation"
METRICS_FILE = "metrics.json"
TABLE_FILE = "metrics.csv"
CHART_FILE = "lead_time.png"
REPORT_FILE = "report.html"
TRAINING_PART = "train"
VALIDATION_PART = "validation"
BASELINE = "persistence"
"""What skill is measured against."""
SHOWN = ("best", "median", "worst")
FEW_GROUPS = 10
"""Below so many clips or blocks a bootstrap interval is too narrow to be trusted."""


@dataclass(frozen=True, slots=True)
class Skill:
    """Share of the persistence forecast's mean squared error that the model removes."""

    value: float | None
    """1 perfect, 0 no better, below 0 worse; None where persistence is perfect."""
    low: float | None
    """Of the 95 % bootstrap interval; None where there are too few groups."""
    high: float | None
    groups: int
    """How many were drawn from."""
    of: str
    """What the groups are: clips, or blocks of windows of a single clip."""
    seed: int

    def __str__(self) -> str:
        if self.value is None:
            return "undefined, persistence is perfect"
        share = f"{self.value:.1%} of the MSE of persistence removed"
        if self.low is None or self.high is None:
            return f"{share}, too few groups for an interval"
        return f"{share}, 95 % interval {self.low:.1%} to {self.high:.1%}"


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """A window that the report shows."""

    name: str
    """Best, median or worst by mean squared error."""
    window: int
    title: str
    mse: float
    example: Example


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationReport:
    """Scores of a run, and where they are written."""

    run: Path
    out: Path
    """The folder with metrics.json, metrics.csv, lead_time.png, forecasts and report.html."""
    store: Location
    identity: str
    """Of the store."""
    part: str
    """The part of the run's split, or "all windows" of another store."""
    windows: int
    clips: int
    lead_gap: int
    data_range: DataRange
    thresholds: tuple[float, ...]
    """Stored unit."""
    fss_window: int
    total: dict[str, Scores]
    """Predictor -> its scores in unit scale, the model first."""
    per_lead_time: dict[str, tuple[Scores, ...]]
    skill: Skill
    pace: Pace
    settings: dict[str, Any] = field(repr=False)
    """What the run was trained with: all of run.json."""
    notes: tuple[str, ...]
    """What a reader of the scores must know."""

    @property
    def leads(self) -> tuple[int, ...]:
        """Lead times of the predicted frames, in steps from the last input."""
        count = len(self.per_lead_time[MODEL])
        return tuple(range(self.lead_gap + 1, self.lead_gap + count + 1))

    def as_json(self) -> dict[str, Any]:
        """What metrics.json holds."""
        skill = {name: getattr(self.skill, name) for name in ("value", "low", "high")}
        return {
            "run": str(self.run),
            "store": str(self.store),
            "identity": self.identity,
            "part": self.part,
            "windows": self.windows,
            "clips": self.clips,
            "unit": "frames scaled to 0..1 by their dtype; floats as stored",
            "data_range": {
                "low": self.data_range.low,
                "high": self.data_range.high,
                "source": self.data_range.source,
            },
            "thresholds": list(self.thresholds),
            "fss_window": self.fss_window,
            "skill_against_persistence": {
                **skill,
                "groups": self.skill.groups,
                "of": self.skill.of,
                "seed": self.skill.seed,
            },
            "notes": list(self.notes),
            "scores": {
                name: {
                    "total": self._scores(self.total[name]),
                    "per_lead_time": [
                        {"lead_time": lead, **self._scores(scores)}
                        for lead, scores in zip(self.leads, self.per_lead_time[name], strict=True)
                    ],
                }
                for name in self.total
            },
        }

    def rows(self) -> list[dict[str, Any]]:
        """A flat table: a row for each predictor and lead time, and for all together."""
        found = []
        for name in self.total:
            leads = zip(self.leads, self.per_lead_time[name], strict=True)
            for lead, scores in [("all", self.total[name]), *leads]:
                values = self._scores(scores)
                of_thresholds = values.pop("thresholds")
                for each in of_thresholds:
                    for score in ("csi", "pod", "far", "fss"):
                        values[f"{score}_{each['threshold']:g}"] = each[score]
                found.append({"predictor": name, "lead_time": lead, **values})
        return found

    def _scores(self, scores: Scores) -> dict[str, Any]:
        """As JSON, thresholds in the stored unit as they were given."""
        values = scores.as_json()
        for threshold, each in zip(self.thresholds, values["thresholds"], strict=True):
            each["threshold"] = threshold
        return values


def evaluate(
    run: str | Path | Run,
    *,
    store: str | Location | None = None,
    part: str = "test",
    thresholds: Sequence[float] = (),
    fss_window: int = FSS_WINDOW,
    data_range: tuple[float, float] | None = None,
    horizon: int | None = None,
    out: str | Path | None = None,
    batch_size: int = 8,
    seed: int = 0,
    figures: str | None = None,
    look: Look = PLAIN,
    progress: Progress | None = None,
) -> EvaluationReport:
    """Score a trained run beside baselines on windows that it was not trained on.

    Args:
        run: The run folder of `framewin train`, or what `load_run` gave.
        store: Another store, used whole; by default the one that was trained on.
        part: Part of the run's split: `"test"`, or `"validation"`, which chose the best epoch.
        thresholds: Pixel values, as stored, for CSI, POD, FAR and FSS.
        fss_window: Pixels of the neighbourhood of FSS along each axis, odd.
        data_range: Least and greatest pixel value, as stored, that PSNR and SSIM refer to; by
            default all values of uint8 and uint16, else those of the frames trained on.
        horizon: Frames to forecast, more than trained for by feeding forecasts back.
        out: The folder to make, `RUN/evaluation` by default.
        batch_size: Windows per forecast.
        seed: Of the bootstrap.
        figures: `"pdf"` or `"svg"`: write charts and sheets as such files, too.
        look: Colours of pictures, `framewin.pictures.figures.Look`.
        progress: Called with (windows done, windows in all).

    Returns:
        The scores, which also stand in `out`.

    Raises:
        StoreError: No such run or store, or `out` exists.
        TrainingError: Windows trained on, no window, or a forecast that is not a number.
        ValueError: A number out of its range, or another word than those above.
        MissingDependencyError: PDF, SVG or a colour map without matplotlib.
    """
    if out is not None:
        refuse_url(out, "a report is written to this machine, give --out a path")
    run = run if isinstance(run, Run) else load_run(run)
    dest = Path(out) if out is not None else run.folder / DEFAULT_FOLDER
    durable.check_new(dest, "--out")
    _check(part, thresholds, fss_window, batch_size, horizon, seed)
    _check_figures(figures)
    look.check(run.frame_format.channels)
    dataset, label = _windows(run, store, part, horizon)
    training = _training(run) if data_range is None else None
    used_range = data_range_of(dataset.frame_format, training, data_range)
    baselines, notes = _baselines(dataset, label)
    model = run.forecaster(horizon, nodata=dataset.nodata)
    scored = score_windows(
        model,
        dataset,
        baselines=baselines,
        data_range=used_range,
        thresholds=thresholds,
        fss_window=fss_window,
        with_ssim=True,
        batch_size=batch_size,
        progress=progress,
    )
    skill = _skill(dataset, scored, seed)
    if 1 < skill.groups < FEW_GROUPS:
        notes.append(
            f"The interval of the skill is from {skill.groups} {skill.of}: too few to be trusted."
        )
    report = EvaluationReport(
        run=run.folder,
        out=dest,
        store=dataset.path,
        identity=dataset.identity,
        part=label,
        windows=len(dataset),
        clips=sum(count > 0 for count in dataset.windows_per_clip().values()),
        lead_gap=dataset.spec.lead_gap,
        data_range=used_range,
        thresholds=tuple(thresholds),
        fss_window=fss_window,
        total=scored.total,
        per_lead_time=scored.per_lead_time,
        skill=skill,
        pace=true_pace(dataset.clips, dataset.conversion, dataset.spec.frame_step),
        settings=dict(run.record),
        notes=tuple(notes),
    )
    _write(report, _shown(model, dataset, scored), look, figures)
    return report


def score_charts(report: EvaluationReport) -> list[charts.Chart]:
    """Scores against lead time, a chart for each kind."""
    kinds: list[tuple[str, str, bool]] = [
        ("mse_pixel", "MSE per pixel, unit scale", True),
        ("psnr_frame_mean", "PSNR, mean of frames, dB", False),
    ]
    if report.total[MODEL].ssim is not None:
        kinds.append(("ssim", "SSIM", False))
    found = [
        _chart(report, title, [(name, _values(report, name, kind)) for name in report.total], zero)
        for kind, title, zero in kinds
    ]
    for place, threshold in enumerate(report.thresholds):
        for kind in ("csi", "fss"):
            lines = [
                (name, [getattr(s.thresholds[place], kind) for s in report.per_lead_time[name]])
                for name in report.total
            ]
            found.append(_chart(report, f"{kind.upper()} at {threshold:g} and above", lines, True))
    return found


def _values(report: EvaluationReport, name: str, kind: str) -> list[float | None]:
    return [getattr(scores, kind) for scores in report.per_lead_time[name]]


def _chart(
    report: EvaluationReport,
    title: str,
    lines: Sequence[tuple[str, Sequence[float | None]]],
    from_zero: bool,
) -> charts.Chart:
    series = (charts.Series(title_of_predictor(name), tuple(values)) for name, values in lines)
    minutes = in_minutes(report.pace.true_seconds)
    return charts.Chart(title, report.leads, tuple(series), from_zero, minutes)


def title_of_predictor(name: str) -> str:
    """A predictor's name in words."""
    return TITLES.get(name, name)


def _check(
    part: str,
    thresholds: Sequence[float],
    fss_window: int,
    batch_size: int,
    horizon: int | None,
    seed: int,
) -> None:
    if part == TRAINING_PART:
        raise TrainingError(
            f"part {part!r} is what the run was trained on, so its scores say nothing; choose "
            "test or validation"
        )
    if fss_window < 1 or fss_window % 2 == 0:
        raise ValueError(f"fss_window must be odd and >= 1, got {fss_window}")
    if fss_window != FSS_WINDOW and not len(thresholds):
        raise ValueError(f"FSS needs thresholds, got fss_window={fss_window} without any")
    if batch_size < 1:
        raise ValueError(f"batch_size must be >= 1, got {batch_size}")
    if seed < 0:
        raise ValueError(f"seed must be >= 0, got {seed}")
    if horizon is not None and horizon < 1:
        raise ValueError(f"horizon must be >= 1, got {horizon}")
    if not np.isfinite(thresholds).all():
        raise ValueError(f"thresholds must be finite, got {list(thresholds)}")
    if len(set(thresholds)) < len(thresholds):
        raise ValueError(f"thresholds must differ, got {list(thresholds)}")


def _check_figures(figures: str | None) -> None:
    if figures is None:
        return
    if f".{figures}" not in VECTOR_SUFFIXES:
        raise ValueError(f"figures must be pdf or svg, got {figures!r}")
    require("matplotlib", extra="plots")


def _windows(
    run: Run, store: str | Location | None, part: str, horizon: int | None
) -> tuple[FrameWindowDataset, str]:
    """The windows to score, and what they are of."""
    dataset = run.dataset(part, store, predict_frames=horizon)
    if dataset.identity == run.identity:
        return dataset, part
    if part != "test":
        raise ValueError(f"{dataset.path} is used whole, without a part; leave part={part!r} out")
    _refuse_copy(run, dataset)
    return dataset, "all windows"


def _refuse_copy(run: Run, other: FrameWindowDataset) -> None:
    """Refuse a store that holds the frames trained on in another layout."""
    try:
        trained = run.dataset(TRAINING_PART)
    except (StoreError, TrainingError):
        return  # It is gone, or has changed, so it cannot be compared.
    theirs = other.clips
    clips = zip(theirs.names, theirs.clip_starts, theirs.clip_lengths, strict=True)
    places = {name: (int(start), int(length)) for name, start, length in clips}
    for name, mine, begin, end in _trained_ranges(trained):
        its, length = places.get(name, (0, 0))
        row, frame = _telling_frame(trained, begin, min(end, mine + length))
        if frame is None:
            continue
        [(_, same)] = other.blocks(its + row - mine, its + row - mine + 1)
        if np.array_equal(frame, same[0], equal_nan=True):
            raise TrainingError(
                f"{other.path} holds clip {name}, which {run.folder} was trained on; leave "
                "--store out, or give a store without it"
            )


def _trained_ranges(dataset: FrameWindowDataset) -> Iterator[tuple[str, int, int, int]]:
    """Of each stretch of windows in a clip: its name and first row, and the rows [begin, end)."""
    clips, ranges = dataset.clips, dataset.index.row_ranges()
    for name, start, length in zip(clips.names, clips.clip_starts, clips.clip_lengths, strict=True):
        begins, ends = np.clip(ranges, start, start + length).T
        for begin, end in zip(begins[begins < ends], ends[begins < ends], strict=True):
            yield name, int(start), int(begin), int(end)


def _telling_frame(
    dataset: FrameWindowDataset, begin: int, end: int
) -> tuple[int, np.ndarray | None]:
    """The first row whose frame is not of one value, as any store's may be, and that frame."""
    for first, frames in dataset.blocks(begin, end):
        values = frames.reshape(len(frames), -1)
        same = (values == values[:, :1]) | (np.isnan(values) & np.isnan(values[:, :1]))
        if not same.all():
            place = int(np.argmin(same.all(axis=1)))
            return first + place, frames[place]
    return begin, None


def _training(run: Run) -> FrameWindowDataset | None:
    if run.frame_format.dtype in FULL_RANGE_DTYPES:
        return None
    try:
        return run.dataset(TRAINING_PART)
    except (StoreError, TrainingError):
        return None


def _baselines(dataset: FrameWindowDataset, label: str) -> tuple[list[str], list[str]]:
    """Those that can be computed here, and notes on the scores."""
    names, notes = list(BASELINES), []
    if find_spec("cv2") is None:
        names.remove("optical_flow")
        notes.append("Optical flow was left out; it needs pip install 'framewin[flow]'.")
    if label == VALIDATION_PART:
        notes.append("The best epoch was chosen on the validation part, so its scores flatter.")
    if min(dataset.frame_format.shape[:2]) < SSIM_WINDOW:
        notes.append(f"Frames are smaller than the {SSIM_WINDOW} pixels that SSIM needs.")
    if dataset.nodata is not None:
        notes.append(
            f"Pixels of the value {dataset.nodata:g} have no data and are left out; SSIM leaves "
            "out every window that holds one."
        )
    return names, notes


def _skill(dataset: FrameWindowDataset, scored: WindowScores, seed: int) -> Skill:
    """With an interval over clips, or over stretches of a single clip that do not overlap."""
    windows = np.arange(len(dataset))
    starts = dataset.index.start_rows(windows)
    owners = dataset.clips.clips_of(starts)
    of = "clips"
    if len(np.unique(owners)) == 1:
        # Windows of one block begin within one window span, so every second block is apart.
        owners = (starts - starts[0]) // dataset.spec.span
        of = f"blocks of {dataset.spec.span} frames, one window span, of a single clip"
    _, groups = np.unique(owners, return_inverse=True)
    sums = {n: np.bincount(groups, weights=scored.squared[n]) for n in (MODEL, BASELINE)}
    below = float(sums[BASELINE].sum())
    value = 1 - float(sums[MODEL].sum()) / below if below else None
    interval = bootstrap_skill(sums[MODEL], sums[BASELINE], seed=seed)
    low, high = interval or (None, None)
    return Skill(value, low, high, len(sums[MODEL]), of, seed)


def _shown(model: Any, dataset: FrameWindowDataset, scored: WindowScores) -> list[Shown]:
    """The best, median and worst window, as far as they are different ones."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mse = scored.squared[MODEL] / scored.values
    order = np.argsort(mse, kind="stable")
    order = order[np.isfinite(mse[order])]
    if len(order) == 0:
        return []
    places = {"best": 0, "median": (len(order) - 1) // 2, "worst": len(order) - 1}
    chosen = {int(order[place]): name for name, place in reversed(places.items())}
    windows = sorted(chosen, key=lambda window: SHOWN.index(chosen[window]))
    return [
        Shown(chosen[w], w, title_of(dataset, w), float(mse[w]), example)
        for w, example in zip(windows, _beside_best(model, dataset, windows, scored), strict=True)
    ]


def _beside_best(
    model: Any, dataset: FrameWindowDataset, windows: list[int], scored: WindowScores
) -> list[Example]:
    """Some windows with their forecasts and those of the best baseline."""
    errors = {name: scores.mse for name, scores in scored.total.items() if name != MODEL}
    best = min(errors, key=lambda name: errors[name])
    spec, nodata = dataset.spec, dataset.nodata
    inputs = dataset.batch(windows)[0]
    leads = spec.lead_gap + np.arange(1, spec.predict_frames + 1)
    limits = dtype_limits(inputs.dtype.name, (-np.inf, np.inf))
    made = BASELINES[best](filled(inputs, nodata), leads, limits)
    frames = shown_values(as_stored(made, inputs, nodata), nodata)
    shown = zip(examples_of(model, dataset, windows), frames, strict=True)
    return [replace(each, baseline=f, baseline_title=TITLES[best]) for each, f in shown]


def _write(
    report: EvaluationReport, shown: Sequence[Shown], look: Look, figures: str | None
) -> None:
    """Make the folder, which appears whole or not at all."""
    from framewin.forecast.report import report_html

    try:
        with durable.building(report.out) as site:
            site.begin({"evaluation": str(report.out)}, resume=False)
            folder = site.store
            folder.mkdir()
            record = json.dumps(report.as_json(), indent=2, allow_nan=False)
            (folder / METRICS_FILE).write_text(f"{record}\n")
            (folder / TABLE_FILE).write_text(_csv(report), encoding="utf-8")
            found, theme = score_charts(report), look.theme or charts.THEME
            (folder / CHART_FILE).write_bytes(charts.png(found, theme))
            if figures is not None:
                path = (folder / CHART_FILE).with_suffix(f".{figures}")
                charts.drawing(found).write(path, theme)
            for each in shown:
                _write_forecast(folder, each, report.pace, look, figures)
            text = report_html(report, shown, folder, look.theme)
            (folder / REPORT_FILE).write_text(text, encoding="utf-8")
    except OSError as exc:
        raise StoreError(f"{report.out} cannot be written: {one_line(exc)}") from exc


def _write_forecast(
    folder: Path, shown: Shown, pace: Pace, look: Look, figures: str | None
) -> None:
    drawing = sheet([shown.example], look)
    for suffix in ("png", *([figures] if figures else [])):
        drawing.write(folder / f"{shown.name}.{suffix}", look.theme or THEME)
    write_gif(folder / f"{shown.name}.gif", [shown.example], pace.seconds, look)
    if find_spec("av") is not None:
        pictures = animation([shown.example], look)
        write_video(folder / f"{shown.name}.mp4", pictures, pace.seconds)


def _csv(report: EvaluationReport) -> str:
    rows = report.rows()
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()
