"""What `framewin bench` found: a table, JSON, and a bar chart."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import framewin
from framewin.bench.measure import spread

if TYPE_CHECKING:
    from PIL import ImageDraw

    from framewin.bench.ways import Way

CHART_WIDTH = 960
CHART_ROW, CHART_MARGIN = 24, 16
CHART_TITLE = 48
LABEL_WIDTH, VALUE_WIDTH = 300, 90
BACKGROUND, TEXT = (255, 255, 255), (30, 30, 35)
LINE = (150, 150, 155)
COLOURS = {
    "floor": (170, 170, 175),
    "memory": (110, 130, 160),
    "framewin": (235, 140, 40),
    "PNG files": (175, 90, 90),
    "arrays": (90, 140, 110),
}


@dataclass(frozen=True, slots=True)
class WayResult:
    """What was measured of one way; times are medians, with the middle half of the rounds."""

    name: str
    title: str
    group: str
    ms_per_batch: float
    ms_low: float
    ms_high: float
    ratio: float
    """Over the base, each round over the base's time in that round."""
    ratio_low: float
    ratio_high: float
    wait_share: float | None
    """Of the time, with a training step between batches, in [0, 1]; None of the floor."""
    first_batch_seconds: float | None
    """In a fresh process with libraries imported; None where it was left out."""
    peak_rss_bytes: float | None
    """Of that process, libraries and pages of mapped files included, its workers not."""

    @classmethod
    def of(
        cls,
        way: Way,
        seconds: Sequence[float],
        base_seconds: Sequence[float],
        wait_share: float | None,
        alone: Mapping[str, float],
    ) -> WayResult:
        """From seconds per batch in each round."""
        ms = spread([s * 1e3 for s in seconds])
        ratio = spread([s / b for s, b in zip(seconds, base_seconds, strict=True)])
        return cls(
            way.name, way.title, way.group, ms.median, ms.low, ms.high, ratio.median, ratio.low,
            ratio.high, wait_share, alone.get("first_batch_seconds"), alone.get("peak_rss_bytes"),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class BenchReport:
    """All results of one run, on one machine, of one store."""

    store: str
    frame: str
    windows: int
    settings: dict[str, Any]
    machine: dict[str, Any]
    base: str
    """Name of the way that the ratios are over."""
    ways: list[WayResult]
    left_out: dict[str, str]
    """Ways that were not measured, with the reason."""
    epochs: list[dict[str, Any]]
    """See `framewin.bench.png_ways.epochs`."""
    store_bytes: int
    png_bytes: int | None
    """None without the PNG files."""

    def to_json(self) -> str:
        """All of it, with the version of framewin."""
        return json.dumps({"framewin": framewin.__version__, **asdict(self)}, indent=2)

    def lines(self) -> list[str]:
        """The table and what stands around it."""
        setting, machine = self.settings, self.machine
        step = f"waits at {setting['step_ms']:g} ms"
        title = f"{'way':44} {'ms/batch':>9} {'ratio':>7} {'quartiles':>13} {step:>14}"
        return [
            f"{self.store}: {self.windows:,} windows of {setting['input_frames']}+"
            f"{setting['predict_frames']} frames {self.frame}, batch {setting['batch_size']}",
            f"{machine['processor']}, {machine['cores']} cores, {_gb(machine['memory_bytes'])}; "
            f"{setting['rounds']} rounds, medians, ratio over {self.base}",
            "",
            f"{title} {'first batch':>12} {'peak RSS':>9}",
            *(_row(way) for way in self.ways),
            *self._epoch_lines(),
            "",
            f"on disk: store {self.store_bytes:,} bytes{self._png_text()}",
            *(f"left out: {name}: {reason}" for name, reason in self.left_out.items()),
        ]

    def _png_text(self) -> str:
        if self.png_bytes is None:
            return ""
        share = self.store_bytes / self.png_bytes
        return f", PNG files {self.png_bytes:,} bytes, {share:.2f} times as much"

    def _epoch_lines(self) -> list[str]:
        if not self.epochs:
            return []
        rows = [
            f"  cache {_on(row['cache']):3}, prefetch {_on(row['prefetch']):3} "
            f"{row['first_ms']:13.3f} {row['later_ms']:13.3f}"
            for row in self.epochs
        ]
        return ["", f"{'tf.data over PNG files, ms/batch':34} first epoch  later epochs", *rows]


def _row(way: WayResult) -> str:
    quartiles = f"{way.ratio_low:.2f}-{way.ratio_high:.2f}"
    waits = "" if way.wait_share is None else f"{way.wait_share:.1%}"
    first = "" if way.first_batch_seconds is None else f"{way.first_batch_seconds:.2f} s"
    peak = "" if way.peak_rss_bytes is None else _gb(way.peak_rss_bytes)
    return (
        f"{f'{way.group}: {way.title}':44} {way.ms_per_batch:9.3f} {way.ratio:7.2f} "
        f"{quartiles:>13} {waits:>14} {first:>12} {peak:>9}"
    ).rstrip()


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.2f} GB"


def _on(is_on: bool) -> str:
    return "on" if is_on else "off"


def machine() -> dict[str, Any]:
    """Processor, cores that this process may use, bytes of memory, and system."""
    info = Path("/proc/cpuinfo")
    models = [
        line.partition(":")[2].strip()
        for line in (info.read_text().splitlines() if info.exists() else [])
        if line.startswith("model name")
    ]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "processor": models[0] if models else platform.processor() or platform.machine(),
        "cores": cores,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
    }


def chart_size(bars: int) -> tuple[int, int]:
    """Width and height in pixels of the chart of so many ways."""
    return CHART_WIDTH, CHART_TITLE + bars * CHART_ROW + CHART_MARGIN


def write_chart(path: Path, report: BenchReport) -> None:
    """Draw a PNG: a bar for each way, its time per batch over the base's, on a log scale.

    A thin line across the end of a bar is the middle half of the rounds.
    """
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", chart_size(len(report.ways)), BACKGROUND)
    pen = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=13)
    title = f"time per batch over {report.base}, log scale: {report.frame}, {report.store}"
    pen.text((CHART_MARGIN, CHART_MARGIN), title, fill=TEXT, font=font)
    low = min(way.ratio_low for way in report.ways) / 1.5
    high = max(way.ratio_high for way in report.ways)
    room = CHART_WIDTH - LABEL_WIDTH - VALUE_WIDTH

    def place(ratio: float) -> float:
        return LABEL_WIDTH + room * math.log(ratio / low) / math.log(high / low)

    for number, way in enumerate(report.ways):
        _bar(pen, way, place, CHART_TITLE + number * CHART_ROW, font)
    if low < 1 < high:
        one = place(1)
        pen.line([(one, CHART_TITLE), (one, image.height - CHART_MARGIN)], fill=LINE)
    image.save(path, format="PNG")


def _bar(pen: ImageDraw.ImageDraw, way: WayResult, place: Any, top: int, font: Any) -> None:
    middle = top + CHART_ROW // 2
    text = f"{way.group}: {way.title}"
    pen.text((CHART_MARGIN, top + 4), text, fill=TEXT, font=font)
    end = place(way.ratio)
    pen.rectangle([LABEL_WIDTH, top + 4, end, top + CHART_ROW - 4], fill=COLOURS[way.group])
    pen.line([(place(way.ratio_low), middle), (place(way.ratio_high), middle)], fill=TEXT)
    pen.text((place(way.ratio_high) + 6, top + 4), f"{way.ratio:.2f}", fill=TEXT, font=font)
