"""How much a study's answers are worth: flagged blocks and named households, beside guessing and sampling.

What it is: for every mechanism, precision and recall of the flags against the base rate; and for every match
key, precision and recall of ranked households at every k, with the range that ties leave open, for the list
of likely blocks (by frequency, and by frequency a household), the posterior, a sampling attack and a random
guess; over all blocks or the flagged ones, over all households or population uniques. What it is not: an
attack (:mod:`adversary.reconstruction.study`).

What a figure says depends on the synthetic state: the recall of flags on how closely its units are fitted to
need (:mod:`adversary.reconstruction.synthetic`). Validation is on synthetic households only.

Held to account by tests/reconstruction/test_study.py (every figure recomputed by hand). Source: arXiv
2407.04776, section 5 and figure 2; the tie ranges are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adversary.errors import ModelError
from adversary.reconstruction.linkage import (
    Curve,
    Flags,
    area_under_curve,
    cell_scores,
    curve,
    flags,
    match_cells,
    sampling_scores,
    unique_within,
)
from adversary.reconstruction.study_answers import VALIDATION

if TYPE_CHECKING:
    from collections.abc import Mapping

    import xarray as xr
    from numpy.typing import NDArray

    from adversary.reconstruction.study_answers import BlockAnswer, StudyResult
    from adversary.reconstruction.synthetic import SyntheticState

__all__ = ["KNOWLEDGE", "RANKINGS", "Evaluation", "Knowledge", "Setting", "evaluate"]


class Knowledge(NamedTuple):
    """What an adversary knows of the households that she looks for.

    Attributes
    ----------
    name
        In words.
    key
        Attributes of the match key (see `adversary.reconstruction.linkage.match_cells`).
    subsidised
        Whether she knows who is subsidised, and looks among them only.
    """

    name: str
    key: tuple[str, ...]
    subsidised: bool


KNOWLEDGE: tuple[Knowledge, ...] = (
    Knowledge("HUD: bedrooms, race, child", ("property", "bedrooms", "race", "child"), subsidised=True),
    Knowledge("broker: race, child, subsidy known", ("race", "child"), subsidised=True),
    Knowledge("broker: race, child, subsidy unknown", ("race", "child"), subsidised=False),
)
"""A holder of HUD's records; a data broker who knows, or does not know, who is subsidised."""
RANKINGS: tuple[str, ...] = ("list", "list a household", "posterior", "sampling", "random guess")
"""Ways to rank households: by how often their value of the key has the harm in the top t (the paper's), the
same divided by how many share the value, the posterior mean a household, the rates of a sample (20 % by default) that
shows the harm, and not at all."""
SEARCH: tuple[str, ...] = ("all blocks", "flagged blocks")
WHO: tuple[str, ...] = ("all households", "population uniques")
_POINTS = 60  # lengths of a list at which curves are kept


class Setting(NamedTuple):
    """Which curve: names of a ``mechanism``, of ``knowledge`` (`KNOWLEDGE`), ``ranking`` (`RANKINGS`), ``search``, ``who``."""

    mechanism: str
    knowledge: str
    ranking: str
    search: str = "all blocks"
    who: str = "all households"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Figures of a study.

    Attributes
    ----------
    flags
        Flags against the truth, by mechanism.
    printed
        The same for flags on the rows as printed: blocks whose rows contradict each other are not flagged.
    areas
        Area under the curve of blocks ranked by the share of the list with the harm, and by the posterior, by
        mechanism.
    statuses
        How many blocks ended in which way, by mechanism.
    curves
        One curve a `Setting`.
    households
        Households looked through, by name of `KNOWLEDGE`.
    """

    flags: Mapping[str, Flags]
    printed: Mapping[str, Flags]
    areas: Mapping[str, tuple[float, float]]
    statuses: Mapping[str, Mapping[str, int]]
    curves: Mapping[Setting, Curve]
    households: Mapping[str, int]

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Names of the mechanisms."""
        return tuple(self.flags)

    def curve(self, setting: Setting) -> Curve:
        """Return one curve.

        Parameters
        ----------
        setting
            Which curve.
        """
        if setting not in self.curves:
            msg = f"no curve for {setting}: there are settings such as {next(iter(self.curves))}"
            raise ModelError(msg, setting)
        return self.curves[setting]

    @property
    def blocks(self) -> xr.Dataset:
        """Figures of the flags, dimension mechanism."""
        import xarray as xr

        rows: dict[str, list[float]] = {}
        for name, its in self.flags.items():
            told: dict[str, float] = {field: getattr(its, field) for field in Flags._fields}
            told.update(precision=its.precision, recall=its.recall, base_rate=its.base_rate)
            as_printed = self.printed[name]
            told["flagged_as_printed"], told["right_as_printed"] = as_printed.flagged, as_printed.right
            told["area_list"], told["area_posterior"] = self.areas[name]
            told.update(self.statuses[name])
            for field, value in told.items():
                rows.setdefault(field.replace(" ", "_"), []).append(value)
        data = {field: ("mechanism", np.array(values)) for field, values in rows.items()}
        return xr.Dataset(data, {"mechanism": list(self.mechanisms)}, {"note": VALIDATION})

    @property
    def linkage(self) -> xr.Dataset:
        """Curves at some lengths k, NaN where a list is shorter, and single figures of each curve.

        Dimensions mechanism, knowledge, ranking, search, who, and k. ``precision_low`` and ``precision_high``
        (``recall_...``) have ties broken against and for the adversary.
        """
        import xarray as xr

        axes = self._axes()
        longest = max((len(c) for c in self.curves.values()), default=1)
        k = np.unique(np.rint(np.geomspace(1, max(longest, 1), _POINTS)).astype(np.int64))
        shape = tuple(len(labels) for labels in axes.values())
        whole = {n: np.full(shape, np.nan) for n in ("length", "harmed", "base_rate", *_SUMMARIES)}
        along = {n: np.full((*shape, len(k)), np.nan) for n in _ALONG}
        for setting, its in self.curves.items():
            at = tuple(axes[axis].index(value) for axis, value in setting._asdict().items())
            for name, value in _single(its).items():
                whole[name][at] = value
            inside = k <= len(its)
            for name, values in _along(its).items():
                along[name][at][inside] = values[k[inside] - 1]
        data: dict[str, Any] = {n: (tuple(axes), v) for n, v in whole.items()}
        data.update({n: ((*axes, "k"), v) for n, v in along.items()})
        return xr.Dataset(data, {**axes, "k": k}, {"note": VALIDATION})

    def _axes(self) -> dict[str, list[str]]:
        axes: dict[str, list[str]] = {axis: [] for axis in Setting._fields}
        for setting in self.curves:
            for axis, value in setting._asdict().items():
                if value not in axes[axis]:
                    axes[axis].append(value)
        return axes

    def table(self) -> str:
        """Return the figures as text."""
        width = max(len(name) for name in self.mechanisms)
        lines = [
            f"blocks with a household over the limit, {VALIDATION}",
            f"{'':<{width}}  flagged  right  harmed  blocks  precision  recall  base rate"
            "  flagged as printed  right  rows contradicted",
        ]
        for name, f in self.flags.items():
            p = self.printed[name]
            lines.append(
                f"{name:<{width}}  {f.flagged:7d}  {f.right:5d}  {f.harmed:6d}  {f.blocks:6d}"
                f"  {_percent(f.precision):>9}  {_percent(f.recall):>6}  {_percent(f.base_rate):>9}"
                f"  {p.flagged:18d}  {p.right:5d}  {self.statuses[name]['rows contradicted']:17d}"
            )
        for knowledge, n in self.households.items():
            lines += ["", f"{knowledge}: {n:,} households, {VALIDATION}"]
            lines.append(f"{'':<{width}}  {_HEAD}")
            for setting, its in self.curves.items():
                if setting.knowledge == knowledge and setting.search == "all blocks":
                    lines.append(f"{setting.mechanism:<{width}}  {_line(setting, its)}")
        return "\n".join(lines)


_ALONG = ("precision", "precision_low", "precision_high", "recall", "recall_low", "recall_high")
_SUMMARIES = ("precision_at_recall_10", "recall_at_precision_66")
_HEAD = (
    f"{'ranked by':<17}{'who':<20}{'harmed':>7}{'base rate':>11}{'precision at k = harmed (ties)':>32}"
    f"{'precision at recall 10 %':>26}{'recall at precision 66 %':>26}"
)


def _line(setting: Setting, its: Curve) -> str:
    one = _single(its)
    k = min(its.total, len(its))
    at = "none"
    if k:
        low, high = its.precision_range
        at = f"{_percent(its.precision[k - 1])} ({_percent(low[k - 1])} to {_percent(high[k - 1])})"
    return (
        f"{setting.ranking:<17}{setting.who:<20}{its.total:>7}{_percent(one['base_rate']):>11}{at:>32}"
        f"{_percent(one['precision_at_recall_10']):>26}{_percent(one['recall_at_precision_66']):>26}"
    )


def _percent(share: float) -> str:
    return "-" if np.isnan(share) else f"{100 * share:.1f} %"


def _single(its: Curve) -> dict[str, float]:
    found = float(its.precision[-1]) if len(its) else float("nan")
    return {
        "length": float(len(its)),
        "harmed": float(its.total),
        "base_rate": found,
        "precision_at_recall_10": its.precision_at(0.10),
        "recall_at_precision_66": its.recall_at(0.66),
    }


def _along(its: Curve) -> dict[str, NDArray[np.float64]]:
    low, high = its.precision_range
    least, most = its.recall_range
    return dict(zip(_ALONG, (its.precision, low, high, its.recall, least, most), strict=True))


def evaluate(
    state: SyntheticState,
    result: StudyResult,
    *,
    seed: int | np.random.SeedSequence | np.random.Generator = 0,
    sample: float = 0.2,
) -> Evaluation:
    """Compare a study's answers with the truth.

    Parameters
    ----------
    state
        The state that was rebuilt.
    result
        What `adversary.reconstruction.study.reconstruct_state` returned; only its blocks count.
    seed
        Of the sampling attack's sample.
    sample
        Share of households in that sample.

    Returns
    -------
    Evaluation
        The answers beside the truth, by setting.

    Raises
    ------
    ModelError
        If the result is of another number of blocks.

    Notes
    -----
    Recall is of all households with the harm that the adversary could look for, in blocks flagged or not;
    among population uniques, of those with the harm that are unique. Blocks without a list score 0, and a
    block that is undecided, inconsistent or failed counts as not flagged. Scores are ties up to the twelfth
    decimal.

    Examples
    --------
    >>> from adversary.reconstruction.study import StudyOptions, reconstruct_state
    >>> from adversary.reconstruction.synthetic import StateShape, synthetic_state
    >>> state = synthetic_state(StateShape(blocks=60), seed=1)
    >>> found = reconstruct_state(state, "none", seed=1, blocks=[0, 1], options=StudyOptions(top=5))
    >>> evaluate(state, found).flags["none"].blocks
    2
    """
    if len(state) != result.state_blocks:
        msg = f"a result of {result.state_blocks} blocks for a state of {len(state)}: give the state it is of"
        raise ModelError(msg, result.state_blocks)
    blocks = np.array(result.blocks, dtype=np.int64)
    truth = _truth(state, result)
    at = np.searchsorted(blocks, truth.block, sorter=np.argsort(blocks))
    place = np.argsort(blocks)[at]  # position of each household's block in the result
    harmed = np.bincount(place, truth.harm, len(blocks)) > 0
    found_flags, printed, areas = {}, {}, {}
    for name in result.names:
        flagged = np.array([a.status == "flagged" for a in result.answers[name]], dtype=bool)
        found_flags[name] = flags(flagged, harmed)
        printed[name] = flags([a.printed == "flagged" for a in result.answers[name]], harmed)
        by_list = np.array([a.list_harm for a in result.answers[name]])
        by_posterior = [a.posterior_harm for a in result.answers[name]]
        told = [p for p in by_posterior if p is not None]
        area = area_under_curve(told, harmed) if len(told) == len(blocks) else float("nan")
        areas[name] = (area_under_curve(by_list, harmed), area)
    curves: dict[Setting, Curve] = {}
    households = {}
    for knowledge in KNOWLEDGE:
        known = truth.subsidised | (not knowledge.subsidised)
        households[knowledge.name] = int(known.sum())
        for name in result.names:
            answers = result.answers[name]
            scored = _scores(state, result, answers, knowledge, (truth, known, seed, sample))
            flagged = np.array([a.status == "flagged" for a in answers], dtype=bool)[place[known]]
            for ranking, score in scored.by_ranking.items():
                for search in SEARCH:
                    for who in WHO:
                        counted = scored.unique | (who == WHO[0])
                        total = int((truth.harm[known] & counted).sum())
                        looked = counted & (flagged | (search == SEARCH[0]))
                        setting = Setting(name, knowledge.name, ranking, search, who)
                        curves[setting] = curve(score[looked], truth.harm[known][looked], total)
    return Evaluation(found_flags, printed, areas, result.statuses(), curves, households)


class _Truth(NamedTuple):
    """The households of the rebuilt blocks."""

    records: NDArray[np.int64]
    block: NDArray[np.int64]
    harm: NDArray[np.bool_]
    subsidised: NDArray[np.bool_]


def _truth(state: SyntheticState, result: StudyResult) -> _Truth:
    inside = np.isin(state.block, np.array(result.blocks, dtype=np.int64))
    records, block = state.records[inside], state.block[inside]
    table = state.configurations()
    harm = table.mask(result.options.harm)[table.find(records)]
    none = table.attribute("property").levels.index("none")
    return _Truth(records, block, harm, records[:, table.column("property")] != none)


class _Scored(NamedTuple):
    """Scores of the known households by ranking, and which of them are unique in their block."""

    by_ranking: dict[str, NDArray[np.float64]]
    unique: NDArray[np.bool_]


def _scores(
    state: SyntheticState,
    result: StudyResult,
    answers: tuple[BlockAnswer, ...],
    knowledge: Knowledge,
    context: tuple[_Truth, NDArray[np.bool_], Any, float],
) -> _Scored:
    truth, known, seed, sample = context
    records, block = truth.records[known], truth.block[known]
    scores = {name: np.zeros(len(records)) for name in RANKINGS}
    unique = np.zeros(len(records), dtype=bool)
    for number, answer in zip(result.blocks, answers, strict=True):
        here = np.flatnonzero(block == number)
        table = state.configurations(number)
        cells, its = match_cells(table, records[here], knowledge.key)
        unique[here] = unique_within(its, np.zeros(len(here), dtype=np.int64))
        mean = answer.mean_harm("list", len(table))
        scores["list"][here] = cell_scores(cells, mean, its, per_household=False)
        scores["list a household"][here] = cell_scores(cells, mean, its)
        scores["posterior"][here] = cell_scores(cells, answer.mean_harm("posterior", len(table)), its)
    everywhere = [name for name in knowledge.key if name != "property"]  # property 1 is another one elsewhere
    _, cell = match_cells(state.configurations(), records, everywhere)
    hit = truth.harm[known]
    scores["sampling"] = sampling_scores(cell, hit, sample, seed=seed)
    if any(answer.posterior_harm is None for answer in answers):
        del scores["posterior"]
    # sums of the same terms in another order differ in the last digit: such scores are ties
    return _Scored({name: np.round(score, 12) for name, score in scores.items()}, unique)
