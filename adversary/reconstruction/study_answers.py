"""The answers of the housing study: one a block and mechanism, counted by how they ended, with their times.

What it is: plain records, their JSON, labelled arrays, and tables of text. What it is not: a computation of
any of them (:mod:`adversary.reconstruction.study`), or a comparison with the truth
(:mod:`adversary.reconstruction.evaluation`). Validation is on synthetic households only.

Held to account by tests/reconstruction/test_study.py.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import ModelError
from adversary.reconstruction.households import OVER_LIMIT, Predicate
from adversary.reconstruction.runs import FAILED
from adversary.reconstruction.solve import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping

    import xarray as xr
    from numpy.typing import NDArray

    from adversary.reconstruction.mechanisms import Mechanism

__all__ = ["PAPER_BLOCKS", "PHASES", "VALIDATION", "BlockAnswer", "StudyOptions", "StudyResult"]

VALIDATION = "validation on synthetic households only"
"""Said wherever a number of the study is shown."""
PAPER_BLOCKS = 10_224
"""Blocks of the paper's study."""
PHASES: tuple[str, ...] = ("publish", "flag", "mend", "list", "posterior")
"""Parts of the work on a block whose wall times are kept."""
_VERDICTS = ("flagged", "not flagged", "undecided", "inconsistent", FAILED)


@dataclass(frozen=True)
class StudyOptions:
    """What is asked of every block.

    Attributes
    ----------
    top
        Length of the list of likely blocks; 0 for none.
    tables
        Census tables that are printed, ``"base"`` or ``"rich"``.
    posterior
        Whether to sample a posterior of every block too; much slower.
    bedrooms
        What the adversary takes for granted of bedrooms given size: ``"unknown"`` (the microdata sample knows
        nothing of them, so that all are equally likely: the paper's), or ``"to need"`` (units fitted to need as
        in `adversary.reconstruction.synthetic.BEDROOMS_TO_NEED`; for the list one in twenty whatever its size,
        for the posterior 3.4 % of three persons or more over the limit and no other exceptions, so that a
        block with one has no posterior, or a wrong one). It decides what is likely, for list and posterior;
        flags do not depend on it.
    harm
        What a household must not be; a `Predicate` of a module, so that it can be sent to other processes.
    limits
        Of the solver, for each question. ``limits.seed`` is ignored: every block has its own.
    """

    top: int = 100
    tables: str = "base"
    posterior: bool = False
    bedrooms: str = "unknown"
    harm: Predicate = OVER_LIMIT
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.top < 0:
            msg = f"the top {self.top} of a list cannot be: give 1 or more, or 0 for no list"
            raise ModelError(msg, self.top)
        if self.bedrooms not in {"unknown", "to need"}:
            msg = f"no assumption {self.bedrooms!r} about bedrooms: choose 'unknown' or 'to need'"
            raise ModelError(msg, self.bedrooms)

    def identity(self) -> dict[str, Any]:
        """Return what changes an answer, as JSON; the time limit is kept with each block."""
        limits = {"megabytes": self.limits.megabytes, "threads": self.limits.threads}
        return {
            "top": self.top,
            "tables": self.tables,
            "posterior": self.posterior,
            "bedrooms": self.bedrooms,
            "harm": self.harm.name,
            "limits": limits,
        }


@dataclass(frozen=True)
class BlockAnswer:
    """What the adversary makes of one block under one mechanism.

    Attributes
    ----------
    status
        The verdict: ``"flagged"``, ``"not flagged"``, ``"undecided"`` (a limit ended the search),
        ``"inconsistent"`` (no block meets the rows, and none was found that misses them by least), or
        ``"error"``.
    printed
        The verdict on the rows as printed, before any were widened.
    confirmed
        Whether a second way agrees with a flag; None if it was not asked or did not finish.
    publish_status, mend_status, list_status, posterior_status
        How post-processing, the program of least error, the list and the posterior ended; ``""`` where there
        was none.
    missed
        Rows that the block of least error misses.
    listed, cut, tied_share, list_harm
        Length of the list; whether it is a part of a tie; share of it in its most populous level; share of it
        with the harm.
    list_total
        Households with the harm over the whole list, by configuration.
    posterior_harm, posterior_mean
        Probability that the block has a household with the harm, and their mean number by configuration; None
        and empty without posterior.
    configurations
        Configurations that rows leave possible.
    error
        What went wrong, in words.
    """

    status: str
    printed: str = ""
    confirmed: bool | None = None
    publish_status: str = ""
    mend_status: str = ""
    list_status: str = ""
    posterior_status: str = ""
    missed: int = 0
    listed: int = 0
    cut: bool = False
    tied_share: float = 0.0
    list_harm: float = 0.0
    list_total: Mapping[int, int] = field(default_factory=dict)
    posterior_harm: float | None = None
    posterior_mean: Mapping[int, float] = field(default_factory=dict)
    configurations: int = 0
    error: str = ""

    @classmethod
    def from_dict(cls, kept: Mapping[str, Any]) -> BlockAnswer:
        """Read what `to_dict` wrote and was ``kept``."""
        told = {name: value for name, value in kept.items() if name != "seconds"}
        for name in ("list_total", "posterior_mean"):
            if name in told:
                told[name] = {int(k): value for k, value in told[name].items()}
        return cls(**told)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        out = asdict(self)
        for name in ("list_total", "posterior_mean"):
            out[name] = {str(k): value for k, value in sorted(out[name].items())}
        return out

    def mean_harm(self, ranking: str, configurations: int) -> NDArray[np.float64]:
        """Return the mean number of households with the harm by configuration, shape (K,).

        Parameters
        ----------
        ranking
            ``"list"`` (over the top t) or ``"posterior"``; zero where there is none.
        configurations
            K.
        """
        out = np.zeros(configurations)
        source = self.list_total if ranking == "list" else self.posterior_mean
        for k, value in source.items():
            out[k] = value
        return out / max(self.listed, 1) if ranking == "list" else out


@dataclass(frozen=True, eq=False)
class StudyResult:
    """The answers of a study.

    Attributes
    ----------
    mechanisms
        In the order asked.
    blocks
        Numbers of the blocks rebuilt.
    options
        What was asked.
    state_blocks
        Blocks of the whole state.
    answers
        One answer a block, by name of the mechanism.
    seconds
        Wall times by name of the mechanism, shape (blocks, `PHASES`); NaN where a part was not needed, or was
        done in a run that kept no times.
    """

    mechanisms: tuple[Mechanism, ...]
    blocks: tuple[int, ...]
    options: StudyOptions
    state_blocks: int
    answers: Mapping[str, tuple[BlockAnswer, ...]]
    seconds: Mapping[str, NDArray[np.float64]]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the mechanisms."""
        return tuple(m.name for m in self.mechanisms)

    def column(self, name: str) -> NDArray[Any]:
        """Return one field of the answers, shape (mechanisms, blocks).

        Parameters
        ----------
        name
            Name of a column.
        """
        return np.array([[getattr(a, name) for a in self.answers[m]] for m in self.names])

    @cached_property
    def dataset(self) -> xr.Dataset:
        """The answers with labels, dimensions mechanism and block."""
        import xarray as xr

        dims = ("mechanism", "block")
        plain = (
            *("status", "printed", "publish_status", "mend_status", "list_status", "posterior_status"),
            *("missed", "listed", "cut", "tied_share", "list_harm", "configurations", "error"),
        )
        data: dict[str, Any] = {name: (dims, self.column(name)) for name in plain}
        unknown = [[np.nan if v is None else v for v in row] for row in self.column("posterior_harm")]
        data["posterior_harm"] = (dims, np.array(unknown, dtype=np.float64))
        times = np.stack([self.seconds[m] for m in self.names])
        data["seconds"] = ((*dims, "phase"), times)
        coords = {"mechanism": list(self.names), "block": list(self.blocks), "phase": list(PHASES)}
        return xr.Dataset(data, coords, {"note": VALIDATION})

    def statuses(self) -> dict[str, dict[str, int]]:
        """Return how many blocks ended in which way, by mechanism: none is left out."""
        out = {}
        for name in self.names:
            its = self.answers[name]
            told = {verdict: sum(a.status == verdict for a in its) for verdict in _VERDICTS}
            told["rows contradicted"] = sum(a.printed == "inconsistent" for a in its)
            told["list cut in a tie"] = sum(a.cut for a in its)
            told["list cut by a limit"] = sum(a.list_status not in {"", "optimal"} for a in its)
            out[name] = told
        return out

    def seconds_a_block(self) -> dict[str, float]:
        """Return the mean wall time of a block on one process, by mechanism; NaN if none was kept."""
        out = {}
        for name in self.names:
            timed = ~np.isnan(self.seconds[name]).all(axis=1)
            total = np.nansum(self.seconds[name][timed])
            out[name] = float(total / timed.sum()) if timed.any() else float("nan")
        return out

    def projection(self, processes: int = 2) -> str:
        """Return what the study would take on more blocks like these, beside what the paper reports.

        Parameters
        ----------
        processes
            How many processes share the work.
        """
        each = sum(self.seconds_a_block().values())
        lines = [f"seconds a block on one process, {VALIDATION}:"]
        lines += [f"  {name:<28} {its:8.2f}" for name, its in self.seconds_a_block().items()]
        for n in (1_000, PAPER_BLOCKS):
            hours = each * n / processes / 3600
            lines.append(
                f"projected for {n:,} blocks like these, {len(self.names)} mechanisms, {processes} processes:"
                f" {hours * 60:,.0f} min ({hours:.1f} h)"
            )
        lines.append(
            f"the paper, {PAPER_BLOCKS:,} blocks on 256 cores: flags a few hours, top 100 about 72 h;"
            " its blocks may be larger than these"
        )
        return "\n".join(lines)

    def table(self) -> str:
        """Return how the blocks ended, and the time, as text."""
        told = self.statuses()
        width = max(len(name) for name in self.names)
        head = list(next(iter(told.values())))
        lines = [
            f"{len(self.blocks)} of {self.state_blocks} blocks, {VALIDATION}",
            " " * width + "  " + "  ".join(head),
        ]
        for name, its in told.items():
            cells = "  ".join(f"{its[key]:>{len(key)}}" for key in head)
            lines.append(f"{name:<{width}}  {cells}")
        return "\n".join([*lines, self.projection()])
