"""Find a closed form in a declared model, from what it declares and never from its name.

What it is: a reader of one built model. It asks of every variable what it is (its distribution), where its numbers come
from (the release, the prior, a constant), and of every measured count which integer form of the unknowns it is
(the exact engine's own graph reader). Where the answers are

* one Bernoulli unknown, and counts ``c + T`` or ``c - T``: a sum of one-level terms (one level, several marginals, a move,
  uniqueness at several levels);
* the same, plus one flat count ``Y`` that enters two counts, ``c + T + Y`` and ``c + Y``: two levels;

the log-odds are those of :mod:`adversary.samplers.closed`. Anything else, and anything that cannot be seen through, is no
closed form, with the reason: the compiled exact engine answers it. What it is not: a guess. A scenario that looks at a
published value, adds a potential, or computes its prior is never matched.

Held to account by ``tests/test_batches.py`` (both ways on every pattern, copies under other names, near misses).

Sources: Kazan & Reiter (arXiv 2204.04253), equation (3.1), section 3.2, S1.2, S1.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from adversary.language import noise_kind
from adversary.samplers._theta import hierarchy
from adversary.samplers.closed import (
    log_odds_of,
    one_level_log_odds,
    two_level_exact_noise_log_odds,
    two_level_log_odds,
)
from adversary.samplers.inputs import Inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from adversary.language import Scenario
    from adversary.release.measurement import Release

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

_FEW, _TABLE, _PIECE = (
    4096,
    1 << 18,
    8192,
)  # targets that pay for a table, its largest size, targets at a time

__all__ = ["ClosedForm", "Column", "Count", "find_closed_form", "lattice_gain", "prior_of"]


@dataclass(frozen=True)
class Column:
    """One measurement of many targets: published ``value``, ``sigma2`` of one count, ``groups``: number of counts summed."""

    value: Integers
    sigma2: Floats
    groups: Integers


@dataclass(frozen=True)
class Count:
    """A measured count, ``name``: ``offset + sign * target + rest * elsewhere``; ``kind``: how its noise is declared."""

    name: str
    offset: int
    sign: int
    rest: int
    kind: str


@dataclass(frozen=True)
class ClosedForm:
    """What :func:`find_closed_form` found.

    Parameters
    ----------
    prior_label
        ``"present.p"``: the prior's probability, where it is a parameter of an assumption; None where it is a constant.
    prior_p
        Its value in the model that was read.
    own
        Counts of the target alone.
    group, rest
        Counts ``c + T + Y`` and ``c + Y``; None on one level.
    """

    prior_label: str | None
    prior_p: float
    own: tuple[Count, ...]
    group: Count | None = None
    rest: Count | None = None

    @property
    def name(self) -> str:
        """What the form is, in words."""
        if self.group is not None:
            return "closed form, two levels"
        return (
            "closed form, one level"
            if len(self.own) == 1
            else f"closed form, {len(self.own)} counts of one unknown"
        )

    @property
    def measured(self) -> set[str]:
        """Names of the counts that it uses."""
        return {c.name for c in (*self.own, self.group, self.rest) if c is not None}

    def log_odds(self, columns: Mapping[str, Column], prior_log_odds: Floats) -> Floats:
        """Posterior log-odds of many targets.

        Parameters
        ----------
        columns
            Measurement -> :class:`Column`, arrays of one shape.
        prior_log_odds
            Of the same shape, or one number.

        Returns
        -------
        numpy.ndarray
            Posterior log-odds, one a target.
        """
        odds = np.asarray(prior_log_odds, dtype=np.float64)
        linear = self.own if self.group is None else self.own[1:]
        for count in linear:
            odds = _one_count(count, columns[count.name], odds)
        if self.group is None or self.rest is None:
            return odds
        first, group, rest = self.own[0], self.group, self.rest
        x1, x2, y1 = (columns[c.name].value - c.offset for c in (first, group, rest))
        noise = [columns[c.name] for c in (first, group, rest)]
        s1, s2, s3 = (n.sigma2 * n.groups for n in noise)
        if rest.kind != "sum":
            gain = lattice_gain(x2, y1, s2, s3)
            if gain is not None:
                return np.asarray(one_level_log_odds(x1, 0, s1, odds) + gain)
            return two_level_log_odds(x1, x2, y1, 0, s1, s2, s3, odds)

        def terms(at: Integers, law: Callable[[Integers], Floats]) -> Floats:
            one = [np.broadcast_to(a, x1.shape)[at] for a in (x1, x2, y1, s1, s2, s3, odds)]
            a, b, c, d, e, f, base = one
            return two_level_exact_noise_log_odds(a, b, c, 0, d, e, f, base, law)

        return _by_law(noise[2], x1.shape, terms)


def lattice_gain(x2: Integers, y1: Integers, sigma2_2: Floats, sigma2_rest: Floats) -> Floats | None:
    """Look up what the second level adds to the log-odds, where few different pairs of counts stand for many targets.

    Parameters
    ----------
    x2, y1
        Noisy counts of the group and of the rest, less the known persons.
    sigma2_2, sigma2_rest
        Their noise parameters.

    Returns
    -------
    numpy.ndarray or None
        To the last bit the term of :func:`adversary.samplers.closed.two_level_log_odds`: the counts are whole numbers, so for
        one pair of noise parameters it is a table. None where the table would cost more than it saves.

    Examples
    --------
    >>> u, v = np.tile([0, 1], 5000), np.tile([2, 3], 5000)
    >>> gain = lattice_gain(u, v, np.array([2.0]), np.array([135.0]))
    >>> closed = two_level_log_odds(0, u, v, 0, 1e99, 2.0, 135.0, 0.0)
    >>> bool((gain == closed).all())
    True
    """
    if (
        x2.size < _FEW
        or x2.shape != y1.shape
        or not all((s == s.flat[0]).all() for s in (sigma2_2, sigma2_rest))
    ):
        return None
    low, high = (int(x2.min()), int(y1.min())), (int(x2.max()), int(y1.max()))
    wide = high[1] - low[1] + 1
    if (high[0] - low[0] + 1) * wide > min(x2.size // 4, _TABLE):
        return None
    u, v = np.meshgrid(np.arange(low[0], high[0] + 1), np.arange(low[1], high[1] + 1), indexing="ij")
    table = hierarchy(u.ravel(), v.ravel(), float(sigma2_2.flat[0]), float(sigma2_rest.flat[0]), True)
    out = np.empty(x2.shape)
    for start in range(0, x2.size, _PIECE):
        part = slice(start, start + _PIECE)
        index = x2[part] * wide
        index += y1[part]
        index -= low[0] * wide + low[1]
        np.take(table, index, out=out[part])
    return out


def _one_count(count: Count, column: Column, odds: Floats) -> Floats:
    excess = count.sign * (column.value - count.offset)
    if count.kind != "sum":
        return one_level_log_odds(excess, 0, column.sigma2 * column.groups, odds)

    def terms(at: Integers, law: Callable[[Integers], Floats]) -> Floats:
        return law(excess[at] - 1) - law(excess[at])

    return np.asarray(odds + _by_law(column, excess.shape, terms))


def _by_law(
    column: Column, shape: tuple[int, ...], terms: Callable[[Integers, Callable[[Integers], Floats]], Floats]
) -> Floats:
    """Evaluate targets together whose sums have the same exact law of noise."""
    from adversary.privacy.discrete_gaussian import sum_log_pmf

    out = np.empty(shape)
    sigma2, groups = (np.broadcast_to(a, shape) for a in (column.sigma2, column.groups))
    for s, d in np.unique(np.stack([sigma2, groups.astype(np.float64)], axis=-1).reshape(-1, 2), axis=0):
        at = np.flatnonzero((sigma2 == s) & (groups == d))
        out[at] = terms(at, lambda n, s=s, d=d: np.asarray(sum_log_pmf(n, float(s), int(d))))  # type: ignore[misc]
    return out


def find_closed_form(scenario: Scenario, release: Release) -> tuple[ClosedForm | None, str]:
    """Read one model for a closed form.

    Parameters
    ----------
    scenario
        With all known numbers in place.
    release
        Any release with the names and kinds of noise in question; its values do not matter.

    Returns
    -------
    ClosedForm or None, str
        None with the reason where there is none.

    Examples
    --------
    >>> from adversary import Release, load
    >>> release = Release.from_counts({"block": 2}, rho="0.0992264")
    >>> find_closed_form(load("single_level"), release)[1]
    'closed form, one level'
    """
    inputs = Inputs()
    model, reads = scenario.build(release, inputs.hold)
    try:
        form = _Reader(scenario.target, release, model, inputs).form(dict(reads))
    except _NoMatch as reason:
        return None, str(reason)
    return form, form.name


class _NoMatch(Exception):
    """Why a model has no closed form."""


class _Reader:
    def __init__(self, target: str, release: Release, model: Any, inputs: Mapping[str, Any]) -> None:
        self.target, self.release, self.model, self.inputs = target, release, model, inputs
        self.labels = {v: k for k, v in inputs.items()}

    def form(self, reads: dict[tuple[str, str], Any]) -> ClosedForm:
        self._refuse_reads(reads)
        if self.model.potentials:
            _no("it has a potential")
        self._unknowns()
        counts = self._counts()
        label, p = self._prior()
        own = tuple(c for c in counts if c.rest == 0)
        above = [c for c in counts if c.rest]
        if any(abs(c.sign) != 1 for c in own):
            _no("a count changes by other than one with the target, or not at all")
        if self.rest is None:
            return ClosedForm(label, p, own)
        group, rest = self._two_levels(own, above)
        return ClosedForm(label, p, own, group, rest)

    def _refuse_reads(self, reads: dict[tuple[str, str], Any]) -> None:
        for name, attribute in reads:
            if attribute not in ("sigma2", "groups") or noise_kind(self.release[name]) != "sum":
                _no(f"the scenario looks at {attribute} of {name} itself")

    def _unknowns(self) -> None:
        """Exactly one Bernoulli, and at most one flat count."""
        import pymc as pm

        from adversary.distributions import FlatCount

        by_op: dict[type, list[Any]] = {type(pm.Bernoulli.rv_op): [], type(FlatCount.rv_op): []}
        for rv in self.model.free_RVs:
            found = by_op.get(type(rv.owner.op)) if rv.owner is not None else None
            if found is None or rv.ndim:
                _no(f"{rv.name} is neither one Bernoulli nor one flat count")
            else:
                found.append(rv)
        bernoulli, flat = by_op.values()
        if len(bernoulli) != 1 or len(flat) > 1:
            _no(f"it has {len(bernoulli)} Bernoulli unknowns and {len(flat)} flat counts")
        self.bernoulli, self.rest = bernoulli[0], (flat[0] if flat else None)

    def _counts(self) -> list[Count]:
        """Every observed variable as an integer form of the unknowns."""
        import pytensor
        from pytensor.graph.replace import clone_replace

        from adversary.samplers.exact.forms import Linear
        from adversary.samplers.exact.linear import GraphReader, python_mode

        unknowns = [self.bernoulli] + ([] if self.rest is None else [self.rest])
        values = [self.model.rvs_to_values[rv] for rv in unknowns]
        kinds = [self._noise(rv) for rv in self.model.observed_RVs]
        graphs = [
            self.model[self.target],
            *[rv.owner.op.dist_params(rv.owner)[0] for rv in self.model.observed_RVs],
        ]
        graphs = self.model.replace_rvs_by_values(graphs)
        if self.rest is not None:
            graphs.append(self.rest.owner.op.dist_params(self.rest.owner)[0])
        if any(self._shared(g) for g in graphs[: 1 + len(kinds)]):
            _no("a count depends on a parameter or a published value")
        leaves = {}
        for number, value in enumerate(values):
            entry = np.empty((), dtype=object)
            entry[()] = Linear(((number, Fraction(1)),))
            leaves[value] = entry
        entries = [e for _, e in GraphReader(leaves, len(values)).read(graphs[: 1 + len(kinds)])]
        zeros = {v: pytensor.tensor.constant(np.zeros((), dtype=v.type.dtype)) for v in values}
        offsets = pytensor.function([], clone_replace(graphs, zeros), mode=python_mode())()
        forms = [_integers(e, o) for e, o in zip(entries, offsets, strict=False)]
        if forms[0] != (0, 1, 0):
            _no(f"the target {self.target} is not the Bernoulli unknown itself")
        lower = int(offsets[-1]) if self.rest is not None else 0
        return [
            Count(rv.name, offset + b * lower, a, b, kind)
            for rv, kind, (offset, a, b) in zip(self.model.observed_RVs, kinds, forms[1:], strict=True)
        ]

    def _noise(self, rv: Any) -> str:
        """Kind of noise of an observed variable whose value and noise are the release's own."""
        from adversary.distributions import DiscreteGaussian, DiscreteGaussianSum

        op, value = rv.owner.op, self._source(self.model.rvs_to_values[rv], narrow=True)
        if rv.ndim or value is not self.inputs.get(f"{rv.name}:value", ""):
            _no(f"{rv.name} is not one published count")
        kind = noise_kind(self.release[rv.name])
        if isinstance(op, type(DiscreteGaussianSum.rv_op)) and kind == "sum":
            return kind
        if not isinstance(op, type(DiscreteGaussian.rv_op)):
            _no(f"{rv.name} has no discrete Gaussian noise")
        if self._source(op.dist_params(rv.owner)[1]) is not self.inputs.get(f"{rv.name}:sigma2", ""):
            _no(f"the noise of {rv.name} is not the release's")
        return kind

    def _prior(self) -> tuple[str | None, float]:
        p = self._source(self.bernoulli.owner.op.dist_params(self.bernoulli.owner)[0])
        label = self.labels.get(p)
        if label is not None and label.endswith(".p"):
            return label, float(p.get_value())
        if self._shared(p) or not hasattr(p, "data"):
            _no("the prior probability is computed from other numbers")
        return None, float(np.asarray(p.data))

    def _two_levels(self, own: tuple[Count, ...], above: list[Count]) -> tuple[Count, Count]:
        group = [c for c in above if (c.sign, c.rest) == (1, 1)]
        rest = [c for c in above if (c.sign, c.rest) == (0, 1)]
        if len(above) != 2 or len(group) != 1 or len(rest) != 1:
            _no("the flat count does not enter two counts, once with the target and once without")
        if not own or own[0].sign != 1 or own[0].kind == "sum" or group[0].kind == "sum":
            _no("no count of the target alone, or one with the exact noise of a sum")
        return group[0], rest[0]

    @staticmethod
    def _source(var: Any, narrow: bool = False) -> Any:
        """See through casts and identities that change no number.

        ``narrow``: PyMC casts observed counts to int32 on their way to int64; the engines take that out, so it is seen
        through here too.
        """
        while var.owner is not None:
            scalar = getattr(var.owner.op, "scalar_op", None)
            kind = type(scalar).__name__ if scalar is not None else type(var.owner.op).__name__
            source = var.owner.inputs[0]
            widens = kind == "Cast" and (narrow or np.can_cast(source.type.dtype, var.type.dtype, "safe"))
            if not (widens or kind in ("Identity", "TensorFromScalar", "ViewOp")):
                break
            var = source
        return var

    @staticmethod
    def _shared(graph: Any) -> set[Any]:
        from pytensor.compile.sharedvalue import SharedVariable
        from pytensor.graph.traversal import ancestors
        from pytensor.tensor.random.type import RandomType

        return {
            a
            for a in ancestors([graph])
            if isinstance(a, SharedVariable) and not isinstance(a.type, RandomType)
        }


def _integers(entry: Any, offset: Any) -> tuple[int, int, int]:
    """Return (offset, coefficient of the target, coefficient of the flat count)."""
    from adversary.samplers.exact.forms import Linear

    form = np.asarray(entry, dtype=object).item()
    if form is None:
        return int(offset), 0, 0
    if not isinstance(form, Linear) or any(c.denominator != 1 for _, c in form.coefs):
        _no("a count is not an integer form of the unknowns")
    coefs = {i: int(c) for i, c in form.coefs}
    return int(offset), coefs.get(0, 0), coefs.get(1, 0)


def _no(reason: str) -> NoReturn:
    raise _NoMatch(reason)


def prior_of(form: ClosedForm, given: Mapping[str, Any]) -> Any:
    """Prior log-odds of ``form``: of the given column where there is one, of the model's own number otherwise."""
    p = given.get(form.prior_label) if form.prior_label is not None else None
    return log_odds_of(form.prior_p if p is None else p)
