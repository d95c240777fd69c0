"""The command line in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FRAMEWIN = Path(sys.executable).parent / "framewin"


def framewin(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [FRAMEWIN, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rows(text: str) -> dict[str, str]:
    """The two columns of a result as label -> value."""
    pairs = [line.split("  ", 1) for line in text.splitlines() if "  " in line]
    return {label: value.strip() for label, value in pairs if label}
