"""Every conversion of these tests is made of many small parts."""

from __future__ import annotations

import pytest

from framewin.conversion import journal
from framewin.stores import layout, writer


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of one chunk, each put on disk and journalled by itself."""
    monkeypatch.setattr(writer, "BLOCK_BYTES", 1)
    monkeypatch.setattr(layout, "SHARD_BYTES", 1)
    monkeypatch.setattr(journal, "SYNC_BYTES", 1)
