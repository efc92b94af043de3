"""Two people who live together: an example of an own declaration with a dependence between unknowns."""

from adversary import Prior, measured, scenario


@scenario(target="both", source="worked example")
def couple(release, *, known=0, her=Prior("Bernoulli", p=0.5), stay=0.9):
    """Do two people who live together both appear in the block?

    He appears where she does with probability ``stay``. The target is a product of two unknowns.
    """
    import pymc as pm

    him = pm.Bernoulli("him", p=stay * her + (1 - stay) * (1 - her))
    pm.Deterministic("both", her * him)
    measured(release["block"], known + her + him)
