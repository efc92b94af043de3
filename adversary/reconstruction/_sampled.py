"""Several ladders of chains, their verdict, and their lists written out as blocks.

What it is: what stands between :mod:`adversary.reconstruction._tempering` and a posterior: too few lists or no
list that climbed all rungs is refused, everything else comes with checks. Held to account by
tests/reconstruction/test_tempering.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from adversary.errors import SamplingError
from adversary.reconstruction._diagnostics import ess, split_r_hat
from adversary.reconstruction._tempering import Moves, Plan, run_chain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adversary.reconstruction._reduced import Reduced
    from adversary.reconstruction._tempering import Chain
    from adversary.reconstruction.posterior import Effort
    from adversary.results import Check

__all__ = ["run", "written_out"]

_FEWEST = 50  # lists a chain below which nothing can be checked
_R_HAT, _ESS, _SWAPS, _FEASIBLE, _TRIPS = 1.05, 100.0, 0.05, 0.05, 3


def run(
    problem: Reduced, effort: Effort, draws: int, rng: np.random.Generator, *, progressbar: bool
) -> tuple[NDArray[np.int16], tuple[Check, ...]]:
    """Run the ladders; return households by class, shape (chains, draws, C), and the verdict."""
    from tqdm.auto import tqdm

    moves = Moves.of(problem)
    rungs = int(np.clip(8 + moves.size // 4, 10, 32))
    sweeps = effort.sweeps
    total = 2 * sweeps * effort.chains
    with tqdm(total=total, desc="tempering", unit=" sweeps", disable=not progressbar) as bar:
        for doubling in range(effort.doublings + 1):
            plan = Plan(sweeps, max(min(draws, sweeps), _FEWEST), rungs=rungs)
            chains = [run_chain(moves, plan, one, bar.update) for one in rng.spawn(effort.chains)]
            refusal = _refusal(chains, plan)
            kept = min(len(chain.counts) for chain in chains)
            counts = np.array([chain.counts[:kept] for chain in chains])
            checks = () if refusal else _verdict(counts, chains)
            if checks and all(check.passed for check in checks):
                break
            if doubling < effort.doublings:
                sweeps *= 2
                total += 2 * sweeps * effort.chains
                bar.total = total
    if refusal:
        raise SamplingError(refusal, kept)
    return counts, checks


def _refusal(chains: list[Chain], plan: Plan) -> str | None:
    """Say why nothing can be checked; None if something can."""
    kept = min(len(chain.counts) for chain in chains)
    if kept < _FEWEST:
        return (
            f"a chain met all rows in {kept} lists only, fewer than {_FEWEST}, in {plan.sweeps} sweeps: allow more"
            " sweeps, or ask Reconstruction.feasible whether any block meets them"
        )
    if plan.rungs > 1 and min(chain.trips for chain in chains) == 0:
        return "no list climbed all rungs of a ladder, so nothing tells whether its chain is right: allow more sweeps"
    return None


def _verdict(counts: NDArray[np.int16], chains: list[Chain]) -> tuple[Check, ...]:
    """Check whether each class is there, and how often, except where that hardly ever changes."""
    from adversary.results import Check

    there = (counts > 0).astype(np.float64)
    share = there.mean(axis=(0, 1))
    open_ = np.flatnonzero((share > 0.02) & (share < 0.98))
    # a class may always be there and its number still be stuck
    number = counts.astype(np.float64)
    moving = np.flatnonzero((number.var(axis=(0, 1)) > 0.02) & (counts.max(axis=(0, 1)) > 1))
    followed = [*(there[..., k] for k in open_), *(number[..., k] for k in moving)]
    r_hat = max((split_r_hat(x) for x in followed), default=1.0)
    size = min((ess(x) for x in followed), default=math.inf)
    trips, swaps = min(chain.trips for chain in chains), min(float(chain.swaps.min()) for chain in chains)
    feasible = min(chain.feasible for chain in chains)
    text = (
        f"sampled; largest r_hat {r_hat:.3f}, least ess {size:.0f} over {open_.size} classes, each there or"
        f" not, and over the numbers of {moving.size}"
    )
    climbed = (
        f"at least {trips} climbs of all rungs in each of {len(chains)} ladders, exchanges accepted {swaps:.2f} or"
        f" more, rows met by {feasible:.2f} of lists or more (only those are kept)"
    )
    return (
        Check("error", bool(r_hat <= _R_HAT and size >= _ESS), text),
        Check("rungs", bool(trips >= _TRIPS and swaps >= _SWAPS and feasible >= _FEASIBLE), climbed),
    )


def written_out(
    problem: Reduced, counts: NDArray[np.int16], rng: np.random.Generator
) -> tuple[NDArray[np.int64], tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Spread classes over configurations: blocks (chains, draws, K); and present, expected, averaged over the spread."""
    weights = problem.weights
    size = weights.shares.size
    blocks = np.zeros((*counts.shape[:2], size), dtype=np.int64)
    present, expected = np.zeros(size), np.zeros(size)
    flat = blocks.reshape(-1, size)
    for c, members in enumerate(problem.members):
        taken = counts[..., c].ravel().astype(np.int64)
        some = np.flatnonzero(taken)
        flat[some[:, None], members] = weights.spread(members, taken[some], rng)
        pmf = np.bincount(taken) / taken.size
        table = weights.member_table(members, len(pmf) - 1)
        present[members], expected[members] = pmf @ table[0], pmf @ table[1]
    return blocks, (present, expected)
