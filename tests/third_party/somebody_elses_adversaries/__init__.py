"""Two scenarios of a package that is not ours."""

import numpy as np

from adversary import Prior, measured, scenario


@scenario(target="where", source="a third party")
def one_of_three(release, *, known=0, where=Prior("Categorical", p=np.array([0.2, 0.3, 0.5]))):
    """In which of three blocks is the target counted?"""
    import pytensor.tensor as pt

    for i, block in enumerate(("east", "middle", "west")):
        measured(release[block], known + pt.cast(pt.eq(where, i), "int64"))


@scenario(target="full", source="a third party")
def visitors(release, *, residents=2, guests=Prior("Binomial", n=4, p=0.25)):
    """Does the dwelling hold at least as many guests as residents?"""
    import pymc as pm
    import pytensor.tensor as pt

    pm.Deterministic("full", pt.cast(pt.ge(guests, residents), "int64"))
    measured(release["dwelling"], residents + guests)
