"""The example scripts: three steps of each framework on sample_data."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
