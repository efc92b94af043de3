"""Back end HiGHS: branch and bound in floating point, answers rounded and checked by the caller.

What it is: a thin skin over ``highspy``. What it is not: a proof in exact arithmetic (the caller checks
values in whole numbers, and puts infeasible programs to a second solver). Held to account by
tests/reconstruction/test_solve.py. Source: HiGHS (Huangfu and Hall), MIT licence.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.errors import UnsupportedModelError
from adversary.reconstruction._program import Limits, Outcome, Program, Status, resident_megabytes
from adversary.reconstruction.constraints import UNBOUNDED

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["run"]


def run(program: Program, limits: Limits) -> Outcome:
    """Solve one program with HiGHS."""
    import highspy

    solver = _quiet(highspy)
    for name, value in (
        ("time_limit", float(limits.seconds)),
        ("threads", limits.threads),
        ("random_seed", limits.seed % 2**31),
        # costs are whole: a gap below one proves the optimum
        ("mip_rel_gap", 1e9 if program.first else 0.0),
        ("mip_abs_gap", 1e9 if program.first else 0.999),
        # rows are tightened in whole numbers before, and HiGHS's presolve costs more time than it saves here
        # (median 0.13 s against 0.05 s a block); it is also where feasible programs were called infeasible
        ("presolve", "on" if program.presolve else "off"),
        ("mip_detect_symmetry", False),
        ("mip_heuristic_run_feasibility_jump", False),
    ):
        solver.setOptionValue(name, value)
    solver.passModel(_model(highspy, program))
    full = _watch_memory(solver, limits)
    solver.run()
    status, known = solver.getModelStatus(), highspy.HighsModelStatus
    info = solver.getInfo()
    values: NDArray[np.int64] | None = None
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        values = np.rint(np.array(solver.getSolution().col_value)).astype(np.int64)
    if status == known.kOptimal and values is not None:
        return Outcome(Status.OPTIMAL, values, int(program.cost @ values))
    if status in {known.kInfeasible, known.kUnboundedOrInfeasible}:
        return Outcome(Status.INFEASIBLE)
    if status in {known.kTimeLimit, known.kInterrupt, known.kMemoryLimit, known.kSolutionLimit}:
        dual = info.mip_dual_bound
        bound = math.ceil(dual - 1e-6) if math.isfinite(dual) and abs(dual) < UNBOUNDED else None
        ended = Status.TIME_LIMIT if values is None else Status.FEASIBLE
        return Outcome(ended, values, bound, "memory" if full else "time")
    text = solver.modelStatusToString(status)
    msg = f"HiGHS ended with {text!r}, which answers nothing: ask back end 'cpsat'"
    raise UnsupportedModelError(msg, text)


def _quiet(highspy: Any) -> Any:
    """Return a solver that prints nothing, not even the banner of its constructor."""

    class Quiet(highspy.Highs):  # type: ignore[misc]
        def enableCallbacks(self) -> None:  # the name is HiGHS's own
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()

    return Quiet()


def _model(highspy: Any, program: Program) -> Any:
    lp = highspy.HighsLp()
    rows, columns = program.matrix.shape
    lp.num_col_, lp.num_row_ = columns, rows
    lp.col_cost_ = program.cost.astype(float)
    lp.col_lower_, lp.col_upper_ = program.lower.astype(float), program.upper.astype(float)
    infinite = highspy.kHighsInf
    lp.row_lower_ = np.where(program.low <= -UNBOUNDED, -infinite, program.low).astype(float)
    lp.row_upper_ = np.where(program.high >= UNBOUNDED, infinite, program.high).astype(float)
    row, column = np.nonzero(program.matrix)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.searchsorted(row, np.arange(rows + 1)).astype(np.int32)
    lp.a_matrix_.index_ = column.astype(np.int32)
    lp.a_matrix_.value_ = program.matrix[row, column].astype(float)
    lp.integrality_ = [highspy.HighsVarType.kInteger] * columns
    return lp


def _watch_memory(solver: Any, limits: Limits) -> list[bool]:
    """Interrupt the search once memory has grown past the limit; the list is filled when that happened."""
    full: list[bool] = []
    if limits.megabytes is None:
        return full
    ceiling = resident_megabytes() + limits.megabytes

    def check(event: Any) -> None:
        if resident_megabytes() > ceiling:
            full.append(True)
            event.interrupt()

    solver.cbMipInterrupt += check
    return full
