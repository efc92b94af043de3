"""Households of a small block from its tables: the reconstruction attack as a declared scenario."""

import numpy as np

from adversary import Prior, measured, scenario

SHARES = np.array([0.35, 0.2, 0.25, 0.17, 0.03])
"""One person outside and inside subsidised units; three persons outside, in 2 bedrooms, in 0-1 bedrooms."""
TABLES = ("people", "subsidised", "people_subsidised", "one_bedroom")
ROWS = np.array([[1, 1, 3, 3, 3], [0, 1, 0, 1, 1], [0, 1, 0, 3, 3], [0, 1, 0, 0, 1]])
"""What each published table counts of a household of each kind."""


def _households(release, households):
    return {"household": np.arange(households)}


@scenario(
    target="violation",
    source="Steed, Qing & Wu (arXiv 2407.04776), its tables and occupancy limit; the posterior is ours",
    coords=_households,
)
def reconstruction(
    release,
    *,
    households=4,
    tables=TABLES,
    rows=ROWS,
    harmed=(0, 0, 0, 0, 1),
    kind=Prior("Categorical", p=SHARES, dims="household"),
):
    """Does any household of the block live over the occupancy limit, given the block's published tables?

    Each household is of one kind, drawn from known shares; a table counts something of every household (persons, whether
    subsidised, ...). Tables may be exact (rho = inf) or noisy. ``adversary.reconstruction.posterior`` answers
    the same for blocks of real size. How bedrooms go with size is a belief, in ``kind``, and decides the answer. The first
    kind is never harmed: it is what is left of the households.

    Not used: the order of households, which no table shows.
    """
    import pymc as pm
    import pytensor.tensor as pt

    # kind 0 is what is left of the households, so that only the other kinds are counted
    number = [None, *(pt.eq(kind, k).sum() for k in range(1, len(harmed)))]
    for name, each in zip(tables, rows, strict=True):
        if name in release:
            more = sum(int(c - each[0]) * number[k] for k, c in enumerate(each) if c != each[0])
            measured(release[name], int(each[0]) * households + more)
    over = sum(number[k] for k, h in enumerate(harmed) if h)
    pm.Deterministic("violation", pt.cast(pt.gt(over, 0), "int64"))
