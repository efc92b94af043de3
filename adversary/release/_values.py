"""Values of a release: what is a count, what is its noise, or why it is neither.

What it is not: public. Held to account by ``tests/release/test_measurement.py``.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ReleaseError, shown
from adversary.privacy.budget import Rho, noise_scale

if TYPE_CHECKING:
    from collections.abc import Mapping

LARGEST_COUNT = 2**53
"""Counts beyond this lose digits in double precision and are refused."""


def integer_value(value: Any, name: str) -> Any:
    """Return an int or a read-only int64 array, or refuse with the value."""
    if np.ndim(value) > 1:
        msg = f"value of {name!r} has {np.ndim(value)} dimensions: give a number or a list, one measurement a table row"
        raise ReleaseError(msg, value)
    if np.ndim(value) == 0:
        return one_integer(value, name)
    if not np.size(value):
        msg = f"value of {name!r} is an empty list: leave out what was not measured"
        raise ReleaseError(msg, value)
    array = np.array([one_integer(v, f"{name}[{i}]") for i, v in enumerate(value)], dtype=np.int64)
    array.setflags(write=False)
    return array


def one_integer(value: Any, name: str) -> int:
    if isinstance(value, np.generic | np.ndarray):
        value = value.item()
    if isinstance(value, str):
        try:
            value = Decimal(value.strip())
        except ArithmeticError:
            msg = f"value of {name!r} must be a whole number, got {shown(value)}: correct the file, noisy counts are integers"
            raise ReleaseError(msg, value) from None
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | Fraction):
        msg = f"value of {name!r} must be a whole number, got {shown(value)} ({type(value).__name__})"
        raise ReleaseError(msg, value)
    if _beyond(value):
        msg = f"value of {name!r} is beyond 2^53 = {LARGEST_COUNT} where digits are lost: give counts, not weighted sums"
        raise ReleaseError(msg, value)
    if not math.isfinite(value):
        msg = (
            f"value of {name!r} is {value} although its variance is finite: "
            "give the published count, or rho = 0 if it was not measured"
        )
        raise ReleaseError(msg, value)
    count = int(value)
    if value != count:
        msg = (
            f"value of {name!r} is {value}, and noisy counts are whole numbers: "
            "a rounded, weighted or post-processed figure cannot be given this likelihood"
        )
        raise ReleaseError(msg, value)
    if abs(count) > LARGEST_COUNT:
        msg = (
            f"value of {name!r} is {count}, beyond 2^53 = {LARGEST_COUNT} where digits are "
            f"lost: give counts, not weighted sums"
        )
        raise ReleaseError(msg, value)
    return count


def _beyond(value: Any) -> bool:
    """Whether a number is so large that making it an int, or a text, takes long: 1e999999999 has a billion digits."""
    if isinstance(value, Decimal):
        return value.is_finite() and value.adjusted() > 30
    magnitude: Any = abs(value) if isinstance(value, int | Fraction) else 0
    return bool(magnitude > 10**30)


def noise(sigma2: Any, name: str, shape: tuple[int, ...]) -> Any:
    array = np.asarray(sigma2, dtype=np.float64)
    bad = ~(array >= 0) | np.isinf(array)
    if bad.any():
        msg = (
            f"sigma2 of {name!r} must be a finite number >= 0, got {array[bad].ravel()[0]}: 0 is "
            f"exact; leave out what was not measured"
        )
        raise ReleaseError(msg, sigma2)
    if array.ndim and array.shape != shape:
        msg = f"sigma2 of {name!r} has shape {array.shape} and value has {shape}: give one sigma2, or one for each value"
        raise ReleaseError(msg, sigma2)
    if array.ndim and ((array == 0).any() and not (array == 0).all()):
        msg = f"{name!r} mixes exact and noisy values: give the exact ones a measurement of their own"
        raise ReleaseError(msg, sigma2)
    if array.ndim == 0:
        return float(array)
    array = array.copy()
    array.setflags(write=False)
    return array


def sigma2_of(entry: Mapping[str, Any], name: str, convention: str) -> tuple[Any, Any]:
    """Return (rho or None, sigma2) of one entry; sigma2 is inf where nothing was measured."""
    if ("rho" in entry) == ("sigma2" in entry):
        msg = f"{name!r} needs exactly one of rho and sigma2, got {sorted(set(entry) & {'rho', 'sigma2'}) or 'neither'}"
        raise ReleaseError(msg, dict(entry))
    if "rho" in entry:
        given = entry["rho"]
        if isinstance(given, list | tuple | np.ndarray):
            rhos = tuple(Rho(r) for r in given)
            return rhos, np.array([float(noise_scale(r, convention)) for r in rhos])
        rho = Rho(given)
        return rho, float(noise_scale(rho, convention))
    given = entry["sigma2"]
    if isinstance(given, list | tuple | np.ndarray):
        return None, np.array([number(v, name) for v in given])
    return None, number(given, name)


def number(value: Any, name: str) -> float:
    if isinstance(value, bool):
        value = None
    try:
        number = float(Fraction(value)) if isinstance(value, str) and "/" in value else float(value)
    except (TypeError, ValueError, ArithmeticError):
        number = math.nan
    if math.isnan(number) or number < 0:
        msg = f"sigma2 of {name!r} must be a number >= 0 (inf if not measured), got {shown(value)}"
        raise ReleaseError(msg, value)
    return number


def no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in pairs:
        if key in out:
            msg = f"{shown(key)} is there twice: keep one"
            raise ReleaseError(msg, key)
        out[key] = value
    return out


def decimal(text: str) -> Decimal:
    """Read a number of a JSON text exactly."""
    try:
        return Decimal(text)
    except ArithmeticError:
        msg = f"{shown(text)} is no number that can be kept: its exponent is too large"
        raise ReleaseError(msg, text) from None


def constant(text: str) -> float:
    return {"NaN": math.nan, "Infinity": math.inf}.get(text, -math.inf)


def without_null(entry: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in entry.items() if v is not None}
