"""The answer to one attack: a DataTree that says everything, and a frozen view that computes every number from it.

What it is: the schema of the tree (:func:`build_tree`), the view (:class:`AttackResult`), saving and loading. What it is not:
an engine. The view holds nothing but the tree, so saving the tree saves the result.

===================  ==========================================================================================
group                content
===================  ==========================================================================================
``/`` attrs          scenario with its text, signature and code, target, source, question, assumptions, sampler, seed, options,
                     versions, the release (JSON) and its hash, evidence not used, by how much the target changes each count
                     (``changes``, where it could be read off the model), schema version
``posterior``        (chain, draw, ...) draws; from ``exact`` they are i.i.d. draws of the exact joint
``prior``            draws of the prior where it is proper
``answer``           log-probabilities of the target before and after, over its support
``exact``            exact marginals of the other unknowns; bound on what was cut off (attrs)
``observed_data``    published values
``constant_data``    sigma2, rho, groups, convention of each measurement
``sample_stats``     when sampled; also ``log_prior`` and ``log_likelihood`` when asked for
===================  ==========================================================================================

A saved file carries the hash of its content (:mod:`adversary.sealing`): an edited one is refused.

Held to account by ``tests/test_results.py``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from adversary._files import check_hdf5, write_netcdf
from adversary.errors import FileFormatError, ModelError
from adversary.privacy.semantics import divergence_of, risk_ceiling
from adversary.release.measurement import Release
from adversary.sealing import sealed, unsealed

__all__ = ["SCHEMA_VERSION", "AttackResult", "Check", "Risk", "build_tree"]

SCHEMA_VERSION = 2  # added the scenario's text, signature and code, ``changes`` and the seal
READABLE = (1, 2)
_LOG_SMALLEST = math.log(np.finfo(float).tiny)


@dataclass(frozen=True)
class Risk:
    """Disclosure risk of one answer.

    Attributes
    ----------
    value : float
        R' = posterior / prior of the target being 1 (Kazan & Reiter, sec. 3.1).
    baseline : float
        1: what she knew before.
    interval : tuple of float
        95 % interval of the Monte Carlo error; both ends equal ``value`` for an exact answer.
    mcse : float
        Monte Carlo standard error; 0 for an exact answer.
    """

    value: float
    baseline: float
    interval: tuple[float, float]
    mcse: float

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True)
class Check:
    """One thing that was checked: ``name``, ``passed`` (True, False, or None: not applicable), and ``text`` that says so."""

    name: str
    passed: bool | None
    text: str


def build_tree(
    *,
    attrs: Mapping[str, Any],
    support: np.ndarray,
    log_prior: np.ndarray | None,
    log_posterior: np.ndarray,
    release: Release,
    answer_attrs: Mapping[str, float],
    groups: Mapping[str, xr.Dataset] | None = None,
) -> xr.DataTree:
    """Assemble the tree of one answer.

    Parameters
    ----------
    attrs
        Root attributes; numbers and text only.
    support
        Values of the target, int64, shape (k,).
    log_prior, log_posterior
        Natural logs of the target's probabilities, shape (k,); log_prior is None where the prior of the target is improper.
    release
        What was seen.
    answer_attrs
        Numbers that belong to the answer: log_odds, prior_log_odds, mcse, ...
    groups
        Further groups by name.

    Returns
    -------
    xarray.DataTree
        The tree that :class:`AttackResult` looks at.
    """
    prior = np.full(len(support), np.nan) if log_prior is None else np.asarray(log_prior, dtype=np.float64)
    answer = xr.Dataset(
        {
            "log_prior": ("target", prior),
            "log_posterior": ("target", np.asarray(log_posterior, dtype=np.float64)),
        },
        coords={"target": ("target", np.asarray(support, dtype=np.int64))},
        attrs=dict(answer_attrs),
    )
    observed = xr.Dataset({m.name: (_dims(m.name, m.value), np.asarray(m.value)) for m in release.values()})
    names = list(release)
    text = {k: [str(getattr(release[n], k) or "") for n in names] for k in ("convention",)}
    constant = xr.Dataset(
        {
            "groups": ("measurement", np.array([release[n].groups for n in names], dtype=np.int64)),
            "sigma2": ("measurement", np.array([float(np.max(release[n].sigma2)) for n in names])),
            "rho": ("measurement", np.array([_rho_text(release[n].rho) for n in names], dtype=object)),
            "convention": ("measurement", np.array(text["convention"], dtype=object)),
        },
        coords={"measurement": np.array(names, dtype=object)},
    )
    nodes = {"/": xr.Dataset(attrs={**attrs, "schema_version": SCHEMA_VERSION}), "answer": answer}
    nodes |= {"observed_data": observed, "constant_data": constant, **(groups or {})}
    return xr.DataTree.from_dict(nodes)


def _rho_text(rho: Any) -> str:
    if rho is None:
        return ""
    return " ".join(str(r) for r in rho) if isinstance(rho, tuple) else str(rho)


def _dims(name: str, value: Any) -> tuple[str, ...]:
    return () if np.ndim(value) == 0 else (f"{name}_entry",)


@dataclass(frozen=True, eq=False)
class AttackResult:
    """View of one answer; every number is computed from :attr:`tree`.

    Parameters
    ----------
    tree
        As :func:`build_tree` makes it.
    """

    tree: xr.DataTree

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes of the tree: scenario, target, sampler, seed, versions, hash of the release, ..."""
        return {str(k): v for k, v in self.tree.attrs.items()}

    def values(self, group: str, name: str) -> np.ndarray:
        """Return the variable or coordinate ``name`` of a ``group`` of the tree as an array."""
        return np.asarray(self.tree[group].to_dataset()[name].values)

    @property
    def scenario(self) -> str:
        """Name of the scenario."""
        return str(self.attrs["scenario"])

    @property
    def sampler(self) -> str:
        """``exact``, ``gibbs`` or ``mcmc``."""
        return str(self.attrs["sampler"])

    @property
    def release(self) -> Release:
        """What was seen."""
        return Release.from_json(str(self.attrs["release"]), where="saved release")

    @property
    def convention(self) -> str:
        """Neighbour convention of the release, or ``"sigma2 given"``."""
        return self.release.convention or "sigma2 given"

    @property
    def assumptions(self) -> dict[str, str]:
        """What she knows and believes, argument -> value or prior as text."""
        return {str(k): str(v) for k, v in json.loads(str(self.attrs["assumptions"])).items()}

    @property
    def is_event(self) -> bool:
        """Whether the target is a yes-or-no question (values 0 and 1 only)."""
        return set(self.support.tolist()) <= {0, 1}

    @property
    def support(self) -> np.ndarray:
        """Values of the target, int64."""
        return self.values("answer", "target")

    def _log_probability(self, which: str) -> Any:
        table = self.tree["answer"].to_dataset()[which]
        if not self.is_event:
            return table
        hit = table.values[self.support == 1]
        return float(hit[0]) if hit.size else -math.inf

    @property
    def log_prior(self) -> Any:
        """Log of the prior: float for a yes-or-no target, else a DataArray over its support; nan where improper."""
        return self._log_probability("log_prior")

    @property
    def log_posterior(self) -> Any:
        """Log of the posterior, as :attr:`log_prior`."""
        return self._log_probability("log_posterior")

    @property
    def prior(self) -> Any:
        """P(target = 1) before she looked, or the pmf as a DataArray; nan where the prior is improper."""
        return _exp(self.log_prior)

    @property
    def posterior(self) -> Any:
        """P(target = 1) after she looked, or the pmf as a DataArray."""
        return _exp(self.log_posterior)

    @property
    def risk(self) -> Any:
        """Posterior / prior (R' of the paper): :class:`Risk` for a yes-or-no target, else a DataArray over its support."""
        log_ratio = self.log_posterior - self.log_prior
        if not self.is_event:
            return _exp(log_ratio)
        value = math.exp(log_ratio) if math.isfinite(log_ratio) else _exp(log_ratio)
        mcse = float(self.tree["answer"].attrs.get("mcse", 0.0)) / self.prior if self.prior else math.nan
        half = 1.959963984540054 * mcse
        return Risk(value, 1.0, (max(0.0, value - half), value + half), mcse)

    @property
    def mcse(self) -> float:
        """Monte Carlo standard error of the posterior; 0 for an exact answer."""
        return float(self.tree["answer"].attrs.get("mcse", 0.0))

    @property
    def log_odds(self) -> float:
        """Posterior log-odds of a yes-or-no target (exact answers keep digits that 1 - P loses); nan otherwise."""
        return float(self.tree["answer"].attrs.get("log_odds", math.nan))

    @property
    def log_odds_gain(self) -> float:
        """Log-odds after minus before."""
        return self.log_odds - float(self.tree["answer"].attrs.get("prior_log_odds", math.nan))

    @property
    def cut_off_bound(self) -> float:
        """Bound on the absolute error of every probability from cutting infinite supports; nan when sampled."""
        return float(self.tree["answer"].attrs.get("cut_off_bound", math.nan))

    @property
    def divergence(self) -> float | None:
        """Divergence rho between the worlds with and without the target: sum of change^2 / (2 sigma2); None: not recorded.

        ``sigma2`` is that of one noisy count, also where several are summed; inf where an exact count gives her away.
        """
        none = not int(self.attrs.get("joint_distribution", 1))  # of a sampler that belongs to no posterior
        changes = None if none else json.loads(str(self.attrs.get("changes", "null")))
        sigma2 = {m.name: m.sigma2 for m in self.release.values()}
        return None if changes is None else divergence_of((c, sigma2[name]) for name, c in changes.items())

    @property
    def risk_ceiling(self) -> float | None:
        """Ceiling on R averaged over releases with the target there and over all else that she believes; None: not recorded.

        One release can exceed it. Source: :func:`adversary.privacy.semantics.risk_ceiling`.
        """
        rho, p = self.divergence, self.prior
        if rho is None or not self.is_event or not 0 < p < 1:
            return None
        return 1 / p if math.isinf(rho) else risk_ceiling(rho, p)

    @property
    def decision(self) -> int:
        """Bayes decision under 0-1 loss; a tie (within 1e-9 in log-odds) goes to 0, the paper's strict rule."""
        if self.is_event:
            return int(self.posterior > 0.5 if math.isnan(self.log_odds) else self.log_odds > 1e-9)
        return int(self.support[int(np.argmax(self.log_posterior.values))])

    @property
    def entropy(self) -> float:
        """Entropy of the target's posterior in nats: 0 where she is certain, log(k) where k values are equally likely."""
        log_p = self.values("answer", "log_posterior")
        p = np.exp(log_p)
        return float(-(p[p > 0] @ log_p[p > 0]))

    def top(self, k: int = 5) -> tuple[tuple[int, float], ...]:
        """Return the k most probable values of the target with their posterior probabilities, the smaller value first in a tie.

        Parameters
        ----------
        k
            How many, >= 1.
        """
        log_p = self.values("answer", "log_posterior")
        order = np.lexsort((self.support, -log_p))[:k]
        return tuple((int(self.support[i]), float(np.exp(log_p[i]))) for i in order)

    def rank(self, value: int) -> tuple[int, int]:
        """Return the best and the worst place of one value among all values by posterior probability, 1 for the most probable.

        Parameters
        ----------
        value
            A value of the target, such as the true cell. The two places differ by the number of values tied with it (to
            1e-12 of their probability) less one: guessing k times finds it for sure only where k is at least the worst place.

        Raises
        ------
        ModelError
            For a value that the target cannot have.
        """
        log_p = self.values("answer", "log_posterior")
        mine = log_p[self.support == value]
        if not mine.size:
            msg = f"{value} is no value of {self.attrs['target']}: its support is {self.support.min()}..{self.support.max()}"
            raise ModelError(msg, value)
        above = int((log_p > mine[0] + 1e-12).sum())
        return above + 1, above + int((np.abs(log_p - mine[0]) <= 1e-12).sum())

    def unused_evidence(self) -> tuple[str, ...]:
        """Return what is published and was not looked at, in words."""
        return tuple(json.loads(str(self.attrs["unused_evidence"])))

    @property
    def checks(self) -> tuple[Check, ...]:
        """What was checked, with the outcome in words."""
        found = [self._error_check()]
        noisy = json.loads(str(self.attrs.get("pooled", "[]")))
        if noisy:
            names = ", ".join(noisy)
            text = f"the noise of the sum {names} is taken as one discrete Gaussian: total variation to the exact sum <= 1e-6"
            found.append(Check("noise of sums", True, text))
        drawn = int(self.attrs.get("prior_draws", 0))
        if drawn:
            text = f"the prior of the target has no exact sum here: it is estimated from {drawn} draws, and so is R'"
            found.append(Check("prior", None, text))
        aside = self.release.not_measured
        if aside:
            n = len(aside)
            text = f"{n} measurement{'s carry' if n > 1 else ' carries'} no information: {', '.join(aside)}"
            found.append(Check("not measured", None, text))
        unused = self.unused_evidence()
        text = (
            f"published and not used: {', '.join(unused)}"
            if unused
            else "every published measurement is used"
        )
        found.append(Check("evidence", None if unused else True, text))
        sampled = "sample_stats" in self.tree.children and "diverging" in self.tree["sample_stats"].data_vars
        if not sampled:
            found.append(
                Check("divergences", None, "divergences: not applicable (no gradient sampler was used)")
            )
        else:
            n = int(np.sum(self.values("sample_stats", "diverging")))
            found.append(Check("divergences", n == 0, f"divergences: {n}"))
        if "not_sealed" in self.attrs:
            text = (
                "not sealed: the file carried no hash of its content, so nothing says that it was not edited"
            )
            found.append(Check("seal", None, text))
        if "joint_distribution" in self.attrs and not int(self.attrs["joint_distribution"]):
            text = "this sampler's two steps belong to no joint distribution: it reproduces printed numbers, and is no posterior"
            found.append(Check("joint distribution", None, text))
        return tuple(found)

    def _error_check(self) -> Check:
        if self.sampler == "exact":
            proven = bool(int(self.tree["answer"].attrs.get("bound_proven", 0)))
            how = "proven" if proven else "checked by widening"
            return Check("error", True, f"exact; cut-off bound {self.cut_off_bound:.1e} ({how})")
        attrs = self.tree["answer"].attrs
        r_hat, ess = float(attrs.get("r_hat", math.nan)), float(attrs.get("ess_bulk", math.nan))
        if math.isnan(r_hat):
            text = "the target never changed in any chain: ask diagnostics.compare or the exact sampler whether it can"
            return Check("error", None if self.sampler == "gibbs" else False, text)
        text = f"sampled; mcse {self.mcse:.2g}, r_hat {r_hat:.3f}, ess {ess:.0f}"
        return Check("error", r_hat < 1.01, text)

    def summary(self) -> dict[str, Any]:
        """Return the main numbers under the names that ``adversary run --json`` prints."""
        out: dict[str, Any] = {k: self.attrs[k] for k in ("scenario", "target", "sampler")}
        out["assumptions"] = self.assumptions
        out |= {"convention": self.convention, "prior": self.prior, "posterior": self.posterior}
        risk = self.risk
        out |= {"risk": risk.value if isinstance(risk, Risk) else risk, "log_odds": self.log_odds}
        out |= {
            "log_odds_gain": self.log_odds_gain,
            "decision": self.decision,
            "cut_off_bound": self.cut_off_bound,
        }
        out |= {"mcse": self.mcse, "not_measured": list(self.release.not_measured)}
        out |= {"unused_evidence": list(self.unused_evidence()), "release_hash": self.attrs["release_hash"]}
        out["checks"] = [{"name": c.name, "passed": c.passed, "text": c.text} for c in self.checks]
        return {k: v if k == "assumptions" else _plain(v) for k, v in out.items()}

    def __repr__(self) -> str:
        head = f"<AttackResult {self.scenario} ({self.sampler}): "
        if not self.is_event:
            best = self.decision
            return (
                head
                + f"most likely {self.attrs['target']} = {best}, P = {float(self.posterior.sel(target=best)):.3f}>"
            )
        odds = "" if math.isnan(self.log_odds_gain) else f", odds x{_exp(self.log_odds_gain):.3g}"
        return (
            head
            + f"P({self.attrs['target']}) {_short(self.prior)} -> {_short(self.posterior)}{odds}; {self.convention}>"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AttackResult) and bool(self.tree.identical(other.tree))

    __hash__ = None  # type: ignore[assignment]

    def save(self, path: str | Path) -> Path:
        """Write the tree to ``path`` as netCDF (``.nc``), whole or not at all, with the hash of its content.

        Raises
        ------
        FileFormatError
            Where the name does not end in ``.nc``, or the folder is missing or cannot be written.
        """
        if Path(path).suffix.lower() != ".nc":
            msg = f"{path}: a result is saved as netCDF: give a name that ends in .nc"
            raise FileFormatError(msg, path)
        return write_netcdf(path, sealed(self.tree))

    @classmethod
    def load(cls, path: str | Path) -> AttackResult:
        """Read a saved result at ``path``; :attr:`checks` says where it had no seal (an older version, or not :meth:`save`).

        Raises
        ------
        FileFormatError
            For a file that is missing, is not netCDF, has another schema, or was edited.
        """
        path = Path(path)
        if not path.is_file():
            msg = f"{path}: there is no such file: give the path of a saved result (.nc)"
            raise FileFormatError(msg, path)
        check_hdf5(path)
        try:
            with xr.open_datatree(path, engine="h5netcdf") as opened:
                tree = opened.load()
        except (OSError, ValueError, LookupError, RuntimeError, TypeError, AttributeError) as error:
            msg = f"{path}: not a saved result ({error})"
            raise FileFormatError(msg, path) from error
        if tree.attrs.get("schema_version", -1) not in READABLE or "answer" not in tree.children:
            msg = (
                f"{path}: not a result of this version (schema {tree.attrs.get('schema_version')}, "
                f"expected {SCHEMA_VERSION}): run it again"
            )
            raise FileFormatError(msg, path)
        if not unsealed(tree, path):
            tree.attrs["not_sealed"] = 1
        return cls(tree)


def _short(p: float) -> str:
    """Print three decimals, or three significant digits of what is rarer than one in a hundred."""
    return f"{p:.3g}" if 0 < p < 0.01 else f"{p:.3f}"


def _exp(log: Any) -> Any:
    if isinstance(log, xr.DataArray):
        return np.exp(log)
    if math.isnan(log):
        return math.nan
    return math.exp(log) if log < 709 else math.inf


def _plain(value: Any) -> Any:
    """Turn a number or a pmf into what JSON can hold; nan becomes None."""
    if isinstance(value, xr.DataArray):
        return {str(int(k)): _plain(v) for k, v in zip(value["target"].values, value.values, strict=True)}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [v if isinstance(v, dict) else _plain(v) for v in value]
    return value
