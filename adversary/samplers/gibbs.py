"""The paper's Gibbs sampler, written by hand: one person's presence along a path of counts.

What it is: the reference. Full conditionals (3.8) and (3.9) of Kazan & Reiter for one and two levels, and the
same idea for any number of levels, on grids whose cut-off tails are bounded by the argument of spec 1.3
(log-concave weights). What it is
*not*: an engine to build on. It imports NumPy, the privacy room and the errors and nothing else, so that it
shares no line with what it checks (the exact engine, PyMC).

Held to account by ``tests/samplers/test_gibbs.py``: the paper's conditionals, the two chains' exact laws,
brute-force sums.

Two modes. ``"exact"`` honours X1 <= X2 in both steps. ``"literal"`` ignores it in the X1 step: it reproduces
the paper's printed numbers (0.5777 where the stated model gives 0.5033), and its two conditionals are
incompatible, so **no joint distribution has them**; its draws say so in ``joint_distribution`` and include
impossible states X1 > X2.

Decision on "uniform": it means Y uniform on {0..N}, *independent of X1*. "X2 uniform on {X1..N}" is another
model: its mass 1/(N - X1 + 1) depends on X1 and multiplies the odds by (N - c + 1)/(N - c).

Decision on what is fixed: a rest that is known (a point prior, or a sum published without noise) would freeze
a sampler that moves one count at a time, so the two levels it joins are merged into one before sampling. That
is exact, not a shortcut.

Sources: Kazan & Reiter, arXiv 2204.04253, eqs. (3.7)-(3.9), S1.1, S3.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any

import numpy as np

from adversary.errors import ModelError, SamplingError, UnsupportedModelError
from adversary.samplers._conditionals import expit, log_odds_x1, table
from adversary.samplers._path import (
    SUM_LIMIT,
    Chain,
    FloatArray,
    IntArray,
    PathProblem,
    read_path,
    rest_log_pmf,
)

__all__ = [
    "SUM_LIMIT",
    "Draws",
    "PathProblem",
    "conditional",
    "conditional_x1",
    "conditional_x2",
    "rest_log_pmf",
    "sample",
    "seed_streams",
    "stationary_target",
]

_CACHED = 200_000  # conditional tables kept at once
_BLOCK = 4096  # sweeps whose uniforms are drawn together


def conditional_x1(problem: PathProblem, x2: int | None = None, mode: str = "exact") -> FloatArray:
    """Return [P(X1 = c), P(X1 = c+1)] given X2: eq. (3.8).

    P[X1=k1 | X2=k2, D] is proportional to pi(k1) exp(-rho1 (x1*-k1)^2) exp(-(rho1/d)(y1*-k2+k1)^2) 1[k1 <=
    k2], so at k2 = c X1 = c with certainty. ``mode="literal"`` leaves the indicator out. At D = (2, 1, -1):
    0.578362 at X2 = 2.

    Parameters
    ----------
    problem
        Two levels, or one (then ``x2`` stays None and this is eq. (3.1)).
    x2
        Count of the level above.
    mode
        ``"exact"`` or ``"literal"``.

    Returns
    -------
    ndarray of float, shape (2,)
        Probabilities of c and c + 1.

    Examples
    --------
    >>> problem = PathProblem(0, 0.0, nodes=((2, 5.0), (1, 2.0)), rests=((-1, 5.0, 27),))
    >>> conditional_x1(problem, 0).tolist()
    [1.0, 0.0]
    """
    _check_mode(problem, mode)
    if (x2 is None) != (problem.levels == 1):
        msg = (
            f"a path of {problem.levels} level(s) {'has no' if problem.levels == 1 else 'needs a'} count "
            f"above X1, got x2={x2}"
        )
        raise ModelError(msg, x2)
    log_odds = log_odds_x1(read_path(problem, merge=False), x2, constrained=mode == "exact")
    return np.array([expit(-log_odds), expit(log_odds)])


def conditional_x2(problem: PathProblem, x1: int) -> tuple[IntArray, FloatArray]:
    """Return (support, probabilities) of X2 given X1 = ``x1`` on two levels: eq. (3.9).

    P[X2=k2 | X1=k1, D] is proportional to exp(-rho2 (x2*-k2)^2) exp(-(rho1/d)(y1*-k2+k1)^2) on k2 >= k1: a
    discrete Gaussian cut below. At D = (2, 1, -1): 0.252876 at X1 = 0, X2 = 2. The grid loses less than
    1e-16, proved.

    Examples
    --------
    >>> problem = PathProblem(0, 0.0, nodes=((2, 5.0), (1, 2.0)), rests=((-1, 5.0, 27),))
    >>> support, probability = conditional_x2(problem, 1)
    >>> int(support[0]), round(float(probability.sum()), 12)
    (1, 1.0)
    """
    if problem.levels != 2:
        msg = (
            f"conditional_x2 is for two levels, got {problem.levels}: use conditional(problem, level, below, "
            "above)"
        )
        raise ModelError(msg, problem.levels)
    return conditional(problem, 2, x1)


def conditional(
    problem: PathProblem, level: int, below: int, above: int | None = None
) -> tuple[IntArray, FloatArray]:
    """Return (support, probabilities) of X_level, 2 <= level <= h, given its two neighbours.

    Parameters
    ----------
    problem
        The path.
    level
        Which count, from 2.
    below, above
        Its neighbours; ``above`` is None exactly at the top.

    Examples
    --------
    >>> problem = PathProblem(0, 0.0, nodes=((2, 5.0), (1, 2.0)), rests=((-1, 5.0, 27),))
    >>> int(conditional(problem, 2, 0)[0][0])
    0
    """
    if not 2 <= level <= problem.levels or (above is None) != (level == problem.levels):
        msg = (
            f"level {level} of {problem.levels} with above={above}: levels run from 2, and only the top has "
            "nothing above it"
        )
        raise ModelError(msg, level)
    return table(read_path(problem, merge=False), level - 1, below, above)


class Draws(dict[str, IntArray]):
    """Draws by name (``x1``.., ``y1``..), each (chains, draws), and what they are draws *of*.

    Attributes
    ----------
    mode : str
        ``"exact"`` or ``"literal"``.
    joint_distribution : bool
        False for the literal sampler of two levels: no joint distribution has its two conditionals.
    impossible : float
        Share of draws with X1 > X2; 0 in exact mode.
    """

    mode: str = "exact"
    joint_distribution: bool = True
    impossible: float = 0.0


def sample(
    problem: PathProblem,
    *,
    draws: int = 10_000,
    tune: int = 500,
    chains: int = 4,
    seed: Any = None,
    mode: str = "exact",
    progressbar: bool = False,
) -> Draws:
    """Draw from the posterior by Gibbs sampling.

    X_h, ..., X_2, then X1, each from its full conditional by inverse cdf.

    Parameters
    ----------
    problem
        What is known, believed and published.
    draws, tune, chains
        Sweeps kept and thrown away in each chain; chains.
    seed
        int, SeedSequence or Generator. Each chain has its own stream, so chains do not depend on how they are
        run.
    mode
        ``"exact"``, or ``"literal"`` (at most two levels, flat prior): the sampler behind the paper's printed
        numbers.
    progressbar
        Show one bar for the run.

    Returns
    -------
    Draws
        ``x1``..``xh`` and ``y1``..``y(h-1)``, int64 of shape (chains, draws); ``joint_distribution`` is False
        for the literal sampler of two levels.

    Raises
    ------
    ModelError
        When what the adversary knows, believes and sees cannot all be true, or does not bound a count.
    UnsupportedModelError
        For the literal mode where the paper does not define it.

    Examples
    --------
    >>> problem = PathProblem(0, 0.0, nodes=((2, 5.0), (1, 2.0)), rests=((-1, 5.0, 27),))
    >>> found = sample(problem, draws=100, chains=2, seed=1)
    >>> found["x2"].shape, bool((found["x1"] <= found["x2"]).all()), found.joint_distribution
    ((2, 100), True, True)
    """
    _check_mode(problem, mode)
    if draws < 1 or tune < 0 or chains < 1:
        msg = (
            f"draws and chains must be at least 1 and tune at least 0, got draws={draws}, chains={chains}, "
            f"tune={tune}"
        )
        raise SamplingError(msg, (draws, chains, tune))
    chain = read_path(problem, merge=mode == "exact")
    kept = np.empty((chains, draws, len(chain.seen)), dtype=np.int64)
    tables: list[dict[Any, Any]] = [{} for _ in chain.seen]
    bar = _bar(chains * (draws + tune), progressbar)
    for j, rng in enumerate(seed_streams(seed, chains)):
        done = 0
        state = _start(chain, rng)
        while done < draws + tune:
            n = min(_BLOCK, draws + tune - done)
            path = np.array(
                _sweeps(
                    chain, state, rng.random((n, len(chain.seen))).tolist(), tables, literal=mode == "literal"
                )
            )
            first = max(0, tune - done)
            kept[j, max(0, done - tune) : max(0, done + n - tune)] = path[first:]
            done += n
            bar.update(n)
    bar.close()
    found = Draws({f"x{i + 1}": kept[:, :, at] + offset for i, (at, offset) in enumerate(chain.place)})
    found |= {f"y{i}": found[f"x{i + 1}"] - found[f"x{i}"] for i in range(1, problem.levels)}
    found.mode = mode
    found.joint_distribution = mode == "exact" or problem.levels == 1
    found.impossible = float((found["x1"] > found["x2"]).mean()) if problem.levels > 1 else 0.0
    return found


def _sweeps(
    chain: Chain,
    state: list[int],
    uniforms: list[list[float]],
    tables: list[dict[Any, Any]],
    *,
    literal: bool,
) -> list[list[int]]:
    """Run sweeps in plain Python on cached cdfs: there are few distinct tables, so this beats NumPy calls."""
    top = len(state) - 1
    presence = tables[0]
    path = []
    for row in uniforms:
        for i in range(top, 0, -1):
            above = state[i + 1] if i < top else None
            key = (state[i - 1], above)
            found = tables[i].get(key)
            if found is None:
                support, p = table(chain, i, state[i - 1], above)
                if len(tables[i]) >= _CACHED:
                    tables[i].clear()
                found = tables[i][key] = (int(support[0]), np.append(np.cumsum(p)[:-1], np.inf).tolist())
            first, cdf = found
            state[i] = first + bisect_right(cdf, row[i])
        above = state[1] if top else None
        absent = presence.get(above)
        if absent is None:
            absent = presence[above] = expit(-log_odds_x1(chain, above, constrained=not literal))
        state[0] = chain.known + (row[0] >= absent)
        path.append(state.copy())
    return path


def _start(chain: Chain, rng: np.random.Generator) -> list[int]:
    """Return a possible state near the data: intervals narrowed from the top, then filled from the bottom."""
    h = len(chain.seen)
    ends: list[tuple[int, float]] = []
    low, high = chain.known, float(chain.known + 1)
    for i in range(h):
        if i:
            rest = chain.rests[i - 1]
            low, high = low + rest.low, math.inf if rest.high is None else high + rest.high
        exact = [v for v, s in chain.seen[i] if s == 0]
        low, high = max([low, *exact]), min([high, *exact])
        ends.append((low, high))
    for i in range(h - 2, -1, -1):
        rest, (a, b), (low, high) = chain.rests[i], ends[i + 1], ends[i]
        ends[i] = (low if rest.high is None else max(low, a - rest.high), min(high, b - rest.low))
    for a, b in ends:
        if a > b:
            msg = "the exact counts exclude every state: what the adversary knows and sees cannot all be true"
            raise ModelError(msg, (a, b))
    state = [int(rng.integers(ends[0][0], int(ends[0][1]) + 1))]
    for i in range(1, h):
        rest = chain.rests[i - 1]
        a = max(state[-1] + rest.low, ends[i][0])
        b = min(math.inf if rest.high is None else state[-1] + rest.high, ends[i][1])
        guess = state[-1] + (rest.value or 0)
        state.append(int(max(a, min(b, guess))))
    return state


def stationary_target(problem: PathProblem, mode: str = "exact") -> float:
    """Return the sampler's own long-run P[X1 = c+1], exactly: X1 alone is a two-state Markov chain.

    pi = P01 / (1 - P11 + P01) with P_k1 = sum over k2 of (3.9) times (3.8). At D = (2, 1, -1): 0.503288
    exact, 0.577702 literal. Only for one and two levels: further up, X1 alone is no Markov chain.

    Parameters
    ----------
    problem
        One or two levels.
    mode
        ``"exact"`` or ``"literal"``.

    Examples
    --------
    >>> problem = PathProblem(0, 0.0, nodes=((2, 5.0), (1, 2.0)), rests=((-1, 5.0, 27),))
    >>> round(stationary_target(problem), 4), round(stationary_target(problem, "literal"), 4)
    (0.5038, 0.5783)
    """
    _check_mode(problem, mode)
    chain = read_path(problem, merge=mode == "exact")
    if len(chain.seen) > 2:
        msg = (
            f"X1 alone is a Markov chain on one and two levels, not on {len(chain.seen)}: use sampler='exact'"
        )
        raise UnsupportedModelError(msg, len(chain.seen))
    if len(chain.seen) == 1:
        return expit(log_odds_x1(chain, None))
    moves = []
    for x1 in (chain.known, chain.known + 1):
        if mode == "exact" and not _possible(chain, x1):
            return float(x1 == chain.known)
        support, q = table(chain, 1, x1, None)
        t = [expit(log_odds_x1(chain, int(k), constrained=mode == "exact")) for k in support]
        moves.append(float(q @ np.array(t)))
    p01, p11 = moves
    return p01 / (1 - p11 + p01)


def _possible(chain: Chain, x1: int) -> bool:
    try:
        table(chain, 1, x1, None)
    except ModelError:
        return False
    return all(s > 0 or v == x1 for v, s in chain.seen[0])


def _check_mode(problem: PathProblem, mode: str) -> None:
    if mode not in ("exact", "literal"):
        msg = f"mode must be 'exact' or 'literal', got {mode!r}"
        raise ModelError(msg, mode)
    if mode == "literal" and problem.levels > 1:
        prior = problem.rests[0][3] if len(problem.rests[0]) > 3 else ("flat", {})
        if problem.levels > 2 or callable(prior) or prior[0] != "flat":
            msg = (
                "mode='literal' exists for at most two levels and the flat prior, as in the paper: use "
                "mode='exact'"
            )
            raise UnsupportedModelError(msg, problem)


def seed_streams(seed: Any, chains: int) -> list[np.random.Generator]:
    """Return one generator a chain; equal seeds give equal streams however often they are used.

    Parameters
    ----------
    seed : int, SeedSequence, Generator or None
        A SeedSequence is read, never advanced; a Generator gives one draw, so equal generators agree.
    chains : int
        How many.

    Examples
    --------
    >>> a, b = seed_streams(1, 2)
    >>> a.random() != b.random()
    True
    """
    if isinstance(seed, np.random.Generator):
        seed = int(seed.integers(0, 2**63, dtype=np.int64))
    root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    # a key of our own: the caller may spawn from the same sequence for other purposes
    keys = [(*root.spawn_key, 0x67696262, j) for j in range(chains)]
    return [np.random.default_rng(np.random.SeedSequence(root.entropy, spawn_key=key)) for key in keys]


class _Silent:
    def update(self, n: int) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Show nothing."""


def _bar(total: int, show: bool) -> Any:
    if not show:
        return _Silent()
    from tqdm.auto import tqdm

    return tqdm(total=total, unit="sweep", desc="gibbs")
