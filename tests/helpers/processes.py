"""Programs and ports beside the tests."""

from __future__ import annotations

import json
import socket
import subprocess
import sys


def loaded_after(code: str, *arguments: object) -> set[str]:
    """Names of the top-level modules that are loaded once the code has run."""
    script = f"import sys, json\n{code}\nprint(json.dumps(list(sys.modules)))"
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
