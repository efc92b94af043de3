"""Discrete Gaussian noise on the tables of a block, with the 2020 budget or a uniform one; post-processing.

What it is: the noise parameter of every query under two allocations, noisy answers as rows with a likelihood
(`NoisyRows`), and a bottom-up post-processing that turns noisy answers into consistent tables. What it is
not: the Census's system. Differences, all stated because they change figures:

* Every row gets the noise of *one* cell of the production query that it is closest to (`QUERY_OF_TABLE`); in
  production, a row such as "3 persons" is a sum over very many noisy cells of a much finer query. This favours
  the adversary.
* The number of households (H3) is left exact. In production the number of housing *units* is exact, and
  occupied ones are not.
* Post-processing looks at one block alone: the closest histogram of whole households in weighted L1, then
  tabulated; no higher geography is there to help.
* Neighbours are bounded (one record replaced) as in production. P16 counts persons: its noise protects one
  person, a household of seven only with seven times the change.

Held to account by tests/reconstruction/test_noise.py. Sources: arXiv 2407.04776, section 5 and appendix F (in
outline; the program is ours); the budgets of `adversary.privacy.budget.Allocation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ModelError, ReleaseError
from adversary.privacy.budget import Allocation, Rho, noise_scale
from adversary.privacy.discrete_gaussian import log_pmf, sample
from adversary.reconstruction.constraints import Constraints
from adversary.reconstruction.solve import Limits, Reconstruction
from adversary.reconstruction.tables import hud_queries, printed_hud

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from adversary.reconstruction.answers import Mend
    from adversary.reconstruction.constraints import Queries
    from adversary.reconstruction.households import Configurations
    from adversary.reconstruction.tables import HudRecord

__all__ = [
    "QUERY_OF_TABLE",
    "NoisyRows",
    "budget_2020",
    "budget_uniform",
    "measure",
    "measure_hud",
    "post_process",
]

_FINEST = "sex * hisp * hhtenshort_3lev * race * hhage * DetailedCoupleTypeMultGenDetOwnChildSize"
QUERY_OF_TABLE: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "H13": ("2020-dhc-households", _FINEST),
        "H7": ("2020-dhc-households", "hisp * hhtenshort_2lev * race"),
        "P16": ("2020-dhc-persons", "age_18_64_116 * sex"),
        "P19": (
            "2020-dhc-households",
            "partner_type_detailed_own_child_status * sex * hhtenshort_2lev",
        ),
        "P25": ("2020-dhc-households", _FINEST),
        "P28": ("2020-dhc-households", _FINEST),
    }
)
"""Production query whose block-level budget each table's rows are given; our choice."""


@dataclass(frozen=True, eq=False)
class NoisyRows:
    """Noisy answers about one block: ``values = matrix @ counts + N_Z(0, sigma2)``, independent.

    Attributes
    ----------
    configurations
        The table of configurations.
    matrix
        int64, shape (m, K).
    values
        Noisy answers, int64, shape (m,); negative ones are usual.
    sigma2
        Noise parameter of each, positive and finite, shape (m,).
    table, cell
        Names of each row, length m.
    """

    configurations: Configurations
    matrix: NDArray[np.int64]
    values: NDArray[np.int64]
    sigma2: NDArray[np.float64]
    table: tuple[str, ...]
    cell: tuple[str, ...]

    def __post_init__(self) -> None:
        m, k = len(self.table), len(self.configurations)
        shapes = (self.matrix.shape, self.values.shape, self.sigma2.shape, len(self.cell))
        if shapes != ((m, k), (m,), (m,), m):
            msg = (
                f"shapes {shapes} for {m} noisy rows over {k} configurations: rows, values, names must match"
            )
            raise ModelError(msg, shapes)
        if not (np.isfinite(self.sigma2).all() and (self.sigma2 > 0).all()):
            msg = "sigma2 of a noisy row must be positive and finite: exact rows are constraints, others no rows"
            raise ReleaseError(msg, self.sigma2)

    def __len__(self) -> int:
        return len(self.table)

    def log_likelihood(self, counts: ArrayLike) -> NDArray[np.float64]:
        """Return the log-probability of the noisy answers given blocks, counts of shape (..., K)."""
        answers = np.asarray(counts, dtype=np.int64) @ self.matrix.T
        return np.asarray(log_pmf(self.values - answers, self.sigma2).sum(axis=-1))


def budget_2020(queries: Queries, exact: Sequence[str] = ("H3",)) -> NDArray[np.float64]:
    """Return sigma^2 of every query under the 2020 block-level budgets, shape (m,).

    Parameters
    ----------
    queries
        Census tables of a block (see `adversary.reconstruction.tables.census_queries`).
    exact
        Tables that are invariant: their sigma^2 is 0.

    Raises
    ------
    ModelError
        For a table that `QUERY_OF_TABLE` does not name.

    Notes
    -----
    sigma^2 = 1 / rho with the query's budget at block level, bounded neighbours (table 3.5 of the project's
    specification: 25.8 for .0015, 30.2 for .0011).

    Examples
    --------
    >>> from adversary.reconstruction.households import household_configurations
    >>> from adversary.reconstruction.tables import census_queries
    >>> queries = census_queries(household_configurations(census_only=True))
    >>> np.sqrt(budget_2020(queries))[[0, 1, 8, 16, 18]].round(1).tolist()
    [0.0, 25.8, 24.3, 30.2, 21.3]
    """
    out = np.zeros(len(queries))
    for i, name in enumerate(queries.table):
        if name in exact:
            continue
        plain = name.split(" ")[0]  # "P28 hispanic" is P28 of one race
        if plain not in QUERY_OF_TABLE:
            msg = f"no production query is named for table {name}: leave it out, or give sigma2 yourself"
            raise ModelError(msg, name)
        out[i] = _block_sigma2(*QUERY_OF_TABLE[plain])
    return out


@cache
def _block_sigma2(allocation: str, query: str) -> float:
    """Return sigma^2 of a production query at block level; reading the budgets takes longer than a block."""
    return Allocation.load(allocation).sigma2("block", query, "bounded")


def budget_uniform(queries: Queries, rho: Any, exact: Sequence[str] = ("H3",)) -> NDArray[np.float64]:
    """Return sigma^2 of every query when a budget is split evenly over the rows asked, shape (m,).

    Parameters
    ----------
    queries
        What is asked.
    rho
        Whole budget; text, int or Fraction (see `adversary.privacy.budget.Rho`).
    exact
        Tables that are invariant and get no budget: their sigma^2 is 0.

    Notes
    -----
    sigma^2 = m / rho with the m rows that get noise, bounded neighbours, each row taken as a query of its own.
    Cells of one table are disjoint and could share a budget (replacing one household changes two of them), so
    that this split is more noise than the budget asks for.

    Examples
    --------
    >>> from adversary.reconstruction.households import household_configurations
    >>> from adversary.reconstruction.tables import census_queries
    >>> queries = census_queries(household_configurations(census_only=True))
    >>> float(budget_uniform(queries, "0.1")[1])
    190.0
    """
    noisy = np.array([name not in exact for name in queries.table], dtype=bool)
    if not noisy.any():
        return np.zeros(len(queries))
    each = noise_scale(Rho(rho) / int(noisy.sum()), "bounded")
    if not np.isfinite(each):
        msg = f"a budget of {rho} measures nothing: leave the tables out instead"
        raise ModelError(msg, rho)
    return np.where(noisy, each, 0.0)


def measure(
    queries: Queries,
    counts: ArrayLike,
    sigma2: ArrayLike,
    *,
    seed: int | np.random.SeedSequence | np.random.Generator,
) -> tuple[Constraints, NoisyRows]:
    """Answer queries on a block with noise.

    Parameters
    ----------
    queries
        What is asked.
    counts
        The block, shape (K,).
    sigma2
        Noise parameter of every query, shape (m,): 0 for an exact answer, inf for none.
    seed
        The same seed gives the same noise.

    Returns
    -------
    tuple
        Exact rows, and noisy ones.

    Examples
    --------
    >>> from adversary.reconstruction.households import household_configurations
    >>> from adversary.reconstruction.tables import census_queries
    >>> table = household_configurations(census_only=True)
    >>> queries = census_queries(table)
    >>> block = table.histogram([[1, 1, 0, 0]] * 20)
    >>> exact, noisy = measure(queries, block, budget_2020(queries), seed=1)
    >>> exact.tables, len(noisy)
    (('H3',), 19)
    """
    s2 = np.broadcast_to(np.asarray(sigma2, dtype=np.float64), (len(queries),))
    if np.isnan(s2).any() or (s2 < 0).any():
        msg = "sigma2 must be 0 (exact), positive, or inf (not asked) for every query"
        raise ReleaseError(msg, s2)
    truth = queries.answers(counts)
    rng = np.random.default_rng(seed)
    firm, soft = np.flatnonzero(s2 == 0), np.flatnonzero((s2 > 0) & np.isfinite(s2))
    noise = sample(s2[soft], None, rng) if soft.size else np.zeros(0, np.int64)

    def names(rows: NDArray[np.intp]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        at = rows.tolist()
        return tuple(queries.table[i] for i in at), tuple(queries.cell[i] for i in at)

    ends = truth[firm]
    exact = Constraints(queries.configurations, queries.matrix[firm], ends, ends.copy(), *names(firm))
    noisy = NoisyRows(
        queries.configurations, queries.matrix[soft], truth[soft] + noise, s2[soft], *names(soft)
    )
    return exact, noisy


def measure_hud(
    configurations: Configurations,
    counts: ArrayLike,
    sigma2: float,
    home: str = "1",
    *,
    seed: int | np.random.SeedSequence | np.random.Generator,
) -> tuple[HudRecord, NoisyRows]:
    """Print a property of a known block with noise on every count that HUD's line is computed from.

    Parameters
    ----------
    configurations, counts
        The block.
    sigma2
        Noise parameter of each count (households, persons, and the count behind every percentage), positive.
    home
        Level of ``property``.
    seed
        The same seed gives the same noise.

    Returns
    -------
    tuple
        The line, a function of the noisy counts alone: below 11 noisy households it is suppressed, percents
        are kept within 0 and 100, persons at one a household or more. And the noisy counts, for an adversary
        who is given those.

    Notes
    -----
    HUD publishes no such noise; the paper asks what it would do (arXiv 2407.04776, section 5).

    Examples
    --------
    >>> from adversary.reconstruction.households import household_configurations
    >>> table = household_configurations()
    >>> couples = table.histogram([[1, 1, 1, 0, 0, 0]]) * 40
    >>> line, noisy = measure_hud(table, couples, 9.0, seed=1)
    >>> line.number_reported == int(noisy.values[0]), len(noisy)
    (True, 11)
    """
    queries = hud_queries(configurations, home)
    _, noisy = measure(queries, counts, float(sigma2), seed=seed)
    return printed_hud(noisy.values.tolist()), noisy


def post_process(
    exact: Constraints,
    noisy: NoisyRows,
    shares: NDArray[np.float64] | None = None,
    limits: Limits | None = None,
) -> Mend:
    """Return the block of whole households closest to noisy answers: what would be tabulated and published.

    Parameters
    ----------
    exact
        Rows that must hold.
    noisy
        Rows that need not; errors are weighed by 1 / sigma.
    shares
        Configurations with share 0 are ruled out; None for none.
    limits
        Of the solver.

    Returns
    -------
    Mend
        Its ``solution.counts`` is the block; tabulate it with ``queries.answers``. Statuses as of
        `Reconstruction.closest`; one optimum of many, the same for the same seed.

    Notes
    -----
    ``min sum |matrix @ counts - values| / sigma`` over whole counts of 0 or more (appendix F of the paper, in
    outline).
    """
    rows = Constraints(
        exact.configurations,
        np.concatenate([exact.matrix, noisy.matrix]),
        np.concatenate([exact.low, noisy.values]),
        np.concatenate([exact.high, noisy.values]),
        (*(f"exact {name}" for name in exact.table), *noisy.table),
        (*exact.cell, *noisy.cell),
    )
    if shares is not None and (np.asarray(shares) == 0).any():
        rows = rows.allowing(np.asarray(shares) > 0, "exact support")
    firm = [name.startswith("exact ") for name in rows.table]
    sigma = np.ones(len(rows))
    sigma[len(exact) : len(exact) + len(noisy)] = np.sqrt(noisy.sigma2)
    hard = [name for name, its in zip(rows.table, firm, strict=True) if its]
    block = Reconstruction(rows, limits=limits if limits is not None else Limits())
    return block.closest(hard, sigma)
