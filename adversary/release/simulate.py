"""Draw a release from true counts: the mechanism of the paper, for asking what would be learned before anything is published.

What it is not: a mechanism for publishing. The noise comes from a pseudo-random generator (see
:func:`adversary.privacy.discrete_gaussian.sample`).

Held to account by ``tests/release/test_simulate.py``. Source: Kazan & Reiter (arXiv 2204.04253), sec. 2.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ReleaseError
from adversary.privacy.discrete_gaussian import sample
from adversary.release.measurement import Release

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adversary.privacy.budget import Allocation

__all__ = ["simulate", "stream"]


def stream(seed: Any, *names: str) -> np.random.Generator:
    """Return the random stream of one named thing under a seed: the same in any order, chunking or process.

    Parameters
    ----------
    seed
        int or SeedSequence.
    *names
        What the stream is for, such as a geoid and a cell.

    Returns
    -------
    numpy.random.Generator
        A generator that depends on the seed and the name alone.

    Examples
    --------
    >>> bool(stream(1, "block").random() == stream(1, "block").random())
    True
    """
    base = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    digest = hashlib.sha256("\x1f".join(names).encode()).digest()
    words = np.frombuffer(digest, dtype="<u4").tolist()
    return np.random.default_rng(np.random.SeedSequence(base.entropy, spawn_key=(*base.spawn_key, *words)))


def simulate(  # noqa: PLR0913
    counts: Mapping[str, Any],
    *,
    seed: Any,
    rho: Any = None,
    sigma2: Any = None,
    allocation: Allocation | None = None,
    query: str | None = None,
    groups: Mapping[str, int] | None = None,
    convention: str = "unbounded",
) -> Release:
    """Return one release of true counts with discrete Gaussian noise.

    Parameters
    ----------
    counts
        Name -> true count (int, or list of ints).
    seed
        int, SeedSequence or Generator. With an int or a SeedSequence the noise of a count depends on the seed and its name
        only, not on what else is released.
    rho, sigma2
        Budget or noise parameter of each count: one for all, or name -> value, as in :meth:`Release.from_counts`.
    allocation, query
        Instead of these: an allocation and the query whose share each level spends; the counts' names are then level names.
    groups
        Name -> how many noisy counts are added up in it (the noise is the sum of as many draws).
    convention
        ``"unbounded"`` or ``"bounded"`` neighbours.

    Returns
    -------
    Release
        One drawn release.

    Raises
    ------
    ReleaseError
        For true counts that are no whole numbers, or neither or several of rho, sigma2 and allocation.

    Examples
    --------
    >>> simulate({"block": 1}, rho="inf", seed=1)["block"].value
    1
    """
    if allocation is not None:
        if rho is not None or sigma2 is not None or query is None:
            msg = "with an allocation give the query whose share is spent, and neither rho nor sigma2"
            raise ReleaseError(msg, query)
        rho = {name: allocation.rho(name, query) for name in counts}
    truth = Release.from_counts(counts, rho=rho, sigma2=sigma2, groups=groups, convention=convention)
    noisy = {}
    for name, m in truth.items():
        rng = seed if isinstance(seed, np.random.Generator) else stream(seed, name)
        shape = (m.groups, *np.shape(m.value))
        noise = sample(np.broadcast_to(m.sigma2, shape), shape, rng).sum(axis=0)
        noisy[name] = np.asarray(m.value) + noise
    released = {name: noisy.get(name, counts[name]) for name in counts}
    return Release.from_counts(released, rho=rho, sigma2=sigma2, groups=groups, convention=convention)
