"""What a whole allocation promises: about everything, about one attribute, about where somebody lives within an area.

The Bureau certifies epsilons at delta = 1e-10 of three kinds of neighbours: records that differ in anything, in the value of one
attribute, or in the block within an area. A change touches only the queries that ask for what changed: the budget of those is
the budget of the promise. What it is not: the budget between two given blocks of a spine with bypassed units (see
:meth:`adversary.geography.spine.Spine.rho_between`), or a risk (see :mod:`adversary.risk`).

Held to account by ``tests/privacy/test_certificates.py`` and the privacy tables of the spines' reference. Sources: the four
certificates of the 2020 redistricting data (U.S. Census Bureau); Cumings-Menon et al. (arXiv 2203.16654), sec. 2; our own
derivation, below.

All is under bounded neighbours in one state (state totals are published as they are, so that nobody moves between states): one
record is replaced by another of its state. In a unit that holds both records, each query group that tells them apart changes in
two entries by one; in a unit that holds one of them, each group changes in one entry. With noise 1 / (rho share) the first costs
rho share, the second half of it, and the two paths of two blocks have as many units of the second kind each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from adversary.errors import BudgetError
from adversary.privacy.accounting import epsilon
from adversary.privacy.budget import CONVENTIONS, Rho

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from adversary.privacy.budget import Allocation

__all__ = ["PL94_WORDS", "Certificate", "attribute_rho", "certificate", "location_rho", "spine_rho"]

PL94_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "hhgq": "hhgq",
        "hhinstlevels": "hhgq",
        "votingage": "votingage",
        "hispanic": "hispanic",
        "cenrace": "cenrace",
    }
)
"""Words in the names of the 2020 redistricting queries -> the attribute that they ask for."""

_DELTA = 1e-10
"""The Bureau's."""


def attribute_rho(allocation: Allocation, attribute: str, words: Mapping[str, str] = PL94_WORDS) -> Rho:
    """Return the budget that guards the value of one attribute when everything else about the record is known.

    Parameters
    ----------
    allocation
        Budget, levels and queries.
    attribute
        Attribute, such as ``"hispanic"``.
    words
        Word in a query's name -> attribute that it asks for. ``total`` asks for none and ``detailed`` for all.

    Returns
    -------
    Rho
        Sum of the budgets of all queries at all levels that ask for the attribute.

    Raises
    ------
    BudgetError
        For an attribute that no word asks for, or a query with a word that is not in ``words``: it may ask for the attribute.

    Examples
    --------
    >>> from adversary.privacy.budget import Allocation
    >>> round(float(attribute_rho(Allocation.load("2020-pl94-persons"), "cenrace")), 4)
    1.0088
    """
    if attribute not in words.values():
        msg = (
            f"no query asks for attribute {attribute!r}: there are {', '.join(dict.fromkeys(words.values()))}"
        )
        raise BudgetError(msg, attribute)
    share = Fraction(0)
    for level in allocation.levels:
        for query in allocation.query[level]:
            if attribute in _asked(query, words):
                share += allocation.share(level, query)
    return allocation.total * share


def _asked(query: str, words: Mapping[str, str]) -> set[str]:
    """Return the attributes that a query asks for."""
    if query == "detailed":
        return set(words.values())
    asked = [word.strip() for word in query.split("*") if word.strip() != "total"]
    unknown = [word for word in asked if word not in words]
    if unknown:
        msg = f"query {query!r}: it is not known which attribute {unknown[0]!r} asks for: name it in words"
        raise BudgetError(msg, query)
    return {words[word] for word in asked}


def location_rho(allocation: Allocation, within: str) -> Rho:
    """Return the budget that guards the block of a record when all else is known, the area ``within`` included.

    Parameters
    ----------
    allocation
        Budget and levels, from the top down; every path of the spine spends the level shares (no bypassed unit).
    within
        Level of the area in which the record is known to be, above the lowest level.

    Returns
    -------
    Rho
        Budget of all levels below: on them two units change by one each, which costs as much as two entries of one unit.

    Raises
    ------
    BudgetError
        For an unknown level, or the lowest: nothing is left to guard.

    Notes
    -----
    Within the nation this is the formula's value; with state totals published, two states are no neighbours.

    Examples
    --------
    >>> from adversary.privacy.budget import Allocation
    >>> print(location_rho(Allocation.load("2020-pl94-persons"), "block_group"))
    16157020/157020393
    """
    at = allocation.level_named(within)
    below = allocation.levels[allocation.levels.index(at) + 1 :]
    if not below:
        msg = f"within a {at} there is no smaller area to guard: choose a level above, {', '.join(allocation.levels[:-1])}"
        raise BudgetError(msg, within)
    return allocation.total * sum((allocation.level[name] for name in below), Fraction(0))


def spine_rho(rho: Any, path_totals: Iterable[Any], neighbours: str = "bounded") -> Rho:
    """Return the zCDP guarantee of a whole spine.

    Parameters
    ----------
    rho
        Budget that shares refer to: the noise of a query is 1 / (rho x share of the unit x share of the query).
    path_totals
        Sums of the shares of the units on the paths from the root to the leaves; see ``Spine.path_totals``.
    neighbours
        ``"bounded"`` (one record of a state replaced) or ``"unbounded"`` (one added or removed, half as much).

    Returns
    -------
    Rho
        rho times the largest total: two records in leaves a and b cost at most rho (total(a) + total(b)) / 2.

    Raises
    ------
    BudgetError
        For no path, a negative total, or unknown neighbours.

    Examples
    --------
    >>> print(spine_rho("293764/114921", {1}), spine_rho("1", ["1", "3/4"], "unbounded"))
    293764/114921 1/2
    """
    if neighbours not in CONVENTIONS:
        msg = f"the neighbours must be 'bounded' or 'unbounded', got {neighbours!r}"
        raise BudgetError(msg, neighbours)
    totals = [Rho(total) for total in path_totals]
    if not totals:
        msg = "a spine without paths promises nothing: give the total share of each path"
        raise BudgetError(msg, path_totals)
    whole = Rho(rho) * max(totals)
    return whole if neighbours == "bounded" else whole / 2


@dataclass(frozen=True)
class Certificate:
    """Epsilons of an allocation under bounded neighbours, at one delta.

    Parameters
    ----------
    rho
        Whole budget.
    delta
        Probability of failure.
    epsilon
        Of records that differ in anything.
    attributes
        Attribute -> epsilon of records that differ in its value only; empty where no words were given.
    locations
        Level -> epsilon of records that differ in their block within one of its areas.

    Examples
    --------
    >>> print(Certificate(Rho("2.56"), 1e-10, 17.158).table())
    rho = 64/25 = 2.56, delta = 1e-10, bounded neighbours
    anything                           17.16
    """

    rho: Rho
    delta: float
    epsilon: float
    attributes: Mapping[str, float] = field(default_factory=dict)
    locations: Mapping[str, float] = field(default_factory=dict)

    def table(self) -> str:
        """Return the certificate as text, one promise a line."""
        lines = [
            f"rho = {self.rho} = {float(self.rho):.6g}, delta = {self.delta:g}, bounded neighbours",
            f"{'anything':<32}{self.epsilon:>8.2f}",
        ]
        lines += [f"{'value of ' + name:<32}{eps:>8.2f}" for name, eps in self.attributes.items()]
        lines += [f"{'block within ' + name:<32}{eps:>8.2f}" for name, eps in self.locations.items()]
        return "\n".join(lines)


def certificate(
    allocation: Allocation, delta: float = _DELTA, words: Mapping[str, str] | None = None
) -> Certificate:
    """Return all the epsilons that the Bureau certifies, of any allocation.

    Parameters
    ----------
    allocation
        Budget, levels from the top down, and queries.
    delta
        Probability of failure, in (0, 1].
    words
        Word in a query's name -> attribute, such as :data:`PL94_WORDS`; None for no promise about attributes.

    Returns
    -------
    Certificate
        Epsilons by :func:`~adversary.privacy.accounting.epsilon`, the conversion that the Bureau uses.

    Raises
    ------
    BudgetError
        For an impossible delta, or a query with a word that is not in ``words``.

    Examples
    --------
    >>> from adversary.privacy.budget import Allocation
    >>> made = certificate(Allocation.load("2020-pl94-persons"), words=PL94_WORDS)
    >>> round(made.epsilon, 2), round(made.attributes["hispanic"], 2), round(made.locations["tract"], 2)
    (17.14, 10.04, 9.38)
    """
    attributes = dict.fromkeys(words.values()) if words else {}
    return Certificate(
        allocation.total,
        delta,
        epsilon(allocation.total, delta),
        {name: epsilon(attribute_rho(allocation, name, words or {}), delta) for name in attributes},
        {name: epsilon(location_rho(allocation, name), delta) for name in reversed(allocation.levels[:-1])},
    )
