"""Privacy-loss budgets: ``Rho``, an exact zCDP budget, and ``Allocation``, its split over levels and queries.

Everything is an exact fraction and everything is named: a budget given as a list is read in the wrong order sooner or later
(production listed proportions from the top and names from the bottom). What it is not: accounting, which is
:mod:`adversary.privacy.accounting`.

Held to account by ``tests/privacy/test_budget.py`` and the ids ``t2_ sigma2_`` of the reference. Sources: Kazan & Reiter (arXiv
2204.04253), Table 2; U.S. Census Bureau, DAS_2020_Redistricting_Production_Code (shares); Bun & Steinke (2016), def. 1.1.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import total_ordering
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from adversary.errors import BudgetError, shown

__all__ = ["CONVENTIONS", "Allocation", "Rho", "noise_scale"]

CONVENTIONS = ("unbounded", "bounded")
"""Neighbours that differ by adding or removing one record, or by replacing one."""

_LEVEL_ALIASES = {
    "us": "nation",
    "nation_us": "nation",
    "blockgroup": "block_group",
    "block group": "block_group",
}


@total_ordering
class Rho:
    """A zCDP budget, exact.

    Parameters
    ----------
    value
        Text (``"0.0992264"``, ``"165/4099"``, ``"inf"``), int, Fraction, Decimal or another ``Rho``. 0 is "not measured", inf an
        exact count.

    Raises
    ------
    BudgetError
        For a float (its decimal text is not what it holds), a negative number, nan, or text that is no number.

    Examples
    --------
    >>> Rho("0.1") + Rho("1/10")
    Rho('1/5')
    >>> float(Rho("inf"))
    inf
    """

    __slots__ = ("_fraction",)
    _fraction: Fraction | None  # None: infinite

    def __init__(self, value: Any) -> None:
        object.__setattr__(self, "_fraction", _exact(value, "rho"))

    def __setattr__(self, name: str, value: object) -> None:
        msg = f"a budget does not change, got {name} = {value!r}: make another Rho"
        raise AttributeError(msg)

    @property
    def infinite(self) -> bool:
        """Whether the count is exact."""
        return self._fraction is None

    @property
    def fraction(self) -> Fraction:
        """The exact value.

        Raises
        ------
        BudgetError
            For an infinite budget.
        """
        if self._fraction is None:
            msg = "an infinite rho is no fraction: the count is exact"
            raise BudgetError(msg, self)
        return self._fraction

    def __float__(self) -> float:
        try:
            return math.inf if self._fraction is None else float(self._fraction)
        except OverflowError:
            return math.inf

    def __bool__(self) -> bool:
        return self._fraction is None or self._fraction != 0

    def _other(self, other: Any) -> Fraction | None:
        return other._fraction if isinstance(other, Rho) else _exact(other, "rho")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, float):
            return float(self) == other
        if not isinstance(other, Rho | int | Fraction | Decimal | str):
            return NotImplemented
        try:
            return self._fraction == self._other(other)
        except BudgetError:  # not a budget, so not this one
            return False

    def __lt__(self, other: Any) -> bool:
        mine, theirs = self._fraction, self._other(other)
        if mine is None or theirs is None:
            return mine is not None
        return mine < theirs

    def __hash__(self) -> int:
        return hash(self._fraction)

    def __add__(self, other: Any) -> Rho:
        mine, theirs = self._fraction, self._other(other)
        return Rho("inf") if mine is None or theirs is None else Rho(mine + theirs)

    __radd__ = __add__

    def __mul__(self, factor: Any) -> Rho:
        share = _exact(factor, "a share of rho")
        if self._fraction is None or share is None:
            return Rho("inf" if share != 0 and self else 0)
        return Rho(self._fraction * share)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> Rho:
        exact = _exact(divisor, "a divisor of rho")
        if exact == 0:
            msg = "rho cannot be divided by 0: give inf for an exact count"
            raise BudgetError(msg, divisor)
        return Rho(0) if exact is None else self * (1 / exact)

    def __str__(self) -> str:
        return "inf" if self._fraction is None else str(self._fraction)

    def __repr__(self) -> str:
        return f"Rho({str(self)!r})"

    def __reduce__(self) -> Any:
        return Rho, (str(self),)


_LONGEST_EXPONENT = 1000  # of ten: a budget of 1e-999999999 would keep the machine busy with its digits


def _exact(value: Any, what: str) -> Fraction | None:
    """Return an exact fraction, None for infinity, or refuse with the way out."""
    if isinstance(value, Rho):
        return value._fraction
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()  # NumPy's numbers become Python's
    if isinstance(value, float) and math.isfinite(value) and value != int(value):
        way_out = f"Rho({str(value)!r})" if what == "rho" else f"the text {str(value)!r}"
        msg = (
            f"{what} must be exact, got the float {value!r}: write {way_out} or a fraction such as '165/4099'"
        )
        raise BudgetError(msg, value)
    if isinstance(value, float) and value == math.inf:
        return None
    if isinstance(value, str) and value.strip().lower() in ("inf", "+inf", "infinity", "+infinity"):
        return None
    if isinstance(value, Decimal) and value.is_infinite() and not value.is_signed():
        return None
    try:
        exact = _fraction_of(value)
    except (TypeError, ValueError, ArithmeticError):
        msg = (
            f"{what} must be a number, got {shown(value)}: write it as text, '0.1' or '165/4099'; 0 if nothing was "
            "measured, inf if the count is exact"
        )
        raise BudgetError(msg, value) from None
    if exact < 0:
        msg = (
            f"{what} must not be negative, got {value}: write 0 if nothing was measured at this level, inf if the "
            "count is exact"
        )
        raise BudgetError(msg, value)
    return exact


def _fraction_of(value: Any) -> Fraction:
    if isinstance(value, bool):
        raise TypeError
    if isinstance(value, str):
        value = value.strip()
        exponent = value.lower().rpartition("e")
        if exponent[1] and abs(int(exponent[2])) > _LONGEST_EXPONENT:
            raise ValueError
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) > _LONGEST_EXPONENT:
        raise ValueError
    exact = Fraction(value)
    if max(abs(exact.numerator), exact.denominator).bit_length() > 4 * _LONGEST_EXPONENT:
        raise ValueError
    return exact


def noise_scale(rho: Any, convention: str, sensitivity2: int | Fraction = 1) -> float:
    """Return sigma^2 of the discrete Gaussian noise that a budget buys.

    Parameters
    ----------
    rho
        zCDP budget of the count; see :class:`Rho`.
    convention
        ``"unbounded"``: neighbours differ in one record added or removed, sigma^2 = Delta^2 / (2 rho), as in the paper.
        ``"bounded"``: one record is replaced, which changes two cells of a histogram, sigma^2 = Delta^2 / rho, as in the
        Census's production.
    sensitivity2
        Delta^2, squared change of one cell's count by one record, 1 for a count.

    Returns
    -------
    float
        0 for an infinite budget, inf for none. A budget too small for double precision gives inf.

    Raises
    ------
    BudgetError
        For an unknown convention or an impossible budget.

    Examples
    --------
    >>> noise_scale("0.1", "unbounded"), noise_scale("0.1", "bounded")
    (5.0, 10.0)
    """
    if convention not in CONVENTIONS:
        msg = f"the neighbours must be 'unbounded' (1/(2 rho)) or 'bounded' (1/rho), got {convention!r}"
        raise BudgetError(msg, convention)
    exact, change = Rho(rho), Rho(sensitivity2)
    if change.infinite or not change:
        msg = (
            f"sensitivity2, the squared change of a count by one record, must be positive, got {sensitivity2}"
        )
        raise BudgetError(msg, sensitivity2)
    if exact.infinite:
        return 0.0
    if not exact:
        return math.inf
    scale = change.fraction / exact.fraction
    try:
        return float(scale / 2 if convention == "unbounded" else scale)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class Allocation:
    """A budget split over levels, and over queries within each level; exact and by name.

    Parameters
    ----------
    total
        The whole budget.
    level
        Level -> share of rho; they sum to 1.
    query
        Level -> (query -> share of the level's rho); they sum to 1 in each level.
    title, source
        What it is and where it comes from.

    Raises
    ------
    BudgetError
        For lists in place of mappings, shares that do not sum to 1, levels without queries.

    Examples
    --------
    >>> Allocation.load("2020-pl94-persons").rho("block", "detailed")
    Rho('21246481300/214437516707')
    """

    total: Rho
    level: Mapping[str, Fraction]
    query: Mapping[str, Mapping[str, Fraction]]
    title: str = ""
    source: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Make the shares exact and check that they are whole."""
        _named(self.query, "queries")
        level = _shares(self.level, "levels")
        if set(self.query) != set(level):
            odd = sorted(set(self.query) ^ set(level))[0]
            msg = f"level {odd!r} has a share or queries, but not both: name the same levels in both"
            raise BudgetError(msg, odd)
        query = {
            name: MappingProxyType(_shares(shares, f"queries of {name}"))
            for name, shares in self.query.items()
        }
        object.__setattr__(self, "total", Rho(self.total))
        object.__setattr__(self, "level", MappingProxyType(level))
        object.__setattr__(self, "query", MappingProxyType(query))

    def __reduce__(self) -> Any:
        """Pickle with plain dicts: read-only views do not travel between processes."""
        query = {name: dict(shares) for name, shares in self.query.items()}
        return Allocation, (self.total, dict(self.level), query, self.title, self.source)

    @classmethod
    def load(cls, name: str) -> Allocation:
        """Return a published allocation by name, such as ``"2020-pl94-persons"``; see :meth:`names`."""
        there = cls.names()
        if name.lower() not in there:
            near = difflib.get_close_matches(name.lower(), there, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            msg = f"there is no allocation called {name!r}{hint}: there are {', '.join(there)}"
            raise BudgetError(msg, name)
        data = tomllib.loads(
            files("adversary").joinpath(f"data/{name.lower()}.toml").read_text(encoding="utf-8")
        )
        if "absolute" in data:
            spent = cls.from_rho(data["absolute"], data["title"], data["source"])
            if spent.total != data["rho"]:
                msg = f"the budgets of {name} sum to {spent.total}, but the file says {data['rho']}: mend the file"
                raise BudgetError(msg, spent.total)
            return spent
        return cls(Rho(data["rho"]), data["level"], data["query"], data["title"], data["source"])

    @classmethod
    def from_rho(
        cls, absolute: Mapping[str, Mapping[str, Any]], title: str = "", source: str = ""
    ) -> Allocation:
        """Return the allocation that spends these budgets; shares are budgets over their sums.

        Parameters
        ----------
        absolute
            Level -> (query -> rho), finite and exact; not all 0 in any level.
        title, source
            What it is and where it comes from.

        Raises
        ------
        BudgetError
            For lists in place of mappings, an infinite budget, or a level without any.

        Examples
        --------
        >>> Allocation.from_rho({"state": {"total": "0.1"}, "block": {"total": "0.1", "detailed": "0.2"}}).total
        Rho('2/5')
        """
        levels = {}
        for level, queries in _named(absolute, "levels").items():
            levels[level] = {
                name: _exact(rho, "rho") for name, rho in _named(queries, f"queries of {level}").items()
            }
            spent = levels[level].values()
            if None in spent or not any(spent):
                msg = f"the budgets of level {level!r} must be finite and not all 0: leave out what was not measured"
                raise BudgetError(msg, queries)
        sums = {
            level: sum((q for q in queries.values() if q), Fraction(0)) for level, queries in levels.items()
        }
        total = sum(sums.values(), Fraction(0))
        shares = {
            level: {name: (rho or Fraction(0)) / sums[level] for name, rho in queries.items()}
            for level, queries in levels.items()
        }
        return cls(Rho(total), {level: rho / total for level, rho in sums.items()}, shares, title, source)

    @staticmethod
    def names() -> tuple[str, ...]:
        """Return the names of the published allocations."""
        folder = files("adversary").joinpath("data")
        return tuple(
            sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml"))
        )

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the levels, as listed."""
        return tuple(self.level)

    def level_named(self, name: str) -> str:
        """Return the level of this name or alias (``"US"`` is ``"nation"``)."""
        key = _LEVEL_ALIASES.get(name.lower(), name.lower())
        return _known(key, {k.lower(): k for k in self.level}, f"level {name!r}", "levels")

    def share(self, level: str, query: str) -> Fraction:
        """Return the share of the whole budget that one query has at one level, exact."""
        at = self.level_named(level)
        queries = {_plain(k): k for k in self.query[at]}
        name = _known(_plain(query), queries, f"query {query!r} at level {at}", "queries there")
        return self.level[at] * self.query[at][name]

    def rho(self, level: str, query: str) -> Rho:
        """Return the budget of one query at one level, exact."""
        return self.total * self.share(level, query)

    def sigma2(self, level: str, query: str, convention: str) -> float:
        """Return the noise parameter of one query at one level under a neighbour convention."""
        return noise_scale(self.rho(level, query), convention)

    def scaled_to(self, rho: Any) -> Allocation:
        """Return the same shares of another budget ``rho``; the paper takes 2.56 where production had 293764/114921."""
        return Allocation(Rho(rho), self.level, self.query, self.title, self.source)

    def table(self, convention: str) -> str:
        """Return a table with level, query, share, rho and sigma^2 under a ``convention``, one query a line."""
        head = f"{self.title or 'allocation'}: rho = {self.total} = {float(self.total):.6g}, {convention} neighbours"
        first = max(len(name) for name in ("level", *self.level))
        second = max(len(name) for queries in ({"query": 0}, *self.query.values()) for name in queries)
        lines = [head, f"{'level':<{first}} {'query':<{second}} {'share':>12} {'rho':>12} {'sigma^2':>14}"]
        for level in self.level:
            for query in self.query[level]:
                share, rho = self.share(level, query), self.rho(level, query)
                noise = noise_scale(rho, convention)
                name = f"{level:<{first}} {query:<{second}}"
                lines.append(f"{name} {float(share):>12.6g} {float(rho):>12.6g} {noise:>14.6g}")
        return "\n".join(lines)


def _plain(query: str) -> str:
    """Write a query's name in one way: lower case, one space about each star."""
    return " * ".join(part.strip() for part in query.lower().split("*"))


def _known(key: str, there: Mapping[str, str], what: str, plural: str) -> str:
    if key not in there:
        near = difflib.get_close_matches(key, there, n=1)
        hint = f" (did you mean {there[near[0]]!r}?)" if near else ""
        msg = f"the allocation has no {what}{hint}: its {plural} are {', '.join(there.values())}"
        raise BudgetError(msg, key)
    return there[key]


def _named(given: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        msg = (
            f"shares of {what} must be named, as in {{'block': '1/2', 'tract': '1/2'}}, got "
            f"{type(given).__name__}: a list has no names"
        )
        raise BudgetError(msg, given)
    return given


def _shares(given: Any, what: str) -> dict[str, Fraction]:
    shares = {}
    for name, share in _named(given, what).items():
        exact = _exact(share, f"the share of {name}")
        if exact is None:
            msg = f"the share of {name} must be finite: shares sum to 1"
            raise BudgetError(msg, share)
        shares[name] = exact
    if sum(shares.values()) != 1:
        listed = ", ".join(f"{k}: {v}" for k, v in shares.items())
        msg = f"shares of {what} must sum to 1, got {sum(shares.values())} from {listed}"
        raise BudgetError(msg, given)
    return shares
