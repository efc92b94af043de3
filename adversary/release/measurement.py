"""What is published: ``Measurement``, one noisy count (or several alike), and ``Release``, all that the adversary sees.

Noise belongs to the measurement: a scenario never names a sigma. What it is not: a mechanism (see
:mod:`adversary.release.simulate`) or a table of geounits (see :mod:`adversary.readers`).

``rho = inf`` is an exact count (an invariant). ``rho = 0``, or an infinite variance, is "not measured": the entry is set
aside, named in :attr:`Release.not_measured`, and every result repeats it. Anything else that is not an integer with a
finite noise is refused with file, name and value.

Held to account by ``tests/release/test_measurement.py``. Sources: Kazan & Reiter (arXiv 2204.04253), sec. 2-3 (noise of a
count and of a sum); the two neighbour conventions are those of :func:`adversary.privacy.budget.noise_scale`.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from adversary._files import csv_rows
from adversary.errors import FileFormatError, ReleaseError, shown
from adversary.release._values import (
    LARGEST_COUNT,
    constant,
    decimal,
    integer_value,
    no_repeats,
    noise,
    one_integer,
    sigma2_of,
    without_null,
)

__all__ = ["LARGEST_COUNT", "Measurement", "Release"]


_LONGEST_NAME = 200
_CONVENTIONS = ("unbounded", "bounded")
_FIELDS = ("value", "rho", "sigma2", "groups")


@dataclass(frozen=True, eq=False)
class Measurement:
    """One noisy count, or a vector of noisy counts with the same name.

    Parameters
    ----------
    name
        What was counted, as the scenario calls it.
    value
        Published value: int, or int64 array of shape (k,). Negative values are normal.
    sigma2
        Noise parameter of *one* noisy count, >= 0 (0: exact); float, or float64 array of shape (k,).
    rho
        zCDP budget it came from, exact, or None where only sigma2 is known.
    convention
        Neighbour convention that turned rho into sigma2: ``"unbounded"`` (add or remove one record, 1/(2 rho)) or
        ``"bounded"`` (replace one record, 1/rho); None where sigma2 was given.
    groups
        How many noisy counts were added up in ``value``, >= 1.

    Raises
    ------
    ReleaseError
        For a value that is not an integer or is beyond 2^53, a negative or infinite sigma2, groups < 1.
    """

    name: str
    value: Any
    sigma2: Any
    rho: Any = None
    convention: str | None = None
    groups: int = 1

    def __post_init__(self) -> None:
        """Normalise value, sigma2 and groups, or refuse them."""
        if not isinstance(self.name, str) or not self.name.strip() or set(self.name) & set("/:"):
            msg = f"a measurement needs a name without / and :, got {shown(self.name)}"
            raise ReleaseError(msg, self.name)
        if not self.name.isprintable() or len(self.name) > _LONGEST_NAME:
            msg = f"a measurement needs a name of at most {_LONGEST_NAME} printable characters, got {shown(self.name)}"
            raise ReleaseError(msg, self.name)
        object.__setattr__(self, "value", integer_value(self.value, self.name))
        object.__setattr__(self, "sigma2", noise(self.sigma2, self.name, np.shape(self.value)))
        if (
            isinstance(self.groups, bool)
            or not isinstance(self.groups, int | float | np.number)
            or not 1 <= self.groups == int(self.groups)
        ):
            msg = (
                f"groups of {self.name!r} must be a whole number >= 1 (how many noisy counts were "
                f"added up), got {shown(self.groups)}"
            )
            raise ReleaseError(msg, self.groups)
        object.__setattr__(self, "groups", int(self.groups))

    @property
    def exact(self) -> bool:
        """Whether the count is published without noise (an invariant)."""
        return bool(np.all(self.sigma2 == 0))

    @property
    def noise_sigma2(self) -> Any:
        """Noise parameter of the published value under the paper's approximation (3.7): groups x sigma2."""
        return self.groups * self.sigma2

    @property
    def size(self) -> int:
        """How many values it holds."""
        return int(np.size(self.value))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Measurement) and self.as_dict() == other.as_dict() and self.name == other.name
        )

    def __hash__(self) -> int:
        return hash((self.name, json.dumps(self.as_dict(), sort_keys=True)))

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form, with rho as exact text."""
        out: dict[str, Any] = {"value": np.asarray(self.value).tolist()}
        if self.rho is not None:
            out["rho"] = [str(r) for r in self.rho] if isinstance(self.rho, tuple) else str(self.rho)
        else:
            out["sigma2"] = np.asarray(self.sigma2).tolist()
        if self.groups != 1:
            out["groups"] = self.groups
        return out


class Release(Mapping[str, Measurement]):
    """All that is published: a labelled, immutable set of measurements.

    Build it with :meth:`from_counts`, :meth:`from_json`, :meth:`from_csv` or :meth:`read`.

    Attributes
    ----------
    convention : str or None
        Neighbour convention of every rho in it.
    not_measured : tuple of str
        Names set aside because they carry no information (rho = 0 or infinite variance).
    """

    def __init__(
        self,
        measurements: Iterable[Measurement],
        *,
        convention: str | None = None,
        not_measured: Iterable[str] = (),
    ) -> None:
        items: dict[str, Measurement] = {}
        for m in measurements:
            if m.name in items:
                msg = f"two measurements are called {m.name!r}: rename one, or pool them before"
                raise ReleaseError(msg, m.name)
            items[m.name] = m
        self._items = MappingProxyType(items)
        self.convention = convention
        self.not_measured = tuple(not_measured)

    def __getitem__(self, name: str) -> Measurement:
        if name in self._items:
            return self._items[name]
        if name in self.not_measured:
            msg = f"{name!r} was not measured (rho = 0 or infinite variance), so the release has no value for it"
            raise ReleaseError(msg, name)
        near = difflib.get_close_matches(name, self._items, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        msg = (
            f"the release has no measurement called {name!r}{hint}: it has {', '.join(self._items) or 'none'}"
        )
        raise ReleaseError(msg, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Release) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        parts = [f"{m.name}={m.value if m.size == 1 else f'<{m.size} values>'}" for m in self.values()]
        aside = f"; not measured: {', '.join(self.not_measured)}" if self.not_measured else ""
        return f"<Release {', '.join(parts)} ({self.convention or 'sigma2 given'}{aside})>"

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON: two releases with the same hash say the same."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @classmethod
    def from_counts(
        cls,
        counts: Mapping[str, Any],
        *,
        rho: Any = None,
        sigma2: Any = None,
        groups: Mapping[str, int] | None = None,
        convention: str = "unbounded",
    ) -> Release:
        """Build a release from published values.

        Parameters
        ----------
        counts
            Name -> published value (int, or list of ints).
        rho
            zCDP budget of each count: one for all, or name -> budget; exact (text or Fraction).
        sigma2
            Noise parameter instead of rho: one for all, or name -> value.
        groups
            Name -> how many noisy counts were added up; 1 where absent.
        convention
            ``"unbounded"`` (sigma2 = 1/(2 rho), as in the paper) or ``"bounded"`` (1/rho, the Census's production).

        Returns
        -------
        Release

        Examples
        --------
        >>> r = Release.from_counts({"block": 2, "rest": -1}, rho="0.1", groups={"rest": 27})
        >>> r["rest"].noise_sigma2
        135.0
        """
        if (rho is None) == (sigma2 is None):
            msg = "give exactly one of rho and sigma2: rho is the zCDP budget of a count, sigma2 its noise parameter"
            raise ReleaseError(msg)
        word, given = ("rho", rho) if rho is not None else ("sigma2", sigma2)
        groups = dict(groups or {})
        for what, names in ((word, given if isinstance(given, Mapping) else {}), ("groups", groups)):
            extra = sorted(set(names) - set(counts))
            if extra:
                msg = (
                    f"{what} names {extra[0]!r}, which is not among the counts: there are {', '.join(counts)}"
                )
                raise ReleaseError(msg, extra[0])
        entries = {}
        for name, value in counts.items():
            if isinstance(given, Mapping) and name not in given:
                msg = f"{word} of {name!r} is missing: give 0 if it was not measured (rho), or leave the count out"
                raise ReleaseError(msg, name)
            entries[name] = {"value": value, word: given[name] if isinstance(given, Mapping) else given}
            if name in groups:
                entries[name]["groups"] = groups[name]
        return cls._from_entries(entries, convention, where="")

    @classmethod
    def _from_entries(
        cls, entries: Mapping[str, Mapping[str, Any]], convention: str, *, where: str
    ) -> Release:
        if convention not in _CONVENTIONS:
            msg = f"{where}convention must be 'unbounded' (1/(2 rho)) or 'bounded' (1/rho), got {shown(convention)}"
            raise (FileFormatError if where else ReleaseError)(msg, convention)
        kept, aside = [], []
        any_rho = False
        for name, entry in entries.items():
            try:
                unknown = sorted(set(entry) - set(_FIELDS))
                if unknown:
                    near = difflib.get_close_matches(unknown[0], _FIELDS, n=1)
                    msg = (
                        f"{name!r} has an unknown field {unknown[0]!r}: the fields are {', '.join(_FIELDS)}"
                        + (f" (did you mean {near[0]!r}?)" if near else "")
                    )
                    raise ReleaseError(msg, unknown[0])
                rho, sigma2 = sigma2_of(entry, name, convention)
                if np.all(np.isinf(sigma2)):
                    aside.append(name)
                    continue
                any_rho |= rho is not None
                kept.append(
                    Measurement(
                        name,
                        entry.get("value", math.nan),
                        sigma2,
                        rho,
                        convention if rho is not None else None,
                        entry.get("groups", 1),
                    )
                )
            except ValueError as error:
                if not where:
                    raise
                msg = f"{where}{error}"
                raise FileFormatError(msg, getattr(error, "value", None)) from error
        return cls(kept, convention=convention if any_rho else None, not_measured=aside)

    def to_json(self) -> str:
        """Return the release as canonical JSON text; :meth:`from_json` reads it back equal."""
        out: dict[str, Any] = {"convention": self.convention} if self.convention else {}
        out["measurements"] = {m.name: m.as_dict() for m in self.values()}
        for name in self.not_measured:
            out["measurements"][name] = {"sigma2": "inf"}
        return json.dumps(out, indent=1)

    @classmethod
    def from_json(cls, text: str, *, where: str = "") -> Release:
        """Read a release from JSON text.

        Parameters
        ----------
        text
            ``{"convention": "unbounded", "measurements": {"block": {"value": 2, "rho": "0.0992264"}}}``; rho is text (decimal
            or fraction) and kept exact, or sigma2 instead; ``groups`` where noisy counts were added up.
        where
            Prefix of error messages, such as the file's name.

        Raises
        ------
        FileFormatError
            For text that is not JSON, repeated or unknown names, and values that cannot be.
        """
        prefix = f"{where}: " if where else ""
        try:
            data = json.loads(
                text, parse_float=decimal, object_pairs_hook=no_repeats, parse_constant=constant
            )
        except json.JSONDecodeError as error:
            msg = f"{prefix}not JSON at line {error.lineno}, column {error.colno}: {error.msg}"
            raise FileFormatError(msg, text) from error
        except (RecursionError, MemoryError) as error:
            msg = f"{prefix}not a release: its brackets lie too deep"
            raise FileFormatError(msg, text) from error
        except ReleaseError as error:
            msg = f"{prefix}{error}"
            raise FileFormatError(msg, error.value) from error
        except ValueError as error:
            msg = f"{prefix}a number of too many digits ({error})"
            raise FileFormatError(msg, text) from error
        if not isinstance(data, dict) or not isinstance(data.get("measurements"), dict):
            msg = f'{prefix}a release is an object with "measurements": {{"block": {{"value": 2, "rho": "0.1"}}}}'
            raise FileFormatError(msg, text)
        unknown = sorted(set(data) - {"convention", "measurements"})
        if unknown:
            msg = f"{prefix}unknown field {shown(unknown[0])}: a release has convention and measurements"
            raise FileFormatError(msg, unknown[0])
        for name, entry in data["measurements"].items():
            if not isinstance(entry, dict):
                msg = f'{prefix}{shown(name)} must be an object such as {{"value": 2, "rho": "0.1"}}, got {shown(entry)}'
                raise FileFormatError(msg, entry)
        if "convention" not in data and any("rho" in e for e in data["measurements"].values()):
            msg = f'{prefix}say which neighbours rho is for: "convention": "unbounded" (1/(2 rho)) or "bounded" (1/rho)'
            raise FileFormatError(msg, None)
        entries = {n: without_null(e) for n, e in data["measurements"].items()}
        return cls._from_entries(entries, data.get("convention", "unbounded"), where=prefix)

    def to_csv(self) -> str:
        """Return the release as CSV text with columns name, value, rho, sigma2, groups, convention (scalars only)."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["name", "value", "rho", "sigma2", "groups", "convention"])
        for m in self.values():
            if m.size != 1 or np.ndim(m.value):
                msg = f"{m.name!r} holds {m.size} values, and a CSV row holds one: write JSON instead"
                raise ReleaseError(msg, m.name)
            rho = "" if m.rho is None else str(m.rho)
            writer.writerow(
                [m.name, m.value, rho, "" if rho else repr(m.sigma2), m.groups, self.convention or ""]
            )
        for name in self.not_measured:
            writer.writerow([name, "", "", "inf", 1, self.convention or ""])
        return out.getvalue()

    @classmethod
    def from_csv(cls, text: str, *, where: str = "") -> Release:
        """Read a release from CSV text with the columns that :meth:`to_csv` writes (rho or sigma2, one of them).

        Parameters
        ----------
        text
            The table; see :meth:`to_csv`.
        where
            Prefix of error messages, such as the file's name.

        Raises
        ------
        FileFormatError
            Names the row and the field.
        """
        prefix = f"{where}: " if where else ""
        header, *body = list(csv_rows(io.StringIO(text, newline=""), where or "this text")) or [[]]
        columns = set(header) if any(body) else set()
        if not {"name", "value"} <= columns or not columns & {"rho", "sigma2"}:
            msg = f"{prefix}the columns must be name, value, rho or sigma2, and optionally groups and convention"
            raise FileFormatError(msg, sorted(str(c) for c in columns))
        unknown = sorted(str(c) for c in columns - {"name", "value", "rho", "sigma2", "groups", "convention"})
        if unknown:
            msg = f"{prefix}unknown column {unknown[0]!r}: the columns are name, value, rho, sigma2, groups, convention"
            raise FileFormatError(msg, unknown[0])
        rows = [
            (i, _named_cells(header, cells, f"{prefix}row {i}")) for i, cells in enumerate(body, 2) if cells
        ]
        conventions = {r["convention"] for _, r in rows if r.get("convention")}
        if len(conventions) > 1:
            msg = (
                f"{prefix}rows disagree on the convention ({', '.join(sorted(conventions))}): split the file"
            )
            raise FileFormatError(msg, conventions)
        entries: dict[str, dict[str, Any]] = {}
        for i, row in rows:
            name = row["name"]
            if name in entries:
                msg = f"{prefix}row {i}: {name!r} is there twice"
                raise FileFormatError(msg, name)
            entry: dict[str, Any] = {k: row[k] for k in ("rho", "sigma2") if row.get(k)}
            if row["value"] not in ("", "NaN", "nan", "NA"):
                entry["value"] = row["value"]
            if row.get("groups"):
                entry["groups"] = _groups(row["groups"], f"{prefix}row {i}: groups of {name!r}")
            entries[name] = entry
        if not conventions and any("rho" in e for e in entries.values()):
            msg = f"{prefix}say which neighbours rho is for in a column convention: unbounded (1/(2 rho)) or bounded (1/rho)"
            raise FileFormatError(msg, None)
        return cls._from_entries(entries, next(iter(conventions), "unbounded"), where=prefix)

    @classmethod
    def read(cls, path: str | Path) -> Release:
        """Read a release from a ``.json`` or ``.csv`` file, or from standard input where the path is ``-``.

        Parameters
        ----------
        path
            A ``.json`` or ``.csv`` file; ``-`` for JSON on standard input.
        """
        if str(path) == "-":
            import sys

            try:
                text = sys.stdin.read()
            except (OSError, UnicodeError) as error:
                msg = f"standard input: not text ({error}): give a release as JSON in UTF-8"
                raise FileFormatError(msg, None) from error
            return cls.from_json(text, where="standard input")
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8-sig")
        except FileNotFoundError as error:
            msg = f"{path}: there is no such file: give the path of a release (.json or .csv)"
            raise FileFormatError(msg, path) from error
        except (OSError, UnicodeDecodeError) as error:
            msg = f"{path}: cannot be read as text ({error})"
            raise FileFormatError(msg, path) from error
        reader = cls.from_csv if path.suffix.lower() == ".csv" else cls.from_json
        return reader(text, where=str(path))


def _named_cells(header: list[str], cells: list[str], where: str) -> dict[str, str]:
    """Give the cells of a row their names; a row that is cut, or too long, is refused."""
    if len(cells) != len(header) or len(set(header)) < len(header):
        msg = f"{where}: {len(cells)} fields for the columns {', '.join(header)}: give each column once, and a field for each"
        raise FileFormatError(msg, cells)
    return dict(zip(header, cells, strict=True))


def _groups(text: str, where: str) -> int:
    try:
        return one_integer(text, "groups")
    except ReleaseError as error:
        msg = f"{where}: how many noisy counts were added up is a whole number >= 1, got {shown(text)}"
        raise FileFormatError(msg, text) from error
