"""Sampling a declared model with PyMC, with the right step for each unknown and no silent failure.

What it is: ``pm.sample`` with GridGibbs for integers and PyMC's NUTS, named, for the rest; checks before it
starts; a verdict on chains that did not move. What it is not: a sampler of its own (see
:mod:`adversary.samplers.grid_gibbs`), nor a convergence report (:mod:`adversary.diagnostics`).

Decision on constant chains. ArviZ gives a constant chain r_hat nan and an effective sample size equal to the
number of draws, so it looks perfect. Here an unknown that never moved is an error, unless it is proved
constant: every term that forbids its neighbours involves no other unknown, or only unknowns proved constant
in the same way. That refuses some models whose unknowns are truly pinned by a joint fact (a + b = 2 for two
events): sampler="exact" answers those.

Held to account by ``tests/samplers/test_mcmc.py``. Sources: reports P1, P3, P4, P6-P10 of the project's list.
"""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pymc as pm
import pytensor
from pymc.pytensorf import constant_fold
from pymc.stats import compute_log_likelihood, compute_log_prior
from pymc.step_methods.compound import flatten_steps
from pymc.vartypes import discrete_types
from pytensor.graph.traversal import ancestors

from adversary.errors import ModelError, SamplingError, UnsupportedModelError
from adversary.samplers.gibbs import seed_streams
from adversary.samplers.grid_gibbs import GridGibbs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import xarray as xr

__all__ = ["sample_mcmc"]

_GRADIENT = ("nuts", "nutpie", "numpyro", "blackjax", "hmc", "advi")
_WRONG_ON_INTEGERS = ("Slice", "DEMetropolis", "DEMetropolisZ")
_SCAN = 4096  # counts on either side that the search for a possible start looks at


def sample_mcmc(  # noqa: PLR0913
    model: pm.Model,
    *,
    draws: int = 1000,
    tune: int = 500,
    chains: int = 4,
    cores: int = 1,
    seed: Any = None,
    progressbar: bool = False,
    step: Any = None,
    nuts_sampler: str | None = None,
    log_likelihood: bool = False,
    log_prior: bool = False,
    on_constant: str = "error",
    **pm_options: Any,
) -> xr.DataTree:
    """Sample a PyMC model so that integer unknowns are drawn correctly, or say why not.

    Parameters
    ----------
    model
        Any PyMC model, as calling a scenario gives it.
    draws, tune, chains
        Kept draws and warm-up of each chain; chains.
    cores
        Processes. The draws do not depend on it.
    seed
        int, SeedSequence, Generator or None. A SeedSequence is read and never advanced.
    progressbar
        One bar for the run; a line a minute where the output is no terminal. False is silent.
    step
        Step methods of PyMC for some of the unknowns, made by the caller; the rest get the right ones.
    nuts_sampler
        ``"nutpie"``, ``"numpyro"`` or ``"blackjax"`` for models without integers; PyMC's own by default, even
        where another one is installed.
    log_likelihood, log_prior
        Add these groups to the result.
    on_constant
        ``"error"``, or ``"record"`` to note unknowns that never moved in ``attrs["never_moved"]`` and go on.
    **pm_options
        Passed to ``pymc.sample``.

    Returns
    -------
    xarray.DataTree
        As ``pymc.sample`` gives it, bool cast to int64; attrs ``constant_by_construction`` and
        ``never_moved`` are JSON lists of names.

    Raises
    ------
    SamplingError
        For a start with no probability, single-precision PyTensor, or unknowns that did not move.
    UnsupportedModelError
        For gradient samplers and unsound steps on integers, and for multivariate counts.

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model() as model:
    ...     y = pm.DiscreteUniform("y", 0, 20)
    ...     _ = pm.Poisson("seen", y + 1, observed=4)
    >>> sample_mcmc(model, draws=20, tune=20, chains=2, seed=1)["posterior"]["y"].shape
    (2, 20)
    """
    if on_constant not in ("error", "record"):
        msg = f"on_constant must be 'error' or 'record', got {on_constant!r}"
        raise SamplingError(msg, on_constant)
    _check_options(model, pm_options)
    steps = _check_steps(model, step, nuts_sampler)
    grids = _grid_steps(model, steps, pm_options.get("compile_kwargs"))
    if "initvals" not in pm_options:
        pm_options["initvals"] = _starts(model, grids, chains)
    if cores > 1:
        _check_processes([*steps, *grids], pm_options.get("mp_ctx"))
    with model, _quiet(), _bar(chains * (draws + tune), progressbar) as callback:
        if nuts_sampler in (None, "pymc"):
            pm_options["callback"] = _both(callback, pm_options.get("callback"))
        tree = pm.sample(
            draws,
            tune=tune,
            chains=chains,
            cores=cores,
            random_seed=seed_streams(seed, 1)[0],
            step=[*steps, *grids] or None,
            nuts_sampler=nuts_sampler or "pymc",
            progressbar=False,
            compute_convergence_checks=False,
            **{k: v for k, v in pm_options.items() if v is not None},
        )
    _cast_bools(tree)
    constant, never = _verdicts(model, tree, grids)
    if never and on_constant == "error":
        raise SamplingError(next(iter(never.values())), next(iter(never)))
    tree.attrs["constant_by_construction"] = json.dumps(sorted(constant))
    tree.attrs["never_moved"] = json.dumps(sorted(never))
    _add_groups(model, tree, log_likelihood=log_likelihood, log_prior=log_prior)
    return tree  # type: ignore[no-any-return]


def _check_options(model: pm.Model, options: Mapping[str, Any]) -> None:
    if pytensor.config.floatX != "float64":
        msg = (
            f"floatX is {pytensor.config.floatX}, which turns a count of 40000 into -25536: set "
            "PYTENSOR_FLAGS=floatX=float64"
        )
        raise SamplingError(msg, pytensor.config.floatX)
    if not model.free_RVs:
        msg = "the model has no unknowns, so there is nothing to sample: give at least one argument a Prior"
        raise ModelError(msg, model)
    for name, instead in {
        "random_seed": "seed",
        "return_inferencedata": None,
        "trace": None,
        "model": None,
    }.items():
        if name in options:
            msg = f"{name} is not an option here" + (
                f": write {instead}=" if instead else ": the result is a DataTree"
            )
            raise SamplingError(msg, name)


def _discrete(model: pm.Model) -> list[Any]:
    return [v for v in model.value_vars if v.dtype in discrete_types]


def _check_steps(model: pm.Model, step: Any, nuts_sampler: str | None) -> list[Any]:
    """Refuse what is wrong on integers, silently or not; return the caller's steps as a list."""
    integers = _discrete(model)
    named = step if isinstance(step, str) else nuts_sampler
    if named is not None and named.lower() in _GRADIENT and integers and named != "pymc":
        msg = (
            f"{named} follows gradients, and {integers[0].name} is an integer that has none: leave "
            "the option out (integers then "
            "get GridGibbs and the rest NUTS), or use sampler='exact'"
        )
        raise UnsupportedModelError(msg, integers[0].name)
    if isinstance(step, str) or step is None:
        if isinstance(step, str) and step.lower() not in _GRADIENT:
            msg = f"step takes step methods of PyMC, got {step!r}: leave it out for the right ones"
            raise UnsupportedModelError(msg, step)
        return []
    steps = [
        s for given in (step if isinstance(step, list | tuple) else [step]) for s in flatten_steps(given)
    ]
    for given in steps:
        kind = type(given).__name__
        unsound = kind in _WRONG_ON_INTEGERS or (
            kind == "CategoricalGibbsMetropolis" and "prop" in getattr(given.astep, "__name__", "")
        )
        on = [v.name for v in given.vars if v in integers]
        if unsound and on:
            msg = (
                f"{kind} gives wrong answers on the integer {on[0]} without saying so: leave it out for "
                "GridGibbs"
            )
            raise UnsupportedModelError(msg, on[0])
    return steps


def _grid_steps(model: pm.Model, steps: Sequence[Any], compile_kwargs: Any) -> list[GridGibbs]:
    taken = {v for s in steps for v in s.vars}
    point = model.initial_point()
    return [
        GridGibbs([v], model=model, initial_point=point, compile_kwargs=compile_kwargs)
        for v in _discrete(model)
        if v not in taken
    ]


def _check_processes(steps: Sequence[Any], context: Any) -> None:
    """Find out before any work whether the steps can be sent to other processes."""
    if getattr(multiprocessing.process.current_process(), "_inheriting", False):
        msg = (
            "this script starts processes while it is being imported by one: guard it with if __name__ == "
            "'__main__', or use cores=1"
        )
        raise SamplingError(msg)
    method = (
        context
        if isinstance(context, str)
        else getattr(context, "_name", None) or multiprocessing.get_start_method()
    )
    if method == "fork":
        return
    import cloudpickle

    for s in steps:
        try:
            cloudpickle.dumps(s)
        except Exception as cause:
            msg = (
                f"the step for {s.vars[0].name} cannot be sent to another process ({cause}): define "
                "what it uses in a module, or "
                "use cores=1"
            )
            raise SamplingError(msg, s.vars[0].name) from cause


def _starts(model: pm.Model, grids: Sequence[GridGibbs], chains: int) -> list[dict[str, Any]] | None:
    """Return a possible start for each chain.

    Two-state unknowns start at different states where that is possible.

    Chains that begin apart and stay apart show that they are stuck; chains that begin together show nothing.
    """
    terms = [*model.basic_RVs, *model.potentials]
    with model:
        fn = model.compile_fn(
            [t.sum() for t in model.logp(vars=terms, sum=False)],
            inputs=model.value_vars,
            mode="FAST_COMPILE",
            on_unused_input="ignore",
        )

    def possible(point: Mapping[str, Any]) -> bool:
        return bool(np.all(np.isfinite(np.asarray(fn(point), dtype=float))))

    base = model.initial_point()
    if not possible(base):
        base = _search(model, grids, base)
        if not possible(base):
            _refuse_start(model, terms, fn(base), base)
    if not grids:
        return None
    names = [g.value.name for g in grids]
    found = []
    for j in range(chains):
        apart = {**base}
        for g in grids:
            if g.support is not None and g.support[1] - g.support[0] == 1:
                other = (np.asarray(base[g.value.name]) - g.support[0] + j) % 2 + g.support[0]
                apart[g.value.name] = other.astype(g.dtype)
        found.append(apart if possible(apart) else base)
    return [{n: p[n] for n in names} for p in found]


def _search(model: pm.Model, grids: Sequence[GridGibbs], point: dict[str, Any]) -> dict[str, Any]:
    """Look for a possible state one unknown at a time: near the present one, and near what was published."""
    seen = [int(x) for v in model.observed_RVs for x in _numbers(model.rvs_to_values[v])]
    seen = seen[:64]
    apart = [a - b for a in seen for b in seen]
    near = np.arange(-_SCAN, _SCAN + 1)
    for _ in range(3):
        for g in grids:
            around = near + int(np.median(point[g.value.name]))
            published = np.add.outer(np.array([0, *seen, *apart]), np.arange(-2, 3)).ravel()
            point = g.scan(point, np.unique(np.r_[around, published]))
    return point


def _numbers(variable: Any) -> list[float]:
    data = getattr(variable, "data", None)
    if data is None and hasattr(variable, "get_value"):
        data = variable.get_value()
    return [] if data is None else [float(x) for x in np.ravel(np.asarray(data)) if np.isfinite(x)]


def _refuse_start(model: pm.Model, terms: Sequence[Any], values: Any, point: Mapping[str, Any]) -> None:
    """Name what has no probability, its value, and the bounds of the unknowns that it depends on."""
    bad = [t for t, v in zip(terms, values, strict=True) if not np.all(np.isfinite(v))]
    term = next((t for t in bad if t in model.observed_RVs), bad[0])
    latents = [v for v in model.free_RVs if v is not term and v in set(ancestors([term]))]
    allowed = ", ".join(f"{v.name} in {_bounds(v)}" for v in latents) or "nothing unknown"
    if term in model.observed_RVs:
        value = _numbers(model.rvs_to_values[term])
        shown = (
            f"{value[0]:.0f}"
            if len(value) == 1
            else f"[{', '.join(f'{x:.0f}' for x in value[:5])}{', ...' * (len(value) > 5)}]"
        )
        msg = (
            f"fact {term.name}={shown} has probability zero under the prior's support ({allowed}): no "
            "start could be found, so "
            "correct the fact or widen the prior"
        )
    elif term in model.free_RVs:
        start = np.asarray(point[model.rvs_to_values[term].name]).tolist()
        msg = (
            f"{term.name} has probability zero at its start {start}, support {_bounds(term)}: give "
            f"initvals={{{term.name!r}: ...}}"
        )
    else:
        msg = (
            f"the constraint {term.name} has probability zero at every start tried ({allowed}): loosen it or "
            "use sampler='exact'"
        )
    raise SamplingError(msg, term.name)


def _bounds(rv: Any) -> str:
    kind = type(rv.owner.op).__name__
    if kind == "BernoulliRV":
        return "0..1"
    if kind in ("DiscreteUniformRV", "BinomialRV"):
        parameters = list(rv.owner.op.dist_params(rv.owner))
        ends = constant_fold(
            parameters[:2] if kind == "DiscreteUniformRV" else parameters[:1], raise_not_constant=False
        )
        if all(isinstance(e, np.ndarray) for e in ends):
            low, high = (0, ends[0]) if len(ends) == 1 else ends
            return f"{int(np.min(low))}..{int(np.max(high))}"
    return f"the support of {kind.removesuffix('RV')}"


def _verdicts(model: pm.Model, tree: Any, grids: Sequence[GridGibbs]) -> tuple[set[str], dict[str, str]]:
    """Return (names proved constant, message for each name that should have moved and did not)."""
    never: dict[str, str] = {}
    ties: dict[str, set[str]] = {}
    whole: set[str] = set()
    point = _last_point(model, tree)
    for g in grids:
        name = g.value.name
        values = np.asarray(tree["posterior"][name].values)
        fixed = (values == values[:, :1]).all(axis=1).all(axis=0)  # one truth value an entry
        if not fixed.any():
            continue
        apart = fixed & (values[:, 0] != values[:1, 0]).any(axis=0)
        if apart.any():
            first = values[:, 0].reshape(len(values), -1)[:, apart.ravel().argmax()].tolist()
            never[name] = (
                f"the chains of {name} never moved and stand at different values {first}: they cannot "
                "reach each "
                "other, so use sampler='exact' or remove the tie between unknowns"
            )
            continue
        held = fixed & g.single_state(point)
        if held.any():
            ties[name] = g.ties(point, held)
        if fixed.all() and not held.all():
            never[name] = (
                f"{name} never moved in {values.shape[0] * values.shape[1]} draws although its "
                "conditional allows "
                "other values: their probability is beyond what so many draws can show, or the chain "
                "is stuck, so "
                "use sampler='exact' or more draws"
            )
        elif fixed.all():
            whole.add(name)
    proved = _proved(ties, whole)
    for name in set(ties) - proved - set(never):
        tied = ", ".join(sorted(ties[name] - proved))
        never[name] = (
            f"{name} cannot move: with {tied} held, only one value is possible, so one-at-a-time "
            "sampling never "
            "leaves its start; rewrite the tie (sample one, compute the other) or use sampler='exact'"
        )
    return proved & whole, never


def _proved(ties: Mapping[str, set[str]], whole: set[str]) -> set[str]:
    """Return the names held by facts about themselves or about unknowns held in that way as a whole."""
    proved: set[str] = set()
    while True:
        more = {n for n, t in ties.items() if t <= proved & whole} - proved
        if not more:
            return proved
        proved |= more


def _last_point(model: pm.Model, tree: Any) -> dict[str, Any]:
    """Return the last draw as values of the model; what is kept only transformed is taken at its start."""
    posterior, point = tree["posterior"], dict(model.initial_point())
    for v in model.value_vars:
        if v.name in posterior:
            point[v.name] = np.asarray(posterior[v.name].values[0, -1]).astype(v.dtype)
    return point


def _cast_bools(tree: Any) -> None:
    posterior = tree["posterior"].to_dataset()
    bools = [n for n, v in posterior.data_vars.items() if v.dtype == bool]
    if bools:  # ArviZ subtracts draws, which NumPy refuses for bool
        tree["posterior"].dataset = posterior.assign({n: posterior[n].astype("int64") for n in bools})


def _add_groups(model: pm.Model, tree: Any, *, log_likelihood: bool, log_prior: bool) -> None:
    if not (log_likelihood or log_prior):
        return
    begun = [v.name for v, start in model.rvs_to_initial_values.items() if start is not None]
    if begun:
        msg = (
            f"{begun[0]} is declared with initval, on which PyMC's log densities crash: pass initvals= to "
            "the sampler instead"
        )
        raise UnsupportedModelError(msg, begun[0])
    if log_likelihood and model.observed_RVs:
        compute_log_likelihood(tree, model=model, progressbar=False)
    if log_prior:
        compute_log_prior(tree, model=model, progressbar=False)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hold back PyMC's chatter; what matters is raised or put into the result."""
    logger = logging.getLogger("pymc")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _bar(total: int, show: bool) -> Iterator[Any]:
    """One bar for all chains, in this process; a line a minute where nobody watches."""
    if not show:
        yield None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, unit="draw", desc="mcmc", mininterval=0.1 if sys.stderr.isatty() else 60.0) as bar:
        yield lambda trace, draw: bar.update(1)  # noqa: ARG005  (PyMC calls it with these names)


def _both(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return first or second

    def call(trace: Any, draw: Any) -> None:
        first(trace=trace, draw=draw)
        second(trace=trace, draw=draw)

    return call
