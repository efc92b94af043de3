"""How good an attack is: flagged blocks, named households, ties told, and what guessing would reach.

What it is: precision and recall of flags; precision and recall of a ranked list at every length, with the
range that the order within ties leaves open; the linkage of a ranking over match keys with households that a
record holder knows; population uniques; and the baselines (random guess, a microdata sample that shows the
harm). What it is not: a reconstruction or a posterior, whose counts it takes.

A household can only be told from others with another value of the match key. All households of a block that
share one share a score, so ties are the rule, not the exception: every figure has its range over the order
within ties and its mean over random orders.

Held to account by tests/reconstruction/test_linkage.py. Source: arXiv 2407.04776, section 5 and figure 2
(block flags, match keys, precision at k, population uniques, sampling attack); the ranges are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from adversary.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from adversary.reconstruction.households import Configurations

__all__ = [
    "MATCH_KEYS",
    "Curve",
    "Flags",
    "area_under_curve",
    "brier",
    "cell_scores",
    "curve",
    "flags",
    "match_cells",
    "sampling_scores",
    "unique_within",
]

MATCH_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "bedrooms, race, child": ("property", "bedrooms", "race", "child"),
        "race, child": ("race", "child"),
    }
)
"""What a holder of HUD's records knows of a household; what a data broker does. ``child`` is children > 0."""


class Flags(NamedTuple):
    """How right flagged blocks are.

    Attributes
    ----------
    flagged, right, harmed, blocks
        Blocks flagged; flagged and harmed; harmed; all.
    """

    flagged: int
    right: int
    harmed: int
    blocks: int

    @property
    def precision(self) -> float:
        """Share of flagged blocks that are harmed; NaN if none is flagged."""
        return self.right / self.flagged if self.flagged else float("nan")

    @property
    def recall(self) -> float:
        """Share of harmed blocks that are flagged; NaN if none is harmed."""
        return self.right / self.harmed if self.harmed else float("nan")

    @property
    def base_rate(self) -> float:
        """Share of harmed blocks: the precision of a random guess."""
        return self.harmed / self.blocks if self.blocks else float("nan")


def flags(flagged: ArrayLike, harmed: ArrayLike) -> Flags:
    """Compare flagged blocks with those that are harmed.

    Parameters
    ----------
    flagged, harmed
        bool, shape (blocks,).

    Examples
    --------
    >>> found = flags([True, True, False, False], [True, False, True, False])
    >>> found.precision, found.recall, found.base_rate
    (0.5, 0.5, 0.5)
    """
    said, true = _bools(flagged, "flagged"), _bools(harmed, "harmed")
    if said.shape != true.shape:
        msg = f"{said.shape} flags for {true.shape} blocks: one each"
        raise ModelError(msg, said.shape)
    return Flags(int(said.sum()), int((said & true).sum()), int(true.sum()), len(true))


@dataclass(frozen=True, eq=False)
class Curve:
    """Precision and recall of a ranked list cut after k = 1, ..., n.

    Attributes
    ----------
    hits
        Mean number of hits among the first k over random orders within ties, float, shape (n,).
    fewest, most
        The least and the greatest number of hits that an order within ties gives, int64, shape (n,).
    total
        Hits to be found, in the list or not.
    """

    hits: NDArray[np.float64]
    fewest: NDArray[np.int64]
    most: NDArray[np.int64]
    total: int

    def __len__(self) -> int:
        return len(self.hits)

    @property
    def k(self) -> NDArray[np.int64]:
        """Lengths of the list, 1 to n."""
        return np.arange(1, len(self) + 1)

    @property
    def precision(self) -> NDArray[np.float64]:
        """Mean precision at every length."""
        return self.hits / self.k

    @property
    def precision_range(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Precision at every length with ties broken against and for the adversary."""
        return self.fewest / self.k, self.most / self.k

    @property
    def recall(self) -> NDArray[np.float64]:
        """Mean recall at every length; NaN if there is nothing to be found."""
        return self.hits / self.total if self.total else np.full(len(self), np.nan)

    @property
    def recall_range(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Recall at every length with ties broken against and for the adversary."""
        total = self.total if self.total else np.nan
        return self.fewest / total, self.most / total

    def recall_at(self, precision: float) -> float:
        """Return the greatest mean recall at a mean precision of at least so much; 0 if it is never reached."""
        there = self.precision >= precision - 1e-12
        return float(self.recall[there].max()) if there.any() and self.total else 0.0

    def precision_at(self, recall: float) -> float:
        """Return the greatest mean precision at a mean recall of at least so much; NaN if never reached."""
        there = self.recall >= recall - 1e-12
        return float(self.precision[there].max()) if there.any() else float("nan")


def curve(score: ArrayLike, hit: ArrayLike, total: int | None = None) -> Curve:
    """Cut a ranked list at every length.

    Parameters
    ----------
    score
        Higher comes first, shape (n,); equal scores are ties.
    hit
        Whether each is what is looked for, bool, shape (n,).
    total
        Hits to be found in all; None for those in the list.

    Raises
    ------
    ModelError
        For NaN among the scores, or fewer hits in all than in the list.

    Notes
    -----
    Within a tie of g households with h hits, the first j hold j h / g hits on average, at least
    ``max(0, j - (g - h))`` and at most ``min(j, h)`` (hypergeometric).

    Examples
    --------
    >>> found = curve([2, 1, 1, 1], [True, True, False, False])
    >>> found.precision.round(3).tolist(), found.fewest.tolist(), found.most.tolist()
    ([1.0, 0.667, 0.556, 0.5], [1, 1, 1, 2], [1, 2, 2, 2])
    """
    s, y = np.asarray(score, dtype=np.float64), _bools(hit, "hit")
    if s.shape != y.shape or np.isnan(s).any():
        msg = f"scores of {s.shape} for {y.shape} households: one each, none NaN"
        raise ModelError(msg, s.shape)
    found = int(y.sum()) if total is None else int(total)
    if found < y.sum():
        msg = f"{found} hits in all, but {int(y.sum())} in the list: count all of them"
        raise ModelError(msg, found)
    _, tie = np.unique(-s, return_inverse=True)
    size, hits = np.bincount(tie.ravel()), np.bincount(tie.ravel(), weights=y).astype(np.int64)
    group = np.repeat(np.arange(len(size)), size)
    before, start = (np.cumsum(hits) - hits)[group], (np.cumsum(size) - size)[group]
    j = np.arange(1, len(s) + 1) - start
    g, h = size[group], hits[group]
    return Curve(
        before + j * h / np.maximum(g, 1),
        before + np.maximum(0, j - (g - h)),
        before + np.minimum(j, h),
        found,
    )


def area_under_curve(score: ArrayLike, hit: ArrayLike) -> float:
    """Return the probability that a hit scores above a miss, ties half; NaN if there is only one kind.

    Parameters
    ----------
    score
        Score of each record, shape (n,).
    hit
        Whether it is one that is looked for, shape (n,).

    Examples
    --------
    >>> area_under_curve([0.9, 0.5, 0.5, 0.1], [True, True, False, False])
    0.875
    """
    s, y = np.asarray(score, dtype=np.float64), _bools(hit, "hit")
    if not 0 < y.sum() < len(y):
        return float("nan")
    levels, at = np.unique(s, return_inverse=True)
    misses = np.bincount(at.ravel(), weights=~y, minlength=len(levels))
    below = np.cumsum(misses) - misses / 2
    return float(below[at.ravel()[y]].mean() / misses.sum())


def brier(probability: ArrayLike, hit: ArrayLike) -> float:
    """Return the mean squared error of probabilities, 0 (perfect) to 1.

    Parameters
    ----------
    probability
        Stated probabilities, shape (n,).
    hit
        What was so, shape (n,).
    """
    return float(np.mean((np.asarray(probability, dtype=np.float64) - _bools(hit, "hit")) ** 2))


def cell_scores(
    cell: ArrayLike, harmed: ArrayLike, known: ArrayLike, *, per_household: bool = True
) -> NDArray[np.float64]:
    """Score households of a block by the harm that a reconstruction puts on their value of the match key.

    Parameters
    ----------
    cell
        Value of the match key of every configuration, shape (K,) (see `match_cells`, or
        `Configurations.cells`).
    harmed
        Mean number of harmed households of every configuration: over the top-t list (counts times harm), or
        under the posterior; shape (K,).
    known
        Value of the match key of every household whose record the adversary holds, shape (h,); -1 for a value
        that no configuration has.
    per_household
        Divide by how many known households share the value: then a score is about the probability that this
        household is harmed. Without, common values come first (the paper's ranking by frequency).

    Returns
    -------
    ndarray
        float, shape (h,).

    Examples
    --------
    >>> cell_scores([0, 0, 1], [0.2, 0.4, 0.3], [0, 0, 1]).tolist()
    [0.30000000000000004, 0.30000000000000004, 0.3]
    """
    its, mean = np.asarray(cell, dtype=np.int64), np.asarray(harmed, dtype=np.float64)
    who = np.asarray(known, dtype=np.int64)
    cells = int(max(its.max(initial=-1), who.max(initial=-1))) + 1
    score = np.append(np.bincount(its, weights=mean, minlength=cells), 0.0)  # the last is for -1
    if not per_household:
        return score[who]
    sharing = np.append(np.bincount(who[who >= 0], minlength=cells), 1)
    return np.asarray(score[who] / sharing[who])


def match_cells(
    configurations: Configurations, records: ArrayLike, key: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the value of a match key for every configuration and for every record.

    Parameters
    ----------
    configurations
        The block's table.
    records
        Codes of levels in the table's attributes, shape (h, attributes).
    key
        Attributes; ``"child"`` stands for the presence of children.

    Returns
    -------
    tuple
        int64, shapes (K,) and (h,); equal numbers are equal values.
    """
    rows = np.asarray(records, dtype=np.int64).reshape(-1, len(configurations.attributes))
    both = np.concatenate([configurations.codes, rows])
    columns = [
        both[:, configurations.column("children")] > 0
        if name == "child"
        else both[:, configurations.column(name)]
        for name in key
    ]
    _, at = np.unique(np.column_stack(columns), axis=0, return_inverse=True)
    at = at.ravel().astype(np.int64)
    return at[: len(configurations)], at[len(configurations) :]


def unique_within(cell: ArrayLike, block: ArrayLike) -> NDArray[np.bool_]:
    """Return which households are the only ones of their block with their value of the match key.

    Parameters
    ----------
    cell
        Cell of each record, shape (n,).
    block
        Block of each record, shape (n,).

    Examples
    --------
    >>> unique_within([3, 3, 5, 3], [0, 0, 0, 1]).tolist()
    [False, False, True, True]
    """
    pairs = np.column_stack([np.asarray(block), np.asarray(cell)])
    _, at, times = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    return np.asarray(times[at.ravel()] == 1)


def sampling_scores(
    cell: ArrayLike,
    hit: ArrayLike,
    share: float = 0.2,
    *,
    seed: int | np.random.SeedSequence | np.random.Generator,
) -> NDArray[np.float64]:
    """Score households by how often their value of the match key is harmed in a sample that shows the harm.

    Parameters
    ----------
    cell, hit
        Value of the match key and harm of every household of the state, shape (n,).
    share
        Share of households in the sample: 0.2 in the paper, which is more than any sample that is published.
    seed
        Which households are sampled.

    Returns
    -------
    ndarray
        Share harmed among sampled households of the same value, float, shape (n,); 0 where none was sampled.

    Notes
    -----
    A baseline that needs no table of a block: what it reaches is not the tables' fault. It is deliberately
    favourable to the adversary (no published sample shows subsidy and bedrooms).
    """
    who, y = np.asarray(cell, dtype=np.int64), _bools(hit, "hit")
    if not 0 < share <= 1:
        msg = f"a sample of {share} of all households: give a share above 0, up to 1"
        raise ModelError(msg, share)
    rng = np.random.default_rng(seed)
    chosen = np.zeros(len(who), dtype=bool)
    chosen[rng.choice(len(who), round(share * len(who)), replace=False)] = True
    cells = int(who.max(initial=-1)) + 1
    seen = np.bincount(who[chosen], minlength=cells)
    harmed = np.bincount(who[chosen], weights=y[chosen], minlength=cells)
    return np.asarray(np.divide(harmed, seen, out=np.zeros(cells), where=seen > 0)[who])


def _bools(values: ArrayLike, name: str) -> NDArray[np.bool_]:
    out = np.asarray(values)
    if out.dtype != bool and not np.isin(out, (0, 1)).all():
        msg = f"{name} must be true or false for each, got {out.dtype}"
        raise ModelError(msg, out.dtype)
    return out.astype(bool)
