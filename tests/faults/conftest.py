"""Every conversion of these tests is made of many small blocks."""

from __future__ import annotations

import pytest

from framewin.conversion import journal, run


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one chunk, each put on disk and journalled by itself."""
    monkeypatch.setattr(run, "BLOCK_BYTES", 1)
    monkeypatch.setattr(journal, "SYNC_BYTES", 1)
