"""Whether an interrupted conversion was of the same plan, and can go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np

from framewin.conversion.fingerprints import status
from framewin.conversion.plan import ConversionPlan
from framewin.errors import SourceError, StoreError
from framewin.schema import FORMAT_VERSION
from framewin.sources.damage import Damaged
from framewin.stores import durable

JOURNAL_VERSION = 2

_WHAT = {
    "format_version": "written by another version of framewin",
    "journal_version": "written by another version of framewin",
    "source": "of another source",
    "settings": "with other options",
    "target": "to another kind of store",
    "frame_format": "of frames of another shape or dtype",
    "clips": "of other clips or frames",
}
"""Key of a plan's record -> what it means that it differs."""
# These decide which frames there are, which is compared by itself, and not what becomes of one.
_NO_MATTER = ("damaged", "on_error", "max_pixels")


def plan_record(plan: ConversionPlan) -> dict[str, Any]:
    """What must be the same for a conversion to go on, as JSON."""
    settings = {key: v for key, v in plan.meta.conversion.items() if key not in _NO_MATTER}
    digest = sha256()
    for clip in plan.clips:
        digest.update(repr((clip.name, clip.file_names[0], len(clip.numbers))).encode())
        digest.update(np.ascontiguousarray(clip.numbers).tobytes())
        digest.update("\0".join(clip.file_names).encode())
    return {
        "format_version": FORMAT_VERSION,
        "journal_version": JOURNAL_VERSION,
        "source": str(plan.source.resolve()),
        "settings": settings,
        "target": [
            plan.format.__name__,
            {**plan.settings.store_json(), "nodata": plan.meta.nodata},
        ],
        "frame_format": str(plan.meta.frame_format),
        "clips": digest.hexdigest(),
        "damaged": [_damaged_record(damaged) for damaged in plan.damaged],
    }


def resumed_plan(
    site: durable.Site, plan: ConversionPlan, *, restart: bool
) -> tuple[ConversionPlan, bool]:
    """The plan to carry out, and whether it goes on with what is there.

    Frames that the interrupted conversion found damaged are left out at once, unless their files
    have changed.

    Raises:
        StoreError: What is there is of another plan, or was fetched.
    """
    previous = site.plan()
    if previous is not None and "fetch" in previous and not restart:
        site.keep = True
        raise StoreError(
            f"{site.folder} holds a part of a fetch; repeat that command to go on with it, or use "
            "restart=True to begin anew"
        )
    if restart or previous is None or not site.has_blocks:
        return plan, False
    plan = _without_known_damage(plan, previous)
    # By way of JSON, which knows no tuples.
    record = json.loads(json.dumps(plan_record(plan)))
    for key, what in _WHAT.items():
        if record[key] != previous.get(key):
            raise StoreError(
                f"{site.folder} holds a part of a conversion {what}; repeat that command to go "
                "on with it, or use restart=True to begin anew"
            )
    return plan, True


def _damaged_record(damaged: Damaged) -> list[Any]:
    try:
        found: list[Any] = list(status(damaged.file))
    except SourceError:
        found = []
    return [damaged.file, damaged.clip, damaged.number, damaged.reason, found]


def _without_known_damage(plan: ConversionPlan, previous: Mapping[str, Any]) -> ConversionPlan:
    clips = plan.meta.clips
    places = {name: place for place, name in enumerate(clips.names)}
    known: dict[int, Damaged] = {}
    for file, clip, number, reason, found in previous.get("damaged", []):
        if clip not in places or number is None or list(status(file)) != found:
            continue
        numbers = plan.clips[places[clip]].numbers
        frame = int(np.searchsorted(numbers, number))
        if frame < len(numbers) and numbers[frame] == number:
            row = int(clips.clip_starts[places[clip]]) + frame
            known[row] = Damaged(file, clip, number, reason)
    return plan.without(known) if known else plan
