"""The posterior of a block in the tree that every attack has. Held to account by tests/reconstruction/test_posterior.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from adversary._version import __version__
from adversary.reconstruction._diagnostics import ess, split_r_hat
from adversary.reconstruction.households import Predicate, to_xarray
from adversary.release.measurement import Measurement, Release
from adversary.results import build_tree

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from adversary.reconstruction.posterior import HouseholdPosterior

__all__ = ["tree_of"]


def tree_of(found: HouseholdPosterior, harm: Predicate | Mapping[str, Any] | ArrayLike) -> xr.DataTree:
    """Assemble the tree of one posterior and one harm."""
    its = found.configurations.mask(harm)
    name = (
        harm.name if isinstance(harm, Predicate) else str(dict(harm) if isinstance(harm, Mapping) else "mask")
    )
    after, before = found.pmf(its), found.prior.pmf(its)
    pair = [np.array([pmf[0], pmf[1:].sum()]) for pmf in (before, after)]
    with np.errstate(divide="ignore"):
        log_prior, log_posterior = np.log(pair[0]), np.log(pair[1])
        numbers = {
            "log_odds": float(log_posterior[1] - log_posterior[0]),
            "prior_log_odds": float(log_prior[1] - log_prior[0]),
        }
    event = (found.draws[..., its].sum(axis=-1) > 0).astype(float)
    if found.method == "exact":
        numbers |= {
            "log_evidence": found.log_evidence,
            "cut_off_bound": 0.0,
            "bound_proven": 1.0,
            "mcse": 0.0,
        }
    else:
        size = ess(event)
        mcse = float(np.sqrt(event.var() / max(size, 1.0)))
        numbers |= {"mcse": mcse, "r_hat": split_r_hat(event), "ess_bulk": size}
    return build_tree(
        attrs=_attrs(found, name),
        support=np.array([0, 1]),
        log_prior=log_prior,
        log_posterior=log_posterior,
        release=_release(found),
        answer_attrs=numbers,
        groups=_groups(found, its, after),
    )


def _attrs(found: HouseholdPosterior, harm: str) -> dict[str, Any]:
    release = _release(found)
    assumptions = {
        "likelihood": found.prior.likelihood,
        "households": repr(dict(found.prior.households)),
        "shares": f"of {int((found.prior.shares > 0).sum())} configurations",
    }
    return {
        "scenario": "household_posterior",
        "origin": "adversary.reconstruction.posterior:household_posterior",
        "target": f"present: {harm}",
        "source": "arXiv 2407.04776 (rows); the posterior is ours",
        "question": f"Is there a household that {harm}?",
        "assumptions": json.dumps(assumptions),
        "sampler": found.method,
        "seed": found.seed,
        "options": "{}",
        "versions": json.dumps({"adversary": __version__, "numpy": np.__version__}),
        "release": release.to_json(),
        "release_hash": release.hash,
        "unused_evidence": json.dumps(list(found.constraints.notes)),
        "pooled": "[]",
        "validation": "synthetic households only",
        "checks": json.dumps([[c.name, c.passed, c.text] for c in found.checks]),
    }


def _release(found: HouseholdPosterior) -> Release:
    """Exact and noisy rows as measurements; intervals, which are no counts, are in the group ``rows``."""
    rows, out, used = found.constraints, [], set()

    def fresh(table: str, cell: str) -> str:
        name = f"{table} {cell}".replace("/", " ").replace(":", " ")
        while name in used:
            name += " again"
        used.add(name)
        return name

    firm = np.flatnonzero(rows.low == rows.high).tolist()
    out += [Measurement(fresh(rows.table[i], rows.cell[i]), int(rows.low[i]), 0.0) for i in firm]
    noisy = found.noisy
    for i in range(0 if noisy is None else len(noisy)):
        name = fresh(noisy.table[i], noisy.cell[i])  # type: ignore[union-attr]
        out.append(Measurement(name, int(noisy.values[i]), float(noisy.sigma2[i])))  # type: ignore[union-attr]
    return Release(out, convention=None)


def _groups(found: HouseholdPosterior, its: Any, after: Any) -> dict[str, xr.Dataset]:
    table = found.configurations
    blocks = to_xarray(table, found.draws.astype(np.int32), "households")
    blocks = blocks.rename(dict(zip(blocks.dims[:2], ("chain", "draw"), strict=True)))
    number = (("chain", "draw"), found.draws[..., its].sum(axis=-1))
    posterior = xr.Dataset({"households": blocks, "harmed": number})
    known = {
        "present": found.present,
        "expected": found.expected,
        "prior_present": found.prior.present,
        "prior_expected": found.prior.expected,
        "share": found.prior.shares,
    }
    households = xr.Dataset({k: to_xarray(table, v, k) for k, v in known.items()})
    rows = found.constraints
    ends = {"low": ("row", rows.low), "high": ("row", rows.high)}
    names = {
        "table": ("row", np.array(rows.table, dtype=object)),
        "cell": ("row", np.array(rows.cell, dtype=object)),
    }
    groups = {"posterior": posterior, "households": households, "rows": xr.Dataset(ends, coords=names)}
    if found.method == "exact":
        groups["exact"] = xr.Dataset(
            {"harmed": ("harmed_value", after)}, coords={"harmed_value": np.arange(len(after))}
        )
    return groups
