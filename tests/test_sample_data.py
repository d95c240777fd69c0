"""sample_data/ is what its script draws."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import imagecodecs
import numpy as np

from tests.conftest import ROOT


def test_the_script_draws_the_committed_frames(tmp_path: Path) -> None:
    """The same files with the same pixels, under 2 MB together."""
    script = ROOT / "scripts" / "make_sample_data.py"
    subprocess.run([sys.executable, script, tmp_path], check=True)
    drawn, committed = (
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*.png")}
        for root in (tmp_path, ROOT / "sample_data")
    )
    assert drawn.keys() == committed.keys()
    assert sum(map(len, committed.values())) < 2_000_000
    for name, data in drawn.items():
        pixels = imagecodecs.png_decode(data).astype(int)
        # exp() may differ in its last bit between machines, and so move a rounding.
        difference = abs(pixels - imagecodecs.png_decode(committed[name]))
        assert np.count_nonzero(difference) <= 2, name
