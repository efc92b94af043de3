"""GridGibbs: a PyMC step for integer and binary unknowns that is right for every window.

What it is: for one integer v, a window {L, ..., L+W-1} with L uniform among the windows that hold v, then a
new v from the model's own log-probability on that window. (v, L) has the joint density p(v)/W, so the step is
a two-block Gibbs sampler and leaves p(v | rest) alone for *every* W: nothing is cut off and nothing need be
tuned for correctness. Only the terms in v's Markov blanket are evaluated. What it is not: a cure for unknowns
tied to each other by a hard fact (a + b = 100): neither can move alone, and the step then reports a
conditional with a single state (``grid_single_<name>``), on which :func:`adversary.samplers.mcmc.sample_mcmc`
acts.

Why not PyMC's own choice: Metropolis starts in the middle of DiscreteUniform(0, 10**6) and never arrives,
without a word (spec: P = 0.0000 where the truth is 0.5953).

Held to account by ``tests/samplers/test_grid_gibbs.py`` and ``tests/benchmarks/test_bench_step.py``.
Sources: Liu (1996), Biometrika 83, 681 (the metropolised flip); the window is the auxiliary-variable argument
of Neal (2003), Annals of Statistics 31, 705, on integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.pytensorf import compile as pm_compile
from pymc.pytensorf import constant_fold
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator, get_value_vars_from_user_vars
from pymc.vartypes import discrete_types
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors

from adversary.errors import SamplingError, UnsupportedModelError
from adversary.samplers._separable import checks_to_minus_infinity, entries_never_meet, reads_one_entry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["GridGibbs"]

_WHOLE = 64  # supports of at most this many states are taken whole
_BATCH = 25  # warm-up iterations between two looks at the window
_CELLS = 2_000_000  # log-probabilities evaluated in one call, at most
_WIDE = 2**14  # widest window of one integer
_REACH = 2.0 ** np.arange(0, 40)  # steps of the climb
_VISIBLE = np.log(1e-4)  # a state counts towards the width if it has this share of the best one's mass
_FLIP = 0.9  # share of sweeps in which a two-state unknown is offered the other state (below 1: aperiodic)


@dataclass_state
class GridGibbsState(StepMethodState):  # type: ignore[misc]
    """What a chain needs to go on where it stopped."""

    tune: bool
    window: int
    sweep: int
    spread: int
    moves: bool


class GridGibbs(BlockedStep):  # type: ignore[misc]
    """Draw an integer variable from its full conditional on a random window of the model's log-probability.

    Parameters
    ----------
    vars
        One variable of the model (several make one step each).
    window
        First width; adapted in warm-up, without effect on what the chain converges to.
    tune, model, rng, initial_point, compile_kwargs, blocked
        As in PyMC's own steps.

    Raises
    ------
    UnsupportedModelError
        For continuous variables and for multivariate discrete ones (a Multinomial cannot move one entry at a
        time).

    Notes
    -----
    Statistics of each sweep: ``grid_window`` (W), ``grid_moved`` (share of entries that changed),
    ``grid_single`` (share of entries whose conditional had one state with positive probability in the
    window).

    Examples
    --------
    >>> import pymc as pm
    >>> with pm.Model():
    ...     y = pm.Poisson("y", 3.0)
    ...     step = GridGibbs([y])
    >>> step.name
    'grid_gibbs'
    """

    name = "grid_gibbs"
    default_blocked = False
    default_tune_steps = 200
    _state_class = GridGibbsState

    def __init__(  # noqa: PLR0913
        self,
        vars: Sequence[Any],  # noqa: A002  (PyMC's interface)
        *,
        window: int = 16,
        tune: bool = True,
        model: Any = None,
        rng: Any = None,
        initial_point: Mapping[str, Any] | None = None,
        compile_kwargs: Mapping[str, Any] | None = None,
        blocked: bool = False,
    ) -> None:
        model = pm.modelcontext(model)
        values = get_value_vars_from_user_vars(list(vars), model)
        if len(values) != 1 or blocked:
            msg = (
                f"GridGibbs moves one variable at a time, got {[v.name for v in values]}: leave out "
                "blocked=True"
            )
            raise UnsupportedModelError(msg, values)
        self.vars = values
        [value] = values
        rv = model.values_to_rvs[value]
        _check_variable(rv, value)
        point = model.initial_point() if initial_point is None else initial_point
        self.shape: tuple[int, ...] = np.shape(point[value.name])
        self.size = max(1, int(np.prod(self.shape)))
        self.dtype = value.dtype
        self.rng = get_random_generator(rng)
        # one name a variable: equal names of several steps would be stacked along a stray dimension
        kinds = {"window": np.int64, "moved": np.float64, "single": np.float64}
        self.stats_dtypes_shapes: dict[str, tuple[Any, list[int]]] = {
            f"grid_{k}_{value.name}": (d, []) for k, d in kinds.items()
        }
        self.stats_dtypes = [{k: d for k, (d, _) in self.stats_dtypes_shapes.items()}]
        self.tune = tune
        self.first_window = max(2, int(window))
        self.support = _small_support(rv)
        self._build(model, value, dict(compile_kwargs or {}))
        self._reset()

    def _build(self, model: Any, value: Any, compile_kwargs: dict[str, Any]) -> None:
        """Compile the blanket's log-probability on a batch of candidate values."""
        terms = [t for t in model.logp(sum=False) if value in set(ancestors([t]))]
        self.terms = checks_to_minus_infinity(terms)
        self.value, self.model = value, model
        self.others = [x for x in model.value_vars if x is not value]
        self.names = [x.name for x in self.others]
        self.elementwise = value.ndim > 0 and entries_never_meet(value, self.terms)
        self.widest = max(_WHOLE, min(_WIDE, _CELLS // (self.size if self.elementwise else 1)))
        inputs, outputs = self._batched([sum(t if self.elementwise else t.sum() for t in self.terms)])
        compile_kwargs.setdefault("on_unused_input", "ignore")
        with model:  # turns failed parameter checks into -inf instead of an exception
            self.logp = pm_compile(inputs, outputs[0], **compile_kwargs)
        self.logp.trust_input = True

    def _batched(self, outputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return (inputs, outputs) of graphs evaluated at a leading axis of candidates."""
        value = self.value
        if value.ndim == 0 or self.elementwise:
            grid = pt.tensor("grid", dtype=value.dtype, shape=(None, *value.type.shape))
            return [grid, *self.others], list(vectorize_graph(list(outputs), replace={value: grid}))
        flat = pt.tensor("grid", dtype=value.dtype, shape=(None,))
        index, current = pt.lscalar("index"), value.type("current")
        rows = pt.repeat(current.flatten()[None, :], flat.shape[0], axis=0)
        shape = (flat.shape[0], *(current.shape[i] for i in range(value.ndim)))
        batch = pt.set_subtensor(rows[:, index], flat).reshape(shape)
        batch = pt.specify_shape(batch, (None, *value.type.shape))
        return [flat, index, current, *self.others], list(
            vectorize_graph(list(outputs), replace={value: batch})
        )

    def _reset(self) -> None:
        self.window = self.first_window if self.support is None else self.support[1] - self.support[0] + 1
        self.sweep = 0
        self.spread = 1
        self.moves = False

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:
        """Start a chain: nothing of an earlier chain is kept, so chains do not depend on who ran them."""
        super().setup_chain(rng, tune, draws)
        self.tune = tune > 0
        self._reset()

    # ---- one sweep
    def step(self, point: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Move the variable once (every entry of it)."""
        current = np.asarray(point[self.value.name])
        others = [np.asarray(point[n]) for n in self.names]
        if self.sweep == 0 and self.support is None:  # choosing a start, not a move: once a chain
            current = self._climb(current, others)
        new, single, spread = self._sweep(current, others)
        stats = {
            f"grid_window_{self.value.name}": self.window,
            f"grid_moved_{self.value.name}": float(np.mean(new != current)),
            f"grid_single_{self.value.name}": float(np.mean(single)),
        }
        if self.tune and self.support is None:
            self._adapt(spread, bool(np.all(single)))
        self.sweep += 1
        # a 0-d array, not a NumPy scalar: compiled functions that trust their input are typed by what they are given
        return {**point, self.value.name: np.asarray(new, dtype=self.dtype)}, [stats]

    def _sweep(self, current: Any, others: list[Any]) -> tuple[Any, Any, int]:
        if current.ndim == 0 or self.elementwise:
            low = self._low(current)
            log_p = self._evaluate(low, self.window, None, current, others)
            chosen = self._choose(log_p, current - low)
            return low + chosen, *_shape_of(log_p)
        new, single, spread = current.copy().ravel(), np.zeros(self.size, dtype=bool), 1
        for i in self.rng.permutation(self.size):
            low = self._low(new[i])
            log_p = self._evaluate(low, self.window, int(i), new.reshape(self.shape), others)
            new[i] = low + self._choose(log_p, new[i] - low)
            single[i], wide = _shape_of(log_p)
            spread = max(spread, wide)
        return new.reshape(self.shape), single, spread

    def _low(self, current: Any) -> Any:
        if self.support is not None:
            return np.full(np.shape(current), self.support[0], dtype=np.int64)
        return current.astype(np.int64) - self.rng.integers(0, self.window, size=np.shape(current))

    def _evaluate(self, low: Any, width: int, index: int | None, current: Any, others: list[Any]) -> Any:
        """Return log-probabilities, shape (width, ...), of the values low, low + 1, ..."""
        return self._at(np.add.outer(np.arange(width), low), index, current, others)

    def _at(self, grid: Any, index: int | None, current: Any, others: list[Any]) -> Any:
        grid = np.asarray(grid).astype(self.dtype)
        extra = (
            []
            if index is None
            else [np.asarray(index, dtype=np.int64), np.asarray(current, dtype=self.dtype)]
        )
        found = np.asarray(self.logp(grid, *extra, *others))
        if found.shape != grid.shape:
            msg = (
                f"the log-probability of {self.value.name} has shape {found.shape}, not {grid.shape} as was "
                "proved"
            )
            raise SamplingError(msg, self.value.name)
        return np.where(np.isnan(found), -np.inf, found)

    def _choose(self, log_p: Any, at: Any) -> Any:
        """Return the position drawn along axis 0; ``at`` is the present one."""
        top = log_p.max(axis=0)
        if not np.all(np.isfinite(top)):
            msg = (
                f"{self.value.name} has no value with positive probability near its present one: start "
                "elsewhere"
            )
            raise SamplingError(msg, self.value.name)
        at = np.asarray(at)
        if len(log_p) == 2:  # metropolised: leaves the present state more often than Gibbs would, same target
            present = np.take_along_axis(log_p, at[None, ...], axis=0)[0]
            other = np.take_along_axis(log_p, 1 - at[None, ...], axis=0)[0]
            offered = self.rng.random(at.shape) < _FLIP
            with np.errstate(invalid="ignore"):
                taken = np.log(self.rng.random(at.shape)) < other - present
            return np.where(offered & taken, 1 - at, at)
        mass = np.exp(log_p - top).cumsum(axis=0)
        u = self.rng.random(at.shape) * mass[-1]
        return np.minimum((mass <= u).sum(axis=0), len(log_p) - 1)

    # ---- the start, and warm-up
    def _climb(self, current: Any, others: list[Any]) -> Any:
        """Walk to where the mass is, by doubling steps, so that a start a million away costs nothing."""
        steps = np.r_[0, _REACH, -_REACH].astype(np.int64)
        limit = np.iinfo(self.dtype).max // 4 if np.dtype(self.dtype).kind in "iu" else 1
        steps = steps[np.abs(steps) < limit]
        new = current.astype(np.int64)
        for _ in range(200):
            before = new.copy()
            if new.ndim == 0 or self.elementwise:
                best = self._at(np.add.outer(steps, new), None, new, others).argmax(axis=0)
                new = new + steps[best]
            else:
                flat = new.ravel()
                for i in range(self.size):
                    flat[i] += steps[self._at(flat[i] + steps, i, flat.reshape(self.shape), others).argmax()]
                new = flat.reshape(self.shape)
            if np.array_equal(new, before):
                break
        return new.astype(self.dtype)

    def _adapt(self, spread: int, single: bool) -> None:
        """Widen at once when the conditional fills the window; after each batch set W to 1.5 widths."""
        self.spread = max(self.spread, spread)
        self.moves = self.moves or not single
        if spread > 0.8 * self.window:
            self.window = min(self.widest, 2 * self.window)
        if (self.sweep + 1) % _BATCH == 0:
            # a batch without a second state: look further out, for a support with gaps
            want = 1.5 * self.spread if self.moves else 2 * self.window
            self.window = int(min(self.widest, max(8, want)))
            self.spread, self.moves = 1, False

    # ---- what a caller may ask afterwards
    def single_state(self, point: Mapping[str, Any], reach: int = 128) -> Any:
        """Return, for each entry, whether its conditional at ``point`` has a single state nearby."""
        return np.isfinite(self._around(point, reach)).sum(axis=0) <= 1

    def ties(self, point: Mapping[str, Any], entries: Any = True, reach: int = 128) -> set[str]:
        """Return the names of the unknowns in the terms that forbid these entries a value nearby.

        The variable's own name is among them where such a term joins several of its entries.
        """
        found: set[str] = set()
        for term in self.terms:
            inputs, outputs = self._batched([term if self.elementwise else term.sum()])
            with self.model:
                one = pm_compile(inputs, outputs[0], mode="FAST_COMPILE", on_unused_input="ignore")
            whole, self.logp = self.logp, one
            try:
                forbidden = ~np.isfinite(self._around(point, reach)).all(axis=0)
            finally:
                self.logp = whole
            if np.any(forbidden & entries):
                found |= {x.name for x in self.others if x in set(ancestors([term]))}
                if self.size > 1 and not self.elementwise and self._joins(term):
                    found.add(self.value.name)
        return found

    def _joins(self, term: Any) -> bool:
        return not (entries_never_meet(self.value, [term]) or reads_one_entry(self.value, term))

    def scan(self, point: Mapping[str, Any], candidates: Any) -> dict[str, Any]:
        """Return ``point`` with each entry at its best candidate, or left where none is possible."""
        current = np.asarray(point[self.value.name])
        others = [np.asarray(point[n]) for n in self.names]
        steps = np.asarray(candidates, dtype=np.int64)
        new = current.astype(np.int64)
        if current.ndim == 0 or self.elementwise:
            grid = np.broadcast_to(steps.reshape(-1, *(1,) * current.ndim), (len(steps), *current.shape))
            log_p = self._at(grid, None, current, others)
            new = np.where(np.isfinite(log_p.max(axis=0)), steps[log_p.argmax(axis=0)], new)
        else:
            flat = new.ravel()
            for i in range(self.size):
                log_p = self._at(steps, i, flat.reshape(self.shape), others)
                flat[i] = steps[log_p.argmax()] if np.isfinite(log_p.max()) else flat[i]
            new = flat.reshape(self.shape)
        return {**point, self.value.name: np.asarray(new, dtype=self.dtype)}

    def _around(self, point: Mapping[str, Any], reach: int) -> Any:
        current = np.asarray(point[self.value.name])
        others = [np.asarray(point[n]) for n in self.names]
        low, width = current.astype(np.int64) - reach, 2 * reach + 1
        if self.support is not None:
            low, width = np.full(self.shape, self.support[0]), self.support[1] - self.support[0] + 1
        if current.ndim == 0 or self.elementwise:
            return self._evaluate(low, width, None, current, others)
        flat = low.ravel()
        rows = [self._evaluate(flat[i], width, i, current, others) for i in range(self.size)]
        return np.stack(rows, axis=1).reshape((width, *self.shape))

    @staticmethod
    def competence(var: Any, has_grad: bool = False) -> Any:  # noqa: ARG004  (PyMC's interface)
        """Ideal for univariate discrete variables, impossible for all others."""
        univariate = getattr(getattr(var.owner, "op", None), "ndim_supp", 1) == 0
        return Competence.IDEAL if var.dtype in discrete_types and univariate else Competence.INCOMPATIBLE


def _shape_of(log_p: Any) -> tuple[Any, int]:
    """Return (whether each entry has a single state, width of the widest conditional)."""
    visible = log_p >= log_p.max(axis=0) + _VISIBLE
    first = visible.argmax(axis=0)
    last = len(log_p) - 1 - visible[::-1].argmax(axis=0)
    return np.isfinite(log_p).sum(axis=0) <= 1, int(np.max(last - first)) + 1


def _check_variable(rv: Any, value: Any) -> None:
    if value.dtype not in discrete_types:
        msg = f"GridGibbs moves integers, and {value.name} is {value.dtype}: leave it to NUTS"
        raise UnsupportedModelError(msg, value.name)
    if getattr(rv.owner.op, "ndim_supp", 1) > 0:
        msg = (
            f"{value.name} is a multivariate count ({type(rv.owner.op).__name__}), whose entries are "
            "tied by their sum "
            "and cannot move one at a time: write it as a chain of Binomials, or use sampler='exact'"
        )
        raise UnsupportedModelError(msg, value.name)


def _small_support(rv: Any) -> tuple[int, int] | None:
    """Return (lowest, highest) state where the distribution itself is known to be small; None otherwise."""
    op = rv.owner.op
    kind = type(op).__name__
    if kind == "BernoulliRV":
        return 0, 1
    if kind not in ("CategoricalRV", "DiscreteUniformRV", "BinomialRV"):
        return None
    parameters = list(op.dist_params(rv.owner))
    if kind == "CategoricalRV":
        [states] = constant_fold([parameters[0].shape[-1]], raise_not_constant=False)
        bounds = (0, states - 1) if isinstance(states, np.ndarray | np.integer | int) else None
    else:
        ends = constant_fold(
            parameters[:2] if kind == "DiscreteUniformRV" else parameters[:1], raise_not_constant=False
        )
        known = all(isinstance(e, np.ndarray) for e in ends)
        bounds = ((ends[0], ends[1]) if len(ends) == 2 else (0, ends[0])) if known else None
    if bounds is None:
        return None
    low, high = int(np.min(bounds[0])), int(np.max(bounds[1]))
    return (low, high) if 1 <= high - low < _WHOLE else None
