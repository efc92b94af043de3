"""What the paper's stated model gives, and what its literal sampler gives, for each printed number.

What it is: one function a claim, every one a sum with a bound. ``literal`` is the stationary law of a sampler whose step for
X1 ignores X1 <= X2; it belongs to no joint distribution, and exists because most printed hierarchical numbers fit it. What it
is not: the authors' code, which is not public: that they used such a sampler is an inference from the numbers.

Held to account by ``tests/test_reproduce.py`` (every value against ``tests/reference/kazan_reiter.json``).

Source: Kazan & Reiter (arXiv 2204.04253), sections 2 to 4.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.privacy import discrete_gaussian as dg
from adversary.privacy.accounting import epsilon_bun_steinke
from adversary.risk.decisions import decision_masses, sampled_decision_masses
from adversary.risk.expected import expected_one_level
from adversary.risk.levels import expected_uniqueness
from adversary.risk.measures import decision_threshold, posterior, prior_log_odds
from adversary.risk.two_level import TwoLevelDesign, expected_two_level
from adversary.samplers import gibbs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "BOX",
    "LEVELS",
    "OTHERS",
    "PRIORS",
    "QUERY_RHO",
    "SIGMA2",
    "VALUES",
    "count_posterior",
    "design",
    "right",
]

GLOBAL = Fraction(256, 100)
LEVELS = ("nation", "state", "county", "tract", "block_group", "block")
_SHARE = dict(
    zip(LEVELS, ("104/4099", "1440/4099", "447/4099", "687/4099", "1256/4099", "165/4099"), strict=True)
)
_QUERY = dict(
    zip(LEVELS, ("3213/4097", "230/4097", "754/4097", "482/4102", "1288/4099", "3945/4097"), strict=True)
)
LEVEL_RHO = {k: GLOBAL * Fraction(v) for k, v in _SHARE.items()}
QUERY_RHO = {k: LEVEL_RHO[k] * Fraction(v) for k, v in _QUERY.items()}
"""Exact budgets of the detailed query at each level (Table 2)."""

SIGMA2 = {k: float(1 / (2 * v)) for k, v in QUERY_RHO.items()}
"""Noise parameters, the paper's convention 1/(2 rho)."""

PRIORS = {"1/2": 0.5, "1/5": 0.2, "1/10": 0.1, "1/50": 0.02, "1/864": 1 / 864}
OTHERS = 27
BOX = ((-3, 5), (-30, 30))
"""Tiles of Figure 4: noisy group counts, noisy rests."""

_BLOCK = SIGMA2["block"]
_DRAWS = 10_000
Pair = tuple[Any, Any]


def design(mode: str = "exact", rho2: float | None = None) -> TwoLevelDesign:
    """Two levels of the paper in a ``mode``: its block and block group (``rho2``), 27 other blocks."""
    group = SIGMA2["block_group"] if rho2 is None else 0.5 / rho2
    return TwoLevelDesign(sigma2=_BLOCK, group_sigma2=group, others=OTHERS, mode=mode)  # type: ignore[arg-type]


def right(mode: str, x2: int, rho2: float | None = None) -> tuple[float, float]:
    """Probability of a right decision about a present target in a group of ``x2`` (``rho2``, ``mode``), and of near-ties."""
    found = expected_two_level(design(mode, rho2), x2, p=0.5)
    return found.right, found.near_tie_mass


def count_posterior(mode: str) -> tuple[float, dict[int, float]]:
    """P[X1 = 1 | D] and P[X2 = k | D] at D = (2, 1, -1): Table 8, as the long-run law of the sampler.

    Parameters
    ----------
    mode
        ``"exact"`` or ``"literal"``.
    """
    problem = gibbs.PathProblem(
        0, 0.0, nodes=((2, _BLOCK), (1, SIGMA2["block_group"])), rests=((-1, _BLOCK, OTHERS),)
    )
    present = gibbs.stationary_target(problem, mode)
    total: dict[int, float] = {}
    for x1, weight in ((0, 1.0 - present), (1, present)):
        for k, q in zip(*gibbs.conditional_x2(problem, x1), strict=True):
            total[int(k)] = total.get(int(k), 0.0) + weight * float(q)
    return present, total


def _one(p: float, rho: float | None = None) -> Any:
    return expected_one_level(_BLOCK if rho is None else 0.5 / rho, p=p)


def _chance(x: int) -> Pair:
    return float(np.exp(dg.log_pmf(x - 1, _BLOCK))), None


def _threshold(p: float, rho: float | None = None) -> Pair:
    return int(decision_threshold(prior_log_odds(p), _BLOCK if rho is None else 0.5 / rho)), None


def _masses(part: str) -> Pair:
    model = decision_masses(design(), 1, p=0.5, box=BOX)
    literal = sampled_decision_masses(design("literal"), 1, _DRAWS, p=0.5, box=BOX)
    return getattr(model, part), getattr(literal, part)


def _both(value: Callable[[str], Any]) -> Pair:
    return value("exact"), value("literal")


def _sign() -> Pair:
    return all((float(posterior((2 * x - 1) / (2 * _BLOCK))) > 0.5) == (x >= 1) for x in range(-40, 41)), None


def _monotone() -> Pair:
    grid = np.round(np.arange(0.1, 10.05, 0.1), 10)
    return all((np.diff([_one(p, r).posterior for r in grid]) > 0).all() for p in PRIORS.values()), None


def _literal_limit() -> float:
    """Literal sampler at rho2 = 100: near-ties there have log-odds just above zero, below what a double resolves."""
    strict, tied = right("literal", 1, 100.0)
    return strict + tied


def _lessens(mode: str) -> bool:
    """Whether the distance of x2 = 1 from x2 = 10 shrinks along rho2, and x2 = 1 lies above."""
    gaps = [right(mode, 1, r)[0] - right(mode, 10, r)[0] for r in (0.1, 0.25, 0.5, 1.0)]
    return gaps[0] > 0 and all(a > b for a, b in itertools.pairwise(gaps))


def _steps() -> Pair:
    risks = [1.0]
    for n in range(1, 7):
        noise = [SIGMA2[k] for k in LEVELS[::-1][:n]]
        risks.append(expected_uniqueness(noise, p=0.5).risk)
    steps = np.diff(risks)
    return int(np.argmax(steps[1:])) == 0, None


VALUES: Mapping[str, Callable[[], Pair]] = {
    "t2_level": lambda: (float(LEVEL_RHO["block"]), None),
    "t2_block": lambda: (float(QUERY_RHO["block"]), None),
    "t2_block_group": lambda: (float(QUERY_RHO["block_group"]), None),
    "t2_block_group_text": lambda: (float(QUERY_RHO["block_group"]), None),
    "t2_tract": lambda: (float(QUERY_RHO["tract"]), None),
    "t2_county": lambda: (float(QUERY_RHO["county"]), None),
    "t2_state": lambda: (float(QUERY_RHO["state"]), None),
    "t2_nation": lambda: (float(QUERY_RHO["nation"]), None),
    "eps": lambda: (float(epsilon_bun_steinke(2.56, 1e-10)), None),
    "cells_2020": lambda: (8 * 2 * 2 * 63, None),
    "cells_1940": lambda: (2 * 6 * 8 * 9, None),
    "t4_posterior": lambda: (float(posterior(3 / (2 * _BLOCK))), None),
    "t4_chance_4": lambda: _chance(4),
    "t4_chance_5": lambda: _chance(5),
    "t4_sign": _sign,
    "t5_lowest": lambda: (_one(0.5).risk, None),
    "t5_highest": lambda: (_one(1 / 864).risk, None),
    "f2_small": lambda: (all(_one(p, 0.25).risk < 1.1 for p in PRIORS.values()), None),
    "f2_large": lambda: (all(_one(p, 5.0).posterior > 0.95 for p in PRIORS.values()), None),
    "f2_monotone": _monotone,
    "f3_threshold": lambda: _threshold(0.5),
    "f3_half": lambda: (_one(0.5).right, None),
    "f3_half_short": lambda: (_one(0.5).right, None),
    "f3_fifth": lambda: (0 < _one(0.2).right < 0.01, None),
    "f3_050": lambda: (_one(0.2, 0.5).right, None),
    "f3_060": lambda: (_one(0.2, 0.6).right, None),
    "f3_threshold_050": lambda: _threshold(0.2, 0.5),
    "f3_threshold_060": lambda: _threshold(0.2, 0.6),
    "t8_posterior": lambda: _both(lambda mode: count_posterior(mode)[0]),
    "t8_x2": lambda: _both(lambda mode: count_posterior(mode)[1][1]),
    "f4_corrected": lambda: _masses("corrected"),
    "f4_spoiled": lambda: _masses("spoiled"),
    "f4_net": lambda: _masses("net"),
    "f4_mass": lambda: (decision_masses(design(), 1, p=0.5, box=BOX).covered > 0.99,) * 2,
    "f5_limit": lambda: _both(lambda mode: right(mode, 10)[0]),
    "f5_outlier": lambda: _both(
        lambda mode: all(right(mode, 1)[0] > right(mode, x)[0] + 0.001 for x in (2, 3, 5, 10))
    ),
    "f6_limit": lambda: (right("exact", 1, 100.0)[0], _literal_limit()),
    "f6_lessens": lambda: _both(_lessens),
    "f7_step": _steps,
}
"""Claim -> what the stated model gives, what the literal sampler gives (None where there is no sampler involved)."""


def rounds_to(value: float, number: float, half_unit: float) -> bool:
    """Whether a value, rounded to the printed places, is the printed number."""
    return abs(value - number) <= half_unit * (1 + 1e-9)


def cuts_to(value: float, number: float, half_unit: float) -> bool:
    """Whether a value, cut off at the printed places, is the printed number."""
    return 0 <= value - number < 2 * half_unit and not math.isclose(value, number + 2 * half_unit)
