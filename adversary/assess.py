"""Assess a PL 94-171 table: what one noisy release would tell about everybody who is alone in her cell.

What it is: the main job on real input. A noisy release of the counts that P1 to P4 determine is drawn under a
stated allocation of the privacy-loss budget; every person who is the only one in her cell of her block is a
target; an adversary who knows that nobody else is in the cell, and asks whether the target is, is answered
exactly; one row a target comes out.

What it is not: an attack on the published tables, which serve as the truth here, nor on the Bureau's own
noisy measurements, which would be read and not drawn. The adversary uses one query only; what other queries
of the same release add is not counted. One release is drawn, so the mean over its targets is an estimate of
the expected risk, which `adversary.risk` computes without drawing.

The noise of a geounit is seeded by (seed, level, code of the geounit). It does not depend on the order of the
rows, on which other geounits are read, or on chunks; and nothing in a row depends on the machine's number of
processors.

Held to account by tests/test_assess.py: the posterior of a sample of targets summed from the definition,
order, bytes, the law of the noise drawn, and the Rhode Island extract where it is at hand.

Sources: Kazan & Reiter (arXiv 2204.04253), sections 3.1 and 3.2 and supplement S1.3 (a block that is its
whole group).
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary._files import whole
from adversary.errors import BudgetError, FileFormatError, ReleaseError
from adversary.privacy.budget import Allocation, Rho, noise_scale
from adversary.privacy.discrete_gaussian import sample
from adversary.privacy.semantics import risk_ceiling
from adversary.readers.pl94 import (
    AXES,
    LEVELS,
    Pl94Table,
    cell_labels,
    find_mismatches,
    query_axes,
    read_pl94,
)
from adversary.samplers import closed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["NOTE", "TIE", "AssessResult", "assess_pl94"]

NOTE = (
    "published tables carry the Bureau's own protection; here they stand for the truth, and get new noise;"
    " only this query's counts are used, the other queries of a real release would tell more"
)
"""What every summary says about its input and its limits."""

ELSEWHERE = "the rest of the group ~ FlatCount (any number of people elsewhere is equally likely)"
"""Her prior on the people in the group's other geounits."""

TIE = 1e-9
"""Log-odds up to this count as "exactly 1/2": with two levels ties are broken only by rounding."""


@dataclass(frozen=True, eq=False)
class AssessResult:
    """One row a target, and everything that was assumed.

    Attributes
    ----------
    columns
        Column name to array, all of the same length: geoid; votingage, hispanic, cenrace (labels of the cell,
        ``*`` where the query sums over the axis); noisy_<level>; with two levels also noisy_<upper level>,
        noisy_rest (sum over the other geounits of the group) and groups (their number); prior, posterior,
        risk (R' = posterior/prior), log_odds, decision.
    assumptions
        source, level, levels, query, allocation, allocation_rho (of the whole), convention, rho and sigma2 by
        level, prior, seed, risk_threshold.
    geounits, people
        How many geounits and people the table has.
    """

    columns: Mapping[str, NDArray[Any]]
    assumptions: Mapping[str, Any]
    geounits: int
    people: int

    def __len__(self) -> int:
        return len(self.columns["geoid"])

    def __repr__(self) -> str:
        a = self.assumptions
        return (
            f"<AssessResult {len(self)} targets at {'+'.join(a['levels'])}, {a['query']}, {a['convention']}>"
        )

    def to_csv(self, path: str | Path) -> Path:
        """Write the rows, and beside them what was assumed; each file appears whole or not at all.

        ``risk.csv`` is accompanied by ``risk.csv.about.json``: the hash of the table, and :meth:`summary`. From it
        `adversary report` says what the numbers are of, and refuses a table that was edited.

        Parameters
        ----------
        path
            Where to; replaced if it is there.

        Returns
        -------
        Path
            The file. Floats are written so that reading them gives back the same number.

        Examples
        --------
        >>> import tempfile
        >>> from adversary.readers.pl94 import demo_folder
        >>> result = assess_pl94(demo_folder(), rho="0.05", seed=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     text = result.to_csv(folder + "/risk.csv").read_text()
        >>> text.splitlines()[0]
        'geoid,votingage,hispanic,cenrace,noisy_block,prior,posterior,risk,log_odds,decision'
        """
        target = Path(path)
        with whole(target) as draft, draft.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(self.columns)
            # tolist() makes Python's own numbers, whose text is the shortest that reads back the same
            writer.writerows(zip(*(column.tolist() for column in self.columns.values()), strict=True))
        about = {"sha256": hashlib.sha256(target.read_bytes()).hexdigest(), **self.summary()}
        with whole(target.with_name(target.name + ".about.json")) as draft:
            draft.write_text(json.dumps(about, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        return target

    def summary(self) -> dict[str, Any]:
        """Return what was assumed and found, ready for JSON.

        Returns
        -------
        dict
            The assumptions, and: geounits, people, targets, above_threshold (targets whose R' exceeds
            ``risk_threshold``), mean_risk, largest_risk (risk, geoid and cell), ties, rho_effective = sum
            over levels of 1/(2 sigma2) (what one person more in the cell costs), and ceiling = exp(2 rho)/(1
            - p + p exp(2 rho)) of it: no prior of this p can push the *expected* R' above, averaged over
            releases with the target present (and over her beliefs about the people elsewhere). Means are None
            where there is no target.

        Examples
        --------
        >>> from adversary.readers.pl94 import demo_folder
        >>> found = assess_pl94(demo_folder(), rho="0.05", seed=1).summary()
        >>> found["convention"], found["sigma2"], found["targets"]
        ('bounded', {'block': 20.0}, 147)
        """
        risk, p = self.columns["risk"], self.assumptions["prior"]
        rho = math.fsum(0.5 / sigma2 for sigma2 in self.assumptions["sigma2"].values())
        # through JSON and back, so that nothing in it can fail to be written
        found: dict[str, Any] = json.loads(json.dumps(dict(self.assumptions), default=dict))
        found |= {"geounits": self.geounits, "people": self.people, "targets": len(self)}
        found["above_threshold"] = int((risk > self.assumptions["risk_threshold"]).sum())
        found["mean_risk"] = math.fsum(risk.tolist()) / len(self) if len(self) else None
        # one draw over these targets: how far its mean may lie from the expected one
        found["mean_risk_standard_error"] = (
            float(np.std(risk, ddof=1) / math.sqrt(len(self))) if len(self) > 1 else None
        )
        found["elsewhere"] = ELSEWHERE if len(self.assumptions["levels"]) > 1 else None
        found["largest_risk"] = None
        if len(self):
            at = int(np.argmax(risk))
            cell = {axis: str(self.columns[axis][at]) for axis in AXES}
            found["largest_risk"] = {
                "risk": float(risk[at]),
                "geoid": str(self.columns["geoid"][at]),
                "cell": cell,
            }
        found["ties"] = int((np.abs(self.columns["log_odds"]) <= TIE).sum())
        found["rho_effective"] = rho
        found["note"] = NOTE
        found["ceiling"] = risk_ceiling(rho, p)
        return found

    def summary_lines(self) -> list[str]:
        """Return the summary as sentences, one a line.

        Examples
        --------
        >>> from adversary.readers.pl94 import demo_folder
        >>> print(assess_pl94(demo_folder(), rho="0.05", seed=1).summary_lines()[1])
        convention bounded, no allocation, query votingage * hispanic * cenrace: block rho 0.05, sigma2 20
        """
        s = self.summary()
        noise = "; ".join(
            f"{level} rho {float(Fraction(s['rho'][level])):.6g}, sigma2 {s['sigma2'][level]:.6g}"
            for level in s["levels"]
        )
        allocation = "no allocation"
        if s["allocation"]:
            allocation = (
                f"allocation {s['allocation']} (rho {float(Fraction(s['allocation_rho'])):.6g} in all)"
            )
        lines = [
            f"{s['source']}: {s['geounits']} geounits at level {s['level']}, {s['people']} people,"
            f" {s['targets']} of them alone in their cell (the targets)",
            f"convention {s['convention']}, {allocation}, query {s['query']}: {noise}",
        ]
        if not s["targets"]:
            return [*lines, "nobody is alone in a cell of her geounit: nothing to assess", f"note: {NOTE}"]
        error = s["mean_risk_standard_error"]
        spread = "" if error is None else f" (standard error {error:.4f} over the targets of this one draw)"
        on_average, beliefs = "", []
        if s["elsewhere"]:
            beliefs = [f"believes: {s['elsewhere']}; R' below 1 on average can come from this prior alone"]
            on_average = ", averaged over what she believes of the people elsewhere,"
        top = s["largest_risk"]
        cell = ", ".join(label for label in top["cell"].values() if label != "*")
        return [
            *lines,
            *beliefs,
            f"prior {s['prior']:g}; risk R' = posterior/prior: mean {s['mean_risk']:.6f}{spread},"
            f" {s['above_threshold']} above {s['risk_threshold']:g}",
            f"largest {top['risk']:.6f} in {s['level']} {top['geoid']}, cell {cell}",
            "guarantee: one person changes these counts by one, which is worth rho"
            f" {s['rho_effective']:.6g} (sum of 1/(2 sigma2)), so the expected R'{on_average} stays below"
            f" {s['ceiling']:.6f}; one release, and the mean over one draw, can exceed it",
            f"ties (log-odds within {TIE:g} of 0, decided absent): {s['ties']}; seed {s['seed']}",
            f"note: {NOTE}",
        ]


def assess_pl94(  # noqa: PLR0913 (the options of a command; all but the first by name)
    folder: str | Path,
    *,
    seed: int | np.random.SeedSequence | np.random.Generator,
    allocation: str | Allocation | None = None,
    rho: Any = None,
    level: str = "block",
    levels: Sequence[str] | None = None,
    query: str = "votingage * hispanic * cenrace",
    convention: str = "bounded",
    prior: float = 0.5,
    risk_threshold: float = 1.5,
) -> AssessResult:
    """Draw a noisy release of a PL 94-171 table and attack every person who is alone in her cell.

    Parameters
    ----------
    folder
        Folder with the four files of one state, see `adversary.readers.pl94.read_pl94`.
    seed
        Seed of the noise. The same seed gives the same noise to the same geounit whatever else is read.
    allocation
        Name of a budget allocation (``"2020-pl94-persons"``) or an `Allocation`; gives each level's rho for
        the query.
    rho
        Instead of an allocation: the query's rho, exact (``"0.05"``, a `Fraction` or a `Rho`), the same for
        all levels or a mapping from level to rho.
    level
        Level of the targets: ``"block"``, ``"block_group"``, ``"tract"``, ...
    levels
        Levels whose counts the adversary sees: ``(level,)``, the default, or ``(level, upper)`` as
        ``("block", "block_group")``; with two, also the sum over the other geounits of the same upper
        geounit.
    query
        One of `adversary.readers.pl94.QUERIES`: which counts are released, and so what being alone means.
    convention
        ``"bounded"`` (the Census Bureau's: sigma2 = 1/rho for a histogram) or ``"unbounded"`` (the paper's:
        1/(2 rho)).
    prior
        The adversary's prior probability that the target is present, strictly between 0 and 1.
    risk_threshold
        R' above which a target is counted in the summary.

    Returns
    -------
    AssessResult
        Rows in the order of the file, within a geounit in the order of the cells.

    Raises
    ------
    FileFormatError
        The folder cannot be read, has no such level, or its blocks do not add up to their upper geounit.
    BudgetError
        Neither or both of allocation and rho are given, or a name in them is unknown.
    ReleaseError
        The prior, the query or the threshold makes no sense.

    Notes
    -----
    The target's cell holds the target alone and the adversary knows it: known = 0 others. One level: Kazan &
    Reiter (3.1). Two levels: section 3.2, flat prior on the people elsewhere in the group; a block that is
    its whole group: S1.3 with l = 2.

    Examples
    --------
    >>> from adversary.readers.pl94 import demo_folder
    >>> rho = {"block": "0.1", "block_group": "0.25"}
    >>> result = assess_pl94(demo_folder(), rho=rho, levels=("block", "block_group"), seed=1)
    >>> len(result), sorted(result.columns)[:4]
    (147, ['cenrace', 'decision', 'geoid', 'groups'])
    """
    seen = _checked_levels(level, levels)
    query, axes = query_axes(query)
    if not (isinstance(risk_threshold, int | float) and 0 < risk_threshold < math.inf):
        msg = f"risk_threshold must be a positive number, got {risk_threshold!r}: R' = 1 means nothing learnt"
        raise ReleaseError(msg, risk_threshold)
    if isinstance(prior, bool) or not isinstance(prior, int | float | np.number):
        msg = f"prior must be a number strictly between 0 and 1, got {prior!r}"
        raise ReleaseError(msg, prior)
    prior_log_odds = float(closed.log_odds_of(prior))
    if convention not in {"bounded", "unbounded"}:
        msg = (
            f"no neighbour convention {convention!r}: 'bounded' (replace one) or 'unbounded' (add or remove)"
        )
        raise BudgetError(msg, convention)
    words = _seed_words(seed)
    whole = Allocation.load(allocation) if isinstance(allocation, str) else allocation
    budget = _rho_by_level(seen, query, whole, rho)
    sigma2 = {name: float(noise_scale(budget[name], convention)) for name in seen}
    for name, value in sigma2.items():
        if not 0 < value < math.inf:
            what = "publishes the counts exactly" if value == 0 else "measures nothing"
            msg = f"rho {budget[name]} at level {name} {what}: give a rho above 0 and finite"
            raise BudgetError(msg, budget[name])
    table = read_pl94(folder, level)
    counts = table.marginal(axes)
    row, cell = np.nonzero(counts == 1)
    if len(seen) == 1:
        drawn = _noisy(counts, table.geoid, level, sigma2[level], words, np.unique(row))
        noisy = {f"noisy_{level}": drawn[row, cell]}
        log_odds = closed.one_level_log_odds(drawn[row, cell], 0, sigma2[level], prior_log_odds)
    else:
        noisy = _two_levels(folder, table, counts, (row, cell), seen[1], sigma2, words)
        block, upper, rest, groups = noisy.values()
        log_odds = closed.two_level_grouped_log_odds(
            block, upper, rest, 0, sigma2[level], sigma2[seen[1]], sigma2[level], groups, prior_log_odds
        )
    columns = {"geoid": table.geoid[row], **cell_labels(axes, cell), **noisy}
    columns |= _answers(log_odds, prior, prior_log_odds)
    for column in columns.values():
        column.setflags(write=False)
    assumptions = {
        "source": Path(folder).name,
        "level": level,
        "levels": seen,
        "query": query,
        "allocation": allocation.title if isinstance(allocation, Allocation) else allocation,
        "allocation_rho": str(whole.total) if whole else None,
        "convention": convention,
        "rho": MappingProxyType({name: str(budget[name]) for name in seen}),
        "sigma2": MappingProxyType(sigma2),
        "prior": float(prior),
        "seed": int(seed) if isinstance(seed, int | np.integer) else words,
        "risk_threshold": float(risk_threshold),
    }
    total = int(table.total.sum())
    return AssessResult(MappingProxyType(columns), MappingProxyType(assumptions), len(table), total)


def _answers(log_odds: NDArray[np.float64], prior: float, prior_log_odds: float) -> dict[str, NDArray[Any]]:
    """Columns that follow from the log-odds; a tie is decided "absent", as in the paper."""
    return {
        "prior": np.full(log_odds.shape, float(prior)),
        "posterior": closed.probability(log_odds),
        "risk": closed.risk(log_odds, prior_log_odds),
        "log_odds": log_odds,
        "decision": np.where(log_odds > TIE, "present", "absent"),
    }


# ------------------------------------------------------------------------------------------- the release


def _noisy(
    counts: NDArray[np.int64],
    geoid: NDArray[np.str_],
    level: str,
    sigma2: float,
    words: Sequence[int],
    rows: NDArray[np.intp],
) -> NDArray[np.int64]:
    """Add noise to some rows; the others keep the value 0 and must not be looked at."""
    out = np.zeros_like(counts)
    for at in rows.tolist():
        # the code of a level has a fixed width, so that as a number it still names one geounit
        entropy = [*words, int(LEVELS[level]), int(geoid[at])]
        rng = np.random.default_rng(np.random.SeedSequence(entropy))
        out[at] = counts[at] + sample(sigma2, counts.shape[1], rng)
    return out


def _two_levels(
    folder: str | Path,
    table: Pl94Table,
    counts: NDArray[np.int64],
    targets: tuple[NDArray[np.intp], NDArray[np.intp]],
    upper: str,
    sigma2: Mapping[str, float],
    words: Sequence[int],
) -> dict[str, NDArray[np.int64]]:
    """Noisy counts of the targets' cells in the geounit, its upper geounit, and the rest of that one."""
    above = read_pl94(folder, upper)
    wrong = find_mismatches(above, table)
    if wrong:
        first = wrong[0]
        msg = (
            f"{upper} {first.geoid} has {first.own} in table {first.table} but its {table.level}s add up to"
            f" {first.children} ({len(wrong)} such): the folder lacks some, use one level"
        )
        raise FileFormatError(msg, first.geoid)
    row, cell = targets
    place = {code: at for at, code in enumerate(above.geoid.tolist())}
    group = np.array([place.get(code, -1) for code in table.parents[upper].tolist()], dtype=np.intp)
    if (group < 0).any():
        lost = str(table.parents[upper][group < 0][0])
        msg = f"{upper} {lost} has no row of its own although {table.level}s lie in it: use one level"
        raise FileFormatError(msg, lost)
    size = len(above)
    totals = np.zeros((size, counts.shape[1]), dtype=np.int64)
    np.add.at(totals, group, counts)
    hit = np.unique(group[row])
    drawn = _noisy(
        counts, table.geoid, table.level, sigma2[table.level], words, np.flatnonzero(np.isin(group, hit))
    )
    drawn_above = _noisy(totals, above.geoid, upper, sigma2[upper], words, hit)
    sums = np.zeros_like(totals)
    np.add.at(sums, group, drawn)
    members = np.bincount(group, minlength=size)
    own = drawn[row, cell]
    return {
        f"noisy_{table.level}": own,
        f"noisy_{upper}": drawn_above[group[row], cell],
        "noisy_rest": sums[group[row], cell] - own,
        "groups": members[group[row]].astype(np.int64) - 1,
    }


# ------------------------------------------------------------------------------------------- the arguments


def _checked_levels(level: str, levels: Sequence[str] | None) -> tuple[str, ...]:
    seen = (level,) if levels is None else tuple(levels)
    order = list(LEVELS)
    if level not in order or not set(seen) <= set(order):
        bad = level if level not in order else next(name for name in seen if name not in order)
        msg = f"no level {bad!r}: choose from {', '.join(order)}"
        raise FileFormatError(msg, bad)
    if not 1 <= len(seen) <= 2 or seen[0] != level:
        msg = f"levels must be ({level!r},) or ({level!r}, a level above it), got {seen!r}"
        raise FileFormatError(msg, seen)
    if len(seen) == 2 and order.index(seen[1]) >= order.index(level):
        msg = f"{seen[1]!r} does not lie above {level!r}: the order is {', '.join(order)}"
        raise FileFormatError(msg, seen)
    return seen


def _seed_words(seed: int | np.random.SeedSequence | np.random.Generator) -> tuple[int, ...]:
    """Turn a seed into words to which the geounit's code is added."""
    if isinstance(seed, np.random.Generator):
        return tuple(seed.integers(2**32, size=4).tolist())
    if isinstance(seed, np.random.SeedSequence):
        return tuple(seed.generate_state(4).tolist())
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        msg = f"seed must be a whole number >= 0, a SeedSequence or a Generator, got {seed!r}"
        raise ReleaseError(msg, seed)
    return tuple(np.random.SeedSequence(int(seed)).generate_state(4).tolist())


def _rho_by_level(
    levels: Sequence[str], query: str, allocation: Allocation | None, rho: Any
) -> dict[str, Rho]:
    """Return the budget of the query at each level, from the allocation or as given."""
    if (allocation is None) == (rho is None):
        which = "neither" if rho is None else "both"
        msg = f"give either an allocation (such as '2020-pl94-persons') or rho, not {which}"
        raise BudgetError(msg, rho)
    if allocation is not None:
        return {level: allocation.rho(level, query) for level in levels}
    given = dict(rho) if hasattr(rho, "keys") else dict.fromkeys(levels, rho)
    if set(given) != set(levels):
        named = ", ".join(map(str, given)) or "nothing"
        msg = f"rho names {named} where the levels are {', '.join(levels)}: give one rho a level"
        raise BudgetError(msg, rho)
    return {level: Rho(given[level]) for level in levels}
