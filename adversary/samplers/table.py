"""Two-level posteriors for millions of targets that share one noise: a table for the group, one compiled kernel.

In a census a few hundred groups of geounits share their noise parameters. For each the constraint's contribution to the
log-odds is a function of one number, tabulated here as polynomials of degree 9 on intervals that widen away from zero; the
kernel (numba, compiled at first use) then costs no more than the logistic function it ends in.

What it is not: a second derivation. The values at the nodes come from the closed form (:mod:`adversary.samplers._theta`),
and a table refuses to serve where it does not reproduce the closed form between the nodes.

Held to account by ``tests/samplers/test_table.py``; speed by ``tests/benchmarks/test_bench_table.py``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import SamplingError, UnsupportedModelError
from adversary.samplers import _theta

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["TwoLevelTable"]

_DEGREE = 9
_PIECES = 16  # intervals an octave
_FAR = 8.6  # standard deviations above zero from which the constraint is not felt (below 4e-18)
_STEEP = 40.0  # slope from which a tail is its first term (exp(-40) = 4e-18)
_WIDEST = 0.6  # 1/sigma2 of the rest given all else: the theta term 2 exp(-2 pi^2/0.6) = 1e-14 is left out
_ACCURACY = 2e-13


def _nodes_to_monomials() -> NDArray[np.float64]:
    """Matrix from values at Chebyshev nodes to monomial coefficients on [-1, 1]."""
    from numpy.polynomial import chebyshev

    n = _DEGREE + 1
    nodes = np.cos((np.arange(n) + 0.5) * np.pi / n)
    to_chebyshev = np.linalg.inv(chebyshev.chebvander(nodes, _DEGREE))
    columns = [np.pad(chebyshev.cheb2poly(np.eye(n)[k]), (0, n))[:n] for k in range(n)]
    return np.asarray(np.array(columns).T @ to_chebyshev)


def _edges(longest: float) -> NDArray[np.float64]:
    """Return the ends of the intervals on [1, longest], 16 to an octave."""
    octaves = max(1, math.ceil(math.log2(longest)))
    starts = [2.0**k * (1.0 + j / _PIECES) for k in range(octaves) for j in range(_PIECES)]
    return np.array([*starts, 2.0**octaves])


def _tabulate(
    function: Callable[[NDArray[np.float64]], NDArray[np.float64]], longest: float
) -> NDArray[np.float64]:
    """Coefficients, shape (intervals, 10), of a function of z on [1, longest], checked between the nodes."""
    edges = _edges(longest)
    middle, half = 0.5 * (edges[1:] + edges[:-1]), 0.5 * (edges[1:] - edges[:-1])
    nodes = np.cos((np.arange(_DEGREE + 1) + 0.5) * np.pi / (_DEGREE + 1))
    values = function((middle[:, None] + half[:, None] * nodes).ravel()).reshape(len(middle), -1)
    table = values @ _nodes_to_monomials().T
    between = np.array([-1.0, -0.87, -0.5, -0.01, 0.33, 0.71, 1.0])
    found = sum(table[:, k, None] * between**k for k in range(_DEGREE + 1))
    wanted = function((middle[:, None] + half[:, None] * between).ravel()).reshape(len(middle), -1)
    worst = float(np.abs(found - wanted).max())
    if worst > _ACCURACY:
        msg = f"the table misses the closed form by {worst:.1e}, more than {_ACCURACY:.0e}: use two_level_log_odds for this noise"
        raise SamplingError(msg, worst)
    return np.ascontiguousarray(table)


@functools.cache
def _kernel() -> Any:
    """Compile the kernel; numba is imported here because it costs seconds."""
    import numba

    @numba.njit(nogil=True, inline="always")
    def look_up(table: Any, z: float) -> float:
        octave = 0
        scale = 1.0
        while z >= 2.0 * scale:
            scale *= 2.0
            octave += 1
        place = (z / scale - 1.0) * _PIECES
        piece = int(place)
        t = 2.0 * (place - piece) - 1.0
        row = table[octave * _PIECES + piece]
        out = row[_DEGREE]
        for k in range(_DEGREE - 1, -1, -1):
            out = out * t + row[k]
        return float(out)

    @numba.njit(nogil=True)
    def kernel(  # noqa: PLR0917, PLR0913
        x1: Any,
        x2: Any,
        y1: Any,
        known: Any,
        numbers: Any,
        above: Any,
        below: Any,
        as_posterior: bool,
        out: Any,
    ) -> None:
        prior, c1, c2, c23, i2, i3, root = numbers
        for i in range(x1.size):
            m = known[i]
            u, v = x2[i] - m, y1[i]
            shift = u * i2 + v * i3
            total = prior + (2.0 * (x1[i] - m) - 1.0) * c1
            if shift > 0.0:
                total += (2.0 * (u - v) - 1.0) * c23
                if shift - i2 <= _FAR * root:
                    total += look_up(above, 1.0 + shift / root)
            else:
                total += (2.0 * u - 1.0) * c2
                if -shift < _STEEP:
                    total += look_up(below, 1.0 - shift / root)
            out[i] = 1.0 / (1.0 + math.exp(-total)) if as_posterior else total

    return kernel


@dataclass(frozen=True)
class TwoLevelTable:
    """The two-level posterior of one group of targets: flat prior on the rest, noise of the rest as one discrete Gaussian.

    Parameters
    ----------
    sigma2_1, sigma2_2, sigma2_rest
        Noise parameters of the block's count, the block group's count and the rest's sum (groups x sigma2), > 0.
    prior_log_odds
        logit p.

    Raises
    ------
    UnsupportedModelError
        Where 1/sigma2_2 + 1/sigma2_rest exceeds 0.6 (little noise): use
        :func:`adversary.samplers.closed.two_level_log_odds`, which has no such limit.
    SamplingError
        Where the table does not reproduce the closed form to 2e-13.

    Notes
    -----
    Kazan & Reiter (arXiv 2204.04253), sec. 3.2. Absolute error of the log-odds at most 2e-13 more than the closed form's.
    """

    sigma2_1: float
    sigma2_2: float
    sigma2_rest: float
    prior_log_odds: float = 0.0
    _numbers: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _above: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _below: NDArray[np.float64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Build the two tables."""
        i2, i3 = 1.0 / self.sigma2_2, 1.0 / self.sigma2_rest
        tau = i2 + i3
        if not 0 < tau <= _WIDEST:
            msg = (
                f"a table needs 1/sigma2_2 + 1/sigma2_rest in (0, 0.6], got {tau:.3g}: use two_level_log_odds"
            )
            raise UnsupportedModelError(msg, tau)
        root = math.sqrt(tau)

        def above(z: NDArray[np.float64]) -> NDArray[np.float64]:
            shift = (z - 1.0) * root
            return _theta._missing(tau + shift - i2, tau) - _theta._missing(tau + shift, tau)

        def below(z: NDArray[np.float64]) -> NDArray[np.float64]:
            slope = (z - 1.0) * root
            return np.asarray(np.log(_theta._tail(slope + i2, tau)) - np.log(_theta._tail(slope, tau)))

        numbers = [
            self.prior_log_odds, 0.5 / self.sigma2_1, 0.5 * i2, 0.5 / (self.sigma2_2 + self.sigma2_rest), i2, i3, root,
        ]  # fmt: skip
        object.__setattr__(self, "_numbers", np.array(numbers))
        object.__setattr__(self, "_above", _tabulate(above, 1.0 + _FAR + i2 / root))
        object.__setattr__(self, "_below", _tabulate(below, 1.0 + _STEEP / root))

    def _run(
        self, x1: Any, x2: Any, y1: Any, known: Any, out: Any, *, as_posterior: bool
    ) -> NDArray[np.float64]:
        counts = [np.asarray(a) for a in (x1, x2, y1, known)]
        wrong = next((a for a in counts if a.dtype.kind not in "iu"), None)
        if wrong is not None:
            msg = f"counts must be whole numbers, got {wrong.dtype}: noisy counts are integers"
            raise UnsupportedModelError(msg, wrong)
        shape = np.broadcast_shapes(*(a.shape for a in counts))
        flat = [np.ascontiguousarray(np.broadcast_to(a, shape), dtype=np.int64).ravel() for a in counts]
        result = np.empty(shape) if out is None else out
        _kernel()(*flat, self._numbers, self._above, self._below, as_posterior, result.reshape(-1))
        return np.asarray(result)

    def log_odds(
        self, x1_star: Any, x2_star: Any, y1_star: Any, known: Any, out: Any = None
    ) -> NDArray[np.float64]:
        """Return the posterior log-odds of the targets, shape of the broadcast counts.

        Parameters
        ----------
        x1_star, x2_star, y1_star
            Noisy counts of the block, of the group, and of the rest's sum; integers.
        known
            People known to share the target's cell in her block; integers.
        out
            Contiguous float64 array to write into.
        """
        return self._run(x1_star, x2_star, y1_star, known, out, as_posterior=False)

    def posterior(
        self, x1_star: Any, x2_star: Any, y1_star: Any, known: Any, out: Any = None
    ) -> NDArray[np.float64]:
        """Return P[present | release] of the targets; parameters as :meth:`log_odds`.

        Parameters
        ----------
        x1_star
            Noisy count of the block, any shape.
        x2_star
            Noisy count of the group.
        y1_star
            Noisy sum over the others.
        known
            People she knows in the cell.
        out
            Array to write into; a new one by default.
        """
        return self._run(x1_star, x2_star, y1_star, known, out, as_posterior=True)
