"""Did the target answer the census at all? The paper's reading, and the one that uses what is published."""

from adversary import Prior, measured, scenario
from adversary.samplers.declared import one_count


@scenario(target="answered", source="Kazan & Reiter (arXiv 2204.04253), S1.2", gibbs=one_count("answered"))
def fill_out(release, *, known=0, answered=Prior("Bernoulli", p=0.5)):
    """Did the target fill out the census, given that ``known`` others in her block share her cell?

    The paper's reading: eq. (3.1) with p the probability that she answered. It uses the noisy count of her cell only; her
    answer also raises the block's total, which is published with noise of its own (see ``fill_out_total``).
    """
    measured(release["block"], known + answered)


@scenario(target="answered", source="Kazan & Reiter (arXiv 2204.04253), S1.2, with the block's total")
def fill_out_total(release, *, known=0, known_total=0, answered=Prior("Bernoulli", p=0.5)):
    """Did the target fill out the census, when her cell *and* the block's total are published?

    ``known`` others share her cell and ``known_total`` others live in the block. The two counts add their information: with
    equal noise the gain in log-odds doubles on average.

    Not used: the other marginal queries that her answer raises, and every level above.
    """
    measured(release["block"], known + answered)
    measured(release["total"], known_total + answered)
