"""The posterior of many blocks, synthetic or real, as plain records.

What it is: :func:`adversary.reconstruction.posterior.household_posterior` asked of the published tables of a
synthetic state under a mechanism, or of real redistricting tables, with the adversary's beliefs named, kept
in a folder. What it is not: a posterior of its own. Answers about a synthetic state are about synthetic
households only.

Held to account by tests/reconstruction/test_believe.py (each record against the posterior asked by hand).
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ModelError
from adversary.reconstruction.ask import pl94_rows, published_block, state_blocks, table_shares, tabulated
from adversary.reconstruction.beliefs import BEDROOMS_FLAT, attacker_shares, bedrooms_given_size
from adversary.reconstruction.households import OVER_LIMIT, Predicate
from adversary.reconstruction.posterior import Effort, household_posterior
from adversary.reconstruction.runs import answer_each
from adversary.reconstruction.solve import Reconstruction, Status
from adversary.reconstruction.synthetic import BEDROOMS_LOOSE, BEDROOMS_RIGHT_SIZED, BEDROOMS_TO_NEED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from adversary.readers.pl94 import Pl94Table
    from adversary.reconstruction.ask import StateView
    from adversary.reconstruction.blocks import Pl94Question
    from adversary.reconstruction.constraints import Constraints
    from adversary.reconstruction.households import Configurations
    from adversary.reconstruction.noise import NoisyRows
    from adversary.reconstruction.synthetic import SyntheticState

__all__ = ["BEDROOMS", "Belief", "believe_pl94", "believe_state"]

BEDROOMS: Mapping[str, Any] = MappingProxyType(
    {
        "flat": None,
        "right-sized": BEDROOMS_RIGHT_SIZED,
        "to-need": BEDROOMS_TO_NEED,
        "loose": BEDROOMS_LOOSE,
    }
)
"""What she may believe of bedrooms given size: nothing (all equally likely), or how units are fitted to need."""


@dataclass(frozen=True)
class Belief:
    """What she believes before she looks, what she wants to know, and what may be spent.

    Attributes
    ----------
    harm
        Whom she asks about.
    bedrooms
        A name of `BEDROOMS`. It decides how much can be known, so vary it.
    subsidised
        P(subsidised) of a household.
    violating
        P(over the limit | subsidised, three persons or more), unless ``bedrooms`` is ``"flat"``.
    likelihood, method, draws, effort
        See `adversary.reconstruction.posterior.household_posterior`.
    seed
        Of the draws; every block has its own below it.
    """

    harm: Predicate = OVER_LIMIT
    bedrooms: str = "flat"
    subsidised: float = 0.47
    violating: float = 0.034
    likelihood: str = "exchangeable"
    method: str = "auto"
    draws: int = 1000
    effort: Effort = field(default_factory=Effort)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.bedrooms not in BEDROOMS:
            msg = f"no belief {self.bedrooms!r} about bedrooms: choose {', '.join(BEDROOMS)}"
            raise ModelError(msg, self.bedrooms)
        if self.draws < 1:
            msg = f"{self.draws} draws are none: give 1 or more"
            raise ModelError(msg, self.draws)

    def shares(self, configurations: Configurations, census: NDArray[np.float64]) -> NDArray[np.float64]:
        """Spread the shares of the ``census`` sample over subsidy and bedrooms of ``configurations``, as she believes."""
        within = BEDROOMS[self.bedrooms]
        table = BEDROOMS_FLAT if within is None else bedrooms_given_size(within, self.violating)
        return attacker_shares(configurations, census, subsidised=self.subsidised, bedrooms=table)

    def identity(self) -> dict[str, Any]:
        """Return what changes an answer, as JSON."""
        return {**asdict(replace(self, harm=OVER_LIMIT)), "harm": self.harm.name}


def believe_state(
    state: SyntheticState,
    view: StateView,
    belief: Belief,
    blocks: Sequence[int] | None = None,
    *,
    out: str | Path | None = None,
    processes: int = 1,
    progressbar: bool = False,
) -> dict[str, dict[str, Any]]:
    """Ask for the posterior of a synthetic state's blocks.

    Parameters
    ----------
    state, view, belief
        See there. Noisy tables enter with their likelihood, not as printed; with ``view.mend`` rows that
        contradict each other are widened by the least error first.
    blocks
        Numbers of blocks; None for all.
    out, processes, progressbar
        See `adversary.reconstruction.runs.answer_each`.

    Returns
    -------
    dict
        Answers by block: ``status`` (exact, tempering, infeasible, error), P(harm) before and after, their
        ratio, the expected number, its law, the checks. About synthetic households only.

    Examples
    --------
    >>> from adversary.reconstruction.ask import StateView
    >>> from adversary.reconstruction.synthetic import StateShape, synthetic_state
    >>> state = synthetic_state(StateShape(blocks=30, smallest=5, largest=18, violating=0.1), seed=1)
    >>> found = believe_state(state, StateView(), Belief(bedrooms="to-need"), [2])["block-000002"]
    >>> found["status"], 0 <= found["probability"] <= 1
    ('exact', True)
    """
    names = state_blocks(state, blocks)
    _check(state.configurations(), belief)
    return answer_each(
        _StateJob(state, tabulated(state, view), view, belief),
        names,
        {"what": "posterior of a synthetic state", **view.identity(state), **belief.identity()},
        out,
        seconds=view.limits.seconds,
        processes=processes,
        progressbar=progressbar,
    )


def believe_pl94(
    table: Pl94Table,
    seen: Pl94Question,
    belief: Belief,
    blocks: Sequence[str] | None = None,
    *,
    out: str | Path | None = None,
    processes: int = 1,
    progressbar: bool = False,
) -> dict[str, dict[str, Any]]:
    """Ask for the posterior of the blocks of redistricting tables.

    Parameters
    ----------
    table
        What `read_pl94` returns.
    seen
        Tables, group quarters.
    belief
        Harm, likelihood, method, draws; persons are drawn from the shares of the cells in the whole table.
    blocks
        Codes of geounits; None for all.
    out, processes, progressbar
        See `adversary.reconstruction.runs.answer_each`.

    Examples
    --------
    >>> from adversary.readers.pl94 import demo_folder, read_pl94
    >>> from adversary.reconstruction.blocks import Pl94Question
    >>> from adversary.reconstruction.questions import parse_harm
    >>> table = read_pl94(demo_folder())
    >>> code = str(table.geoid[int(np.argmax(table.total))])
    >>> belief = Belief(parse_harm("hispanic=hispanic,votingage=under_18"))
    >>> found = believe_pl94(table, Pl94Question(("P1", "P2", "P3")), belief, [code])[code]
    >>> found["status"]
    'exact'
    """
    rows = pl94_rows(table, seen, blocks)
    _check(seen.configurations, belief)
    asked = {**seen.identity(table), **belief.identity(), "what": "posterior of PL 94-171 blocks"}
    return answer_each(
        _Pl94Job(table, seen, belief, table_shares(table, seen)),
        rows,
        asked,
        out,
        seconds=seen.limits.seconds,
        processes=processes,
        progressbar=progressbar,
    )


def _check(configurations: Configurations, belief: Belief) -> None:
    if not configurations.mask(belief.harm).any():
        msg = f"no configuration has the harm {belief.harm.name!r}: mend it"
        raise ModelError(msg, belief.harm.name)


@dataclass(frozen=True)
class _StateJob:
    """Publishes one block and asks; a class of the module, so that it can be sent to other processes."""

    state: SyntheticState
    tabulated: NDArray[np.int64]
    view: StateView
    belief: Belief

    def __call__(self, name: str) -> dict[str, Any]:
        block = int(name.removeprefix("block-"))
        published, limits = published_block(self.state, self.tabulated, self.view, block)
        configurations = published.rows.configurations
        shares = self.belief.shares(configurations, self.state.shares(configurations))
        rows, missed = published.firm, 0
        look = Reconstruction(rows, shares, self.view.backend, limits)
        if self.view.mend and look.feasible(explain=False).status is Status.INFEASIBLE:
            mend = look.closest()
            if mend.relaxed is not None:
                rows, missed = mend.relaxed, mend.missed
        seed = np.random.SeedSequence(self.belief.seed, spawn_key=(block,))
        answer = _answer(rows, shares, published.noisy, self.belief, (seed, limits))
        return {**answer, "rows_widened": missed}


@dataclass(frozen=True)
class _Pl94Job:
    table: Pl94Table
    seen: Pl94Question
    belief: Belief
    shares: NDArray[np.float64] | None

    def __call__(self, name: str) -> dict[str, Any]:
        rows = self.seen.rows(self.table, name)
        seed = np.random.SeedSequence(self.belief.seed, spawn_key=(int(name),))
        if self.shares is None:
            msg = "nobody lives in the whole table, so that no cell is likely: give a table with people"
            raise ModelError(msg, name)
        return _answer(rows, self.shares, None, self.belief, (seed, self.seen.limits))


def _answer(
    rows: Constraints,
    shares: NDArray[np.float64],
    noisy: NoisyRows | None,
    belief: Belief,
    how: tuple[np.random.SeedSequence, Any],
) -> dict[str, Any]:
    start = time.perf_counter()
    seed, limits = how
    # a solver says at once, and names the tables, where the sums over all blocks would take long
    look = Reconstruction(rows, shares, limits=limits).feasible()
    if look.status is Status.INFEASIBLE:
        clash = (
            {} if look.clash is None else {"clash": str(look.clash), "clash_tables": list(look.clash.tables)}
        )
        return {"status": str(look.status), **clash, "seconds": round(time.perf_counter() - start, 4)}
    found = household_posterior(
        rows,
        shares,
        noisy=noisy,
        likelihood=belief.likelihood,
        method=belief.method,
        draws=belief.draws,
        seed=seed,
        effort=belief.effort,
    )
    before, after = found.prior.probability(belief.harm), found.probability(belief.harm)
    return {
        "status": found.method,
        "probability": after,
        "prior": before,
        "risk": after / before if before > 0 else None,
        "expected": found.expected_number(belief.harm),
        "expected_before": found.prior.expected_number(belief.harm),
        "law": [float(p) for p in found.pmf(belief.harm)],
        "sound": found.sound,
        "checks": [check.text for check in found.checks],
        "households": max(found.prior.households),
        "log_evidence": float(found.log_evidence) if np.isfinite(found.log_evidence) else None,
        "seconds": round(time.perf_counter() - start, 4),
    }
