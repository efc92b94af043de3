"""Back end CP-SAT: exact integer search, and the enumeration of all solutions within a range of cost.

What it is: a thin skin over OR-tools. What it is not: floating point; every answer is in whole numbers. One
thread and a fixed seed give the same answer every time. Held to account by
tests/reconstruction/test_solve.py. Source: OR-tools (Google), Apache-2.0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adversary.errors import UnsupportedModelError
from adversary.reconstruction._program import Limits, Outcome, Program, Status, resident_megabytes
from adversary.reconstruction.constraints import UNBOUNDED

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Listing", "enumerate_solutions", "run"]


def run(program: Program, limits: Limits) -> Outcome:
    """Solve one program with CP-SAT."""
    from ortools.sat.python import cp_model

    model, variables = _model(cp_model, program)
    costed = bool(program.cost.any()) and not program.first
    floor = int(np.minimum(program.cost * program.lower, program.cost * program.upper).sum())
    if costed:
        # A bound that CP-SAT did not come to is reported as 0. Counted from the floor, 0 claims nothing.
        model.minimize(cp_model.LinearExpr.weighted_sum(variables, program.cost.tolist()) - floor)
    solver = _solver(cp_model, limits)
    status = solver.solve(model)
    values: NDArray[np.int64] | None = None
    if status in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        values = np.array([solver.value(v) for v in variables], dtype=np.int64)
    if status == cp_model.INFEASIBLE:
        return Outcome(Status.INFEASIBLE)
    if status == cp_model.OPTIMAL and values is not None:
        return Outcome(Status.OPTIMAL, values, int(program.cost @ values))
    if status == cp_model.MODEL_INVALID:
        msg = (
            f"CP-SAT refuses the program ({model.validate()}): numbers may be too large, ask back end 'highs'"
        )
        raise UnsupportedModelError(msg, model.validate())
    limit = "memory" if solver.wall_time < 0.9 * limits.seconds and limits.megabytes is not None else "time"
    bound = None
    if costed and math.isfinite(solver.best_objective_bound):
        bound = floor + max(math.ceil(solver.best_objective_bound - 1e-6), 0)
    return Outcome(Status.TIME_LIMIT if values is None else Status.FEASIBLE, values, bound, limit)


class Listing(NamedTuple):
    """Solutions found, and whether there are no others."""

    values: list[NDArray[np.int64]]
    complete: bool


def enumerate_solutions(program: Program, cost_low: int, cost_high: int, cap: int, limits: Limits) -> Listing:
    """List the solutions whose cost lies in a range, at most ``cap`` of them, each once.

    Which ones are listed when there are more than ``cap`` is the solver's arbitrary choice.
    """
    from ortools.sat.python import cp_model as module

    cp_model: Any = module
    model, variables = _model(cp_model, program)
    spent = cp_model.LinearExpr.weighted_sum(variables, program.cost.tolist())
    model.add_linear_constraint(spent, cost_low, cost_high)
    solver = _solver(cp_model, limits)
    solver.parameters.num_workers = 1
    solver.parameters.enumerate_all_solutions = True

    class Collector(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.found: dict[bytes, NDArray[np.int64]] = {}

        def on_solution_callback(self) -> None:
            values = np.array([self.value(v) for v in variables], dtype=np.int64)
            self.found[values.tobytes()] = values
            if len(self.found) >= cap:
                self.stop_search()

    collector = Collector()
    status = solver.solve(model, collector)
    done = status in {cp_model.OPTIMAL, cp_model.INFEASIBLE} and len(collector.found) < cap
    return Listing(list(collector.found.values()), done)


def _model(cp_model: Any, program: Program) -> tuple[Any, list[Any]]:
    model = cp_model.CpModel()
    ends = zip(program.lower.tolist(), program.upper.tolist(), strict=True)
    variables = [model.new_int_var(low, high, "") for low, high in ends]
    for coefficients, low, high in zip(
        program.matrix, program.low.tolist(), program.high.tolist(), strict=True
    ):
        at = np.flatnonzero(coefficients)
        row = cp_model.LinearExpr.weighted_sum([variables[k] for k in at.tolist()], coefficients[at].tolist())
        model.add_linear_constraint(row, max(low, -UNBOUNDED), min(high, UNBOUNDED))
    return model, variables


def _solver(cp_model: Any, limits: Limits) -> Any:
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = float(limits.seconds)
    solver.parameters.num_workers = limits.threads
    solver.parameters.random_seed = limits.seed % 2**31
    if limits.megabytes is not None:
        solver.parameters.max_memory_in_mb = int(resident_megabytes() + limits.megabytes)
    return solver
