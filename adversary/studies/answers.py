"""The answers of a study: rows, how they are kept in files, and the labelled Dataset they become.

What it is not: it plans and answers nothing (see :mod:`adversary.studies.grid`).
Held to account by ``tests/test_studies.py``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary._files import write_netcdf
from adversary._version import __version__
from adversary.errors import DisagreementError
from adversary.sealing import sealed
from adversary.studies.points import Layout, declaration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import xarray as xr

    from adversary.language import Scenario
    from adversary.release.measurement import Release

__all__ = ["Row", "assemble", "pack", "unpack", "write_result"]


@dataclass(frozen=True)
class Row:
    """The answer at a ``point``: ``support``, ``log_prior``, ``log_posterior``, ``log_odds`` (or nan), cut-off ``bound``."""

    point: int
    support: np.ndarray
    log_prior: np.ndarray
    log_posterior: np.ndarray
    log_odds: float
    bound: float


def pack(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Lay rows end to end; supports may have different lengths.

    Parameters
    ----------
    rows
        Answers of one chunk.
    """
    return {
        "point": np.array([r.point for r in rows], dtype=np.int64),
        "length": np.array([len(r.support) for r in rows], dtype=np.int64),
        "support": np.concatenate([r.support for r in rows]),
        "log_prior": np.concatenate([r.log_prior for r in rows]),
        "log_posterior": np.concatenate([r.log_posterior for r in rows]),
        "log_odds": np.array([r.log_odds for r in rows]),
        "bound": np.array([r.bound for r in rows]),
    }


def unpack(data: dict[str, np.ndarray] | None, path: Path) -> Iterator[Row]:
    """Yield the rows of one file.

    Parameters
    ----------
    data
        Arrays of one file, as :func:`pack` lays them.
    path
        Where from, for the message.

    Yields
    ------
    Row
        One answer a point, in the order of the file.
    """
    if data is None:
        msg = f"{path} was taken away while the study ran: run it again"
        raise DisagreementError(msg, path)
    ends = np.cumsum(data["length"])
    for i, end in enumerate(ends):
        at = slice(int(end - data["length"][i]), int(end))
        yield Row(
            int(data["point"][i]),
            data["support"][at],
            data["log_prior"][at],
            data["log_posterior"][at],
            float(data["log_odds"][i]),
            float(data["bound"][i]),
        )


def assemble(
    rows: Sequence[Row], scenarios: Sequence[Scenario], release: Release, plan: Layout, tolerance: float
) -> xr.Dataset:
    """Put the answers into labelled arrays.

    Parameters
    ----------
    rows
        One answer a point, in any order.
    scenarios
        The points.
    release
        What she saw.
    plan
        Dimensions and coordinates.
    tolerance
        Bound that was asked for.
    """
    import xarray as xr

    rows = sorted(rows, key=lambda r: r.point)
    if [r.point for r in rows] != list(range(len(scenarios))):
        msg = f"the study has {len(rows)} answers for {len(scenarios)} points: take its folder away and run it again"
        raise DisagreementError(msg, len(rows))
    values = np.unique(np.concatenate([r.support for r in rows]))
    event = set(values.tolist()) <= {0, 1}
    values = np.array([0, 1]) if event else values
    before, after = (np.full((len(rows), len(values)), -np.inf) for _ in range(2))
    for i, r in enumerate(rows):
        at = np.searchsorted(values, r.support)
        if np.isnan(r.log_prior).any():
            before[i] = np.nan
        else:
            before[i, at] = r.log_prior
        after[i, at] = r.log_posterior
    dims: tuple[str, ...] = plan.dims if event else (*plan.dims, "target")
    if event:
        before, after = before[:, 1], after[:, 1]

    def placed(array: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), *array.shape[1:]), dtype=float)
        out[plan.places] = array
        return out.reshape(*plan.shape, *array.shape[1:])

    with np.errstate(over="ignore", invalid="ignore"):
        risk = np.exp(after - before)
    data = xr.Dataset(
        {
            "prior": (dims, placed(np.exp(before))),
            "posterior": (dims, placed(np.exp(after))),
            "risk": (dims, placed(risk)),
            "log_odds": (plan.dims, placed(np.array([r.log_odds for r in rows]))),
            "cut_off_bound": (plan.dims, placed(np.array([r.bound for r in rows]))),
        },
        coords=plan.coords() | ({} if event else {"target": values}),
        attrs=_attrs(scenarios, release, tolerance),
    )
    meaning = "P(target = 1)" if event else "probability of each value of the target"
    for name, text in (
        ("prior", f"{meaning} before she looked"),
        ("posterior", f"{meaning} after she looked"),
    ):
        data[name].attrs["long_name"] = text
    data["risk"].attrs["long_name"] = "posterior / prior"
    return data


def _attrs(scenarios: Sequence[Scenario], release: Release, tolerance: float) -> dict[str, Any]:
    first = scenarios[0]
    fixed = {
        k: repr(v)
        for k, v in first.assumptions.items()
        if all(k in s.assumptions and s.assumptions[k] is v for s in scenarios)
    }
    return {
        "scenario": ", ".join(dict.fromkeys(s.name for s in scenarios)),
        "target": first.target,
        "question": first.question,
        "source": first.source,
        "assumptions": json.dumps(fixed),
        "sampler": "exact",
        "declaration": declaration(first),
        "release": release.to_json(),
        "release_hash": release.hash,
        "convention": release.convention or "sigma2 given",
        "tolerance": float(tolerance),
        "adversary": __version__,
    }


def write_result(data: xr.Dataset, path: Path) -> None:
    """Write the Dataset whole or not at all, with the hash of its content.

    Parameters
    ----------
    data
        The study.
    path
        Where to; replaced in one step.
    """
    write_netcdf(path, sealed(data))
