"""Diagnostics that know about counts: verdicts for chains of integers, and samplers held against each other.

What it is: :func:`summarize` (ArviZ's summary with a verdict for each variable) and :func:`compare` (several samplers on one
attack, differences in Monte Carlo standard errors). What it is not: a plot (see :mod:`adversary.plots`).

Why a verdict: a 0/1 chain that never moves has r_hat nan, an effective sample size equal to the number of draws and a
standard error of zero, so it looks perfect. Here it is "constant by construction" where the exact engine says so, and
"stuck" where it does not.

Held to account by ``tests/test_diagnostics.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from adversary.attack import run
from adversary.errors import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from adversary.language import Scenario
    from adversary.release.measurement import Release
    from adversary.results import AttackResult

__all__ = ["Comparison", "Row", "compare", "summarize"]

CI_PROB = 0.94
"""Probability of the equal-tailed intervals below; always printed with them."""

AGREE = 4.0
"""Two samplers disagree where their means differ by more Monte Carlo standard errors than this."""


@dataclass(frozen=True)
class Row:
    """One variable under one sampler.

    Attributes
    ----------
    sampler, variable, verdict : str
        The verdict is one of exact, sampled, constant by construction, stuck, disagree, no exact answer to compare with.
    mean, sd, lower, upper : float
        Moments and the equal-tailed interval of probability :data:`CI_PROB`.
    mcse, ess_bulk, ess_tail, r_hat : float
        ArviZ's names; 0, inf, inf and 1 for an exact answer; nan where they mean nothing.
    exact_mean : float
        Mean under the exact posterior, nan where there is none.
    difference : float
        (mean - exact_mean) in Monte Carlo standard errors.
    """

    sampler: str
    variable: str
    mean: float
    sd: float
    lower: float
    upper: float
    mcse: float
    ess_bulk: float
    ess_tail: float
    r_hat: float
    exact_mean: float
    difference: float
    verdict: str

    @property
    def ok(self) -> bool:
        """Whether the verdict lets the number stand."""
        return self.verdict not in ("stuck", "disagree", "not converged")


def _exact_moments(exact: AttackResult | None, name: str) -> tuple[float, float, float, float]:
    """Return mean, sd and equal-tailed interval of a variable under the exact posterior; nan where it has none."""
    if exact is None:
        return (math.nan,) * 4
    if name == exact.attrs["target"]:
        support, p = exact.support, np.exp(exact.values("answer", "log_posterior"))
    elif f"{name}_value" in exact.tree["exact"].coords:
        support, p = exact.values("exact", f"{name}_value"), exact.values("exact", name)
    else:
        return (math.nan,) * 4
    mean = float(p @ support)
    sd = math.sqrt(max(float(p @ (support - mean) ** 2), 0.0))
    cdf = np.cumsum(p) / p.sum()
    tail = (1 - CI_PROB) / 2
    lower, upper = (
        float(support[min(int(np.searchsorted(cdf, q)), len(support) - 1)]) for q in (tail, 1 - tail)
    )
    return mean, sd, lower, upper


def summarize(result: AttackResult, exact: AttackResult | None = None) -> tuple[Row, ...]:
    """Return one row for each scalar variable of a result.

    Parameters
    ----------
    result
        Any result with draws; an exact one gives its exact moments.
    exact
        The exact answer to hold it against, where there is one.

    Returns
    -------
    tuple of Row
        One row a variable.
    """
    if result.sampler == "exact":
        names = [str(result.attrs["target"])]
        names += [str(n) for n in result.tree["exact"].data_vars if n not in names]
        rows = []
        for name in names:
            mean, sd, lower, upper = _exact_moments(result, name)
            rows.append(
                Row("exact", name, mean, sd, lower, upper, 0.0, math.inf, math.inf, 1.0, mean, 0.0, "exact")
            )
        return tuple(rows)
    data = result.tree["posterior"].to_dataset()
    scalars = [str(n) for n, v in data.data_vars.items() if v.ndim == 2]
    return tuple(_sampled_row(result.sampler, name, data[name], exact) for name in scalars)


def _sampled_row(sampler: str, name: str, draws: xr.DataArray, exact: AttackResult | None) -> Row:
    import arviz as az

    values = draws.astype(float)
    mean, sd = float(values.mean()), float(values.std())
    exact_mean, exact_sd, _, _ = _exact_moments(exact, name)
    tail = (1 - CI_PROB) / 2
    lower, upper = (float(x) for x in np.quantile(values, [tail, 1 - tail], method="inverted_cdf"))
    if sd == 0:
        verdict = "constant, no exact answer to compare with"
        if not math.isnan(exact_mean):
            verdict = "constant by construction" if exact_sd < 1e-9 and mean == round(exact_mean) else "stuck"
            if exact_sd >= 1e-9 and 1 - _mass_at(exact, name, mean) < 1 / values.size:
                verdict = "constant by construction"
        return Row(
            sampler,
            name,
            mean,
            sd,
            lower,
            upper,
            math.nan,
            math.nan,
            math.nan,
            math.nan,
            exact_mean,
            math.nan,
            verdict,
        )
    table = az.summary(
        values.to_dataset(name=name),
        kind="all",
        ci_kind="eti",
        ci_prob=CI_PROB,
        round_to="none",
    ).iloc[0]
    mcse, r_hat = float(table["mcse_mean"]), float(table["r_hat"])
    difference = (mean - exact_mean) / mcse
    verdict = "sampled"
    if r_hat > 1.05:
        verdict = "not converged"
    elif abs(difference) > AGREE:
        verdict = "disagree"
    return Row(
        sampler,
        name,
        mean,
        sd,
        lower,
        upper,
        mcse,
        float(table["ess_bulk"]),
        float(table["ess_tail"]),
        r_hat,
        exact_mean,
        difference,
        verdict,
    )


def _mass_at(exact: AttackResult | None, name: str, value: float) -> float:
    """Return the exact posterior probability of one value."""
    if exact is None:
        return math.nan
    if name == exact.attrs["target"]:
        p = np.exp(exact.values("answer", "log_posterior"))
        return float(p[exact.support == value].sum())
    return float(exact.values("exact", name)[exact.values("exact", f"{name}_value") == value].sum())


@dataclass(frozen=True)
class Comparison:
    """Several samplers on one attack.

    Attributes
    ----------
    results : mapping
        Sampler -> its result.
    rows : tuple of Row
        One for each sampler and scalar variable.
    skipped : mapping
        Sampler -> why it could not answer.
    """

    results: Mapping[str, AttackResult]
    rows: tuple[Row, ...]
    skipped: Mapping[str, str]

    @property
    def agree(self) -> bool:
        """Whether no verdict speaks against any sampler (the literal mode of the Gibbs reference is expected to)."""
        return all(row.ok for row in self.rows)

    def to_dataset(self) -> xr.Dataset:
        """Return the rows as a Dataset over ``row``, without a MultiIndex, so that it can be saved."""
        columns = {k: [getattr(r, k) for r in self.rows] for k in Row.__dataclass_fields__}
        return xr.Dataset(
            {k: ("row", np.array(v, dtype=object if k in _TEXT else float)) for k, v in columns.items()}
        )

    def lines(self) -> list[str]:
        """Return the table as text, one line a row."""
        head = (
            f"{'variable':<12} {'sampler':<8} {'mean':>10} {'sd':>9} {f'{CI_PROB:.0%} eti':>13} {'mcse':>9} {'ess':>8} "
            f"{'r_hat':>6} {'diff/mcse':>9}  verdict"
        )
        out = [head]
        for r in sorted(self.rows, key=lambda r: r.variable):
            interval = f"[{r.lower:.0f}, {r.upper:.0f}]"
            out.append(
                f"{r.variable:<12} {r.sampler:<8} {r.mean:>10.5f} {r.sd:>9.4f} {interval:>13} {_number(r.mcse, '.2e'):>9} "
                f"{_number(r.ess_bulk, '.0f'):>8} {_number(r.r_hat, '.3f'):>6} {_number(r.difference, '+.2f'):>9}  {r.verdict}"
            )
        return out + [f"{name}: not run, {why}" for name, why in self.skipped.items()]


_TEXT = ("sampler", "variable", "verdict")


def _number(x: float, spec: str) -> str:
    return "-" if math.isnan(x) else format(x, spec)


def compare(
    scenario: Scenario,
    release: Release,
    samplers: Sequence[str] = ("exact", "gibbs", "mcmc"),
    *,
    seed: Any = None,
    draws: int = 2000,
    mode: str = "exact",
    progressbar: bool = False,
) -> Comparison:
    """Answer one attack with several samplers and hold them against each other.

    Parameters
    ----------
    scenario, release
        As for :func:`adversary.run`.
    samplers
        Names; one that cannot answer this scenario is skipped and named, with the reason.
    seed, draws
        As for :func:`adversary.run`; each sampler gets its own stream.
    mode
        Mode of the Gibbs reference; ``"literal"`` shows the paper's sampler, which disagrees with its model.
    progressbar
        Whether long samplers show their progress.

    Returns
    -------
    Comparison
        One row a sampler, and whether they agree.
    """
    streams = np.random.SeedSequence(seed if seed is None or isinstance(seed, int) else None).spawn(
        len(samplers)
    )
    if isinstance(seed, np.random.SeedSequence):
        streams = seed.spawn(len(samplers))
    results: dict[str, AttackResult] = {}
    skipped: dict[str, str] = {}
    for name, stream in zip(samplers, streams, strict=True):
        options: dict[str, Any] = {} if name == "exact" else {"progressbar": progressbar}
        if name == "gibbs":
            options["mode"] = mode
        try:
            results[name] = run(scenario, release, name, seed=stream, draws=draws, **options)
        except UnsupportedModelError as error:
            skipped[name] = str(error)
    exact = results.get("exact")
    rows = tuple(row for result in results.values() for row in summarize(result, exact))
    return Comparison(results, rows, skipped)
