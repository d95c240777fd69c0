"""The command line: what it prints, where, and how it ends."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import framewin as framewin_package
from framewin import FrameWindowDataset, SourceError, __version__, convert
from framewin.cli import app
from framewin.frames import open_frames
from tests.conftest import MakeClips, make_frame, write_frames
from tests.helpers.command import FRAMEWIN, framewin, rows
from tests.helpers.store_contract import flip


def test_convert_prints_a_table(make_clips: MakeClips, tmp_path: Path) -> None:
    """Everything about the conversion on stdout, nothing on stderr for a short one."""
    source = make_clips({"a": [1, 2, 3, 7], "b": [0]})
    (source / "a" / "._1.png").touch()
    done = framewin("convert", source, tmp_path / "clips.zarr")
    assert (done.returncode, done.stderr) == (0, "")
    table = rows(done.stdout)
    assert table["store"] == str(tmp_path / "clips.zarr")
    assert (table["clips"], table["frames"], table["frame"]) == ("2", "5", "4x6x1 uint8")
    assert table["gaps"] == "1 in 1 clips: a 3 -> 7"
    assert table["skipped"] == "1 hidden (a/._1.png)"
    assert table["time"].endswith("frames per second")
    assert table["bytes in"].endswith("bytes")
    assert table["bytes out"].endswith(" kB, raw, chunks of 5 frames")


def test_frame_numbers_that_are_steps_apart(make_clips: MakeClips, tmp_path: Path) -> None:
    """A step other than one is said."""
    done = framewin("convert", make_clips({"a": [0, 5, 10]}), tmp_path / "clips.zarr")
    assert rows(done.stdout)["gaps"] == "none, frame numbers 5 apart"


def test_dry_run_writes_nothing(make_clips: MakeClips, tmp_path: Path) -> None:
    """It reads every header, so it also finds what would stop the conversion."""
    source = make_clips({f"clip{i}": range(3) for i in range(12)})
    done = framewin("convert", source, tmp_path / "clips.zarr", "--dry-run")
    assert done.returncode == 0
    table = rows(done.stdout)
    assert table["would convert"] == f"{source} to {tmp_path / 'clips.zarr'}"
    assert "clip0: 3 frames, frame_0.png to frame_2.png" in done.stdout
    assert "and 2 more" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["frames"]
    write_frames(source / "clip9", {"frame_2.png": make_frame(0, 0, (5, 6, 1))})
    done = framewin("convert", source, tmp_path / "clips.zarr", "--dry-run")
    assert done.returncode == 1
    assert "clip9/frame_2.png is 5x6x1 uint8" in done.stderr


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_names_cannot_command_the_terminal(
    make_clips: MakeClips, tmp_path: Path, encoding: str
) -> None:
    """Nor add lines, nor fail to be printed; they are shown as escapes."""
    hostile = "Ü[red]\nstore  forged\x1b[2J\u202e"
    source, dest = make_clips({hostile: [1, 2, 5]}), tmp_path / f"{hostile}.zarr"
    damaged = source / hostile / "frame_5.png"
    (source / hostile / "notes\x07.txt").touch()
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "LC_ALL": "C"}

    def output(*arguments: object) -> str:
        command = [FRAMEWIN, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, env=environment, check=False)
        text = (done.stdout + done.stderr).decode(encoding)
        assert "Traceback" not in text
        assert not set(text) & set("\x1b\x07\u202e"), text
        assert text.count("\nstore  forged") == 0
        return text

    escaped = "\\nstore  forged\\x1b[2J\\u202e"
    assert escaped in output("convert", source, dest, "--dry-run")
    assert escaped in output("convert", source, dest)
    assert escaped in output("info", dest)
    assert '"store' not in output("info", dest, "--json")
    assert escaped in output("convert", source, dest)  # exists
    (dest / "stranger\x1b").touch()
    assert "stranger\\x1b does not belong to the store" in output("verify", dest)
    damaged.write_bytes(damaged.read_bytes()[:-20])
    assert escaped in output("convert", source, tmp_path / "b.zarr")
    assert escaped in output("convert", source, tmp_path / "c.zarr", "--on-error", "gap")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["convert", "{tmp}/none", "{tmp}/c.zarr"], 1, "framewin: {tmp}/none does not exist; ex"),
        (["convert", "{tmp}", "{tmp}/c.zarr"], 1, "framewin: {tmp}/c.zarr lies inside the source"),
        (["train", "{tmp}/none.zarr"], 1, "framewin: {tmp}/none.zarr does not exist; expected a"),
        (["train", "{tmp}", "--epochs", "0"], 2, "Invalid value for '--epochs'"),
        (["train", "{tmp}", "--learning-rate", "0"], 2, "--learning-rate must be above 0, got 0.0"),
        (["convert", "{tmp}"], 2, "Missing argument 'DEST'"),
        (["convert", "{tmp}", "{tmp}/c.zarr", "--compression", "x"], 2, "must be one of none, lz4"),
        (["convert", "{tmp}", "{tmp}/c.h5", "--level", "3"], 2, "compression none has no level"),
        (
            ["convert", "{tmp}", "{tmp}/c.h5", "--compression", "gzip", "--level", "10"],
            2,
            "level of gzip must be in 1..9, got 10",
        ),
        (["convert", "{tmp}", "{tmp}/c.h5", "--chunk-frames", "0"], 2, "must be >= 1, got 0"),
        (["info", "{tmp}/none.zarr"], 1, "framewin: {tmp}/none.zarr does not exist; expected a"),
        (["convert", "{tmp}", "{tmp}/c.h5", "--fit", "pad"], 2, "nothing to fit, got --fit pad"),
        (["show", "{tmp}", "--out", "{tmp}/a.png", "--lead-gap", "1"], 2, "no option of a window"),
        (["nonsense"], 2, "No such command 'nonsense'"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    """No traceback for a user's mistake; 1 for what was found, 2 for wrong usage."""
    done = framewin(*(argument.format(tmp=tmp_path) for argument in arguments))
    assert done.returncode == code
    assert message.format(tmp=tmp_path).lower() in done.stderr.lower()
    assert "Traceback" not in done.stderr
    assert code == 2 or done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_dry_run_tries_compression(make_clips: MakeClips, tmp_path: Path) -> None:
    """Size, ratio and rates of each layout, from a sample of the frames; nothing is written."""
    source = make_clips({"a": range(40)}, shape=(40, 50, 3))
    done = framewin("convert", source, tmp_path / "clips.h5", "--dry-run", "--level", "7",
                    "--compression", "zstd")  # fmt: skip
    table = [line.split() for line in done.stdout.splitlines()[-4:]]
    assert table[0] == ["compression", "bytes", "out", "ratio", "read,", "one", "core", "write"]
    assert [row[0] for row in table[1:]] == ["none", "lz4", "zstd"]
    assert table[1][1:4] == ["240.0", "kB", "1.00"]
    assert table[3][:3] == ["zstd", "level", "7"]
    assert float(table[3][5]) > 1.5
    assert [path.name for path in tmp_path.iterdir()] == ["frames"]
    convert = framewin("convert", source, tmp_path / "clips.h5", "--compression", "zstd")
    assert rows(convert.stdout)["bytes out"].endswith(" times smaller than pixels")


def test_info(make_clips: MakeClips, tmp_path: Path) -> None:
    """What a store holds, as a table and for machines; also of an array that others wrote."""
    source = make_clips({"a": [1, 2, 3, 7, 8], "b": [0, 1]})
    store = tmp_path / "clips.zarr"
    framewin("convert", source, store, "--compression", "gzip", "--level", "9", "--nodata", "5")
    table = rows(framewin("info", store, "--input-frames", "1", "--predict-frames", "1").stdout)
    assert table["store"] == f"{store}, zarr"
    assert (table["clips"], table["frames"], table["frame"]) == ("2", "7", "4x6x1 uint8")
    assert table["gaps"] == "1; the longest run without one has 3 frames"
    assert table["no data"] == "5"
    assert table["layout"] == "gzip level 9, chunks of 7"
    assert table["windows"] == "4 of 1+1 frames, 1 apart"
    found = json.loads(framewin("info", store, "--json").stdout)
    sizes = (path.stat().st_size for path in store.rglob("*") if path.is_file())
    assert found["bytes"] == sum(sizes)
    assert (found["windows"], found["pixel_bytes"], found["nodata"]) == (0, 168, 5.0)
    assert len(found["identity"]) == 64
    np.save(tmp_path / "data.npy", np.zeros((30, 4, 4), np.int16))
    found = json.loads(framewin("info", tmp_path / "data.npy", "--axes", "tyx", "--json").stdout)
    assert (found["format"], found["dtype"], found["windows"]) == ("array", "int16", 21)
    assert (
        "as its library reads it" in framewin("info", tmp_path / "data.npy", "--axes", "tyx").stdout
    )


def test_verify(make_clips: MakeClips, tmp_path: Path) -> None:
    """Exit code 0 where all is well, 1 and the frames by name where not."""
    store = tmp_path / "clips.zarr"
    framewin("convert", make_clips({"a": range(9)}), store, "--chunk-frames", "2")
    done = framewin("verify", store)
    assert (done.returncode, rows(done.stdout)["damage"], done.stderr) == (0, "none", "")
    flip(store / "frames/c/0/0/0/0", 24 * 5)
    done = framewin("verify", store)
    assert (done.returncode, rows(done.stdout)["damage"]) == (1, "1 found")
    assert done.stderr == "framewin: frames 4 to 5 are damaged (a 4 to a 5)\n"
    done = framewin("verify", store, "--quick")
    assert done.returncode == 0
    assert rows(done.stdout)["checked"].endswith("/s; frames were not read")
    done = framewin("verify", store, "--full", "--quick")
    assert done.returncode == 2
    assert "quick and full are two ways to verify; give one of them" in done.stderr
    done = framewin("verify", tmp_path / "none.h5")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_version() -> None:
    """Name and number."""
    assert framewin("--version").stdout == f"framewin {__version__}\n"


@pytest.mark.parametrize("quiet", [False, True])
def test_a_terminal_gets_a_bar(make_clips: MakeClips, tmp_path: Path, quiet: bool) -> None:
    """With frames, rate and time left; not with --quiet."""
    source = make_clips({"a": range(900)}, shape=(90, 90, 3))
    master, slave = pty.openpty()
    command = [FRAMEWIN, "convert", source, tmp_path / "clips.zarr", *(["--quiet"] * quiet)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=slave, env=environment
    ) as process:
        os.close(slave)
        shown = b""
        try:
            while piece := os.read(master, 65536):
                shown += piece
        except OSError:
            pass  # how Linux says that the other end is closed
    os.close(master)
    assert process.returncode == 0
    if quiet:
        assert shown == b""
    else:
        assert b"/900" in shown
        assert b"frames/s" in shown


def test_lines_elsewhere(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Without a terminal, a line now and then with rate and time left."""
    from framewin.cli import output

    monkeypatch.setattr(output, "LINE_SECONDS", 0.0)
    update = output._progress_lines("converting", "frames")
    update(400, 1000)
    update(500, 1000)
    shown = capsys.readouterr().err
    assert shown.startswith("converting: 500 of 1,000 frames, ")
    assert shown.endswith(" s left\n")


def test_errors_speak_of_arguments_or_flags(tmp_path: Path) -> None:
    """Python reads the name of its argument, the command line its flag; paths stay as they are."""
    source = tmp_path / "a step=2"
    write_frames(source, {f"frame_-{n}.png": make_frame(0, n) for n in (1, 2, 3)})
    with pytest.raises(SourceError, match=r"negative numbers; try frame_regex='\(\?P<frame>-"):
        convert(source, tmp_path / "clips.zarr")
    done = framewin("convert", source, tmp_path / "clips.zarr")
    assert f"framewin: {source}/frame_-1.png" in done.stderr
    assert "negative numbers; try --frame-regex '(?P<frame>-" in done.stderr
    with pytest.raises(ValueError, match=r"expected \(\?P<frame>"):
        convert(source, tmp_path / "clips.zarr", frame_regex="(?P<x>.)")


PACKAGE = Path(framewin_package.__file__).parent


@pytest.mark.parametrize(
    "module",
    [path for path in sorted(PACKAGE.rglob("*.py"))
     if path.relative_to(PACKAGE).parts[0] not in ("cli", "forecast", "bench", "models")],
    ids=lambda path: str(path.relative_to(PACKAGE)),
)  # fmt: skip
def test_the_library_names_arguments(module: Path) -> None:
    """Its messages say `exclude=`, which the command line shows as `--exclude`."""
    tree = ast.parse(module.read_text())
    told = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in told
    ]
    assert [text for text in texts if re.search(r"(^|[ (])--[a-z]", text)] == []


def test_a_damaged_frame_and_how_to_see_all(make_clips: MakeClips, tmp_path: Path) -> None:
    """The first stops the conversion in one line; the dry run counts the others."""
    source = make_clips({"a": range(5)})
    for number in (1, 3):
        path = source / "a" / f"frame_{number}.png"
        path.write_bytes(path.read_bytes()[:-30])
    done = framewin("convert", source, tmp_path / "clips.zarr", "--quiet")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "a/frame_1.png is cut short" in done.stderr
    assert done.stderr.endswith("; --dry-run checks all files\n")
    dry = framewin("convert", source, tmp_path / "clips.zarr", "--quiet", "--dry-run")
    assert "a/frame_1.png is cut short" in dry.stderr
    assert dry.stderr.endswith(" (and 1 more)\n")


def test_a_stopped_command_says_so(make_store: MakeClips, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM ends those that keep nothing as Ctrl-C does, with a line and exit code 143."""
    store = make_store({"a": range(3)})
    monkeypatch.setattr(
        "framewin.stores.verify.verify", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM)
    )
    result = CliRunner().invoke(app, ["verify", str(store)])
    assert result.exit_code == 143
    assert result.stderr == "framewin: stopped; repeat the command to begin anew\n"


def test_missing_chunks_are_of_arrays_that_others_wrote(make_store: MakeClips) -> None:
    """A store of framewin lacks none, so the option would change nothing."""
    store = make_store({"a": range(12)})
    message = f"{store} is a store of framewin; leave"
    done = framewin("info", store, "--allow-missing-chunks")
    assert done.returncode == 2
    assert f"{message} --allow-missing-chunks out" in done.stderr
    with pytest.raises(ValueError, match=re.escape(f"{message} allow_missing_chunks out")):
        FrameWindowDataset(
            open_frames(store, allow_missing_chunks=True), input_frames=1, predict_frames=1
        )
