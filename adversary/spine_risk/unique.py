"""What a spine does to risk: a person alone in her cell of her block, in every block, under a spine with a budget.

The adversary knows the other people of the target's block in one cell of one query, and sees the query's noisy counts of that
cell in every unit. The noise of a unit comes from its own share and from the mix of the level that the share is in, so a block
whose budget was bypassed upwards is attacked through its block group's count. What she can learn depends on a block only through

* the counts of units that hold her block and no other (``own``): their noise is all that stands between her and the answer;
* everything else (``outside``): ancestors' counts, of use as far as the counts of siblings say what is to be taken off them.

Blocks with the same own counts under the same parent are alike; each kind is worked out once. Two roads:

* ``others=None``: she believes nothing about other blocks (any whole number, negative ones too, alike). Then the outside is one
  number with a known variance (two passes over the tree), so no truth need be assumed. The own counts are summed over their
  lattices, at most two; the outside, and own counts beyond two, are taken as Gaussian. That is an approximation, named in
  ``method``: where noise parameters are 1 or more the posterior is right to 1e-6, and P[right], which jumps where the odds are
  even, to 1e-3 in trees of two or three leaves and better in larger ones (tests sum every release).
* ``others=LeafPrior``: a prior of every other block's count, none negative. Truths and releases are drawn from it, and
  :func:`adversary.samplers.tree.solve_tree` is run on the whole spine; every leaf of every draw serves, own counts are summed.
  Means come with Monte Carlo standard errors.

What this module is not: an attack on a release (:mod:`adversary.assess`), accuracy (:mod:`adversary.geography.accuracy`), or
a guarantee (:mod:`adversary.geography.guarantee`), which is about all adversaries and all queries.

Held to account by ``tests/test_spine_risk.py`` (every release of small trees summed). Sources: Kazan & Reiter (arXiv
2204.04253), equations (3.3) to (3.6); Cumings-Menon et al., arXiv 2203.16654; our own derivation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ModelError
from adversary.geography.guarantee import location_within
from adversary.geography.plans import query_noise
from adversary.privacy.budget import Rho
from adversary.spine_risk._kinds import LATTICES, Kinds, averaged, drawn_outside, flat, phi

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction
    from pathlib import Path

    from numpy.typing import NDArray

    from adversary.geography.spine import Spine
    from adversary.samplers.tree import LeafPrior

    Floats = NDArray[np.float64]

__all__ = ["SpineRisk", "UniquePerson", "geoids_of", "spine_risk"]


@dataclass(frozen=True)
class UniquePerson:
    """Who is attacked and what the adversary knows.

    Parameters
    ----------
    query
        Query whose counts of the target's cell are seen.
    prior
        Prior probability that the target is in her block, in (0, 1).
    others
        What she believes about the count of the cell in every *other* block: a proper prior, from which truths are drawn too;
        or None, any whole number alike.
    draws, seed
        With ``others``: how many truths and releases to draw (at least 2), and from where.

    Raises
    ------
    ModelError
        For a prior outside (0, 1), an improper prior of the others, or draws without a seed.

    Examples
    --------
    >>> UniquePerson("detailed", prior=0.1)
    UniquePerson(query='detailed', prior=0.1, others=None, draws=0, seed=None)
    """

    query: str = "detailed"
    prior: float = 0.5
    others: LeafPrior | None = None
    draws: int = 0
    seed: int | np.random.SeedSequence | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if not 0 < self.prior < 1:
            msg = f"the prior must lie strictly between 0 and 1, got {self.prior}: an adversary who is certain learns nothing"
            raise ModelError(msg, self.prior)
        if self.others is not None and math.isinf(self.others.reach(50.0)):
            msg = "nothing can be drawn from a flat prior of the other blocks: give poisson, geometric or a table, or None"
            raise ModelError(msg, self.others)
        if self.others is not None and (self.draws < 2 or self.seed is None):
            msg = f"a prior of the other blocks needs draws= of at least 2 and seed=, got {self.draws} and {self.seed}"
            raise ModelError(msg, (self.draws, self.seed))
        if self.others is None and (self.draws or self.seed is not None):
            msg = "draws= and seed= belong to a prior of the other blocks: without it nothing is drawn"
            raise ModelError(msg, self.draws)


@dataclass(frozen=True, eq=False)
class SpineRisk:
    """Risk of a unique person in every block of a spine. Arrays have one entry a leaf, in the order of ``spine.leaves``.

    Parameters
    ----------
    name
        Name of the spine.
    person
        Who is attacked.
    rho
        Whole budget (bounded neighbours).
    geoid
        Text: 15-digit GEOID where the leaf's code has one, else its code.
    levels, sigma2
        Levels of the spine, and the noise parameter of the query's count at each on the block's path; inf where none. Shape
        (leaves, levels).
    profile
        Number of the block's kind.
    own_information, outside_information
        Sum of 1 / (2 sigma2) of the counts of units that hold only this block; the same for all the rest together, as the
        Gaussian says it.
    posterior, risk
        Mean posterior probability of presence when she is present, and that over the prior (R).
    right, right_even
        Probability that the best decision is right, averaged over presence with the prior, and with prior 1/2 (the best test).
    right_even_gaussian
        Phi(d / 2), d^2 twice the information: an approximation of ``right_even`` when nothing is believed of other blocks.
    own_rho
        Budget that guards presence from somebody who knows everybody else in the block, by *all* queries of units that hold only
        this block.
    moved_most, moved_mean
        Budget that tells the block from the others of the same tabulation block group, all queries: the pair told apart best, and
        the mean over pairs. NaN where there is no other, or no tabulation block group.
    moved_right
        Mean over those pairs of the probability that somebody who knows everybody else is right about which of the two blocks she
        lives in: Phi(d / 2), prior 1/2, Gaussian.
    method
        How it came about, in words.
    posterior_mcse, right_mcse, right_even_mcse
        Monte Carlo standard errors; 0 where nothing was drawn.
    """

    name: str
    person: UniquePerson
    rho: Rho
    geoid: NDArray[np.str_]
    levels: tuple[str, ...]
    sigma2: Floats
    profile: NDArray[np.int64]
    own_information: Floats
    outside_information: Floats
    posterior: Floats
    risk: Floats
    right: Floats
    right_even: Floats
    right_even_gaussian: Floats
    own_rho: Floats
    moved_most: Floats
    moved_mean: Floats
    moved_right: Floats
    method: str
    posterior_mcse: Floats
    right_mcse: Floats
    right_even_mcse: Floats
    _mean_mcse: tuple[float, float, float] = field(default=(0.0, 0.0, 0.0), repr=False)

    def __len__(self) -> int:
        """Count the blocks."""
        return int(self.geoid.size)

    def summary(self) -> dict[str, Any]:
        """Means and extremes over blocks; every block counts once."""
        has = np.isfinite(self.moved_most)
        p = self.person.prior
        return {
            "spine": self.name,
            "blocks": len(self),
            "kinds": int(np.unique(self.profile).size),
            "query": self.person.query,
            "prior": p,
            "posterior": float(self.posterior.mean()),
            "posterior_mcse": self._mean_mcse[0],
            "risk": float(self.risk.mean()),
            "risk_most": float(self.risk.max()),
            "right": float(self.right.mean()),
            "right_mcse": self._mean_mcse[1],
            "right_even": float(self.right_even.mean()),
            "right_even_mcse": self._mean_mcse[2],
            "right_even_least": float(self.right_even.min()),
            "right_even_most": float(self.right_even.max()),
            "own_rho_most": float(self.own_rho.max()),
            "moved_rho": float(self.moved_mean[has].mean()) if has.any() else None,
            "moved_rho_most": float(self.moved_most[has].max()) if has.any() else None,
            "moved_right": float(self.moved_right[has].mean()) if has.any() else None,
            "moved_right_best": float(phi(np.sqrt(self.moved_most[has] / 2)).mean()) if has.any() else None,
            "method": self.method,
        }

    def to_csv(self, path: str | Path) -> int:
        """Write one row a block; GEOIDs are text. Returns how many. For several spines in one file see ``write_blocks``.

        Parameters
        ----------
        path
            Where to; replaced if it is there.
        """
        from adversary.spine_risk.tables import write_blocks

        return write_blocks(path, [self])

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the table of blocks: name of a column -> values."""
        noise = {f"sigma2_{level}": self.sigma2[:, k] for k, level in enumerate(self.levels)}
        return {
            "GEOID20": self.geoid,
            "spine": np.full(len(self), self.name),
            "kind": self.profile,
            **noise,
            "own_information": self.own_information,
            "outside_information": self.outside_information,
            "posterior": self.posterior,
            "posterior_mcse": self.posterior_mcse,
            "risk": self.risk,
            "right": self.right,
            "right_even": self.right_even,
            "right_even_mcse": self.right_even_mcse,
            "own_rho": self.own_rho,
            "moved_rho_most": self.moved_most,
            "moved_rho_mean": self.moved_mean,
            "moved_right_mean": self.moved_right,
            "moved_right_most": phi(np.sqrt(self.moved_most / 2)),
        }


def geoids_of(spine: Spine) -> NDArray[np.str_]:
    """GEOID of every leaf, 15 digits, where its code is one or ends in a ``geocode16``; otherwise its code.

    Parameters
    ----------
    spine
        The spine.

    Examples
    --------
    >>> from adversary.geography.blocks import BlockTable
    >>> from adversary.geography.das import aian_spine
    >>> geoids_of(aian_spine(BlockTable(["010010201001000"]))).tolist()
    ['010010201001000']
    """
    return np.array([_geoid(code) for code in spine.geocodes[spine.leaves].tolist()], str)


def _geoid(code: str) -> str:
    tail = code[-16:]
    whole = len(tail) == 16 and tail.isdigit() and tail[11] == tail[12]
    return tail[:11] + tail[12:] if whole else code


def spine_risk(
    spine: Spine, mixes: Mapping[str, Mapping[str, Any]], rho: Any, person: UniquePerson, name: str = ""
) -> SpineRisk:
    """Risk of a unique person in every block of a spine, averaged over releases.

    Parameters
    ----------
    spine
        A spine with shares.
    mixes
        Level -> query -> share of the level's budget (:func:`adversary.geography.plans.query_shares`).
    rho
        Whole budget, exact (bounded neighbours).
    person
        Who is attacked and what is known.
    name
        Name of the spine in tables.

    Returns
    -------
    SpineRisk
        Risk in every block, averaged over releases.

    Raises
    ------
    BudgetError
        If a measured level has no mix or none asks the query.

    Examples
    --------
    >>> from adversary.geography.spine import Spine
    >>> spine = Spine.from_blocks({"tract": ["1", "1"], "block": ["11", "12"]}, {"tract": "1/2", "block": "1/2"})
    >>> found = spine_risk(spine, {"tract": {"total": 1}, "block": {"total": 1}}, 1, UniquePerson("total"))
    >>> found.posterior.round(4).tolist(), found.right_even.round(4).tolist()
    ([0.58, 0.58], [0.6675, 0.6675])
    """
    budget = Rho(rho)
    noise = query_noise(spine, mixes, budget, person.query)
    kinds = Kinds.of(spine, noise)
    if person.others is None:
        found, error, mean_error = flat(kinds, person.prior), None, (0.0, 0.0, 0.0)
        method = f"own counts summed (up to {LATTICES} lattices), the outside as a Gaussian; nothing believed of other blocks"
    else:
        outside = drawn_outside(spine, noise, kinds, person.others, person.draws, person.seed)
        found, error, mean_error = averaged(kinds, outside, person.prior)
        method = (
            f"{person.draws} truths and releases drawn, other blocks {person.others.name}, own counts summed"
        )
    geoid, of = geoids_of(spine), kinds.of_leaf
    most, mean, located = _moved(spine, geoid, budget)
    zero = np.zeros(of.size)
    mcse = (zero, zero, zero) if error is None else tuple(e[of] for e in error)
    information = kinds.own_information + kinds.outside
    return SpineRisk(
        name=name,
        person=person,
        rho=budget,
        geoid=geoid,
        levels=spine.levels,
        sigma2=_path_noise(spine, noise),
        profile=of,
        own_information=kinds.own_information[of],
        outside_information=kinds.outside[of],
        posterior=found[0][of],
        risk=found[0][of] / person.prior,
        right=found[1][of],
        right_even=found[2][of],
        right_even_gaussian=phi(np.sqrt(information / 2))[of],
        own_rho=_own_rho(spine, kinds, budget.fraction),
        moved_most=most,
        moved_mean=mean,
        moved_right=located,
        method=method,
        posterior_mcse=mcse[0],
        right_mcse=mcse[1],
        right_even_mcse=mcse[2],
        _mean_mcse=mean_error,
    )


def _path_noise(spine: Spine, noise: Floats) -> Floats:
    out = np.full((spine.leaves.size, len(spine.levels)), np.inf)
    rows, unit = np.arange(spine.leaves.size), spine.leaves.copy()
    while rows.size:
        out[rows, spine.level_of[unit]] = noise[unit]
        unit = spine.parents[unit]
        rows, unit = rows[unit >= 0], unit[unit >= 0]
    return out


def _own_rho(spine: Spine, kinds: Kinds, rho: Fraction) -> Floats:
    """Half of rho times the shares of the units that hold only one block, whatever they ask."""
    lone = np.flatnonzero(kinds.chain >= 0)
    return 0.5 * float(rho) * np.bincount(kinds.chain[lone], spine.shares[lone], minlength=spine.leaves.size)


def _moved(spine: Spine, geoid: NDArray[np.str_], rho: Rho) -> tuple[Floats, Floats, Floats]:
    if len(spine.path_totals()) != 1 or not all(len(g) == 15 and g.isdigit() for g in geoid.tolist()):
        nothing = np.full(geoid.size, np.nan)
        return nothing, nothing, nothing
    found = location_within(spine, geoid.astype("<U12"), rho)
    return found.most, found.mean, found.right
