"""The numbers behind the paper's tables 2, 4, 5, 7, 8 and figures 1 to 7, as columns.

What it is: plain columns (name -> list), one function a table or figure; the same columns are written as CSV and drawn. What
it is not: a drawing (see :mod:`adversary.plots.paper`). Grids are ours where the paper's are not legible.

Held to account by ``tests/test_reproduce.py``.

Source: Kazan & Reiter (arXiv 2204.04253), section 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from adversary.privacy import discrete_gaussian as dg
from adversary.reproduce.values import (
    BOX,
    LEVEL_RHO,
    LEVELS,
    PRIORS,
    QUERY_RHO,
    SIGMA2,
    count_posterior,
    design,
    right,
)
from adversary.risk.expected import expected_one_level
from adversary.risk.levels import expected_uniqueness
from adversary.risk.measures import decide, posterior, prior_log_odds
from adversary.risk.two_level import two_level_log_odds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["FIGURES", "TABLES", "Columns"]

Columns = dict[str, list[Any]]
_BLOCK = SIGMA2["block"]


def table_2() -> Columns:
    """Budgets of the detailed query at each level, exact and rounded, with both conventions of noise."""
    up = LEVELS[::-1]
    return {
        "level": list(up),
        "level_rho": [float(LEVEL_RHO[k]) for k in up],
        "query_rho": [float(QUERY_RHO[k]) for k in up],
        "query_rho_exact": [str(QUERY_RHO[k]) for k in up],
        "sigma2_unbounded": [SIGMA2[k] for k in up],
        "sigma2_bounded": [2 * SIGMA2[k] for k in up],
    }


def _posteriors(noisy: list[int]) -> Columns:
    out: Columns = {"x1_star": list(noisy)}
    for name, p in PRIORS.items():
        odds = prior_log_odds(p) + (2.0 * np.array(noisy) - 1.0) / (2.0 * _BLOCK)
        out[f"posterior_p_{name}"] = posterior(odds).tolist()
        out[f"risk_p_{name}"] = (posterior(odds) / p).tolist()
    return out


def table_4() -> Columns:
    """Posterior and risk at each noisy count, with its probability given either truth."""
    noisy = list(range(-1, 7))
    found = _posteriors(noisy)
    chance = {
        f"probability_given_x1_{x}": np.exp(dg.log_pmf(np.array(noisy) - x, _BLOCK)).tolist() for x in (1, 0)
    }
    return {"x1_star": found.pop("x1_star"), **chance, **found}


def table_5() -> Columns:
    """Averaged posterior and risk, one level."""
    answers = [expected_one_level(_BLOCK, p=p) for p in PRIORS.values()]
    return {
        "p": list(PRIORS),
        "averaged_posterior": [a.posterior for a in answers],
        "averaged_risk": [a.risk for a in answers],
        "probability_right": [a.right for a in answers],
        "averaged_risk_bounded_noise": [expected_one_level(2 * _BLOCK, p=p).risk for p in PRIORS.values()],
    }


def table_7() -> Columns:
    """Truth and release of the worked example."""
    return {
        "count": ["x1 (block)", "x2 (block group)", "y1 (27 other blocks)"],
        "truth": [1, 1, 0],
        "published": [2, 1, -1],
        "sigma2": [_BLOCK, SIGMA2["block_group"], 27 * _BLOCK],
    }


def table_8() -> Columns:
    """Posterior of X1 and X2 given that release: stated model and literal sampler."""
    (p, model), (q, literal) = count_posterior("exact"), count_posterior("literal")
    return {
        "event": ["X1 = 1", *[f"X2 = {k}" for k in range(9)]],
        "model": [p, *[model.get(k, 0.0) for k in range(9)]],
        "literal": [q, *[literal.get(k, 0.0) for k in range(9)]],
    }


def figure_1() -> Columns:
    """Posterior and risk against the noisy count."""
    return _posteriors(list(range(-10, 13)))


def _over_rho(read: Callable[[Any], dict[str, float]], grid: Any) -> Columns:
    out: Columns = {"rho": [float(r) for r in grid]}
    for name, p in PRIORS.items():
        for r in grid:
            for key, value in read(expected_one_level(0.5 / r, p=p)).items():
                out.setdefault(f"{key}_p_{name}", []).append(value)
    return out


def figure_2() -> Columns:
    """Averaged posterior and risk against rho."""
    grid = np.geomspace(0.01, 20.0, 161)
    return _over_rho(lambda a: {"posterior": a.posterior, "risk": a.risk}, grid)


def figure_3() -> Columns:
    """Probability of a right decision against rho: a saw, whose teeth are where the threshold moves."""
    grid = np.unique(np.concatenate([np.linspace(0.01, 5.0, 500), _jumps()]))
    return _over_rho(lambda a: {"right": a.right}, grid)


def _jumps() -> Any:
    """Both sides of every jump: rho = logit(1 - p)/(2m - 1)."""
    at = [float(-prior_log_odds(p)) / (2 * m - 1) for p in PRIORS.values() if p < 0.5 for m in range(1, 60)]
    return np.array([r * s for r in at for s in (1 - 1e-9, 1 + 1e-9) if 0.01 < r < 5.0])


def figure_4() -> Columns:
    """Decisions on each tile: from the block alone, from all counts in the model, in the literal sampler."""
    (g0, g1), (r0, r1) = BOX
    block, group, rest = np.arange(-2, 11), np.arange(g0, g1 + 1), np.arange(r0, r1 + 1)
    shape = (block.size, group.size, rest.size)
    at = [a.ravel().tolist() for a in np.meshgrid(block, group, rest, indexing="ij")]
    mass = np.exp(
        dg.log_pmf(block - 1, _BLOCK)[:, None, None]
        + dg.log_pmf(group - 1, SIGMA2["block_group"])[:, None]
        + dg.log_pmf(rest, 27 * _BLOCK)
    )
    alone = np.broadcast_to(decide((2.0 * block - 1.0) / (2.0 * _BLOCK))[:, None, None], shape)
    out: Columns = {"x1_star": at[0], "x2_star": at[1], "y1_star": at[2], "mass": mass.ravel().tolist()}
    out["alone"] = alone.astype(int).ravel().tolist()
    for word, mode in (("model", "exact"), ("literal", "literal")):
        odds = two_level_log_odds(design(mode), block, group, rest, p=0.5)
        out[word] = decide(odds).astype(int).ravel().tolist()
    return out


def figure_5() -> Columns:
    """Probability of a right decision against the true group count."""
    x2 = list(range(1, 21))
    out: Columns = {"x2": x2}
    for word, mode in (("model", "exact"), ("literal", "literal"), ("no_lower_bound", "integer")):
        out[word] = [right(mode, x)[0] for x in x2]
    out["no_hierarchy"] = [expected_one_level(_BLOCK, p=0.5).right] * len(x2)
    return out


def figure_6() -> Columns:
    """Probability of a right decision against the group's budget; near-ties hang on the rule for ties."""
    grid = np.concatenate([np.geomspace(0.05, 1.0, 16), [1.5, 2, 3, 5, 7, 10, 20, 50, 100]])
    out: Columns = {"rho2": [float(r) for r in grid]}
    for x2 in (1, 10, 100):
        for word, mode in (("model", "exact"), ("literal", "literal")):
            pairs = [right(mode, x2, float(r)) for r in grid]
            out[f"{word}_x2_{x2}"] = [p[0] for p in pairs]
            out[f"{word}_x2_{x2}_near_ties"] = [p[1] for p in pairs]
    out["no_hierarchy"] = [expected_one_level(_BLOCK, p=0.5).right] * len(grid)
    return out


def figure_7() -> Columns:
    """Averaged posterior and risk against the number of levels at which she is unique."""
    noise = [SIGMA2[k] for k in LEVELS[::-1]]
    out: Columns = {"levels": list(range(1, 7))}
    for name, p in PRIORS.items():
        answers = [expected_uniqueness(noise[:n], p=p) for n in range(1, 7)]
        out[f"posterior_p_{name}"] = [a.posterior for a in answers]
        out[f"risk_p_{name}"] = [a.risk for a in answers]
    return out


TABLES: Mapping[str, Callable[[], Columns]] = {
    "table_2": table_2,
    "table_4": table_4,
    "table_5": table_5,
    "table_7": table_7,
    "table_8": table_8,
}
FIGURES: Mapping[str, Callable[[], Columns]] = {
    f"figure_{k}": f
    for k, f in enumerate((figure_1, figure_2, figure_3, figure_4, figure_5, figure_6, figure_7), start=1)
}
