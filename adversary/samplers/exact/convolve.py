"""Convolution of log weights to full relative accuracy in every cell, however far in the tail.

What it is: a direct convolution of positive numbers where their span fits in a float, and a sum in logs where it does not.
What it is not: an FFT, whose error is absolute: far tails, which decide rare targets, would be lost.

Held to account by ``tests/samplers/exact/test_parts.py``. Source: spec/kazan_reiter.md 1.3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adversary.errors import UnsupportedModelError

__all__ = ["MAX_CELLS", "log_convolve", "log_convolve_padded", "log_sum"]

Array = Any
MAX_CELLS = 3e7  # of any table
_MAX_WIDE = 2e7  # cells of a sum in logs, at some 15 ns each
_CHUNK = 2_000_000
_LINEAR_SPAN = 640.0  # exp(-640) is still a normal float64: no digit of a product is lost


def _span(a: Array) -> float:
    finite = a[np.isfinite(a)]
    return float(finite.max() - finite.min()) if finite.size else 0.0


def log_convolve(a: Array, b: Array, start: int, size: int) -> Array:
    """Return ``log sum_i exp(a[i] + b[k - i])`` for k = start .. start + size - 1, to full relative accuracy.

    Examples
    --------
    >>> np.exp(log_convolve(np.log([1.0, 2.0]), np.log([3.0, 4.0]), 0, 3)).round(12).tolist()
    [3.0, 10.0, 8.0]
    """
    if len(a) > len(b):
        a, b = b, a
    first, last = start - (len(a) - 1), start + size
    padded = np.full(last - first, -np.inf)
    low, high = max(first, 0), min(last, len(b))
    if high > low:
        padded[low - first : high - first] = b[low:high]
    top_a, top_b = a.max(), padded.max()
    if not (np.isfinite(top_a) and np.isfinite(top_b)):
        return np.full(size, -np.inf)
    if float(size) * len(a) > 100 * MAX_CELLS:
        msg = f"a sum of {len(a)} by {size} values is too large for the exact engine: give narrower priors"
        raise UnsupportedModelError(msg, (len(a), size))
    if _span(a) + _span(padded) < _LINEAR_SPAN:
        with np.errstate(divide="ignore"):
            return np.log(np.convolve(np.exp(padded - top_b), np.exp(a - top_a), "valid")) + (top_a + top_b)
    if float(size) * len(a) > _MAX_WIDE:
        msg = (
            f"a sum of {len(a)} by {size} values with weights that span {_span(a) + _span(padded):.3g} in logs is too large "
            "for the exact engine: measurements contradict each other by hundreds of standard deviations, check them"
        )
        raise UnsupportedModelError(msg, (len(a), size))
    return _log_convolve_wide(a, padded, size)


def _log_convolve_wide(a: Array, padded: Array, size: int) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(padded, len(a))[:, ::-1]
    out = np.empty(size)
    rows = max(1, _CHUNK // len(a))
    for first in range(0, size, rows):
        out[first : first + rows] = log_sum(windows[first : first + rows] + a, axis=1)
    return out


def log_convolve_padded(a: Array, b: Array, start: int, size: int) -> Array:
    """:func:`log_convolve` for outputs that may lie outside the full range (there the sum is empty)."""
    full = len(a) + len(b) - 1
    out = np.full(size, -np.inf)
    low, high = max(start, 0), min(start + size, full)
    if high > low:
        out[low - start : high - start] = log_convolve(a, b, low, high - low)
    return out


def log_sum(table: Array, axis: int) -> Array:
    """Log of the sum of exponentials along an axis; -inf where everything is."""
    top = table.max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(table - top).sum(axis=axis)) + top.squeeze(axis)
