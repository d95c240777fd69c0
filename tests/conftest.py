"""Small stores whose pixels say where they belong, and the rules for skipping."""

from __future__ import annotations

import importlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import hypothesis
import imagecodecs
import numpy as np
import pytest

from tests.helpers import object_server

# A busy machine is no failure.
hypothesis.settings.register_profile("framewin", deadline=None)
hypothesis.settings.load_profile("framewin")

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# A shell lets what it starts in the background ignore SIGINT, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parent.parent


NOT_INSTALLED = " is not installed"
# What a machine may lack where FRAMEWIN_REQUIRE=all (as in CI): beginnings of reasons to skip.
# A second backend of Keras and some peers in the benchmarks are large, or change too often.
NOT_REQUIRED = ("jax", "xbatcher", "zarrs", "insitubatch")
EXPECTED_SKIPS = (
    *(f"{module}{NOT_INSTALLED}" for module in NOT_REQUIRED),
    "zarr-python ",
    "no real data at",
    "a small disk cannot be mounted here",
    "there is no mount command",
    "all folders are in memory",
    # Examples that are shown, not run.
    "all tests skipped by +SKIP option",
)


# What trains, starts frameworks or many processes; `scripts/test --quick` leaves it out.
SLOW = (
    *("adapters", "bench", "benchmarks", "cli", "faults", "forecast", "models"),
    *("test_readme.py", "test_scripts.py", "test_testing.py", "test_augment.py", "test_remote.py"),
    *("stores/test_fetch.py", "test_sample_data.py", "test_startup.py", "test_planning.py"),
    *("arrays/test_hostile_arrays.py", "arrays/test_same_answer.py"),
    *("sources/test_hostile_images.py", "test_real_data.py"),
    "conversion/test_cluster.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow by where it is."""
    slow = tuple(str(ROOT / "tests" / place) for place in SLOW)
    for item in items:
        if str(item.path).startswith(slow):
            item.add_marker(pytest.mark.slow)


def import_or_skip(module: str) -> ModuleType:
    """Import an optional package; skip without it, but fail if FRAMEWIN_REQUIRE=all."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        if os.environ.get("FRAMEWIN_REQUIRE") == "all" and module not in NOT_REQUIRED:
            pytest.fail(f"{module} is required here but not installed")
        pytest.skip(f"{module}{NOT_INSTALLED}")


def reasons_of(reporter: pytest.TerminalReporter) -> set[str]:
    """Why tests were skipped."""
    reports = reporter.stats.get("skipped", [])
    texts = [r.longrepr[2] if isinstance(r.longrepr, tuple) else str(r.longrepr) for r in reports]
    return {text.removeprefix("Skipped: ") for text in texts}


def unexpected_skips(reporter: pytest.TerminalReporter) -> list[str]:
    """Reasons of skips that are not listed, if all is required here."""
    if os.environ.get("FRAMEWIN_REQUIRE") != "all":
        return []
    return sorted(text for text in reasons_of(reporter) if not text.startswith(EXPECTED_SKIPS))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which packages were missing, and which skips are not allowed here."""
    missing = [text for text in reasons_of(terminalreporter) if text.endswith(NOT_INSTALLED)]
    if missing:
        names = ", ".join(sorted(text.removesuffix(NOT_INSTALLED) for text in missing))
        terminalreporter.write_line(
            f"tests were skipped for want of: {names}; FRAMEWIN_TEST_EXTRAS=torch,grain,augment,"
            f"remote,dask scripts/test installs all but {' and '.join(NOT_REQUIRED)}"
        )
    for reason in unexpected_skips(terminalreporter):
        terminalreporter.write_line(f"a skip that is not allowed here: {reason}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where everything is required and a test was skipped all the same."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and unexpected_skips(reporter) and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def tf() -> ModuleType:
    """TensorFlow, or a skip."""
    return import_or_skip("tensorflow")


@pytest.fixture
def real_data() -> Path:
    """The folder of real data sets, or a skip."""
    folder = Path(os.environ.get("FRAMEWIN_REAL_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; FRAMEWIN_REAL_DATA names another place")
    return folder


@pytest.fixture(scope="session")
def object_storage() -> Iterator[tuple[str, int]]:
    """Host and port of an S3 server with an empty bucket, or a skip."""
    import_or_skip("obstore")
    moto = import_or_skip("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()
    server.stop()


@pytest.fixture
def server(
    object_storage: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> Iterator[object_server.Server]:
    """A proxy in front of the S3 server, which the environment names."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with object_server.proxy(object_storage) as found:
        for name, value in object_server.environment(found).items():
            monkeypatch.setenv(name, value)
        found.make_bucket()
        yield found


@pytest.fixture(params=["UTC0", "IST-5:30", "EST5EDT,M3.2.0,M11.1.0"])
def local_zone(request: pytest.FixtureRequest) -> Iterator[None]:
    """This process is at Greenwich, in India and in New York in turn: the zone must not matter."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


def make_frame(
    clip: int, number: int, shape: tuple[int, int, int] = (4, 6, 1), dtype: str = "uint8"
) -> np.ndarray:
    """A frame that says which it is: (H, W, C); a wrong clip, number or pixel shows."""
    height, width, channels = shape
    pixels = np.arange(height * width * channels).reshape(shape)
    return ((clip * 101 + number * 7 + pixels) % (np.iinfo(dtype).max + 1)).astype(dtype)


def write_frames(folder: Path, frames: Mapping[str, np.ndarray]) -> None:
    """Write (H, W, C) frames as PNG files: name -> frame."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in frames.items():
        (folder / name).write_bytes(
            imagecodecs.png_encode(frame.squeeze(-1) if frame.shape[-1] == 1 else frame)
        )


MakeClips = Callable[..., Path]


@pytest.fixture
def make_clips(tmp_path: Path) -> MakeClips:
    """Write clip folders from the frame numbers of each: `make_clips({"a": range(5)})`."""

    def make(
        numbers: Mapping[str, Sequence[int]],
        shape: tuple[int, int, int] = (4, 6, 1),
        dtype: str = "uint8",
        pattern: str = "frame_{}.png",
        folder: str = "frames",
    ) -> Path:
        source = tmp_path / folder
        for clip, (name, present) in enumerate(numbers.items()):
            frames = {pattern.format(n): make_frame(clip, n, shape, dtype) for n in present}
            write_frames(source / name, frames)
        return source

    return make


@pytest.fixture
def make_store(make_clips: MakeClips, tmp_path: Path) -> MakeClips:
    """Like `make_clips`, but converted: returns the store."""
    from framewin import convert

    def make(
        numbers: Mapping[str, Sequence[int]],
        name: str = "clips",
        suffix: str = ".zarr",
        converted: Mapping[str, object] | None = None,
        **options: object,
    ) -> Path:
        source = make_clips(numbers, folder=f"{name}-frames", **options)
        store = tmp_path / f"{name}{suffix}"
        convert(source, store, workers=2, **(converted or {}))
        return store

    return make
