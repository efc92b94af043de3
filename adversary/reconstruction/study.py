"""The housing study: publish a synthetic state under several mechanisms, rebuild every block, keep the answers.

What it is: for each block and mechanism, the verdict of equation 1 on the printed tables; where they
contradict each other, the program of least query error and the verdict on the rows widened by it; the top t
blocks and how many households with the harm they put on each configuration; and, if asked for, a posterior.
One small file a block, so that a run goes on where it stopped, with the same bytes.

What it is not: an evaluation (:mod:`adversary.reconstruction.evaluation`), or a statement about real
households: validation is on synthetic households only.

The list of t is often an arbitrary part of a tie (the likelihood knows neither subsidy nor bedrooms). The
rule: level by level of cost, within a level in lexicographic order, except in a last level that is larger
than what is listed, where the solver's order decides for the block's seed; such lists are marked ``cut``.

Held to account by tests/reconstruction/test_study.py. Source: arXiv 2407.04776, sections 4 and 5, appendices
C and F (in outline).
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary._version import __version__
from adversary.errors import ModelError, SamplingError
from adversary.reconstruction.beliefs import BEDROOMS_FLAT, attacker_shares, bedrooms_given_size
from adversary.reconstruction.households import CENSUS_ATTRIBUTES
from adversary.reconstruction.mechanisms import MECHANISMS, Mechanism, Published, publish
from adversary.reconstruction.posterior import household_posterior
from adversary.reconstruction.runs import answer_each
from adversary.reconstruction.solve import Limits, Reconstruction
from adversary.reconstruction.study_answers import (
    PAPER_BLOCKS,
    PHASES,
    VALIDATION,
    BlockAnswer,
    StudyOptions,
    StudyResult,
)
from adversary.reconstruction.swapping import SwapDesign, swap_state
from adversary.reconstruction.synthetic import BEDROOMS_TO_NEED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from adversary.reconstruction.households import Configurations
    from adversary.reconstruction.synthetic import SyntheticState

__all__ = [
    "MECHANISMS",
    "PAPER_BLOCKS",
    "VALIDATION",
    "BlockAnswer",
    "Mechanism",
    "StudyOptions",
    "StudyResult",
    "assumed_shares",
    "reconstruct_state",
    "state_hash",
]

_WHATEVER = (
    0.05  # share of units whose bedrooms have nothing to do with need, if they are assumed fitted to it
)
_SWAP, _BLOCK = 1, 2  # keys of the seeds of the state's swaps and of a block's noise
_POSTERIOR = 1_000_000  # below a block's seed; the tables and HUD lines of a block have 0, 1, 2, ...


def reconstruct_state(  # noqa: PLR0913 - how to run, all with defaults
    state: SyntheticState,
    mechanisms: Sequence[Mechanism | str] | Mechanism | str | None = None,
    folder: str | Path | None = None,
    *,
    seed: int,
    options: StudyOptions | None = None,
    blocks: Sequence[int] | None = None,
    processes: int = 1,
    progressbar: bool = False,
) -> StudyResult:
    """Publish and rebuild the blocks of a synthetic state.

    Parameters
    ----------
    state
        See `adversary.reconstruction.synthetic.synthetic_state`.
    mechanisms
        Mechanisms, or names of `MECHANISMS`; None for all of those.
    folder
        Keeps one file a block and mechanism; run again to go on where it stopped. None to keep nothing.
    seed
        Of swaps, noise and the solver's choices. Each block has its own below it, so that the answers depend
        neither on the order nor on the number of processes.
    options
        What is asked; None for the paper's.
    blocks
        Which blocks are rebuilt; None for all. Swapping is of the whole state either way.
    processes
        1 or more.
    progressbar
        Show how many blocks are done, one bar a mechanism.

    Returns
    -------
    StudyResult
        The answers of every block and mechanism.

    Raises
    ------
    ModelError
        For unknown or repeated mechanisms or blocks, or a folder that holds another study.

    Notes
    -----
    Files are the same byte for byte after a run that was killed and continued, unless a time limit ended a
    question; wall times are kept apart, in ``seconds``.

    Examples
    --------
    >>> from adversary.reconstruction.synthetic import StateShape, synthetic_state
    >>> state = synthetic_state(StateShape(blocks=60), seed=1)
    >>> found = reconstruct_state(state, "none", seed=1, blocks=[0, 1], options=StudyOptions(top=5))
    >>> found.dataset["listed"].values.tolist()
    [[5, 5]]
    """
    options = StudyOptions() if options is None else options
    chosen = _mechanisms(mechanisms)
    which = list(range(len(state))) if blocks is None else [int(b) for b in blocks]
    if len(set(which)) != len(which) or not all(0 <= b < len(state) for b in which):
        msg = f"blocks must be different numbers from 0 to {len(state) - 1}: mend the list"
        raise ModelError(msg, which)
    known = {"state": state_hash(state), "options": options.identity(), "seed": int(seed), **_versions()}
    table = state.configurations()
    columns = [table.column(name) for name in CENSUS_ATTRIBUTES]
    answers: dict[str, tuple[BlockAnswer, ...]] = {}
    seconds: dict[str, NDArray[np.float64]] = {}
    for mechanism in chosen:
        tabulated = state.records[:, columns]
        if mechanism.swap_rate > 0:
            its_seed = np.random.SeedSequence(seed, spawn_key=(_SWAP,))
            tabulated = swap_state(state, SwapDesign(mechanism.swap_rate), seed=its_seed)[1]
        out = None if folder is None else Path(folder) / mechanism.folder
        job = _Job(state, tabulated, mechanism, options, seed, None if out is None else out / "seconds")
        found = answer_each(
            job,
            [_name(b) for b in which],
            {"study": "reconstruction of a synthetic state", "mechanism": asdict(mechanism), **known},
            out,
            seconds=options.limits.seconds,
            processes=processes,
            progressbar=progressbar,
        )
        answers[mechanism.name] = tuple(BlockAnswer.from_dict(found[_name(b)]) for b in which)
        seconds[mechanism.name] = _seconds(found, job.clock)
    return StudyResult(chosen, tuple(which), options, len(state), answers, seconds)


def assumed_shares(
    state: SyntheticState, configurations: Configurations, bedrooms: str
) -> NDArray[np.float64]:
    """Return the share that the adversary gives to every configuration, shape (K,).

    Parameters
    ----------
    state
        Its microdata sample is the adversary's.
    configurations
        A block's table.
    bedrooms
        See `StudyOptions`. Subsidised or not, and one property or another, are equally likely.

    Examples
    --------
    >>> from adversary.reconstruction.synthetic import StateShape, synthetic_state
    >>> state = synthetic_state(StateShape(blocks=60), seed=1)
    >>> table = state.configurations(0)
    >>> bool((assumed_shares(state, table, "to need") <= assumed_shares(state, table, "unknown")).all())
    True
    """
    shares = state.shares(configurations)
    if bedrooms == "unknown":
        return shares
    fitted = (1 - _WHATEVER) * np.array(BEDROOMS_TO_NEED) + _WHATEVER / 3
    level = configurations.codes[
        :, configurations.column("bedrooms")
    ]  # NA, then as in the columns of `fitted`
    size = np.minimum(configurations.number("size"), len(fitted))
    return np.asarray(shares * np.where(level == 0, 1.0, fitted[size - 1, level - 1]))


def _mechanisms(given: Sequence[Mechanism | str] | Mechanism | str | None) -> tuple[Mechanism, ...]:
    if given is None:
        return tuple(MECHANISMS.values())
    listed = [given] if isinstance(given, str | Mechanism) else list(given)
    chosen = []
    for one in listed:
        if isinstance(one, str) and one not in MECHANISMS:
            msg = f"no mechanism {one!r}: there are {', '.join(MECHANISMS)}, or give a Mechanism"
            raise ModelError(msg, one)
        chosen.append(MECHANISMS[one] if isinstance(one, str) else one)
    folders = [m.folder for m in chosen]
    if not chosen or len(set(folders)) != len(folders):
        msg = "give one mechanism or more, with different names"
        raise ModelError(msg, [m.name for m in chosen])
    return tuple(chosen)


def _name(block: int) -> str:
    return f"block-{block:06d}"


def _versions() -> dict[str, str]:
    """Return the versions that decide which of many tied blocks are listed."""
    found = {"adversary": __version__}
    for package in ("highspy", "ortools"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found


def state_hash(state: SyntheticState) -> str:
    """Return the SHA-256 of a state's households, blocks and sample."""
    total = hashlib.sha256()
    for array in (state.records, state.block, state.tract, state.position, state.homes, state.sample):
        total.update(f"{array.dtype} {array.shape} ".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def _seconds(found: Mapping[str, Mapping[str, Any]], clock: Path | None) -> NDArray[np.float64]:
    """Return wall times by block and phase, shape (blocks, phases); NaN where they were not kept."""
    rows = []
    for name, answer in found.items():
        told = answer.get("seconds", {})
        file = None if clock is None else clock / f"{name}.json"
        if file is not None and file.is_file():
            try:
                told = json.loads(file.read_text(encoding="utf-8"))
            except ValueError:  # cut short when the run was killed: a time is no answer
                told = {}
        told = told if isinstance(told, dict) else {}
        rows.append([float(told.get(phase, np.nan)) for phase in PHASES])
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(PHASES))


@dataclass(frozen=True)
class _Job:
    """Publishes and rebuilds one block; a class of the module, so that it can be sent to another process."""

    state: SyntheticState
    tabulated: NDArray[np.int64]
    mechanism: Mechanism
    options: StudyOptions
    seed: int
    clock: Path | None

    def __call__(self, name: str) -> dict[str, Any]:
        block = int(name.removeprefix("block-"))
        seed = np.random.SeedSequence(self.seed, spawn_key=(_BLOCK, block))
        limits = replace(self.options.limits, seed=int(seed.generate_state(1)[0]) % 2**31)
        seconds: dict[str, float] = {}
        start = time.perf_counter()
        published = self._published(block, seed, limits)
        seconds["publish"] = time.perf_counter() - start
        shares = assumed_shares(self.state, published.rows.configurations, self.options.bedrooms)
        rebuilt = Reconstruction(published.rows, shares, limits=limits)
        told = self._verdict(rebuilt, published, seconds)
        rebuilt = told.pop("rebuilt")
        if self.options.top and told["status"] in {"flagged", "not flagged", "undecided"}:
            told.update(self._list(rebuilt, seconds))
        if self.options.posterior:
            told.update(self._posterior(rebuilt, published, seed, seconds))
        answer = BlockAnswer(publish_status=published.status, **told).to_dict()
        if self.clock is None:
            return {**answer, "seconds": seconds}
        self.clock.mkdir(exist_ok=True)
        (self.clock / f"{name}.json").write_text(json.dumps(seconds) + "\n", encoding="utf-8")
        return answer

    def _published(self, block: int, seed: np.random.SeedSequence, limits: Limits) -> Published:
        first, last = np.searchsorted(self.state.block, [block, block + 1])
        return publish(
            self.state.configurations(block),
            self.state.counts(block),
            self.state.census,
            self.state.census.histogram(self.tabulated[first:last]),
            self.mechanism,
            tables=self.options.tables,
            seed=seed,
            limits=limits,
        )

    def _verdict(
        self, rebuilt: Reconstruction, published: Published, seconds: dict[str, float]
    ) -> dict[str, Any]:
        """Flag by equation 1; where the rows contradict each other, on rows widened by the least error."""
        flag = rebuilt.flag(self.options.harm)
        seconds["flag"] = flag.seconds
        told: dict[str, Any] = {"printed": flag.verdict, "mend_status": "", "missed": 0}
        if flag.verdict == "inconsistent":
            start = time.perf_counter()
            extra = len(rebuilt.constraints) - len(published.sigma)  # the row of the sample's support
            mend = rebuilt.closest(sigma=np.append(published.sigma, np.ones(extra)))
            told.update(mend_status=str(mend.solution.status), missed=mend.missed)
            if mend.relaxed is not None:
                rebuilt = replace(rebuilt, constraints=mend.relaxed)
                flag = rebuilt.flag(self.options.harm)
            seconds["mend"] = time.perf_counter() - start
        live = len(rebuilt.live.columns)
        told.update(status=flag.verdict, confirmed=flag.confirmed, configurations=live, rebuilt=rebuilt)
        return told

    def _list(self, rebuilt: Reconstruction, seconds: dict[str, float]) -> dict[str, Any]:
        top = rebuilt.top(self.options.top)
        seconds["list"] = top.seconds
        harm = rebuilt.configurations.mask(self.options.harm)
        harmed = top.counts * harm
        total = harmed.sum(axis=0)
        return {
            "list_status": str(top.status),
            "listed": len(top),
            "cut": top.cut,
            "tied_share": top.tied_share,
            "list_harm": float((harmed.sum(axis=1) > 0).mean()) if len(top) else 0.0,
            "list_total": {int(k): int(total[k]) for k in np.flatnonzero(total)},
        }

    def _posterior(
        self,
        rebuilt: Reconstruction,
        published: Published,
        seed: np.random.SeedSequence,
        seconds: dict[str, float],
    ) -> dict[str, Any]:
        """Ask for the posterior given the noisy answers themselves, or the printed rows (widened where they clash)."""
        start = time.perf_counter()
        rows = rebuilt.constraints if published.noisy is None else published.firm
        table = rows.configurations
        fitted = self.options.bedrooms == "to need"
        believed = bedrooms_given_size(BEDROOMS_TO_NEED) if fitted else BEDROOMS_FLAT
        shares = attacker_shares(table, self.state.shares(table), bedrooms=believed)
        # the first child of the block's seed is that of its noise (`mechanisms.publish`)
        own = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, _POSTERIOR))
        try:
            found = household_posterior(rows, shares, noisy=published.noisy, seed=own)
        except (ModelError, SamplingError) as error:  # one block without an answer is counted, not fatal
            return {"posterior_status": f"none: {error}"}
        finally:
            seconds["posterior"] = time.perf_counter() - start
        harm = table.mask(self.options.harm)
        return {
            "posterior_status": found.method if found.sound else f"{found.method}, a check failed",
            "posterior_harm": found.probability(self.options.harm),
            "posterior_mean": {
                int(k): float(found.expected[k]) for k in np.flatnonzero(harm & (found.expected > 0))
            },
        }
