"""Windows chosen by what their frames are like.

Each window has one value per column. `mean` and `nodata` are the means of the frame statistics
over all rows from its first frame to its last, those that `frame_step` skips included; `motion`
is that of the steps between these rows, so it never looks at a frame before the window.
`clip` is a name and `frame_number` the number of the first input frame.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from framewin.schema import ClipTable
from framewin.windows.spec import WindowIndex
from framewin.windows.statistics import FrameStatistics

COLUMNS = ("clip", "frame_number", "mean", "motion", "nodata")

Chooser = str | Callable[["WindowTable"], Any]
"""An expression such as `"motion > 2.0"`, or a function of the table that gives an array."""

_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class WindowTable(Mapping[str, np.ndarray]):
    """One row per window; a column is computed when it is asked for."""

    def __init__(
        self, index: WindowIndex, clips: ClipTable, frame_statistics: Callable[[], FrameStatistics]
    ) -> None:
        """Compute nothing yet.

        Args:
            index: The windows.
            clips: Of the store.
            frame_statistics: Called only if a column needs it.
        """
        self._index = index
        self._clips = clips
        self._frame_statistics = frame_statistics
        self._starts = index.start_rows(np.arange(len(index)))

    def __getitem__(self, column: str) -> np.ndarray:
        if column not in COLUMNS:
            raise KeyError(column)
        if column == "clip":
            names = np.array(self._clips.names, np.dtypes.StringDType())
            return names[self._clips.clips_of(self._starts)]
        if column == "frame_number":
            return self._clips.frame_numbers(self._starts)
        values = getattr(self._frame_statistics(), column)
        first = self._starts + (column == "motion")
        return _means(values, first, self._starts + self._index.spec.span)

    def __iter__(self) -> Iterator[str]:
        return iter(COLUMNS)

    def __len__(self) -> int:
        return len(COLUMNS)


def chosen(where: Chooser, table: WindowTable) -> np.ndarray:
    """Which windows a condition keeps, bool (windows,).

    Raises:
        ValueError: An expression that cannot be read, or an answer of another shape or type.
    """
    found = _answer(where, table)
    if found.dtype != np.bool_:
        raise ValueError(
            f"where must say True or False for each window, {where!r} gives {found.dtype}; "
            'compare with a number, as in "motion > 2.0"'
        )
    return found


def weighed(weights: Chooser, table: WindowTable) -> np.ndarray:
    """The weight of each window, float64 (windows,).

    Raises:
        ValueError: As for `chosen`.
    """
    return _answer(weights, table).astype(np.float64)


def _answer(chooser: Chooser, table: WindowTable) -> np.ndarray:
    found = _evaluate(chooser, table) if isinstance(chooser, str) else chooser(table)
    windows = (len(table["frame_number"]),)
    array = np.asarray(found)
    if array.shape == ():
        array = np.broadcast_to(array, windows)
    if array.shape != windows:
        raise ValueError(f"{chooser!r} must give {windows[0]} values, got shape {array.shape}")
    return array


def _evaluate(expression: str, table: WindowTable) -> Any:
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError) as exc:
        raise ValueError(f"{expression!r} cannot be read: {exc}") from None
    return _value(tree.body, expression, table)


def _value(node: ast.expr, expression: str, table: WindowTable) -> Any:
    """The value of one node; every kind that is not listed is refused, nothing is executed."""
    match node:
        case ast.Constant(value=int() | float() | str() as constant):
            return constant
        case ast.Name(id=name) if name in COLUMNS:
            return table[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, expression, table)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return np.logical_not(_value(operand, expression, table))
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _ARITHMETIC:
            sides = (_value(side, expression, table) for side in (left, right))
            return _ARITHMETIC[type(op)](*sides)
        case ast.BoolOp(op=op, values=values):
            combine = np.logical_and if isinstance(op, ast.And) else np.logical_or
            return combine.reduce([_value(part, expression, table) for part in values])
        case ast.Compare(left=left, ops=ops, comparators=others):
            return _compared(left, ops, others, expression, table)
    raise ValueError(
        f"{ast.unparse(node)!r} in {expression!r} is not understood; use numbers, the columns "
        f"{', '.join(COLUMNS)}, comparisons, + - * /, and, or, not"
    )


def _compared(
    left: ast.expr,
    ops: list[ast.cmpop],
    others: list[ast.expr],
    expression: str,
    table: WindowTable,
) -> Any:
    values = [_value(side, expression, table) for side in (left, *others)]
    for op in ops:
        if type(op) not in _COMPARE:
            raise ValueError(f"{expression!r} may compare with > >= < <= == != only")
    pairs = zip(ops, values[:-1], values[1:], strict=True)
    try:
        return np.logical_and.reduce([_COMPARE[type(op)](a, b) for op, a, b in pairs])
    except (np.exceptions.DTypePromotionError, TypeError):
        raise ValueError(f"{expression!r} compares a text with a number") from None


def _means(values: np.ndarray, first: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Means of values[first:end] that are not NaN, NaN where none is: by two running sums."""
    known = ~np.isnan(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    count = counts[end] - counts[first]
    total = sums[end] - sums[first]
    means: np.ndarray = np.full(len(first), np.nan)
    np.divide(total, count, out=means, where=count > 0)
    return means
