"""Did the respondent report the truth? The paper's reading, and the one that uses the complementary cell."""

from adversary import Prior, measured, scenario
from adversary.samplers.declared import one_count


@scenario(target="truthful", source="Kazan & Reiter (arXiv 2204.04253), S1.2", gibbs=one_count("truthful"))
def lying(release, *, known=0, truthful=Prior("Bernoulli", p=0.5)):
    """Did the respondent, whose true cell the adversary knows, report it?

    The paper's reading: eq. (3.1) with p the probability of a true report. It uses the noisy count of the true cell only; a
    false report raises another cell, which is published too (see ``lying_cells``).
    """
    measured(release["block"], known + truthful)


@scenario(target="truthful", source="Kazan & Reiter (arXiv 2204.04253), S1.2, with the complementary cell")
def lying_cells(release, *, known=0, known_other=0, truthful=Prior("Bernoulli", p=0.5)):
    """Did the respondent report her true cell, when the cell of the only other answer is published too?

    Log-odds = logit p + (2(a - b)) / (2 sigma^2) with a, b the two noisy counts less those known: the paper drops the second
    cell, which doubles the information.

    Not used: the other marginal queries in which the two answers differ.
    """
    measured(release["block"], known + truthful)
    measured(release["other"], known_other + 1 - truthful)
