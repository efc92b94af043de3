"""What is derived from a folder of noisy measurement files: the spine, its shares, the table, totals. Internal.

Held to account by ``tests/readers/test_nmf.py`` and ``tests/readers/test_nmf_write.py``.
"""

from __future__ import annotations

import math
import re
import warnings
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary._files import csv_rows
from adversary.errors import AdversaryError, BudgetError, FileFormatError, shown
from adversary.geography.spine import Spine
from adversary.readers import _nmf_columns as _columns
from adversary.readers._nmf_layout import CONSTRAINT, DPQUERY, Part
from adversary.readers._nmf_noise import sigma2_of
from adversary.release.queries import Histogram

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from adversary.readers.nmf import NoisyMeasurements

__all__ = [
    "build",
    "checked_totals",
    "histogram_from_files",
    "one_width",
    "read_state_totals",
    "shape_of",
    "signs",
    "table",
    "warn_without_constraint",
]

_FAR = 8.0  # standard deviations: a sum of noise does not go there


def warn_without_constraint(level: str) -> None:
    """Say that bypassed units may be missing."""
    text = (
        f"level {level} has no Constraint files: its units are taken from DPQuery, where units without budget have "
        "no row"
    )
    warnings.warn(text, stacklevel=4)


def one_width(parts: Sequence[NDArray[np.str_]], level: str) -> NDArray[np.str_]:
    """Codes of all parts together, sorted; of one width."""
    found = [p for p in parts if p.size]
    codes = np.unique(np.concatenate(found)) if found else np.zeros(0, np.str_)
    lengths = np.char.str_len(codes)
    if codes.size and np.ptp(lengths):
        short, width = str(codes[int(lengths.argmin())]), int(lengths.max())
        msg = (
            f"level {level}: geocode {short!r} has {len(short)} characters where others have {width}: leading zeros are "
            "lost in one of the files; take the Bureau's"
        )
        raise FileFormatError(msg, short)
    return codes


# -------------------------------------------------------------------- spine
def build(nmf: NoisyMeasurements, states: Any, levels: Sequence[str] | None) -> Spine:
    """Spine of the chosen states and levels; see ``NoisyMeasurements.spine``."""
    chosen = _chosen_levels(nmf, states, levels)
    units = {level: nmf.units(level, states) for level in chosen}
    widths = {level: len(codes[0]) if codes.size else 0 for level, codes in units.items()}
    leaf = chosen[-1]
    if not units[leaf].size:
        msg = f"level {leaf} has no units: there is nothing to build a spine from"
        raise FileFormatError(msg, leaf)
    if sorted(set(widths.values())) != list(widths.values()):
        said = ", ".join(f"{k}: {v}" for k, v in widths.items())
        msg = f"codes must grow from level to level, but their widths are {said}: the files are of several releases"
        raise FileFormatError(msg, widths)
    spine = Spine.from_geocodes(units[leaf], widths)
    for level in chosen[:-1]:
        _check_nested(spine, level, units[level], leaf)
    if len(chosen) > 1 and not _has_states(nmf, chosen[0]) and _has_states(nmf, chosen[1]):
        _check_root(nmf, chosen)
    _check_totals(nmf, states)
    return spine if nmf.allocation is None else _with_shares(nmf, spine, states)


def _has_states(nmf: NoisyMeasurements, level: str) -> bool:
    return any(p.state is not None for parts in nmf.parts[level].values() for p in parts)


def _chosen_levels(nmf: NoisyMeasurements, states: Any, levels: Sequence[str] | None) -> tuple[str, ...]:
    if levels is not None:
        strange = [k for k in levels if k not in nmf.levels]
        if strange or not levels:
            msg = f"{strange[0] if strange else 'no level'!r} is not among {', '.join(nmf.levels)}"
            raise FileFormatError(msg, levels)
        return tuple(k for k in nmf.levels if k in levels)
    if states is None or not any(_has_states(nmf, k) for k in nmf.levels):
        return nmf.levels
    return tuple(k for k in nmf.levels if _has_states(nmf, k))


def _check_nested(spine: Spine, level: str, listed: NDArray[np.str_], leaf: str) -> None:
    above = spine.geocodes[spine.units(level)]
    for odd, what in (
        (np.setdiff1d(listed, above), f"is in the files of {level} but has no unit at {leaf}"),
        (
            np.setdiff1d(above, listed),
            f"is the beginning of a code of {leaf} but not in the files of {level}",
        ),
    ):
        if odd.size:
            msg = (
                f"{level} {str(odd[0])!r} {what} ({odd.size:,} such): files are missing or of another release; get them, "
                "or choose states= and levels= that are whole"
            )
            raise FileFormatError(msg, str(odd[0]))


def _total_at(nmf: NoisyMeasurements, level: str) -> tuple[float, float] | None:
    """Sum over all units of a level, and its noise variance: exact if an invariant, else noisy, None if unknown."""
    named = {c.removesuffix("_con") for p in nmf.parts[level][CONSTRAINT] for c in _columns.words_in(p)}
    if "total" in named:
        found = nmf.constraints(level, ["total"])[0]
        if found.sign == "=" and found.geocode.size == nmf.units(level).size:
            return float(found.values.sum()), 0.0
    names = nmf.measured(level) if nmf.parts[level][DPQUERY] else ()
    if not names:
        return None
    smallest = min(names, key=lambda w: _size(nmf, w))
    if _size(nmf, smallest) > 10_000:
        return None
    answers = nmf.query(level, smallest)
    if len(answers) < nmf.units(level).size:
        return None  # a unit without budget: its people are not in the sum
    return float(answers.values.sum()), float(answers.sigma2.sum() * answers.values.shape[1])


def _size(nmf: NoisyMeasurements, name: str) -> int:
    shape = None if nmf.histogram is None else shape_of(nmf.histogram, name)
    return math.prod(shape) if shape is not None else 10**6 * (1 + name.count("*"))


def _check_root(nmf: NoisyMeasurements, chosen: Sequence[str]) -> None:
    """Refuse a root that counts people of states whose files are not there."""
    root = _total_at(nmf, chosen[0])
    below = next((t for k in chosen[1:3] if (t := _total_at(nmf, k)) is not None), None)
    if root is None or below is None:
        return
    gap, spread = root[0] - below[0], math.sqrt(root[1] + below[1])
    if abs(gap) > _FAR * spread + 0.5:
        msg = (
            f"level {chosen[0]} counts {root[0]:,.0f} but the state parts at hand together {below[0]:,.0f} (noise sd "
            f"{spread:.3g}): files of some states are missing; get them, or name the states, and {chosen[0]} is left out"
        )
        raise FileFormatError(msg, gap)


def _check_totals(nmf: NoisyMeasurements, states: Any) -> None:
    """Refuse totals from outside that the noisy counts of the states contradict: they would be taken as exact."""
    if not nmf.state_totals or "State" not in nmf.levels or not nmf.parts["State"][DPQUERY]:
        return
    names = nmf.measured("State", states)
    smallest = min(names, key=lambda w: _size(nmf, w), default=None)
    if smallest is None or _size(nmf, smallest) > 10_000:
        return
    answers = nmf.query("State", smallest, states)
    listed = nmf.units("State").tolist()
    for fips, total in nmf.state_totals.items():
        rows = [k for k, code in enumerate(answers.geocode.tolist()) if code[-2:] == fips]
        if len(rows) < 1 or len(rows) < sum(code[-2:] == fips for code in listed):
            continue  # a part without budget, or not chosen
        spread = math.sqrt(float(answers.sigma2[rows].sum()) * answers.values.shape[1])
        noisy = int(answers.values[rows].sum())
        if abs(noisy - total) > _FAR * spread + 0.5:
            msg = (
                f"the total of state {fips} is given as {total:,}, but its noisy counts sum to {noisy:,} (noise sd "
                f"{spread:.3g}): the totals are of another census, or a part of the state is missing"
            )
            raise FileFormatError(msg, total)


def _with_shares(nmf: NoisyMeasurements, spine: Spine, states: Any) -> Spine:
    shares = np.zeros(len(spine), object)
    shares[:] = Fraction(0)
    for level in spine.levels:
        if not nmf.parts[level][DPQUERY]:
            continue
        names = nmf.measured(level, states)
        if not names:
            continue
        name = min(names, key=lambda w: _size(nmf, w))
        units = spine.units(level)
        codes = spine.geocodes[units]
        for batch in nmf.batches(level, name, states):
            if batch.share is None or not len(batch):
                continue
            table = np.array(batch.shares, object)
            shares[units[np.searchsorted(codes, batch.geocode)]] = table[batch.share]
    denominator = math.lcm(*(f.denominator for f in set(shares.tolist())))
    numerators = np.array([int(f * denominator) for f in shares.tolist()], object)
    if denominator < 2**62:
        numerators = numerators.astype(np.int64)
    out = spine.with_numerators(numerators, denominator)
    _check_paths(nmf, out)
    return out


def _check_paths(nmf: NoisyMeasurements, spine: Spine) -> None:
    totals = out = spine.path_totals()
    if max(totals) > 1:
        msg = (
            f"a path of the spine spends {max(totals)} of the budget, more than the whole: the allocation is "
            "another run's"
        )
        raise BudgetError(msg, max(totals))
    if spine.levels == nmf.levels and out != {Fraction(1)}:
        text = (
            f"some paths of the spine spend only {float(min(totals)):.4g} of the budget: measurements are missing "
            "from these files, and count as not made"
        )
        warnings.warn(text, stacklevel=5)


# -------------------------------------------------------------------- queries and signs
def shape_of(histogram: Histogram, name: str) -> tuple[int, ...] | None:
    """Shape of a query by its name, None if the histogram does not know one of its words."""
    try:
        return histogram.group(name).shape
    except AdversaryError:
        return None


def histogram_from_files(
    axes: Sequence[str], parts: Mapping[str, Mapping[str, tuple[Part, ...]]]
) -> Histogram | None:
    """Histogram of an unknown product, from the shape of its ``detailed`` query; None if nothing tells it."""
    for kinds in parts.values():
        for part in kinds[DPQUERY][:1]:
            for rows in _columns.read_rows(part, _columns.spellings("detailed", "_dpq"), 256):
                if rows.shape is not None and len(rows.shape) == len(axes):
                    return Histogram(dict(zip(axes, rows.shape, strict=True)))
                break
    return None


def signs(rows: _columns.Rows, part: Part, name: str, known: Mapping[str, str]) -> set[str]:
    """Signs of the rows of one constraint; told by the name where the file has no such column."""
    if rows.sign is None:
        words = name.split("_")
        return {">=" if "lb" in words else "<=" if "ub" in words else _equality(part, name)}
    found = set(rows.sign.tolist())
    strange = sorted(found - set(known))
    if strange:
        msg = f"{part.name}: constraint {name!r} has the sign {strange[0]!r}: one of =, <=, >= is expected"
        raise FileFormatError(msg, strange[0])
    return {known[s] for s in found}


def _equality(part: Part, name: str) -> str:
    if name in ("total", "pl94") or name.startswith("nurse_nva") or re.match(r"relgq\d+_", name):
        return "="
    msg = f"{part.name}: no column 'sign', and the name {name!r} does not tell it: take the Bureau's file"
    raise FileFormatError(msg, name)


# -------------------------------------------------------------------- totals
def read_state_totals(path: str | Path) -> dict[str, int]:
    """State FIPS -> population from a CSV file with the columns ``geocode`` and ``value`` (others are left alone)."""
    file = Path(path)
    try:
        with file.open(encoding="utf-8-sig", newline="") as handle:
            lines = list(csv_rows(handle, file.name))
    except OSError as error:
        msg = f"{file} cannot be read ({error.strerror or error}): give a CSV file with the columns geocode and value"
        raise FileFormatError(msg, str(file)) from error
    header = [name.strip() for name in lines[0]] if lines else []
    missing = [c for c in ("geocode", "value") if c not in header]
    if missing:
        msg = f"{file.name}: no column {missing[0]!r}: a file of state totals has geocode and value"
        raise FileFormatError(msg, missing[0])
    where = header.index("geocode"), header.index("value")
    out: dict[str, int] = {}
    for line, row in enumerate(lines[1:], start=2):
        if not row:
            continue
        code, value = (row[k].strip() if k < len(row) else "" for k in where)
        if code in out or not re.fullmatch(r"[0-9]{1,12}", value):
            what = f"state {code!r} twice" if code in out else f"value {shown(value)}, which is no count"
            msg = f"{file.name} line {line}: {what}"
            raise FileFormatError(msg, value)
        out[code] = int(value)
    return out


def checked_totals(totals: Mapping[str, Any]) -> dict[str, int]:
    """State FIPS (two digits, text) -> population, refused where a code or a count cannot be."""
    out = {}
    for code, value in totals.items():
        if not isinstance(code, str) or not re.fullmatch(r"\d{2}", code):
            msg = f"a state is two digits of FIPS as text, such as '04', got {code!r}: leading zeros may be lost"
            raise FileFormatError(msg, code)
        if isinstance(value, bool) or int(value) != value or value < 0:
            msg = f"the total of state {code} is {value!r}: a count is expected"
            raise FileFormatError(msg, value)
        out[code] = int(value)
    return out


# -------------------------------------------------------------------- table
def table(nmf: NoisyMeasurements, states: Any) -> str:
    """Table of levels and queries; see ``NoisyMeasurements.table``."""
    lines = [repr(nmf), f"noise: {nmf.noise_note}"]
    head = ("level", "units", "query", "measured", "answers", "sigma2", "no information")
    body: list[tuple[str, ...]] = []
    for level in nmf.levels:
        body += _level_lines(nmf, level, states)
    widths = [max(len(row[k]) for row in (head, *body)) for k in range(len(head))]
    left = (0, 2)
    for row in (head, *body):
        cells = (
            text.ljust(w) if k in left else text.rjust(w)
            for k, (text, w) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _level_lines(nmf: NoisyMeasurements, level: str, states: Any) -> list[tuple[str, ...]]:
    units = f"{nmf.units(level, states).size:,}"
    counts: dict[str, dict[float, int]] = {}
    sizes: dict[str, int] = {}
    for part in nmf._files(level, DPQUERY, states):
        found, size = _columns.noise_census(part)
        sizes.update(size)
        for name, by_variance in found.items():
            mine = counts.setdefault(name, {})
            for variance, n in by_variance.items():
                mine[variance] = mine.get(variance, 0) + n
    if not counts:
        return [(level, units, "(nothing was measured)", "0", "", "", "0")]
    lines: list[tuple[str, ...]] = []
    for name in sorted(counts, key=lambda w: (sizes.get(w, 0), w)):
        plain = name.removesuffix("_dpq")
        finite = np.array(sorted(v for v in counts[name] if math.isfinite(v)))
        measured = sum(n for v, n in counts[name].items() if math.isfinite(v))
        sigma2 = sigma2_of(finite) if nmf.allocation is None else nmf._sigma2(level, plain, finite)[0]
        said = " to ".join(f"{s:.7g}" for s in sorted({sigma2.min(), sigma2.max()})) if sigma2.size else ""
        first = (level, units) if not lines else ("", "")
        answers = f"{sizes[name]:,}" if name in sizes else ""
        lines.append((*first, plain, f"{measured:,}", answers, said, f"{counts[name].get(math.inf, 0):,}"))
    return lines
