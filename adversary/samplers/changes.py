"""By how much the target changes each published count, read off the declared model: what the guarantee's ceiling needs.

What it is: a reader of one built model. Where the target is a yes-or-no unknown of its own, independent of all others, and every
mean is a sum in which it has a whole coefficient, the two worlds (there, not there) differ by fixed shifts of the counts,
whatever the other unknowns are; mixing over those cannot make the worlds easier to tell apart (Renyi divergence is
quasi-convex). What it is not: a guess. Anything else is None, "not recorded": a target made of other unknowns, a prior that leans
on it, a potential, a count that is no sum, a scenario that looks at published values.

Held to account by ``tests/samplers/test_changes.py``.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from adversary.release.measurement import Release

__all__ = ["count_changes", "improper_unknowns"]

_IMPROPER = {"_FlatCountRV", "FlatRV", "HalfFlatRV"}


def improper_unknowns(model: Any) -> list[str]:
    """Return the names of the unknowns whose prior is flat without end, so that averages over it are limits.

    Parameters
    ----------
    model
        A built model.
    """
    return [rv.name for rv in model.free_RVs if type(rv.owner.op).__name__ in _IMPROPER]


def count_changes(
    model: Any, target: str, release: Release, reads: Iterable[tuple[str, str]] = ()
) -> Mapping[str, Any] | None:
    """Return count -> how much larger it is where the target is 1 than where it is 0; None where no such number exists.

    Parameters
    ----------
    model : pymc.Model
        As a scenario builds it.
    target
        Name of what is asked.
    release
        What was measured.
    reads
        Which (measurement, attribute) the scenario looked at itself, as ``Scenario.build`` returns them.

    Returns
    -------
    dict or None
        Name of every count that the model uses -> int, or a list of ints for a vector of counts.

    Examples
    --------
    >>> from adversary import Release, load
    >>> release = Release.from_counts({"block": 2, "block_group": 1, "rest": 0}, rho="0.1", groups={"rest": 27})
    >>> model, reads = load("two_level").build(release)
    >>> count_changes(model, "present", release, reads)
    {'block': 1, 'rest': 0, 'block_group': 1}
    """
    if model.potentials or any(attribute == "value" for _, attribute in reads):
        return None
    if not _stands_alone(model, target) or not all(_is_plain(rv, release) for rv in model.observed_RVs):
        return None
    try:
        forms = _entries(model)
    except UnsupportedModelError:
        return None
    found = {}
    for rv, entries in zip(model.observed_RVs, forms, strict=True):
        number = model.free_RVs.index(model[target])
        changes = [_coefficient(e, number) for e in entries]
        if any(c is None for c in changes):
            return None
        size = release[rv.name].size
        found[rv.name] = changes[0] if rv.ndim == 0 else [*changes] * (size if len(changes) == 1 else 1)
    return found


def _stands_alone(model: Any, target: str) -> bool:
    """Whether the target is one Bernoulli unknown that no other unknown leans on, nor it on them."""
    import pymc as pm
    from pytensor.graph.traversal import ancestors

    own = next((rv for rv in model.free_RVs if rv.name == target), None)
    if own is None or own.ndim or not isinstance(own.owner.op, type(pm.Bernoulli.rv_op)):
        return False
    others = {rv for rv in model.free_RVs if rv is not own}
    above = set(ancestors(own.owner.inputs))
    return not above & others and all(own not in set(ancestors(rv.owner.inputs)) for rv in others)


def _is_plain(rv: Any, release: Release) -> bool:
    """Whether an observed variable is a count of the release with the release's own noise."""
    import pymc as pm
    import pytensor
    from pytensor.graph.basic import Constant

    from adversary.distributions import DiscreteGaussian, DiscreteGaussianSum

    if rv.name not in release:
        return False
    op, parameters, m = rv.owner.op, rv.owner.op.dist_params(rv.owner), release[rv.name]
    if isinstance(op, type(pm.DiscreteUniform.rv_op)):
        return m.exact
    if isinstance(op, type(DiscreteGaussianSum.rv_op)):
        return True
    if not isinstance(op, type(DiscreteGaussian.rv_op)):
        return False
    sigma2 = parameters[1]
    if isinstance(sigma2, Constant):
        noise = sigma2.data
    else:
        from adversary.samplers.exact.linear import python_mode

        noise = pytensor.function([], sigma2, mode=python_mode())()
    return bool(np.allclose(noise, m.noise_sigma2, rtol=1e-12, atol=0))


def _entries(model: Any) -> list[list[Any]]:
    """Return the entries of every count's mean as forms of the unknowns (the exact engine's own reader)."""
    from adversary.samplers.exact.forms import Linear
    from adversary.samplers.exact.linear import GraphReader

    shapes = model.eval_rv_shapes()
    leaves, following = {}, len(model.free_RVs)
    for number, rv in enumerate(model.free_RVs):
        entry = np.empty(tuple(int(d) for d in shapes[rv.name]), dtype=object)
        for place in np.ndindex(entry.shape):
            # a scalar is known by its place among the unknowns; entries of vectors are never the target
            entry[place] = Linear(((number if entry.ndim == 0 else following, Fraction(1)),))
            following += entry.ndim > 0
        leaves[model.rvs_to_values[rv]] = entry
    graphs = model.replace_rvs_by_values([rv.owner.op.dist_params(rv.owner)[0] for rv in model.observed_RVs])
    return [list(e.ravel()) for _, e in GraphReader(leaves, following).read(graphs)]


def _coefficient(entry: Any, number: int) -> int | None:
    """Return the whole coefficient of one unknown in a form; None where the form is no sum."""
    if entry is None:
        return 0
    change = dict(entry.coefs).get(number, Fraction(0)) if hasattr(entry, "coefs") else Fraction(1, 2)
    return int(change) if change.denominator == 1 else None
