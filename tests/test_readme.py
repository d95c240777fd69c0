"""The README's blocks, run as they stand, on sample_data."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from framewin.conversion.settings import ConvertSettings
from framewin.forecast.settings import LOSSES, TrainSettings
from framewin.model_table import MODELS
from tests.conftest import ROOT, import_or_skip

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_readme_runs(tmp_path: Path) -> None:
    """All commands, then all Python blocks in order, in one folder and one process.

    A comment behind a print is what it prints.
    """
    for package in ("tensorflow", "keras", "xarray"):
        import_or_skip(package)
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")
    bin_folder = Path(sys.executable).parent
    commands = "".join(block for kind, block in BLOCKS if kind == "console")
    for command in re.findall(r"^\$ (.*)$", commands, re.MULTILINE):
        subprocess.run(
            [bin_folder / "framewin", *shlex.split(command)[1:]], cwd=tmp_path, check=True
        )
    program = "\n".join(block for kind, block in BLOCKS if kind == "python")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = re.findall(r"^print\(.*\)\s+# ([^:\n]*)", program, re.MULTILINE)
    assert len(printed) == 5
    assert done.stdout.splitlines()[:5] == [text.strip() for text in printed]
    assert (tmp_path / "runs" / "readme" / "forecast.gif").exists()
    assert (tmp_path / "runs" / "readme" / "evaluation" / "report.html").exists()
    assert (tmp_path / "next.zarr").exists()


def test_every_option_of_evaluating_and_predicting_is_explained() -> None:
    """Those that are more than where things are, and how much is done at once."""
    for name in ("part", "store", "thresholds", "fss-window", "data-range", "horizon", "every"):
        assert f"`--{name}" in README, name


def test_every_option_is_explained() -> None:
    """What the README's list of pixel rules says is tested in test_png; here, that it is there."""
    for word in ("frame_step", "window_stride", "lead_gap", "start_epoch"):
        assert word in README


def test_every_option_of_convert_is_explained() -> None:
    """Those that say what frames become, and the others."""
    options = [*ConvertSettings.__dataclass_fields__, "dry_run", "json", "workers", "dask", "quiet"]
    for name in options:
        assert f"`--{name.replace('_', '-')}" in README, name


def test_every_option_of_train_is_explained() -> None:
    """Each setting has a row, and each model."""
    for name in TrainSettings.__dataclass_fields__:
        assert f"`--{name.replace('_', '-')}" in README, name
    for name in (*MODELS, *LOSSES):
        assert f"`{name}`" in README, name


@pytest.mark.parametrize("name", ["demo", "test"])
def test_the_two_commands_exist(name: str) -> None:
    """The commands that the README names can be run."""
    assert f"scripts/{name}" in README
    assert (ROOT / "scripts" / name).stat().st_mode & 0o111
