"""What attributes by the conventions of netCDF (CF) say of an array's values."""

from __future__ import annotations

import base64
import struct
from typing import Any

import numpy as np

from framewin.schema import PACKING, fits

_KEPT = (
    *PACKING,
    "standard_name",
    "long_name",
    "axis",
    "valid_range",
    "valid_min",
    "valid_max",
)


def meaning(attributes: Any, dtype: np.dtype[Any]) -> dict[str, Any]:
    """What attributes say of values of a dtype: fields of `ArrayInfo`."""
    sign = {"true": "i", "false": "u"}.get(as_text(attributes.get("_Unsigned", "")).lower())
    turned = sign == dtype.kind
    meant = other_sign(dtype) if turned else dtype
    missing: dict[str, float] = {}
    notes: list[str] = []
    for name in ("_FillValue", "missing_value") if dtype.kind in "iuf" else ():
        for stated in np.ravel(attributes.get(name, [])).tolist():
            value = _stated_value(stated, dtype, meant)
            if value is None or not fits(value, meant.name):
                notes.append(f"{name} {as_text(stated)}, no {meant.name} value")
            else:
                # By its text, for NaN is not equal to itself.
                missing.setdefault(str(value + 0.0), value)
    packing = kept_attributes(attributes)
    for name in packing:
        if turned and name.startswith("valid_"):
            packing[name] = [
                _stated_value(v, dtype, meant) for v in np.ravel(packing[name]).tolist()
            ]
    return {
        "dtype": meant,
        "missing": tuple(missing.values()),
        "packing": packing,
        "notes": tuple(notes),
    }


def kept_attributes(attributes: Any) -> dict[str, Any]:
    """Those that say what numbers mean, as JSON values."""
    kept: dict[str, Any] = {}
    for name in _KEPT:
        value = attributes.get(name)
        if isinstance(value, str | bytes):
            kept[name] = as_text(value)
        elif np.asarray(value).dtype.kind in "iuf" and np.isfinite(value).all():
            numbers = np.ravel(value).tolist()
            kept[name] = numbers[0] if len(numbers) == 1 else numbers
    for name in PACKING[:2]:
        if isinstance(kept.get(name), int):
            kept[name] = float(kept[name])
    return kept


def other_sign(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Signed integers for unsigned ones, and the other way round."""
    other = {"i": "u", "u": "i"}[dtype.kind]
    return np.dtype(f"{dtype.str[0]}{other}{dtype.itemsize}")


def as_text(value: Any) -> str:
    """A name or attribute as text, also where it is bytes."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return str(value)


def _stated_value(stated: Any, dtype: np.dtype[Any], meant: np.dtype[Any]) -> float | None:
    """A value of no data as the values have it, however the attribute is written."""
    if isinstance(stated, str | bytes):
        text = as_text(stated)
        try:
            return float(text)
        except ValueError:
            pass
        try:
            # So xarray writes floats for Zarr 3.
            [stated] = struct.unpack("<d", base64.b64decode(text, validate=True))
        except (ValueError, struct.error):
            return None
    if not isinstance(stated, int | float):
        return None
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return float(dtype.type(stated))
    if meant != dtype and fits(stated, dtype.name):
        return float(np.array(int(stated), dtype).view(meant))
    return float(stated)
