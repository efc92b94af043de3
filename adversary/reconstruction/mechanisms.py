"""What a state publishes about a block under a mechanism, and the rows that an adversary makes of it.

What it is: five mechanisms (nothing, swapping, noise of the 2020 budgets, noise of a uniform budget, noise on
HUD's counts too), the tables and HUD lines that each prints of one block, and the interval rows, standard
deviations and noisy rows that follow. What it is not: an attack (:mod:`adversary.reconstruction.study`).

HUD's lines are printed from the file before swapping, and without noise unless the mechanism says so. Noisy
tables are made consistent before they are printed (`adversary.reconstruction.noise.post_process`, one block
alone), so that the adversary's rows are those of the printed tables; the noisy answers themselves are kept
for a posterior.

Held to account by tests/reconstruction/test_study.py. Source: arXiv 2407.04776, section 5 (the mechanisms);
what differs from the paper's is said in :mod:`adversary.reconstruction.noise` and
:mod:`adversary.reconstruction.swapping`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from adversary.errors import ModelError
from adversary.privacy.budget import Rho, noise_scale
from adversary.reconstruction.constraints import Constraints, combine
from adversary.reconstruction.noise import (
    NoisyRows,
    budget_2020,
    budget_uniform,
    measure,
    measure_hud,
    post_process,
)
from adversary.reconstruction.tables import census_queries, hud_constraints, hud_queries, publish_hud

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from adversary.reconstruction.constraints import Queries
    from adversary.reconstruction.households import Configurations
    from adversary.reconstruction.solve import Limits

__all__ = ["MECHANISMS", "Mechanism", "Published", "publish"]

BUDGET_2020 = "2020"
"""Stands for the block-level budgets of the 2020 production run."""


@dataclass(frozen=True)
class Mechanism:
    """A way to protect what is published.

    Attributes
    ----------
    name
        Short and unique.
    swap_rate
        Share of households that trade places before tabulation, 0 to 1.
    census_rho
        None for exact tables; ``"2020"`` for the production run's budgets; or a budget as text (``"0.1"``) that
        is split evenly over the noisy rows.
    hud_rho
        None for exact HUD lines; or a budget as text, split evenly over the counts behind one line.

    Examples
    --------
    >>> Mechanism("swapping 5 %", swap_rate=0.05).folder
    'swapping-5'
    """

    name: str
    swap_rate: float = 0.0
    census_rho: str | None = None
    hud_rho: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.swap_rate <= 1:
            msg = f"a swap rate of {self.swap_rate}: give a share of households, 0 to 1"
            raise ModelError(msg, self.swap_rate)
        if not self.folder:
            msg = f"a mechanism called {self.name!r} cannot have a folder: use letters or digits in its name"
            raise ModelError(msg, self.name)
        for rho in (self.hud_rho, None if self.census_rho == BUDGET_2020 else self.census_rho):
            if rho is not None and (Rho(rho).infinite or not Rho(rho)):
                msg = f"a budget of {rho} is no noise or no table: give None, or a positive finite budget"
                raise ModelError(msg, rho)

    @property
    def folder(self) -> str:
        """Its name with letters, digits and dashes only."""
        return re.sub(r"[^A-Za-z0-9]+", "-", self.name).strip("-")

    def census_sigma2(self, queries: Queries) -> NDArray[np.float64]:
        """Return sigma^2 of every census query, 0 where it is exact, shape (m,).

        Parameters
        ----------
        queries
            The block's queries.
        """
        if self.census_rho is None:
            return np.zeros(len(queries))
        if self.census_rho == BUDGET_2020:
            return budget_2020(queries)
        return budget_uniform(queries, self.census_rho)

    def hud_sigma2(self, counts: int) -> float:
        """Return sigma^2 of each of so many counts behind a line of HUD's file, 0 if they are exact."""
        return 0.0 if self.hud_rho is None else noise_scale(Rho(self.hud_rho) / counts, "bounded")


MECHANISMS: Mapping[str, Mechanism] = MappingProxyType(
    {
        m.name: m
        for m in (
            Mechanism("none"),
            Mechanism("swapping 10 %", swap_rate=0.10),
            Mechanism("2020 budget", census_rho=BUDGET_2020),
            Mechanism("uniform budget", census_rho="0.1"),
            Mechanism("2020 budget, HUD noised", census_rho=BUDGET_2020, hud_rho="0.0165"),
        )
    }
)
"""The mechanisms of the study.

HUD's 11 counts get .0015 each, the budget of the production run's finest query of households (sigma 25.8):
our choice, since the paper's is not public here."""


@dataclass(frozen=True, eq=False)
class Published:
    """What an adversary has of one block.

    Attributes
    ----------
    rows
        The printed tables and HUD lines as intervals.
    sigma
        Standard deviation of each row's error, shape (m,): that of its noise, and 1 where there is none
        (swapping, whose errors nobody knows, and exact rows that contradict others).
    firm, noisy
        Under noise: the exact rows, and the noisy answers behind the printed ones, for a posterior; otherwise
        ``rows`` and None.
    status
        How the post-processing ended (see `adversary.reconstruction.answers.Status`); ``""`` if there was
        none.
    """

    rows: Constraints
    sigma: NDArray[np.float64]
    firm: Constraints
    noisy: NoisyRows | None
    status: str


def publish(  # noqa: PLR0913 - a block and all that decides what is printed of it
    configurations: Configurations,
    counts: NDArray[np.int64],
    census: Configurations,
    tabulated: NDArray[np.int64],
    mechanism: Mechanism,
    *,
    tables: str = "base",
    seed: np.random.SeedSequence,
    limits: Limits | None = None,
) -> Published:
    """Publish one block.

    Parameters
    ----------
    configurations, counts
        The block as it is; shape (K,). HUD's lines are printed from it.
    census, tabulated
        Census configurations, and the census records that are tabulated in the block (after swapping) as
        counts over them.
    mechanism
        How it is protected. Swapping is in ``tabulated`` already.
    tables
        ``"base"`` or ``"rich"`` (see `adversary.reconstruction.tables.census_queries`).
    seed
        Of the noise. The noise of the census tables is the same whether HUD's counts are noisy or not, so
        that mechanisms can be compared block by block.
    limits
        Of the solver that post-processes.

    Returns
    -------
    Published
        What is published of the block.

    Examples
    --------
    >>> from adversary.reconstruction.synthetic import StateShape, synthetic_state
    >>> state = synthetic_state(StateShape(blocks=60), seed=1)
    >>> table, block = state.configurations(3), state.counts(3)
    >>> tabulated = state.census.histogram(state.block_records(3)[:, 2:])
    >>> noise = np.random.SeedSequence(1)
    >>> plain = publish(table, block, state.census, tabulated, MECHANISMS["none"], seed=noise)
    >>> plain.rows.satisfied_by(block), plain.noisy
    (True, None)
    """
    asked, rows = census_queries(census, tables), census_queries(configurations, tables)
    sigma2 = mechanism.census_sigma2(asked)
    noisy: list[NoisyRows] = []
    values, status = asked.answers(tabulated), ""
    if sigma2.any():
        exact, measured = measure(asked, tabulated, sigma2, seed=_child(seed, 0))
        mend = post_process(exact, measured, limits=limits)
        status = str(mend.solution.status)
        if mend.solution.counts is None:
            # nothing consistent was found in time: print the noisy answers, at 0 or more
            values = values.copy()
            values[sigma2 > 0] = np.maximum(measured.values, 0)
        else:
            values = asked.answers(mend.solution.counts)
        at = np.flatnonzero(sigma2 > 0)
        noisy.append(
            NoisyRows(
                configurations,
                rows.matrix[at],
                measured.values,
                measured.sigma2,
                measured.table,
                measured.cell,
            )
        )
    printed = rows.constraints(values)
    firm = rows.constraints(np.where(sigma2 > 0, -1, values))
    homes = [level for level in configurations.attribute("property").levels if level != "none"]
    lines, sigma = [], [np.where(sigma2 > 0, np.sqrt(sigma2), 1.0)]
    hud_sigma2 = mechanism.hud_sigma2(len(hud_queries(configurations)))
    for j, home in enumerate(homes, start=1):
        record = publish_hud(configurations, counts, home)
        if hud_sigma2:
            record, measured = measure_hud(configurations, counts, hud_sigma2, home, seed=_child(seed, j))
            noisy.append(measured)
        lines.append(hud_constraints(configurations, record, home))
        sigma.append(np.full(len(lines[-1]), np.sqrt(hud_sigma2) if hud_sigma2 else 1.0))
    everything = combine(printed, *lines)
    exact_rows = firm if hud_sigma2 else combine(firm, *lines)
    return Published(everything, np.concatenate(sigma), exact_rows, _joined(noisy), status)


def _child(seed: np.random.SeedSequence, key: int) -> np.random.SeedSequence:
    """Return a seed below another one; unlike `SeedSequence.spawn`, the same each time it is asked for."""
    return np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, key))


def _joined(parts: Sequence[NoisyRows]) -> NoisyRows | None:
    if not parts:
        return None
    return NoisyRows(
        parts[0].configurations,
        np.concatenate([p.matrix for p in parts]),
        np.concatenate([p.values for p in parts]),
        np.concatenate([p.sigma2 for p in parts]),
        sum((p.table for p in parts), ()),
        sum((p.cell for p in parts), ()),
    )
