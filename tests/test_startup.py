"""What is imported when: the package and its help stay quick."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import MakeClips
from tests.helpers.processes import loaded_after

DECODERS = {"imagecodecs", "imageio", "PIL", "tifffile", "av"}
HEAVY = {"numpy", "zarr", "h5py", "tensorflow", "keras", "torch"}
HEAVY |= {"obstore", "distributed", *DECODERS}


RUN_CLI = """
from framewin.cli import main
sys.argv[0] = "framewin"
try:
    main()
except SystemExit as exc:
    assert not exc.code, exc.code
"""


@pytest.mark.parametrize("code", ["import framewin", "import framewin; dir(framewin)"])
def test_importing_framewin_is_light(code: str) -> None:
    """The package alone loads none of the heavy packages."""
    assert not loaded_after(code) & HEAVY


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["convert", "--help"],
        ["train", "--help"],
        ["show", "--help"],
        ["split", "--help"],
        ["fetch", "--help"],
        ["evaluate", "--help"],
        ["predict", "--help"],
        ["bench", "--help"],
        ["plan", "--help"],
    ],
)
def test_help_is_light(arguments: list[str]) -> None:
    """So do the help texts of the command line."""
    assert not loaded_after(RUN_CLI, *arguments) & HEAVY


def test_convert_loads_no_framework(make_clips: MakeClips, tmp_path: Path) -> None:
    """Converting never starts TensorFlow, after which a fork hangs, and only what PNG needs."""
    loaded = loaded_after(RUN_CLI, "convert", make_clips({"a": [0]}), tmp_path / "clips.zarr")
    unused = {"tensorflow", "keras", "torch", "h5py", "distributed", *DECODERS - {"imagecodecs"}}
    assert not loaded & unused


def test_reading_loads_no_decoder(make_clips: MakeClips, tmp_path: Path) -> None:
    """The reading wing never imports an image decoder or a framework."""
    from framewin import convert

    convert(make_clips({"a": range(3)}), tmp_path / "clips.zarr")
    code = (
        "import framewin; framewin.FrameWindowDataset(sys.argv[1], input_frames=1,"
        " predict_frames=1)[0]"
    )
    heavy = {*DECODERS, "tensorflow", "keras", "obstore"}
    assert not loaded_after(code, tmp_path / "clips.zarr") & heavy
