"""Blocks small enough to list every solution: the oracle of the tests of this room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from adversary.reconstruction.constraints import UNBOUNDED, Constraints, combine
from adversary.reconstruction.households import Configurations, household_configurations
from adversary.reconstruction.tables import HudRecord, census_queries, hud_constraints

if TYPE_CHECKING:
    from numpy.typing import NDArray


def compositions(n: int, size: int) -> NDArray[np.int64]:
    """Every way to spread n households over `size` configurations."""
    if size == 1:
        return np.array([[n]])
    parts = []
    for first in range(n + 1):
        rest = compositions(n - first, size - 1)
        parts.append(np.column_stack([np.full(len(rest), first), rest]))
    return np.vstack(parts)


def every_block(rows: Constraints, n: int) -> NDArray[np.int64]:
    """All blocks of n households that meet the rows, by trying every block of n households."""
    tried = compositions(n, len(rows.configurations))
    answers = tried @ rows.matrix.T
    return tried[((answers >= rows.low) & (answers <= rows.high)).all(axis=1)]


def small_table(rng: np.random.Generator, size: int) -> Configurations:
    """Some household configurations of up to five persons, both in and outside property 1."""
    table = household_configurations(properties=1, max_size=5)
    likely = table.mask({"race": ["white_nonhispanic", "hispanic"], "elderly": "no"}) & (
        table.number("children") < 3
    )
    inside, outside = (np.flatnonzero(likely & table.mask({"property": home})) for home in ("1", "none"))
    half = size // 2
    picked = np.concatenate(
        [rng.choice(inside, size - half, replace=False), rng.choice(outside, half, replace=False)]
    )
    mask = np.zeros(len(table), dtype=bool)
    mask[picked] = True
    return table.select(mask)


def small_block(
    seed: int, n: int = 4, size: int = 9
) -> tuple[Constraints, NDArray[np.int64], NDArray[np.float64]]:
    """Rows of a random block, the block itself, and shares of its configurations; some tables are left out."""
    rng = np.random.default_rng(seed)
    table = small_table(rng, size)
    truth = rng.multinomial(n, rng.dirichlet(np.ones(size)))
    queries = census_queries(table)
    census = queries.constraints(queries.answers(truth))
    left_out = rng.choice(["H13", "H7", "P16", "P19", "P25"], int(rng.integers(1, 4)), replace=False)
    census = census.without(left_out.tolist())
    its = table.mask({"property": "1"})
    reported = int(truth[its].sum())
    percents = {"pct_bed1": _percent(table, truth, "0-1"), "pct_bed2": _percent(table, truth, "2")}
    if reported == 0 or rng.random() < 0.3:
        percents = {}
    record = HudRecord(reported + int(rng.integers(0, 2)), reported, -1, -1, percents)
    rows = combine(census, hud_constraints(table, record))
    return rows, truth, np.round(rng.dirichlet(np.ones(size)), 2) + 0.01


def _percent(table: Configurations, truth: NDArray[np.int64], level: str) -> float:
    its = table.mask({"property": "1"})
    n, y = int(truth[its].sum()), int(truth[its & table.mask({"bedrooms": level})].sum())
    return float((200 * y + n) // (2 * n)) if n else -1.0


def contradiction(seed: int) -> tuple[Constraints, int]:
    """Rows of a small block, spoiled: two or three rows are moved by one or more."""
    rng = np.random.default_rng(seed)
    rows, truth, _ = small_block(seed)
    low, high = rows.low.copy(), rows.high.copy()
    firm = [i for i, name in enumerate(rows.table) if name != "H3" and rows.high[i] < UNBOUNDED]
    for i in rng.choice(firm, min(3, len(firm)), replace=False):
        step = int(rng.integers(1, 3))
        low[i], high[i] = low[i] + step, high[i] + step
    moved = Constraints(rows.configurations, rows.matrix, low, high, rows.table, rows.cell)
    return moved, int(truth.sum())
