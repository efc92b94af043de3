"""What is the target's value of one attribute, the others being known?"""

import numpy as np

from adversary import Prior, measured, scenario
from adversary.samplers.declared import one_count


@scenario(target="has_value", source="Kazan & Reiter (arXiv 2204.04253), S1.2", gibbs=one_count("has_value"))
def unknown_variable(release, *, known=0, has_value=Prior("Bernoulli", p=0.5)):
    """Does the target have this value of the attribute that the adversary does not know?

    The paper's reading: eq. (3.1) with p the probability of the value. It uses one cell; she must be in one of the
    attribute's other cells if not in this one, and these are published too (see ``unknown_attribute``).
    """
    measured(release["block"], known + has_value)


@scenario(target="value", source="Kazan & Reiter (arXiv 2204.04253), S1.2, with all cells of the attribute")
def unknown_attribute(release, *, known=0, value=Prior("Categorical", p=np.array([0.5, 0.5]))):
    """Which value of one attribute does the target have, when all its cells are published?

    ``release["cells"]`` is the vector of noisy counts of the attribute's values for people like her; ``known`` the counts of
    the others (a number, or one for each cell). The posterior is a softmax: P[k] is proportional to
    p_k exp((x*_k - known_k) / sigma^2). With two values the log-odds gain is twice the paper's.

    Not used: the block's total, which her value does not change, and marginal queries of other attributes.
    """
    import pytensor.tensor as pt

    cells = release["cells"]
    measured(cells, known + pt.eq(np.arange(cells.size), value))
