"""Answer one release under many sets of assumptions: :func:`study`.

What it is: the planning, running and assembling of a grid. What it is not: an engine.

Points that differ only in the target's own prior share one exact answer. With L(k) the likelihood of the release where
the target is k, summed over everything else, the posterior under any prior pi is pi(k) L(k) / sum pi L, and L comes from
the answer under a uniform prior; everything stays in logs, so this is exact. Two guards stand beside it: one point of every
such group is also solved directly (where the two differ the whole group is), and a point at which the bound on what was
cut off would exceed the tolerance after reweighting is solved directly. All other points cost one exact answer each,
without compilation where only numbers differ.

Held to account by ``tests/test_studies.py``.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary._files import end_with_parent
from adversary._version import __version__
from adversary.errors import AdversaryError, ModelError, SamplingError, ScenarioError
from adversary.language import Scenario
from adversary.priors import Prior, as_number, is_plain_prior
from adversary.release.measurement import Release
from adversary.studies.answers import Row, assemble, pack, unpack, write_result
from adversary.studies.points import Memo, identity, layout
from adversary.studies.store import Store
from adversary.studies.total import UniformTotal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import xarray as xr

__all__ = ["solve_points", "study"]

SOLVES, POINTS = 32, 4096
"""A chunk is closed at so many exact solutions, or points; fixed, so that equal studies have equal files."""

GUARD = 1e-9
"""Largest admissible difference of log-odds between the shared road and the direct one."""


@dataclass(frozen=True)
class Unit:
    """Points with one exact answer between them: ``shared`` when they differ in the target's prior alone."""

    base: int
    changes: dict[str, Any]
    priors: tuple[Any, ...]
    points: tuple[int, ...]
    shared: bool

    @property
    def solves(self) -> int:
        """How many exact answers the unit costs when all goes well."""
        return 2 if self.shared else 1


def study(
    scenarios: Sequence[Scenario],
    release: Release,
    *,
    processes: int = 1,
    out: str | Path | None = None,
    progressbar: bool = False,
    tolerance: float = 1e-12,
) -> xr.Dataset:
    """Answer one release under each of several sets of assumptions, exactly.

    Parameters
    ----------
    scenarios
        One for each point; ``scenario.over(...)`` makes them.
    release
        What she sees, at every point.
    processes
        How many processes share the work (each compiles for itself, which takes seconds).
    out
        Folder in which finished parts are kept. A study that was killed continues from there, and ends with the same
        bytes; ``result.nc`` in it is the Dataset.
    progressbar
        Whether to show how many points are done.
    tolerance
        Bound asked for on what is cut off from infinite supports.

    Returns
    -------
    xarray.Dataset
        ``prior``, ``posterior`` (probability that a yes-or-no target is 1, else one for each value over the dimension
        ``target``), ``risk`` = posterior / prior, ``log_odds`` (nan where the target is no yes-or-no question), and
        ``cut_off_bound`` (on the absolute error of each posterior probability). Each assumption that differs is a
        coordinate: numeric where a prior differs in one number (``present.p``), text otherwise. A full product of
        assumptions has one dimension each; otherwise the dimension is ``point``.

    Raises
    ------
    ScenarioError
        For an empty list, scenarios that cannot be sent to other processes, a folder that belongs to another study or
        that another process is writing.
    ModelError
        Where what she knows, believes and sees cannot all be true; the message names the point.
    UnsupportedModelError
        Where the exact engine cannot answer a point.

    Examples
    --------
    >>> from adversary import Prior, Release, load
    >>> release = Release.from_counts({"block": 2}, rho="0.0992264")
    >>> grid = load("single_level").over(present=[Prior("Bernoulli", p=p) for p in (0.1, 0.5)])
    >>> study(grid, release).posterior.round(4).values.tolist()
    [0.1302, 0.5739]
    """
    scenarios = list(scenarios)
    _check(scenarios, release, processes)
    plan = layout(scenarios)
    bases, units = _units(scenarios)
    chunks = list(_chunks(units))
    if processes > 1:
        _check_sendable(bases)
    if out is None:
        rows = [
            r for _, part in _run(chunks, bases, release, processes, tolerance, progressbar) for r in part
        ]
        return assemble(rows, scenarios, release, plan, tolerance)
    store = Store(out, _manifest(scenarios, release, tolerance, len(chunks)))
    with store.open():
        done = {k: found for k in range(len(chunks)) if (found := store.read(k)) is not None}
        missing = [k for k in range(len(chunks)) if k not in done]
        skipped = sum(len(u.points) for k in done for u in chunks[k])
        todo = [chunks[k] for k in missing]
        for k, part in _run(todo, bases, release, processes, tolerance, progressbar, skipped):
            store.write(missing[k], pack(part))
        rows = [r for k in range(len(chunks)) for r in unpack(store.read(k), store.path(k))]
        data = assemble(rows, scenarios, release, plan, tolerance)
        write_result(data, store.folder / "result.nc")
    return data


def solve_points(scenarios: Sequence[Scenario], release: Release, *, tolerance: float = 1e-12) -> list[Row]:
    """Return the bare answers of :func:`study` in the order of the list, without labels or files.

    Parameters
    ----------
    scenarios
        The points.
    release
        What she sees.
    tolerance
        Bound asked for on what is cut off.
    """
    scenarios = list(scenarios)
    _check(scenarios, release, 1)
    bases, units = _units(scenarios)
    rows = [r for u in units for r in _solve(u, bases[u.base], release, tolerance)]
    return sorted(rows, key=lambda r: r.point)


# ---------------------------------------------------------------------- planning
def _check(scenarios: list[Scenario], release: Release, processes: int) -> None:
    if isinstance(processes, bool) or not isinstance(processes, int) or processes < 1:
        msg = f"processes must be a whole number >= 1, got {processes!r}"
        raise ScenarioError(msg, processes)
    if not isinstance(release, Release):
        msg = f"study takes a Release, got {type(release).__name__}: build one with Release.from_counts or Release.read"
        raise ScenarioError(msg, release)
    if not scenarios:
        msg = "study takes at least one scenario, got none: scenario.over(...) makes a list"
        raise ScenarioError(msg, scenarios)
    for s in scenarios:
        if not isinstance(s, Scenario):
            msg = f"study takes a list of scenarios, got {s!r} in it: scenario.over(...) makes one"
            raise ScenarioError(msg, s)
        if s.target in s.known:
            msg = f"the target {s.target!r} of {s!r} is fixed by assumption, so nothing is left to learn: give it a prior"
            raise ModelError(msg, s.target)
        _check_total(s)


def _check_total(scenario: Scenario) -> None:
    """Refuse a uniform total made for another number of known people: its bound would be silently off by the difference."""
    known = scenario.known.get("known")
    for name, prior in scenario.unknowns.items():
        if (
            isinstance(prior, UniformTotal)
            and isinstance(known, int | np.integer)
            and int(known) != prior.known
        ):
            msg = (
                f"{name} is {prior!r} where the scenario has known={known}: give UniformTotal the same number"
            )
            raise ScenarioError(msg, prior)


def _check_sendable(bases: Sequence[Scenario]) -> None:
    for s in bases:
        try:
            pickle.loads(pickle.dumps(s))
        except Exception as error:
            msg = f"{s.name} cannot be sent to other processes ({error}): define it at the top of a module, or use processes=1"
            raise ScenarioError(msg, s) from error


def _kind(prior: Any) -> tuple[Any, ...] | None:
    """Return what family of finite priors this is, where reweighting is allowed; None elsewhere."""
    if (
        not is_plain_prior(prior)
        or prior.dims is not None
        or prior.shape is not None
        or len(prior.parameters) != 1
    ):
        return None
    ((name, value),) = prior.parameters.items()
    if not isinstance(as_number(value), np.ndarray | np.generic):
        return None
    number = np.asarray(value)
    if number.dtype.kind not in "if":
        return None
    if prior.distribution == "Bernoulli" and number.ndim == 0:
        usable = (name == "p" and 0 < number < 1) or (name == "logit_p" and np.isfinite(number))
        return ("Bernoulli",) if usable else None
    if (
        prior.distribution == "Categorical"
        and name == "p"
        and np.ndim(number) == 1
        and number.dtype.kind == "f"
    ):
        usable = bool((number >= 0).all() and abs(number.sum() - 1) < 1e-12)
        return ("Categorical", len(number)) if usable else None
    return None


def _units(scenarios: Sequence[Scenario]) -> tuple[list[Scenario], list[Unit]]:
    """Group the points that share one exact answer."""
    bases: list[Scenario] = []
    number: dict[int, int] = {}
    groups: dict[Any, list[int]] = {}
    memo = Memo()
    for i, s in enumerate(scenarios):
        if id(s.function) not in number:
            number[id(s.function)] = len(bases)
            bases.append(s)
        own = s.assumptions.get(s.target)
        rest = tuple((k, memo(v)) for k, v in s.assumptions.items() if k != s.target)
        kind = _kind(own)
        key = (number[id(s.function)], kind, rest, i if kind is None else None)
        groups.setdefault(key, []).append(i)
    units = []
    for (base, kind, _, _), points in groups.items():
        first = scenarios[points[0]]
        shared = kind is not None and len(points) > 2
        for part in [points] if shared else [[p] for p in points]:
            priors = tuple(scenarios[p].assumptions.get(first.target) for p in part)
            units.append(Unit(base, dict(first.assumptions), priors, tuple(part), shared))
    return bases, units


def _chunks(units: Sequence[Unit]) -> Iterator[list[Unit]]:
    part: list[Unit] = []
    for unit in units:
        part.append(unit)
        if sum(u.solves for u in part) >= SOLVES or sum(len(u.points) for u in part) >= POINTS:
            yield part
            part = []
    if part:
        yield part


# ---------------------------------------------------------------------- one unit
def _log_prior(prior: Any) -> np.ndarray:
    """Return the log-probabilities of a prior that :func:`_kind` admits."""
    ((name, value),) = prior.parameters.items()
    if prior.distribution == "Categorical":
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.asarray(value, dtype=float)))
    if name == "p":
        return np.array([np.log1p(-float(value)), np.log(float(value))])
    return np.array([-np.logaddexp(0.0, float(value)), -np.logaddexp(0.0, -float(value))])


def _direct(scenario: Scenario, release: Release, point: int, tolerance: float) -> Row:
    from adversary.samplers.prepared import prepare

    try:
        answer = prepare(scenario, release).answer(scenario, release, tolerance=tolerance)
    except AdversaryError as error:
        msg = f"at {scenario!r}: {error}"
        raise type(error)(
            msg, repr(scenario)
        ) from error  # text, because it may have to come from another process
    support = np.asarray(answer.posterior.support, dtype=np.int64)
    log_prior = np.full(len(support), np.nan)
    if answer.prior is not None:
        place = dict(zip(answer.prior.support.tolist(), answer.prior.log_p.tolist(), strict=True))
        log_prior = np.array([place.get(v, -np.inf) for v in support.tolist()])
    log_odds = np.nan if answer.log_odds is None else float(answer.log_odds)
    return Row(point, support, log_prior, answer.posterior.log_p, log_odds, float(answer.cut_off_bound))


def _solve(unit: Unit, base: Scenario, release: Release, tolerance: float) -> list[Row]:
    """Answer the points of one unit."""
    target = base.target
    scenario = base.assuming(**unit.changes)

    def alone(i: int) -> Row:
        own = {target: unit.priors[i]} if target in unit.changes else {}
        return _direct(scenario.assuming(**own), release, unit.points[i], tolerance)

    if not unit.shared:
        return [alone(i) for i in range(len(unit.points))]
    rows = _reweighted(unit, scenario, release, tolerance)
    if rows is None:
        return [alone(i) for i in range(len(unit.points))]
    # the prior farthest from the uniform one shows best whether the likelihood depends on it
    far = int(np.argmax([np.ptp(np.clip(r.log_prior, -700.0, 0.0)) for r in rows]))
    check = alone(far)
    if not _agree(rows[far], check):
        return [alone(i) for i in range(len(unit.points))]
    rows[far] = check
    return [row if row.bound <= tolerance else alone(i) for i, row in enumerate(rows)]


def _reweighted(unit: Unit, scenario: Scenario, release: Release, tolerance: float) -> list[Row] | None:
    """Answer under a uniform prior once, and weigh by each prior; None where the answer has another support."""
    log_priors = np.stack([_log_prior(p) for p in unit.priors])
    k = log_priors.shape[1]
    binary = unit.priors[0].distribution == "Bernoulli"
    uniform = Prior("Bernoulli", p=0.5) if binary else Prior("Categorical", p=np.full(k, 1 / k))
    reference = _direct(scenario.assuming(**{scenario.target: uniform}), release, -1, tolerance)
    if not np.array_equal(reference.support, np.arange(k)):
        return None
    if binary:
        if not np.isfinite(reference.log_odds):
            return None
        log_odds = log_priors[:, 1] - log_priors[:, 0] + reference.log_odds
        log_posteriors = np.stack([-np.logaddexp(0.0, log_odds), -np.logaddexp(0.0, -log_odds)], axis=1)
    else:
        log_odds = np.full(len(log_priors), np.nan)
        weights = log_priors + reference.log_posterior
        top = weights.max(axis=1, keepdims=True)
        log_posteriors = weights - top - np.log(np.exp(weights - top).sum(axis=1, keepdims=True))
    # a relative error of bound / P_uniform(j) in each likelihood moves P(k) by at most P(k) (its own + the average)
    with np.errstate(over="ignore", invalid="ignore"):
        relative = np.exp(log_posteriors - reference.log_posterior) * reference.bound
        bounds = np.nan_to_num(relative.max(axis=1) + relative.sum(axis=1), nan=1.0, posinf=1.0)
    return [
        Row(
            p,
            reference.support,
            log_priors[i],
            log_posteriors[i],
            float(log_odds[i]),
            float(min(bounds[i], 1.0)),
        )
        for i, p in enumerate(unit.points)
    ]


def _agree(a: Row, b: Row) -> bool:
    """Whether two roads to one point meet."""
    if not np.array_equal(a.support, b.support):
        return False
    if np.isfinite(a.log_odds) and np.isfinite(b.log_odds):
        return abs(a.log_odds - b.log_odds) <= GUARD * max(1.0, abs(b.log_odds))
    return bool(np.abs(np.exp(a.log_posterior) - np.exp(b.log_posterior)).max() <= GUARD)


# ---------------------------------------------------------------------- running
_WORKER: dict[str, Any] = {}  # filled once in each worker process, never in the caller's


def _start(bases: bytes, release: str, tolerance: float) -> None:
    end_with_parent()
    _WORKER.update(bases=pickle.loads(bases), release=Release.from_json(release), tolerance=tolerance)


def _work(chunk: Sequence[Unit]) -> list[Row]:
    bases = _WORKER["bases"]
    return [r for u in chunk for r in _solve(u, bases[u.base], _WORKER["release"], _WORKER["tolerance"])]


def _run(
    chunks: Sequence[Sequence[Unit]],
    bases: Sequence[Scenario],
    release: Release,
    processes: int,
    tolerance: float,
    progressbar: bool,
    skipped: int = 0,
) -> Iterator[tuple[int, list[Row]]]:
    """Yield each finished chunk with its number, in the order in which they finish."""
    from tqdm.auto import tqdm

    total = skipped + sum(len(u.points) for c in chunks for u in c)
    with tqdm(total=total, initial=skipped, desc="study", unit=" points", disable=not progressbar) as bar:
        for k, rows in _finished(chunks, bases, release, processes, tolerance):
            bar.update(len(rows))
            yield k, rows


def _finished(
    chunks: Sequence[Sequence[Unit]],
    bases: Sequence[Scenario],
    release: Release,
    processes: int,
    tolerance: float,
) -> Iterator[tuple[int, list[Row]]]:
    if processes == 1 or len(chunks) < 2:
        for k, chunk in enumerate(chunks):
            yield k, [r for u in chunk for r in _solve(u, bases[u.base], release, tolerance)]
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    pool = ProcessPoolExecutor(
        min(processes, len(chunks)),
        multiprocessing.get_context("spawn"),
        _start,
        (pickle.dumps(list(bases)), release.to_json(), tolerance),
    )
    try:
        with pool:
            futures = {pool.submit(_work, chunk): k for k, chunk in enumerate(chunks)}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    except BrokenProcessPool as error:
        msg = (
            "a worker process ended before its work: start it from a file under `if __name__ == '__main__':`, use fewer "
            "processes if memory ran out, and run again (with out=, finished parts are kept)"
        )
        raise SamplingError(msg) from error


def _manifest(
    scenarios: Sequence[Scenario], release: Release, tolerance: float, chunks: int
) -> dict[str, Any]:
    import pymc

    keys = {
        "adversary": __version__,
        "pymc": pymc.__version__,
        "numpy": np.__version__,
        "release": release.hash,
        "tolerance": repr(float(tolerance)),
        "points": str(len(scenarios)),
        "chunks": str(chunks),
    }
    names = ", ".join(dict.fromkeys(s.name for s in scenarios))
    return {**keys, "scenario": names, "hash": identity(scenarios, keys)}
