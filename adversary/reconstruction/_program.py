"""One bounded integer program, and what a solver says of it: the common ground of the two back ends.

What it is: the data of ``min cost @ v`` over whole ``v`` with ``low <= matrix @ v <= high`` and ``lower <= v
<= upper``, the limits put on a solver, and its outcome. What it is not: a solver, or anything about
households. Held to account by tests/reconstruction/test_solve.py.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from adversary.errors import DisagreementError, ModelError, UnsupportedModelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["BACKENDS", "Limits", "Outcome", "Program", "Status", "resident_megabytes", "solve"]

BACKENDS: dict[str, str] = {"highs": "highspy", "cpsat": "ortools"}
"""Back ends and the package that each needs."""


class Status(StrEnum):
    """How a question ended; never None."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible with gap"
    INFEASIBLE = "infeasible"
    TIME_LIMIT = "time limit"


@dataclass(frozen=True)
class Limits:
    """What a solver may use for one question.

    Attributes
    ----------
    seconds
        Wall time. CP-SAT keeps it within a tenth of a second; HiGHS looks at the clock between its steps, and
        one step took up to 4 s on a block of 500 households with 3,500 configurations (milliseconds on blocks
        of 80).
    megabytes
        Growth of the process's memory while the question is answered; None for no limit. Watched between
        steps of the search, so that it can be passed for a moment.
    threads
        Threads; more than one makes results of CP-SAT unrepeatable.
    seed
        Seed of the solver's own choices.
    """

    seconds: float = 60.0
    megabytes: float | None = None
    threads: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.seconds >= 0 or not (self.megabytes is None or self.megabytes > 0) or self.threads < 1:
            msg = f"{self} cannot be kept: seconds from 0, megabytes above 0 (or None), one thread or more"
            raise ModelError(msg, self)


@dataclass(frozen=True, eq=False)
class Program:
    """The data of one bounded integer program; all arrays int64.

    With ``first``, any values that meet the rows will do: the cost only guides the search, and nothing is
    proved about it. With ``presolve``, HiGHS simplifies the program first: worth it only where rows were not
    tightened before.
    """

    matrix: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    lower: NDArray[np.int64]
    upper: NDArray[np.int64]
    cost: NDArray[np.int64]
    first: bool = False
    presolve: bool = False

    def holds(self, values: NDArray[np.int64]) -> bool:
        """Whether values meet every row and bound, in whole numbers."""
        answers = self.matrix @ values
        rows = (answers >= self.low).all() and (answers <= self.high).all()
        return bool(rows and (values >= self.lower).all() and (values <= self.upper).all())


class Outcome(NamedTuple):
    """What a solver says.

    Attributes
    ----------
    status
        How it ended.
    values
        The best values found, checked in whole numbers; None if none were found.
    bound
        No values cost less than this; None if not known.
    limit
        ``"time"`` or ``"memory"`` if a limit ended it.
    confirmed
        For an infeasible program: whether a second solver agrees; None if it was not asked or did not finish.
    """

    status: Status
    values: NDArray[np.int64] | None = None
    bound: int | None = None
    limit: str | None = None
    confirmed: bool | None = None


def resident_megabytes() -> float:
    """Return the memory that the process holds now (its peak, where the system does not tell)."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * 4096 / 2**20
    import resource  # not on Windows, where no memory limit is kept

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def installed(backend: str) -> bool:
    """Whether the package of a back end is here."""
    return find_spec(BACKENDS[backend]) is not None


def require(backend: str) -> None:
    """Refuse a back end that is unknown or not installed."""
    if backend not in BACKENDS:
        msg = f"no back end {backend!r}: choose {' or '.join(BACKENDS)}"
        raise UnsupportedModelError(msg, backend)
    if not installed(backend):
        msg = f"back end {backend!r} needs {BACKENDS[backend]}: pip install 'dp-adversary[reconstruct]'"
        raise UnsupportedModelError(msg, backend)


def solve(program: Program, backend: str, limits: Limits, *, confirm: bool = True) -> Outcome:
    """Solve a program; an infeasible one is put to the other solver too, where that is installed.

    Solvers have been wrong: presolve has called feasible programs infeasible, and floating point may break a
    row by one. Values are therefore checked in whole numbers, and what one solver cannot show, the other is
    asked.
    """
    require(backend)
    start = time.perf_counter()
    if program.matrix.shape[1] == 0 or (program.lower == program.upper).all():
        values = program.lower.copy()
        if program.holds(values):
            return Outcome(Status.OPTIMAL, values, int(program.cost @ values))
        return Outcome(Status.INFEASIBLE, confirmed=True)
    if limits.seconds <= 0:
        return Outcome(Status.TIME_LIMIT, limit="time")
    outcome = _run(program, backend, limits)
    broken = outcome.values is not None and not program.holds(outcome.values)
    if not broken and not (confirm and outcome.status is Status.INFEASIBLE):
        return outcome
    other = next(name for name in BACKENDS if name != backend)
    if not installed(other):
        if broken:
            msg = (
                f"{backend} broke a row and no second solver is here: pip install 'dp-adversary[reconstruct]'"
            )
            raise DisagreementError(msg, outcome.values)
        return outcome
    left = Limits(max(limits.seconds - time.perf_counter() + start, 0.05), limits.megabytes, 1, limits.seed)
    second = _run(program, other, left)
    if second.values is not None and program.holds(second.values):
        return second
    if broken:
        return Outcome(second.status if second.values is None else Status.TIME_LIMIT, limit=second.limit)
    return outcome._replace(confirmed=True if second.status is Status.INFEASIBLE else None)


def _run(program: Program, backend: str, limits: Limits) -> Outcome:
    if backend == "highs":
        from adversary.reconstruction import _highs

        return _highs.run(program, limits)
    from adversary.reconstruction import _cpsat

    return _cpsat.run(program, limits)
