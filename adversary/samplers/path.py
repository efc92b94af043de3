"""Exact posterior log-odds of block targets from their path of ancestors, upper levels shared.

A path of h levels is a narrow tree: each ancestor's count is the count below it plus a *rest*, the sum of the
other children, of which one noisy total is known. The message that comes down to the block group is the same
for all of its blocks, so it is worked out once (:class:`UpperMessage`) and each block then costs one short
sum.

The rest's noise is read as one discrete Gaussian of parameter (number of siblings) x sigma2, equation (3.7);
for narrow noise, or to use every sibling's own count, solve the whole tree instead
(:mod:`adversary.samplers.tree`).

Held to account by tests/samplers/test_tree.py and the ids ``chain_`` of kazan_reiter.json.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from adversary.errors import ModelError
from adversary.samplers.leaf_prior import LeafPrior
from adversary.samplers.tree import solve_tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

__all__ = ["UpperMessage", "path_log_odds"]

_EDGE = 1e-15
_ROWS = 4096


def _tree_of(
    noisy: Sequence[int], sigma2: Sequence[float], rest: Sequence[int], rest_sigma2: Sequence[float]
) -> tuple[list[int], list[int], list[float]]:
    """Parents, counts and noise of the tree: root first, the path's own bottom node last."""
    if len(noisy) != len(sigma2) or not len(rest) == len(rest_sigma2) == len(noisy) - 1:
        msg = (
            f"{len(noisy)} levels need {len(noisy)} noise parameters and {len(noisy) - 1} rests, "
            f"got {len(rest)}"
        )
        raise ModelError(msg, rest)
    parent, count, noise = [-1], [int(noisy[-1])], [float(sigma2[-1])]
    above = 0
    for level in range(len(noisy) - 2, -1, -1):
        parent += [above, above]
        count += [int(rest[level]), int(noisy[level])]
        noise += [float(rest_sigma2[level]), float(sigma2[level])]
        above = len(parent) - 1
    return parent, count, noise


def path_log_odds(
    noisy: Sequence[int],
    sigma2: Sequence[float],
    rest: Sequence[int],
    rest_sigma2: Sequence[float],
    *,
    known: int = 0,
    log_odds: float = 0.0,
) -> float:
    """Posterior log-odds that the target is in the block, from one path.

    Parameters
    ----------
    noisy, sigma2
        Noisy counts of the block and its h - 1 ancestors, block first, and their noise parameters.
    rest, rest_sigma2
        Noisy totals of the h - 1 rests, and the noise parameters of those *sums*.
    known
        Persons known to be in the block.
    log_odds
        Prior log-odds.

    Returns
    -------
    float
        Posterior log-odds.

    Raises
    ------
    ModelError, SamplingError
        As :func:`adversary.samplers.tree.solve_tree`.

    Examples
    --------
    >>> rho = [0.09922635422547502, 0.24648450960703558]
    >>> round(path_log_odds([2, 1], [0.5 / r for r in rho], [-1], [27 * 0.5 / rho[0]]), 9)
    0.013151495
    """
    parent, count, noise = _tree_of(noisy, sigma2, rest, rest_sigma2)
    # the block's count is held to known and known + 1, its own noisy count is used in closed form
    noise[-1] = math.inf
    solved = solve_tree(
        parent,
        count,
        noise,
        [LeafPrior.flat(), LeafPrior.pair(known)],
        prior_of=[0] * len(rest) + [1],
        known=[-1] * len(rest) + [known],
    )
    own = (2.0 * (int(noisy[0]) - known) - 1.0) / (2.0 * float(sigma2[0]))
    return log_odds + own + float(solved.log_likelihood_ratio[-1])


@dataclass(frozen=True, eq=False)
class UpperMessage:
    """What the counts of a block group and everything above it say about the group's true count.

    Parameters
    ----------
    noisy, sigma2
        Noisy counts of the block group and its ancestors, group first, and their noise parameters.
    rest, rest_sigma2
        Noisy totals of the rests between them, and the noise parameters of those sums.

    Examples
    --------
    >>> rho = [0.09922635422547502, 0.24648450960703558]
    >>> message = UpperMessage([1], [0.5 / rho[1]], [], [])
    >>> message.block_log_odds([2], [-1], 0.5 / rho[0], 27 * 0.5 / rho[0]).round(9).tolist()
    [0.013151495]
    """

    noisy: Sequence[int]
    sigma2: Sequence[float]
    rest: Sequence[int]
    rest_sigma2: Sequence[float]
    support: NDArray[np.int64] = field(init=False, repr=False)
    weight: NDArray[np.float64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parent, count, noise = _tree_of(self.noisy, self.sigma2, self.rest, self.rest_sigma2)
        solved = solve_tree(parent, count, noise)
        support, weight = solved.pmf(len(parent) - 1)
        object.__setattr__(self, "support", support)
        object.__setattr__(self, "weight", weight)

    def block_log_odds(
        self,
        noisy: ArrayLike,
        rest: ArrayLike,
        sigma2: float,
        rest_sigma2: float,
        *,
        known: ArrayLike = 0,
        log_odds: ArrayLike = 0.0,
    ) -> NDArray[np.float64]:
        """Posterior log-odds for many blocks of the group.

        Parameters
        ----------
        noisy, rest, known, log_odds
            Noisy counts of the blocks, noisy totals of their rests, persons known, prior log-odds; broadcast,
            shape (n,).
        sigma2, rest_sigma2
            Noise parameters of a block's count and of a rest's total.

        Returns
        -------
        ndarray
            Shape (n,). Blocks whose rest contradicts the message so that more than 1e-15 of the weight may
            lie outside its window are solved one by one.
        """
        block, other, here, prior = np.broadcast_arrays(
            np.atleast_1d(noisy), np.atleast_1d(rest), np.atleast_1d(known), np.atleast_1d(log_odds)
        )
        out = np.empty(block.shape)
        for start in range(0, block.size, _ROWS):
            part = slice(start, start + _ROWS)
            gain, sure = self._gain(other[part].astype(np.int64), here[part].astype(np.int64), rest_sigma2)
            own = (2.0 * (block[part].astype(np.int64) - here[part]) - 1.0) / (2.0 * sigma2)
            out[part] = prior[part] + own + gain
            for k in start + np.flatnonzero(~sure):
                out[k] = path_log_odds(
                    [int(block[k]), *self.noisy],
                    [sigma2, *self.sigma2],
                    [int(other[k]), *self.rest],
                    [rest_sigma2, *self.rest_sigma2],
                    known=int(here[k]),
                    log_odds=float(prior[k]),
                )
        return out

    def _gain(
        self, rest: NDArray[np.int64], known: NDArray[np.int64], rest_sigma2: float
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        sums = []
        sure = np.ones(rest.size, dtype=bool)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            log_weight = np.log(self.weight)
            # the message itself is off by what its own windows cut, 1e-24 of its peak: it counts where the message is small
            blur = 1e-21 * np.minimum(np.exp(log_weight.max() - log_weight), 1e300)
            for shift in (0, 1):
                elsewhere = self.support[None, :] - (known + shift)[:, None]
                gap = (rest[:, None] - elsewhere).astype(np.float64)
                term = np.where(elsewhere >= 0, log_weight - gap**2 / (2.0 * rest_sigma2), -np.inf)
                top = term.max(axis=1, keepdims=True)
                share = np.exp(term - top)
                total = share.sum(axis=1)
                sums.append(top[:, 0] + np.log(total))
                sure &= share @ blur <= 1e-13 * total
                for edge, inner, natural in ((-1, -2, False), (0, 1, self.support[0] == 0)):
                    e, i = share[:, edge], share[:, min(inner, share.shape[1] - 1)]
                    # beyond the edge lies at most e r / (1 - r), r = e / i
                    open_end = (elsewhere[:, edge] > 0) & (not natural) & (e > 0)
                    sure &= ~open_end | ((e < i) & (e * e <= _EDGE * total * (i - e)))
                sure &= np.isfinite(sums[-1])
            return sums[1] - sums[0], sure
