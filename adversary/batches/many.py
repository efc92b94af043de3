"""``adversary.batch``: a scenario and a table of targets in, a table of answers out.

What it is: the reading of a dataset (which variable is a published value, which is a known number or a parameter of a prior)
and its evaluation in memory, in pieces, or chunk by chunk through dask. What it is not: an engine (see
:mod:`adversary.batches.kernel`), or a way to change assumptions that are the same for all (``scenario.assuming(...)``).

Held to account by ``tests/test_batches.py``.
"""

from __future__ import annotations

import json
import uuid
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from adversary._version import __version__
from adversary.batches.kernel import OUTPUTS, Kernel
from adversary.errors import ReleaseError, ScenarioError
from adversary.language import Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["batch", "read_columns"]

PIECE = 262_144
"""Targets evaluated at a time, where the caller names no number."""


def batch(  # noqa: PLR0913 - options of one call, all with defaults
    scenario: Scenario,
    dataset: xr.Dataset | Mapping[str, Any],
    *,
    tolerance: float = 1e-12,
    chunk: int | None = None,
    lazy: bool = False,
    within: str | Sequence[str] = (),
    engine: str = "auto",
    progressbar: bool = False,
) -> xr.Dataset:
    """Answer one attack on many targets.

    Parameters
    ----------
    scenario
        Who the adversary is. Its target must be a yes or no.
    dataset
        For each published count ``block`` the noisy values and ``block_sigma2``, the noise parameter of one noisy count;
        ``block_groups`` where it is a sum of several. Assumptions that differ from target to target by their names:
        ``known``, or ``present.p`` for the parameter of a prior. Variables have any dims and broadcast; assumptions (and
        noise) may be attrs of the dataset instead. A mapping of arrays will do: one dim is called ``target``.
    tolerance
        Bound asked of the exact engine; closed forms are exact to about 1e-14.
    chunk
        Targets evaluated at a time (plain arrays), or in a chunk of the result (``lazy``).
    lazy
        Cut plain arrays into dask chunks and return at once; needs dask. A dataset of dask arrays is answered lazily
        in any case, with the chunks that it has.
    within
        Dims that belong to one target's measurement (vectors such as ``cells``), not to the targets.
    engine
        ``"auto"``, or to compare roads ``"closed"`` (refuse where there is no closed form) or ``"exact"`` (never use one).
    progressbar
        Show how many targets are done.

    Returns
    -------
    xarray.Dataset
        ``prior``, ``posterior``, ``risk`` (posterior/prior), ``log_odds`` and ``decision`` of each target; attrs say which
        scenario, which assumptions, which columns, and (unless lazy) which engine and which published counts the scenario
        does not use.

    Raises
    ------
    ScenarioError
        For a variable that is neither a measurement nor an assumption, and for missing ones.
    ReleaseError
        For values that are no counts, or noise that cannot be.
    UnsupportedModelError
        For a target that is not a yes or no, or where the exact engine cannot answer.

    Notes
    -----
    The closed form is found in the declared model, never from the scenario's name: one Bernoulli unknown measured any number
    of times, or that and one flat count measured once with and once without it (:mod:`adversary.samplers.recognise`). The
    model is read once for each combination of known numbers, about 40 ms each. Everything else is one exact solution a target.

    Examples
    --------
    >>> from adversary import load
    >>> found = batch(load("single_level"), {"block": [2, 0, 7], "block_sigma2": 5.039, "known": [0, 0, 5]})
    >>> found.posterior.values.round(4).tolist(), found.decision.values.tolist()
    ([0.5739, 0.4752, 0.5739], [True, False, True])
    """
    if isinstance(dataset, xr.Dataset):
        dataset = _with_plain_coords(dataset)
    kernel, arrays, dims = read_columns(scenario, dataset, tolerance, within, engine)
    on_dask = any(hasattr(a.data, "dask") for a in arrays)
    if lazy and not on_dask:
        arrays = _chunked(arrays, dims, chunk or PIECE)
        on_dask = True
    core = [[d for d in a.dims if d in dims] for a in arrays]
    if on_dask:
        found = xr.apply_ufunc(
            kernel,
            *arrays,
            input_core_dims=core,
            output_core_dims=[[]] * len(OUTPUTS),
            dask="parallelized",
            output_dtypes=[np.float64] * 4 + [np.bool_],
        )
    else:
        found = _in_pieces(kernel, arrays, core, chunk or PIECE, progressbar)
    out = xr.Dataset(dict(zip(OUTPUTS, found, strict=True)))
    out.attrs = {
        "scenario": scenario.name,
        "origin": scenario.origin,
        "target": scenario.target,
        "assumptions": json.dumps({k: repr(v) for k, v in scenario.assumptions.items()}),
        "columns": ", ".join(kernel.columns),
        "adversary": __version__,
    }
    if not on_dask:
        out.attrs["engine"] = ", ".join(sorted(kernel.used))
        out.attrs["unused_evidence"] = ", ".join(sorted(kernel.unused))
    out["risk"].attrs["long_name"] = "posterior / prior"
    out["decision"].attrs["long_name"] = "posterior above 1/2; a tie says no"
    return out


def read_columns(
    scenario: Scenario, dataset: Any, tolerance: float, within: str | Sequence[str], engine: str = "auto"
) -> tuple[Kernel, list[xr.DataArray], set[str]]:
    """Sort a dataset's variables into measurements and assumptions.

    Parameters
    ----------
    scenario, dataset, tolerance, within, engine
        As for :func:`batch`.

    Returns
    -------
    Kernel, list of DataArray, set of str
        The arrays are in the order of ``kernel.columns``; the set are the dims within a target.
    """
    if not isinstance(scenario, Scenario):
        msg = f"batch takes a scenario first, got {scenario!r}: adversary.load('two_level') returns one"
        raise ScenarioError(msg, scenario)
    if engine not in ("auto", "closed", "exact"):
        msg = f"engine must be auto, closed or exact, got {engine!r}"
        raise ScenarioError(msg, engine)
    data = dataset if isinstance(dataset, xr.Dataset) else _as_dataset(dataset)
    dims = {within} if isinstance(within, str) else set(within)
    named: dict[str, xr.DataArray] = {str(k): v for k, v in data.data_vars.items()}
    for k, v in data.attrs.items():
        argument = k.partition(".")[0]
        noise = k.endswith(("_sigma2", "_groups")) and k.rsplit("_", 1)[0] in named
        if (argument in scenario.assumptions or noise) and k not in named:
            named[str(k)] = xr.DataArray(v)
    published = [k for k in named if f"{k}_sigma2" in named]
    aside = {f"{k}{s}" for k in published for s in ("_sigma2", "_groups")}
    assumed = [
        k for k in named if k.partition(".")[0] in scenario.assumptions and k not in {*published, *aside}
    ]
    strangers = [k for k in named if k not in {*published, *aside, *assumed}]
    if strangers:
        msg = (
            f"{strangers[0]} is neither a published value (that needs {strangers[0]}_sigma2 beside it) nor an assumption of "
            f"{scenario.name} (which has {', '.join(scenario.assumptions)}): add the one or drop the other"
        )
        raise ScenarioError(msg, strangers)
    if not published:
        msg = "the dataset has no published value: give the noisy counts as block and their noise as block_sigma2"
        raise ReleaseError(msg, list(named))
    if scenario.target in assumed or scenario.target in scenario.known:
        msg = f"the target {scenario.target!r} is fixed by assumption, so nothing is left to learn: give {scenario.target}.p"
        raise ScenarioError(msg, scenario.target)
    columns = [k for k in named if k in {*published, *aside, *assumed}]
    missing = [f"{k}_sigma2" for k in published if f"{k}_sigma2" not in columns]
    assert not missing
    wide = frozenset(k for k in columns if set(named[k].dims) & dims)
    tall = [k for k in wide if len(set(named[k].dims) & dims) > 1]
    if tall:
        msg = f"{tall[0]} has {named[tall[0]].dims}, and a measurement holds one number or one list: split it"
        raise ReleaseError(msg, tall)
    kernel = Kernel(scenario, tuple(columns), tuple(published), wide, tolerance, engine)
    return kernel, [named[k] for k in columns], dims


def _with_plain_coords(data: xr.Dataset) -> xr.Dataset:
    """Turn every MultiIndex into a column a level: neither netCDF nor zarr can hold one."""
    for dim, index in data.xindexes.items():
        if dim in data.dims and hasattr(index, "level_coords_dtype"):
            data = data.reset_index(dim)
    return data


def _as_dataset(mapping: Any) -> xr.Dataset:
    """Label plain arrays: one dim is ``target``, more are ``dim_0``, ``dim_1``, ..."""
    if not hasattr(mapping, "items"):
        msg = f"batch takes an xarray.Dataset or a mapping of arrays, got {type(mapping).__name__}"
        raise ScenarioError(msg, mapping)
    variables = {}
    for name, value in mapping.items():
        if isinstance(value, xr.DataArray):
            variables[name] = value
            continue
        array = value if hasattr(value, "dask") else np.asarray(value)
        labels = ("target",) if array.ndim == 1 else tuple(f"dim_{i}" for i in range(array.ndim))
        variables[name] = xr.DataArray(array, dims=labels)
    return xr.Dataset(variables)


def _chunked(arrays: list[xr.DataArray], dims: set[str], chunk: int) -> list[xr.DataArray]:
    """Cut the first dim of the targets so that a chunk holds about ``chunk`` of them."""
    if find_spec("dask") is None:
        msg = "lazy=True needs dask, which is not installed: pip install dask, or leave lazy out"
        raise ScenarioError(msg, "dask")
    sizes: dict[Any, int] = {}
    for a in arrays:
        sizes |= {d: a.sizes[d] for d in a.dims if d not in dims}
    if not sizes:
        return [a.chunk() for a in arrays]
    first = max(sizes, key=lambda d: sizes[d])
    others = int(np.prod([n for d, n in sizes.items() if d != first], dtype=np.int64))
    rows = max(1, chunk // max(others, 1))
    # a name of its own for each, because dask would hash every array to make one up
    return [a.chunk({first: rows}, token=uuid.uuid4().hex) if first in a.dims else a for a in arrays]


def _in_pieces(
    kernel: Kernel, arrays: list[xr.DataArray], core: list[list[Any]], chunk: int, progressbar: bool
) -> list[xr.DataArray]:
    """Evaluate plain arrays ``chunk`` targets at a time; labels come from xarray's own broadcasting."""
    like = [a.isel(dict.fromkeys(c, 0), drop=True) for a, c in zip(arrays, core, strict=True)]
    shaped = xr.broadcast(*like)[0]
    n = int(shaped.size)
    flat = []
    for a, c in zip(arrays, core, strict=True):
        if a.size == 1 or (c and a.ndim == 1):
            flat.append(np.asarray(a.values).reshape((1, -1) if c else (1,)))
            continue
        template, *_ = xr.broadcast(a, shaped)
        values = template.transpose(*shaped.dims, *c).values
        flat.append(values.reshape((n, -1) if c else (n,)))
    outputs = [np.empty(n, dtype=bool if name == "decision" else np.float64) for name in OUTPUTS]
    pieces: Any = range(0, n, chunk)
    if progressbar:
        from tqdm import tqdm

        pieces = tqdm(pieces, unit="piece")
    for start in pieces:
        part = slice(start, min(start + chunk, n))
        answers = kernel(*(a if len(a) == 1 else a[part] for a in flat))
        for out, answer in zip(outputs, answers, strict=True):
            out[part] = answer
    shaped = shaped.drop_attrs()  # a count's units are not a probability's
    return [shaped.copy(data=o.reshape(shaped.shape)).rename(None) for o in outputs]
