"""Which of all possible records is the target's?"""

import numpy as np

from adversary import Prior, measured, scenario

PL94_CELLS = 2016  # household type 8 x voting age 2 x Hispanic 2 x race 63


@scenario(target="cell", source="Kazan & Reiter (arXiv 2204.04253), S1.2, for a whole record")
def whole_record(release, *, known=0, cell=Prior("Categorical", p=np.full(PL94_CELLS, 1 / PL94_CELLS))):
    """In which cell of the whole histogram is the target, everyone else being known?

    ``release["cells"]`` is the block's vector of noisy counts; ``known`` the counts of everyone else (a number, or one for each
    cell); the prior is one probability for each cell, for example a table of national proportions:
    ``whole_record.assuming(cell=Prior("Categorical", p=proportions))``. The posterior is a softmax,
    P[k] proportional to p_k exp((x*_k - known_k) / sigma^2).

    Not used: the marginal queries, and every level above.
    """
    import pytensor.tensor as pt

    cells = release["cells"]
    measured(cells, known + pt.eq(np.arange(cells.size), cell))
