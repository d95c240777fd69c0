"""The example scripts: three steps of each framework on sample_data."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from framewin import verify
from tests.conftest import ROOT, import_or_skip


@pytest.mark.parametrize(
    ("script", "package"),
    [("train_keras", "tensorflow"), ("train_torch", "torch"), ("train_jax", "jax")],
)
def test_three_steps(script: str, package: str) -> None:
    """The script ends well and prints a loss."""
    import_or_skip(package)
    command = [sys.executable, ROOT / "scripts" / f"{script}.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "loss 0." in done.stdout


def test_growth_is_measured_on_whole_stores(tmp_path: Path) -> None:
    """A line for each store; the store without pixels is a whole one."""
    import_or_skip("tensorflow")
    script = ROOT / "scripts" / "measure_growth.py"
    command = [sys.executable, script, "--folder", tmp_path, "--windows", "300"]
    done = subprocess.run(
        [*command, "--memory-times", "0", "--shuffle", "blocks"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    _, line = done.stdout.splitlines()
    assert line.split()[0] == "300"
    assert line.endswith("MB")
    [store] = tmp_path.glob("*.zarr")
    assert not verify(store, full=True).damage


def test_changes_are_tried_on_files_that_exist() -> None:
    """Modules and their tests, also after a move."""
    for module, tests in runpy.run_path(str(ROOT / "scripts" / "mutate.py"))["TESTS"].items():
        for file in (f"framewin/{module}.py", *(f"tests/{test}.py" for test in tests.split())):
            assert (ROOT / file).is_file(), file
