"""Every option of every command reaches what it is for, and changes nothing else."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
import typer
import zarr
from typer.testing import CliRunner

from framewin import __version__
from framewin.cli import app
from framewin.conversion.run import ConvertReport
from framewin.forecast.settings import TrainSettings
from framewin.schema import FrameFormat
from framewin.stores.layout import ResolvedLayout
from framewin.stores.verify import VerifyReport
from tests.conftest import MakeClips

PROGRAM = typer.main.get_command(app)
CALLED = "a function"
STORE = ("clips.zarr",)
URL = "s3://bucket/clips.zarr"
OWN = ("--model", "mine.models:build")


class StopError(Exception):
    """Raised in the place of the work."""


@dataclass(frozen=True)
class Row:
    """An option, and what it alone changes."""

    option: tuple[str, ...]
    changes: dict[str, Any]
    """What reaches the library, by `function.argument`; without a dot, of the main function."""
    beside: tuple[str, ...] = ()
    """Options without which it has no meaning, given in both runs."""
    of: tuple[str, ...] | None = None
    """Arguments of the command in place of the usual ones."""


@dataclass(frozen=True)
class Command:
    """How a command is run without its work."""

    main: str
    base: tuple[str, ...]
    stubs: dict[str, Callable[..., Any]]
    """Place of a function of the library -> what is done in its place, once its arguments are
    noted."""


def stop(*_: Any, **__: Any) -> Any:
    raise StopError


def converted(*_: Any, **__: Any) -> ConvertReport:
    frame = FrameFormat(4, 6, 1, "uint8")
    lists: dict[str, Any] = {"gaps": [], "damaged": [], "skipped": {}, "notes": ()}
    counts: dict[str, Any] = dict.fromkeys(("step", "bytes_in", "bytes_out"), 1)
    return ConvertReport(
        Path("src"), Path("clips.zarr"), 1, 1, frame, time_unit=None, layout=ResolvedLayout(),
        hint=None, resumed_frames=0, seconds=1.0, **lists, **counts,
    )  # fmt: skip


@contextmanager
def cluster(address: str) -> Iterator[str]:
    yield f"workers of {address}"


def loaded(*_: Any, **__: Any) -> SimpleNamespace:
    """A run with settings of its own."""
    settings = TrainSettings(seed=3)
    return SimpleNamespace(settings=settings, store=Path("old.zarr"), check_model=lambda: None)


def measured(store: Any, *, stage: Any, **_: Any) -> SimpleNamespace:
    NOTES["bench.progress"] = None if stage("turns") is None else CALLED
    return SimpleNamespace(to_json=lambda: "{}", lines=lambda: ["a line"])


def picture(*_: Any, **__: Any) -> SimpleNamespace:
    def save(out: Path) -> None:
        NOTES["picture.out"] = str(out)

    return SimpleNamespace(save=save, labels=["0"] * 20, title=("", ""))


class Dataset:
    """Of a hundred windows; its split notes what it is asked for."""

    def __init__(self, path: str, **_: Any) -> None:
        self.path = Path(path)
        self.frame_format = SimpleNamespace(dtype="uint8")
        self.clips = SimpleNamespace(names=["a"])

    def __len__(self) -> int:
        return 100

    def split(self, choices: Any, **options: Any) -> SimpleNamespace:
        note("split", {"choices": choices, **options})

        def save(place: Path) -> Path:
            NOTES["split.out"] = str(place)
            return place

        return SimpleNamespace(save=save)


def reported(*_: Any) -> SimpleNamespace:
    return SimpleNamespace(
        windows={}, nearest_frames={}, shared_frames={}, duplicates=0, examples=[]
    )


RUN = {"framewin.forecast.runs.load_run": loaded}
COMMANDS = {
    "convert": Command(
        "plan_conversion",
        ("src", *STORE),
        {
            "framewin.conversion.plan.plan_conversion": lambda *_: "a plan",
            "framewin.conversion.plan.draft_conversion": stop,
            "framewin.conversion.run.run": converted,
            "framewin.conversion.dask_client.dask_executor": cluster,
        },
    ),
    "info": Command("location", (URL,), {"framewin.cli.stores.location": stop}),
    "verify": Command(
        "verify",
        STORE,
        {
            "framewin.stores.verify.verify": lambda path, **_: VerifyReport(path, 1, 1, [], 1.0),
            "framewin.conversion.against.compare": lambda *_, **__: [],
        },
    ),
    "fetch": Command("fetch", (URL, *STORE), {"framewin.stores.fetch.fetch": stop}),
    "plan": Command("plan", STORE, {"framewin.planning.plan": stop}),
    "show": Command(
        "FrameWindowDataset",
        (*STORE, "--out", "a.png", "--window", "3"),
        {
            "framewin.dataset.FrameWindowDataset": Dataset,
            "framewin.pictures.window_figures.window_picture": picture,
            "framewin.pictures.window_figures.contact_sheet": stop,
        },
    ),
    "split": Command(
        "FrameWindowDataset",
        STORE,
        {
            "framewin.dataset.FrameWindowDataset": Dataset,
            "framewin.leaks.split_report": reported,
        },
    ),
    "train": Command(
        "train",
        (*STORE, "--out", "run"),
        {
            **RUN,
            "framewin.forecast.train.train": stop,
            "framewin.forecast.train.resume": stop,
        },
    ),
    "evaluate": Command("evaluate", ("run",), {**RUN, "framewin.forecast.evaluate.evaluate": stop}),
    "predict": Command(
        "predict",
        ("run", "src", "--out", "next.zarr"),
        {**RUN, "framewin.forecast.predict.predict": stop},
    ),
    "bench": Command(
        "run_bench",
        STORE,
        {
            "framewin.bench.run.run_bench": measured,
            "framewin.bench.report.write_chart": lambda *_: None,
        },
    ),
}

WINDOW = [
    Row(("--input-frames", "7"), {"input_frames": 7}),
    Row(("--predict-frames", "3"), {"predict_frames": 3}),
    Row(("--frame-step", "2"), {"frame_step": 2}),
    Row(("--window-stride", "4"), {"window_stride": 4}),
    Row(("--lead-gap", "6"), {"lead_gap": 6}),
]
TIMES = ("--frame-regex", "(?P<time>[0-9]+)")
GRAY = ("--size", "4x6")

ROWS: dict[str, list[Row]] = {
    "convert": [
        Row(("--format", "hdf5"), {"format": "hdf5"}),
        Row(("--compression", "zstd"), {"compression": "zstd"}),
        Row(("--level", "7"), {"level": 7}, ("--compression", "zstd")),
        Row(("--chunk-frames", "9"), {"chunk_frames": 9}),
        Row(("--statistics",), {"statistics": True}),
        Row(("--nodata", "255"), {"nodata": 255.0}),
        Row(TIMES, {"frame_regex": TIMES[1]}),
        Row(("--time-format", "%Y"), {"time_format": "%Y"}, TIMES),
        Row(("--include", "a*", "--include", "b*"), {"include": ("a*", "b*")}),
        Row(("--exclude", "a*", "--exclude", "b*"), {"exclude": ("a*", "b*")}),
        Row(("--step", "5min"), {"step": "5min"}),
        Row(("--step-tolerance", "2ms"), {"step_tolerance": "2ms"}),
        Row(("--palette", "index"), {"palette": "index"}),
        Row(("--mode", "gray"), {"mode": "gray"}),
        Row(("--drop-alpha",), {"drop_alpha": True}),
        Row(("--background", "1,2,3"), {"background": (1, 2, 3)}),
        Row(("--crop", "1:5,2:7"), {"crop": (1, 5, 2, 7)}),
        Row(("--size", "4x6"), {"size": (4, 6)}),
        Row(("--fit", "pad"), {"fit": "pad"}, GRAY),
        Row(("--on-error", "gap"), {"on_error": "gap"}),
        Row(("--max-pixels", "1000"), {"max_pixels": 1000}),
        Row(("--stream", "1"), {"stream": 1}),
        Row(("--array", "data"), {"array": "data"}),
        Row(("--axes", "yxt"), {"axes": "yxt"}),
        Row(("--clip-ids", "clip"), {"clip_ids": "clip"}),
        Row(("--frame-numbers", "number"), {"frame_numbers": "number"}),
        Row(("--kind", "tiff"), {"kind": "tiff"}),
        Row(("--allow-missing-chunks",), {"allow_missing_chunks": True}),
        Row(("--workers", "3"), {"run.workers": 3}),
        Row(
            ("--dask", "tcp://host:1"),
            {
                "dask_executor.address": "tcp://host:1",
                "run.executor": "workers of tcp://host:1",
            },
        ),
        Row(("--restart",), {"run.restart": True}),
        Row(("--json",), {"output.json": True}),
        Row(("--quiet",), {"run.progress": None}),
    ],
    "info": [Row(("--storage-option", "region=x"), {"storage_options": {"region": "x"}})],
    "verify": [
        Row(
            ("--against", "src"),
            {
                "compare.store": "clips.zarr",
                "compare.source": "src",
                "compare.workers": None,
                "compare.progress": CALLED,
            },
        ),
        Row(("--quick",), {"quick": True}),
        Row(("--full",), {"full": True}),
        Row(("--workers", "3"), {"workers": 3, "compare.workers": 3}, ("--against", "src")),
        Row(
            ("--storage-option", "region=x", "--storage-option", "key=a=b"),
            {"storage_options": {"region": "x", "key": "a=b"}},
        ),
        Row(
            ("--quiet",), {"progress": None, "compare.progress": None}, ("--against", "src")
        ),
    ],
    "fetch": [
        Row(("--storage-option", "region=x"), {"storage_options": {"region": "x"}}),
        Row(("--workers", "3"), {"workers": 3}),
        Row(("--restart",), {"restart": True}),
        Row(("--quiet",), {"progress": None}),
    ],
    "plan": [
        *WINDOW,
        Row(("--batch-size", "3"), {"batch_size": 3}),
        Row(("--memory", "16GB"), {"memory_bytes": 16_000_000_000}),
        Row(("--memory", "1.5 MB"), {"memory_bytes": 1_500_000}),
        Row(("--memory", "20"), {"memory_bytes": 20}),
        Row(("--disk-mbps", "2.5"), {"disk_mbps": 2.5}),
        Row(("--cache-bytes", "100"), {"cache_bytes": 100}),
    ],
    "show": [
        *WINDOW,
        Row(("--out", "b.png"), {"picture.out": "b.png"}),
        Row(("--window", "12"), {"window_picture.window": 12}),
        Row(("--cmap", "viridis"), {"window_picture.cmap": "viridis"}),
        Row(("--vmin", "51"), {"window_picture.vmin": 51.0}),
        Row(("--vmax", "102"), {"window_picture.vmax": 102.0}),
        Row(("--theme", "light"), {"window_picture.theme": "light"}),
        Row(
            ("--cmap", "viridis", "--vmin", "51", "--vmax", "102"),
            {"contact_sheet.cmap": "viridis", "contact_sheet.vmin": 51, "contact_sheet.vmax": 102},
            of=(*STORE, "--out", "a.png"),
        ),
    ],
    "split": [
        *WINDOW,
        Row(
            ("--part", "a=0.7", "--part", "b=x*"),
            {"split.choices": {"a": 0.7, "b": "x*"}},
        ),
        Row(("--by", "time"), {"split.by": "time"}),
        Row(("--seed", "5"), {"split.seed": 5}),
        Row(("--out", "parts.json"), {"split.out": "parts.json"}),
    ],
    "train": [
        *WINDOW,
        Row(("--model", "simvp"), {"model": "simvp"}),
        Row(("--filters", "16"), {"filters": 16}),
        Row(("--layers", "3"), {"layers": 3}),
        Row(("--patch-size", "4"), {"patch_size": 4}),
        Row(("--dropout", "0.25"), {"dropout": 0.25}),
        Row(("--next-frame",), {"next_frame": True}, OWN),
        Row(("--no-next-frame",), {"next_frame": False}, (*OWN, "--next-frame")),
        Row(("--loss", "ssim"), {"loss": "ssim"}),
        Row(("--epochs", "7"), {"epochs": 7}),
        Row(("--minutes", "2.5"), {"minutes": 2.5}),
        Row(("--patience", "4"), {"patience": 4}),
        Row(("--batch-size", "16"), {"batch_size": 16}),
        Row(("--normalize", "standard"), {"normalize": "standard"}),
        Row(("--shuffle", "blocks"), {"shuffle": "blocks"}),
        Row(("--read-ahead", "16"), {"read_ahead": 16}),
        Row(("--learning-rate", "0.01"), {"learning_rate": 0.01}),
        Row(("--weight-decay", "0.1"), {"weight_decay": 0.1}),
        Row(("--clip-norm", "3"), {"clip_norm": 3.0}),
        Row(("--augment", "flip,zoom=0.9:1.1"), {"augment": "flip,zoom=0.9:1.1"}),
        Row(("--validation-share", "0.3"), {"validation_share": 0.3}),
        Row(("--test-share", "0.25"), {"test_share": 0.25}),
        Row(("--split", "parts.json"), {"split": "parts.json"}),
        Row(("--cache", "memory"), {"cache": "memory"}),
        Row(("--devices", "2"), {"devices": 2}),
        Row(("--mixed-precision",), {"mixed_precision": True}),
        Row(("--no-mixed-precision",), {"mixed_precision": False}, ("--mixed-precision",)),
        Row(("--deterministic",), {"deterministic": True}),
        Row(("--no-deterministic",), {"deterministic": False}, ("--deterministic",)),
        Row(("--checkpoint-minutes", "1.5"), {"checkpoint_minutes": 1.5}),
        Row(("--seed", "9"), {"seed": 9}),
        Row(("--out", "other"), {"out": "other"}),
        Row(
            ("--config", "old/run.json"),
            {"load_run.folder": "old", "load_run.model": None, "seed": 3},
        ),
        Row(
            ("--resume", "old"), {"resume.folder": "old", "resume.model": None}, of=()
        ),
    ],
    "evaluate": [
        Row(("--store", URL), {"store": URL}),
        Row(("--part", "validation"), {"part": "validation"}),
        Row(("--thresholds", "64,128.5"), {"thresholds": (64.0, 128.5)}),
        Row(("--fss-window", "9"), {"fss_window": 9}, ("--thresholds", "64")),
        Row(("--data-range", "-2:10"), {"data_range": (-2.0, 10.0)}),
        Row(("--horizon", "12"), {"horizon": 12}),
        Row(("--out", "there"), {"out": "there"}),
        Row(("--batch-size", "3"), {"batch_size": 3}),
        Row(OWN, {"load_run.model": "mine.models:build"}),
        Row(("--seed", "5"), {"seed": 5}),
        Row(("--figures", "svg"), {"figures": "svg"}),
        Row(("--cmap", "viridis"), {"cmap": "viridis"}),
        Row(("--vmin", "51"), {"vmin": 51.0}),
        Row(("--vmax", "102"), {"vmax": 102.0}),
        Row(("--theme", "light"), {"theme": "light"}),
        Row(("--quiet",), {"progress": None}),
    ],
    "predict": [
        Row(("--out", "b.gif"), {"out": "b.gif"}),
        Row(("--every",), {"every": True}),
        Row(("--horizon", "12"), {"horizon": 12}),
        Row(("--batch-size", "3"), {"batch_size": 3}),
        Row(OWN, {"load_run.model": "mine.models:build"}),
        Row(("--quiet",), {"progress": None}),
    ],
    "bench": [
        *WINDOW[:2],
        Row(("--frames", "src"), {"frames": "src"}),
        Row(("--batch-size", "3"), {"batch_size": 3}),
        Row(("--rounds", "4"), {"rounds": 4}),
        Row(("--step-ms", "2.5"), {"step_ms": 2.5}),
        Row(("--only", "h5py", "--only", "grain"), {"only": ("h5py", "grain")}),
        Row(("--quick",), {"quick": True}),
        Row(("--chart", "b.png"), {"write_chart.path": "b.png", "write_chart.report": "a report"}),
        Row(("--json",), {"output.json": True}),
        Row(("--quiet",), {"bench.progress": None}),
    ],
}  # fmt: skip

OWN_TESTS = {
    "": ("--version",),
    "convert": ("--dry-run",),
    "info": (
        *(row.option[0] for row in WINDOW),
        *("--array", "--axes", "--allow-missing-chunks", "--json"),
    ),
    "plan": ("--json",),
}
"""Options with tests below that run all of the command."""

NOTES: dict[str, Any] = {}


def plain(value: Any) -> Any:
    """A value that can be compared."""
    if isinstance(value, os.PathLike):
        return str(value)
    return CALLED if inspect.isroutine(value) else value


def note(function: str, arguments: dict[str, Any]) -> None:
    """Settings are noted by their fields."""
    for name, value in arguments.items():
        if isinstance(value, SimpleNamespace):
            NOTES[f"{function}.{name}"] = f"a {name}"
        elif isinstance(value, Dataset):
            continue
        elif is_dataclass(value) and not isinstance(value, os.PathLike):
            note(function, {each.name: getattr(value, each.name) for each in fields(value)})
        else:
            NOTES[f"{function}.{name}"] = plain(value)


def leave_the_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither import TensorFlow nor change how memory is kept."""
    monkeypatch.setattr("framewin.process.keep_freed_memory", int)
    for module in ("train", "evaluate", "predict", "bench"):
        place = importlib.import_module(f"framewin.cli.{module}")
        monkeypatch.setattr(place, "import_tensorflow_quietly", int)


@pytest.fixture
def reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Run a command without its work: what reached the library, by function and argument."""
    monkeypatch.chdir(tmp_path)
    leave_the_process_alone(monkeypatch)

    def stub(place: str, instead: Callable[..., Any]) -> None:
        holder, _, name = place.rpartition(".")
        module = importlib.import_module(holder)
        signature = inspect.signature(getattr(module, name))

        def noted(*args: Any, **kwargs: Any) -> Any:
            note(name, signature.bind(*args, **kwargs).arguments)
            return instead(*args, **kwargs)

        monkeypatch.setattr(module, name, noted)

    stubs = {k: v for each in COMMANDS.values() for k, v in each.stubs.items()}
    # All are imported first: a module that takes a function by its name would keep what is put in
    # its place for a while.
    for place in stubs:
        importlib.import_module(place.rpartition(".")[0])
    for place, instead in stubs.items():
        stub(place, instead)

    def run(command: str, *arguments: str) -> dict[str, Any]:
        NOTES.clear()
        result = CliRunner().invoke(app, [command, *arguments])
        if result.exception is not None and not isinstance(result.exception, StopError):
            raise AssertionError(result.output) from result.exception
        if result.stdout:
            NOTES["output.json"] = result.stdout.startswith("{")
        return dict(NOTES)

    return run


def cases() -> Iterator[Any]:
    for command, rows in ROWS.items():
        for row in rows:
            yield pytest.param(command, row, id=f"{command}{row.option[0]}")


@pytest.mark.parametrize(("command", "row"), list(cases()))
def test_an_option_reaches_what_it_is_for(
    command: str, row: Row, reached: Callable[..., dict[str, Any]]
) -> None:
    """And nothing else is changed by it."""
    base = COMMANDS[command].base if row.of is None else row.of
    before = reached(command, *base, *row.beside) if base else {}
    after = reached(command, *base, *row.beside, *row.option)
    changed = {name: value for name, value in after.items() if before.get(name, stop) != value}
    main = COMMANDS[command].main
    assert changed == {
        name if "." in name else f"{main}.{name}": value for name, value in row.changes.items()
    }
    assert not base or set(before) <= set(after)


def test_the_arguments_of_commands(reached: Callable[..., dict[str, Any]]) -> None:
    """What has no name on the command line reaches its place, too."""
    expected = {
        "convert": {"plan_conversion.source": "src", "plan_conversion.dest": "clips.zarr"},
        "info": {"location.path": URL},
        "verify": {"verify.path": "clips.zarr"},
        "plan": {"plan.path": "clips.zarr"},
        "fetch": {"fetch.url": URL, "fetch.dest": "clips.zarr"},
        "show": {"FrameWindowDataset.frames": "clips.zarr"},
        "split": {"FrameWindowDataset.frames": "clips.zarr"},
        "train": {"train.store": "clips.zarr", "train.out": "run"},
        "evaluate": {"load_run.folder": "run"},
        "predict": {"load_run.folder": "run", "predict.source": "src"},
        "bench": {"run_bench.store": "clips.zarr"},
    }
    assert set(expected) == set(COMMANDS)
    for command, values in expected.items():
        found = reached(command, *COMMANDS[command].base)
        assert {name: found[name] for name in values} == values


def test_a_dry_run_is_of_the_same_settings(reached: Callable[..., dict[str, Any]]) -> None:
    """Whatever is given beside it; nothing is converted."""
    clashing = ("--background", "--dask", "--json")
    options = [
        word
        for row in ROWS["convert"]
        if row.option[0] not in clashing
        for word in row.option
    ]  # fmt: skip
    wet = reached("convert", "src", *STORE, *options)
    dry = reached("convert", "src", *STORE, *options, "--dry-run")
    name = "plan_conversion."
    planned = {key.removeprefix(name): value for key, value in wet.items() if name in key}
    assert dry == {f"draft_conversion.{key}": v for key, v in planned.items()} | {
        "draft_conversion.lenient": True
    }


WINDOWS = [
    # Of 40 frames: all starts of 10 frames are 31.
    ((), 31),
    (("--input-frames", "10"), 26),
    (("--predict-frames", "1"), 35),
    # Frames 0, 3, ..., 27.
    (("--frame-step", "3"), 13),
    # 0, 4, ..., 28.
    (("--window-stride", "4"), 8),
    (("--lead-gap", "2"), 29),
]


def json_of(*arguments: object) -> dict[str, Any]:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize(("options", "windows"), WINDOWS)
def test_windows_that_are_counted(
    make_store: MakeClips, options: tuple[str, ...], windows: int
) -> None:
    """The options of a window, in both commands that count them."""
    store = make_store({"a": range(40)})
    assert json_of("info", store, "--json", *options)["windows"] == windows
    assert json_of("plan", store, "--json", *options)["windows"] == windows


def test_how_arrays_of_others_are_described(tmp_path: Path) -> None:
    """By the array and the axes that are named; chunks that are not there need a word."""
    with h5py.File(tmp_path / "two.h5", "w") as file:
        file["a"], file["b"] = np.zeros((12, 8, 9), "uint8"), np.zeros((8, 9, 7), "uint8")
    assert json_of("info", tmp_path / "two.h5", "--array", "a", "--json")["frames"] == 12
    found = json_of("info", tmp_path / "two.h5", "--array", "b", "--axes", "yxt", "--json")
    assert [found[name] for name in ("frames", "height", "width")] == [7, 8, 9]


def test_missing_chunks_of_others(tmp_path: Path) -> None:
    """`info` names one, unless such chunks may be missing."""
    data = zarr.create_array(tmp_path / "a.zarr", shape=(4, 8, 9), chunks=(2, 8, 9), dtype="u1")
    data[:2] = 1
    command = ["info", str(tmp_path / "a.zarr"), "--axes", "tyx"]
    found = CliRunner().invoke(app, command)
    assert "chunk c/1/0/0 of 'a' is missing" in str(found.exception)
    assert json_of(*command, "--allow-missing-chunks", "--json")["frames"] == 4


def test_a_run_is_named_by_store_and_time(reached: Callable[..., dict[str, Any]]) -> None:
    """Where no folder is named, also of a store by its URL."""
    for store in ("some/clips.zarr", URL):
        folder = reached("train", store)["train.out"]
        assert re.fullmatch(r"runs/clips-\d{8}-\d{6}", folder)


def test_a_config_brings_its_store(reached: Callable[..., dict[str, Any]]) -> None:
    """Another one is used in its place if it is given."""
    command = ("train", "--config", "old/run.json", "--out", "run")
    assert reached(*command)["train.store"] == "old.zarr"
    assert reached(*command, "new.zarr")["train.store"] == "new.zarr"


@pytest.mark.parametrize(
    ("base", "option", "message"),
    [
        (TrainSettings(split="parts.json"), ("--test-share", "0.1"), "the split file says the"),
        (TrainSettings(model="persistence"), ("--augment", "flip"), "persistence has nothing to"),
        (TrainSettings(), (*OWN, "--normalize", "range"), "normalize 'range' is for models of fr"),
    ],
)
def test_an_option_that_would_change_nothing(
    base: TrainSettings,
    option: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is refused, also where it is a repeated run that has no use for it."""
    module = importlib.import_module("framewin.cli.train")
    monkeypatch.setattr(module, "_base", lambda *_: (base, tmp_path / "a.zarr"))
    leave_the_process_alone(monkeypatch)
    result = CliRunner().invoke(app, ["train", "--config", "old", "--out", "run", *option])
    assert (result.exit_code, message in result.output) == (2, True), result.output


def test_the_version() -> None:
    """An option of no command."""
    assert CliRunner().invoke(app, ["--version"]).output == f"framewin {__version__}\n"


def test_every_option_is_in_the_tables() -> None:
    """A new option needs a row, or a test of its own that is named here."""
    tested = {
        (command, word)
        for command, rows in ROWS.items()
        for row in rows
        for word in row.option
        if word.startswith("--")
    }
    tested |= {(command, word) for command, words in OWN_TESTS.items() for word in words}
    given = {
        (name, flag)
        for name, command in PROGRAM.commands.items()
        for option in command.params
        if option.param_type_name == "option"
        for flag in (*option.opts, *option.secondary_opts)
    }
    given |= {("", flag) for option in PROGRAM.params for flag in option.opts}
    assert given - tested == set()
    assert tested - given == set()
