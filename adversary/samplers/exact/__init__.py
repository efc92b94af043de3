"""The exact engine: the posterior of a declared model by summing out, with a bound on what was cut off.

:func:`compile_exact` is all a caller needs; the modules below it are its parts, from the graph to the answer.
"""

from __future__ import annotations

from adversary.samplers.exact.answer import ExactAnswer, Pmf
from adversary.samplers.exact.compiled import ExactModel, compile_exact

__all__ = ["ExactAnswer", "ExactModel", "Pmf", "compile_exact"]
