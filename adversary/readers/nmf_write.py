"""Write a simulated release as noisy measurement files: the Bureau's folders and columns, our noise.

Given a spine with shares, true counts and the query mix of every level, every unit with a positive share gets one row a
query: the true answers plus discrete Gaussian noise of sigma^2 = 1 / (rho gamma alpha). Units without a share are listed
in Constraint, as bypassed units are in the Bureau's files. What :class:`adversary.readers.nmf.NoisyMeasurements` reads
back is what was written.

What this module is not: a mechanism for releasing data. The noise comes from a pseudo-random generator (see
:func:`adversary.privacy.discrete_gaussian.sample`), and whoever knows the seed can take it off; so the seed is not
written anywhere.

Held to account by ``tests/readers/test_nmf_write.py`` (round trips; the variance of the noise by level and query).
Sources: Cumings-Menon et al., arXiv 2203.16654, sec. 4; the project's specification of spines, sec. 4 and 9.
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary._files import make_folder, whole
from adversary._version import __version__
from adversary.errors import BudgetError, FileFormatError, ReleaseError
from adversary.privacy.budget import CONVENTIONS, Allocation, Rho
from adversary.readers import _nmf_rows as _rows
from adversary.readers._nmf_columns import require_pyarrow
from adversary.readers._nmf_truth import Truth, constraint_tables, facility_counts
from adversary.release.queries import PL94_PERSONS, PL94_UNITS, Histogram, Strategy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from fractions import Fraction

    from adversary.geography.spine import Spine
    from adversary.readers.population import BlockCounts

__all__ = ["WrittenRelease", "write_nmf"]


@dataclass(frozen=True)
class WrittenRelease:
    """What was written.

    Attributes
    ----------
    folder
        The product's folder.
    rows, numbers, size
        Rows of DPQuery, noisy numbers in them, bytes of all files.
    state_totals
        State FIPS -> true total, which the files do not hold (also in ``state_totals.csv`` beside the product's folder).
        Empty where the spine has no level ``State``.
    notes
        What a reader of the files should know, in sentences.
    """

    folder: Path
    rows: int
    numbers: int
    size: int
    state_totals: Mapping[str, int]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Plan:
    """The noise: mixes, budget, neighbours, queries, seed."""

    strategies: Mapping[str, Strategy]
    rho: Fraction
    convention: str
    queries: tuple[str, ...] | None
    seed: np.random.SeedSequence

    def groups(self, level: str) -> list[tuple[str, Fraction, Any]]:
        """Return name, share of the level's budget and query group of every query that is written."""
        strategy = self.strategies.get(level)
        if strategy is None:
            return []
        return [
            (name, alpha, group)
            for (name, alpha), group in zip(strategy.alphas.items(), strategy.groups, strict=True)
            if alpha > 0 and (self.queries is None or group.name in self.queries)
        ]

    def sigma2(self, share: Fraction, alpha: Fraction) -> float:
        """Noise of a query at a unit, 1 / (rho gamma alpha), halved for unbounded neighbours."""
        return float(1 / ((1 if self.convention == "bounded" else 2) * self.rho * share * alpha))


def write_nmf(  # noqa: PLR0913 - options of one call, all with defaults
    folder: str | Path,
    spine: Spine,
    counts: BlockCounts,
    plan: Allocation | Mapping[str, Strategy],
    rho: Any = None,
    *,
    seed: Any,
    convention: str = "bounded",
    queries: Sequence[str] | None = None,
    facilities: BlockCounts | None = None,
    product: str | None = None,
    progressbar: bool = False,
) -> WrittenRelease:
    """Draw noise for every measured unit of a spine and write it as noisy measurement files.

    Parameters
    ----------
    folder
        Where the product's folder goes; empty, or not there yet. It appears whole at the end, or not at all.
    spine
        With shares, every path through every level, codes nested (as those of :mod:`adversary.geography.das`).
    counts
        True counts of the blocks.
    plan
        An allocation, or level of the spine -> :class:`~adversary.release.queries.Strategy` (see
        :func:`adversary.geography.plans.strategies_of`). Only shares of queries are taken: those of levels are the spine's.
    rho
        Whole budget, exact; default: the allocation's.
    seed
        int or SeedSequence. Every noise is the same for any order of the states, and whichever queries are written.
    convention
        Neighbours of rho, ``"bounded"`` as in production.
    queries
        Names of the queries to write; default: all of the mix. The budget of the others is not given to these.
    facilities
        Group quarters of every block as counts of ``Histogram({"hhgq": 8})`` (0 is housing units); then the bounds of the
        2020 system are written, and the true counts must keep them. Default: the trivial bounds.
    product
        Name of the product's folder; default: ``US_Person_PL_PROD`` and its like, by the histogram.
    progressbar
        Show the numbers written.

    Returns
    -------
    WrittenRelease
        Where the files are and what is in them.

    Raises
    ------
    FileFormatError
        If pyarrow is missing, the folder is not empty, or the spine's codes do not nest.
    BudgetError
        If no rho is known, or a level with shares has no queries.
    ReleaseError
        For people in blocks that the spine lacks, or counts outside the bounds of the facilities.

    Examples
    --------
    >>> import tempfile
    >>> from adversary.geography.blocks import BlockTable
    >>> from adversary.geography.das import conventional_spine
    >>> from adversary.readers.nmf import NoisyMeasurements
    >>> from adversary.readers.population import synthetic_counts
    >>> budget = Allocation.from_rho({k: {"total": "1/4"} for k in ("state", "county", "tract", "block_group", "block")})
    >>> blocks = BlockTable(["440010301001000", "440010301001001"])
    >>> spine = conventional_spine(blocks, dict.fromkeys(("State", "County", "Tract", "Block_Group", "Block"), "1/5"))
    >>> with tempfile.TemporaryDirectory() as place:
    ...     done = write_nmf(place, spine, synthetic_counts(spine, seed=1), budget, seed=2)
    ...     NoisyMeasurements.open(place).query("Block", "total")
    <Answers Block 'total': 2 units x 1, sigma2 4>
    """
    require_pyarrow()
    root = Path(folder)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        msg = f"{root} is not an empty folder: give a new one, nothing is ever written over"
        raise FileFormatError(msg, str(root))
    chosen = _plan(spine, counts.histogram, plan, (rho, convention), (queries, seed))
    truth = Truth.of(spine, counts)
    gates = None if facilities is None else facility_counts(truth, facilities)
    name = product or _product_name(counts.histogram, truth)
    if not re.fullmatch(r"\w[\w.-]*", name):
        msg = f"a product's name is that of a folder, got {name!r}"
        raise FileFormatError(msg, name)
    make_folder(root.parent)
    tally = {"rows": 0, "numbers": 0}
    with whole(root) as draft, _bar(chosen, truth, progressbar) as bar:
        for level in spine.levels:
            _write_level(draft / name / f"{level}.parquet", truth, level, (chosen, gates), (tally, bar))
        totals = truth.state_totals if counts.histogram is not PL94_UNITS else {}
        _write_side_files(draft, totals, chosen)
        size = sum(f.stat().st_size for f in draft.rglob("*") if f.is_file())
    notes = truth.notes(gates is not None)
    return WrittenRelease(root / name, tally["rows"], tally["numbers"], size, totals, notes)


def _plan(
    spine: Spine, histogram: Histogram, plan: Any, budget: tuple[Any, str], options: tuple[Any, Any]
) -> _Plan:
    (rho, convention), (queries, seed) = budget, options
    if convention not in CONVENTIONS:
        msg = f"the neighbours must be 'unbounded' or 'bounded', got {convention!r}"
        raise BudgetError(msg, convention)
    measured = [
        spine.levels[k]
        for k in range(len(spine.levels))
        if any(spine.share_table[i] > 0 for i in np.unique(spine.share_index[spine.level_of == k]).tolist())
    ]
    if isinstance(plan, Allocation):
        rho = plan.total if rho is None else rho
        strategies = {k: Strategy(histogram, dict(plan.query[plan.level_named(k)])) for k in measured}
    else:
        strategies = dict(plan)
    missing = next((k for k in measured if k not in strategies), None)
    if missing is not None or rho is None or not Rho(rho) or Rho(rho).infinite:
        what = f"level {missing} has shares but no queries" if missing else f"rho must be positive, got {rho}"
        msg = f"{what}: give a budget and the query mix of every measured level ({', '.join(measured) or 'none'})"
        raise BudgetError(msg, missing or rho)
    strange = [k for k, s in strategies.items() if s.histogram != histogram]
    if strange:
        msg = f"the queries of level {strange[0]} are asked of another histogram than the counts': use one"
        raise ReleaseError(msg, strange[0])
    wanted = None if queries is None else tuple(histogram.group(q).name for q in queries)
    asked = {group.name for s in strategies.values() for group in s.groups}
    unknown = [q for q in wanted or () if q not in asked]
    if unknown:
        msg = f"query {unknown[0]!r} is in no level's mix: there are {', '.join(sorted(asked))}"
        raise BudgetError(msg, unknown[0])
    base = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    return _Plan(strategies, Rho(rho).fraction, convention, wanted, base)


def _product_name(histogram: Histogram, truth: Truth) -> str:
    where = "PR" if set(truth.state_totals) == {"72"} else "US"
    kind = {id(PL94_PERSONS): "Person_PL_PROD", id(PL94_UNITS): "Unit_PL_PROD"}.get(
        id(histogram), "SIMULATED"
    )
    return f"{where}_{kind}"


def _bar(plan: _Plan, truth: Truth, shown: bool) -> Any:
    from tqdm import tqdm

    total = sum(
        group.size * int(truth.measured(level).sum())
        for level in truth.spine.levels
        for _, _, group in plan.groups(level)
    )
    return tqdm(total=total, unit="number", unit_scale=True, disable=not shown)


def _write_level(
    folder: Path,
    truth: Truth,
    level: str,
    chosen: tuple[_Plan, Any],
    progress: tuple[dict[str, int], Any],
) -> None:
    """Write both kinds of one level, one file a state part."""
    plan, gates = chosen
    for state, units in truth.parts(level):
        inside = "" if state is None else f"State={state}"
        _write_file(
            folder / "Constraint" / inside / "part-00000.parquet",
            constraint_tables(truth, level, units, gates),
        )
        queries = _query_tables(truth, (level, state, units), plan, progress)
        _write_file(folder / "DPQuery" / inside / "part-00000.parquet", queries)


def _query_tables(
    truth: Truth, part: tuple[str, str | None, Any], plan: _Plan, progress: tuple[dict[str, int], Any]
) -> Any:
    level, state, units = part
    spine, (tally, bar) = truth.spine, progress
    units = units[truth.positive[spine.share_index[units]]]
    if not units.size:
        return
    entries, geocode, groups = truth.entries(units), spine.geocodes[units], plan.groups(level)
    shares = np.unique(spine.share_index[units]).tolist()
    noises = [{i: plan.sigma2(spine.share_table[i], alpha) for i in shares} for _, alpha, _ in groups]
    widest = max((s for noise in noises for s in noise.values()), default=0.0)
    # 32 bits hold everybody and ten thousand standard deviations of noise, or the file has 64
    wide = int(entries.count.sum()) + 1e4 * widest**0.5 >= 2**31
    for (name, _, group), noise in zip(groups, noises, strict=True):
        sigma2 = np.array([noise[i] for i in spine.share_index[units].tolist()])
        stream = (plan.seed, ("nmf", level, state or "", name))
        for rows, values in _rows.noisy_chunks(entries, group, sigma2, stream):
            yield _rows.query_table(geocode[rows], group, values, sigma2[rows], wide)
            tally["rows"] += values.shape[0]
            tally["numbers"] += values.size
            bar.update(values.size)


def _write_file(path: Path, tables: Any) -> None:
    """Write tables one after another, one row group each; no file if there are none. One type of integer a file."""
    import pyarrow.parquet as pq

    writer = None
    try:
        for table in tables:
            if writer is None:
                path.parent.mkdir(parents=True, exist_ok=True)
                schema = table.schema.with_metadata(
                    {"simulated": f"by adversary {__version__}; no real data"}
                )
                writer = pq.ParquetWriter(path, schema, compression="zstd")
            writer.write_table(
                table.replace_schema_metadata(writer.schema.metadata), row_group_size=max(table.num_rows, 1)
            )
    finally:
        if writer is not None:
            writer.close()


def _write_side_files(folder: Path, totals: Mapping[str, int], plan: _Plan) -> None:
    """Write state totals, and what the release is; the seed is left out, for it would take the noise off."""
    if totals:
        with (folder / "state_totals.csv").open("w", encoding="utf-8", newline="") as handle:
            lines = csv.writer(handle, lineterminator="\n")
            lines.writerow(("geocode", "value"))
            lines.writerows(sorted(totals.items()))
    about = {
        "what": "simulated noisy measurements: the noise is pseudo-random, and these are not the Bureau's numbers",
        "adversary": __version__,
        "rho": str(plan.rho),
        "convention": plan.convention,
        "queries": {
            level: {name: str(alpha) for name, alpha, _ in plan.groups(level)} for level in plan.strategies
        },
    }
    (folder / "simulated.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
