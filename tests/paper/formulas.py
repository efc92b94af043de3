"""The reference numbers, and the answer of the risk modules to each id that concerns them."""

import json
import os
from fractions import Fraction
from pathlib import Path

import numpy as np

from adversary.privacy import discrete_gaussian as dg
from adversary.risk import approximation, decisions, levels, measures
from adversary.risk.expected import expected_one_level
from adversary.risk.two_level import TwoLevelDesign, expected_two_level, two_level_log_odds
from adversary.samplers.leaf_prior import LeafPrior
from adversary.samplers.path import UpperMessage, path_log_odds
from adversary.samplers.tree import solve_tree

OURS = Path(__file__).parents[1] / "reference"
FOLDER = Path(os.environ.get("ADVERSARY_REFERENCE", OURS))
FOLDER = FOLDER if (FOLDER / "kazan_reiter.json").is_file() else OURS
ENTRIES = {e["id"]: e for e in json.loads((FOLDER / "kazan_reiter.json").read_text())}
# Table 2 at rho = 2.56: noise of a block and of an optimised block group
BLOCK, GROUP = (0.5 / float(Fraction(rho)) for rho in ("1666368/16793603", "103534592/420045025"))
BOX = ((-3, 5), (-30, 30))


def probability(text):
    return float(Fraction(text)) if isinstance(text, str) else float(text)


def _design(a, mode="exact", **more):
    return TwoLevelDesign(
        sigma2=0.5 / a["rho1"], group_sigma2=0.5 / a["rho2"], others=a["d"], mode=mode, **more
    )


def _word(name, words, default):
    return next((w for w in words if f"_{w}" in name), default)


def _one_release(name, a):
    """Log-odds of one two-level release."""
    mode = _word(name, ("literal", "integer"), "exact")
    design = _design(a, mode, noise="exact" if name.startswith("noise_exact") else "approximate")
    release = [np.array([n]) for n in (a["xstar1"] - a["c"], a["xstar2"] - a["c"], a["ystar"])]
    return float(two_level_log_odds(design, *release, p=probability(a["p"]))[0, 0, 0])


def _single(name, a):
    sigma2 = a["sigma2"] if "sigma2" in a else 0.5 / a["rho1"]
    p = probability(a["p"])
    prior = measures.prior_log_odds(p)
    kind = name.split("_")[1]
    if name.startswith(("thr_", "f3_thr", "ext_thr")):
        return int(measures.decision_threshold(prior, sigma2))
    if "xstar" in a:
        log_odds = measures.one_level_log_odds(a["xstar"], a["c"], sigma2, prior)
        if name.startswith("risk_"):
            return float(measures.risk_ratio(log_odds, prior))
        if kind == "logodds":
            return float(log_odds)
        return float(
            measures.log_posterior(log_odds)[0] if kind == "logpost" else measures.posterior(log_odds)
        )
    answer = expected_one_level(sigma2, p=p, truth="absent" if kind == "E0" else "present")
    if name.startswith(("f3_Pc_p", "f3_logPc", "ext_logPc")):
        return answer.log_right
    if name.startswith(("f3_P", "alt_Pc")):
        return answer.right
    return answer.risk if kind.startswith("R") else answer.posterior


def _figure4(name, a):
    mode = _word(name, ("literal", "integer", "exact"), "exact")
    design = TwoLevelDesign(sigma2=BLOCK, group_sigma2=GROUP, others=27, mode=mode)
    if "thr" in name:
        block = int("thr1" in name)
        rest = np.arange(-60, 61)
        last = decisions.decision_thresholds(design, block, np.array([a["xstar2"]]), rest, p=0.5)[0]
        if block == 0:
            return last
        return -60 if last is None else (None if last == 60 else last + 1)
    if name.startswith("mc_"):
        masses = decisions.sampled_decision_masses(design, 1, a["draws"], p=0.5, box=BOX)
    else:
        masses = decisions.decision_masses(design, 1, p=0.5, box=None if name.endswith("full") else BOX)
    part = name.split("_")[1]
    return {"up": masses.corrected, "down": masses.spoiled, "net": masses.net, "boxmass": masses.covered}[
        part
    ]


def _posterior_of_tree(name, a):
    """Ids that the whole tree answers with two leaves, target and rest."""
    priors = {"pois": LeafPrior.poisson, "geom": LeafPrior.geometric}
    kind = name.removeprefix("s4_")[:4]
    rest = LeafPrior.flat()
    if name.startswith("s4_"):
        rest = priors[kind](float(name.split("poisson")[-1].split("geom_q")[-1]))
    own = 0.5 / a["rho1"]
    solved = solve_tree(
        [-1, 0, 0],
        [a["xstar2"], a["xstar1"], a["ystar"]],
        [0.5 / a["rho2"], own, a["d"] * own],
        [LeafPrior.tabulated([0.5, 0.5]), rest],
        prior_of=[0, 1],
    )
    if name.startswith("s4_"):
        return float(solved.mean[1])
    if name.endswith("mean"):
        return float(solved.mean[0])
    support, p = solved.pmf(0)
    return float(p[support == int(name.split("_")[-1])][0])


def _proper_rest(name, a):
    """S4: priors of the rest that are given as functions."""
    if "unif" in name:
        top = a["N"]

        def log_prior(n):
            return np.where(n <= top, 0.0, -np.inf)

        # X2 uniform on {X1..N}: the rest ends at N - X1, and the mass differs by (N + 1) / N
        design = _design(a)
        b, y = a["xstar2"], a["ystar"]
        n = np.arange(0, min(top, 400) + 1)
        log_f = -((y - n) ** 2) / (2 * design.summed_sigma2)
        present = np.logaddexp.reduce((log_f - (b - 1 - n) ** 2 / (2 * design.group_sigma2))[n <= top - 1])
        absent = np.logaddexp.reduce(log_f - (b - n) ** 2 / (2 * design.group_sigma2))
        own = (2 * a["xstar1"] - 1) / (2 * design.sigma2)
        return float(measures.posterior(own + present - absent + np.log((top + 1) / top)))
    from scipy.special import gammaln

    def log_prior(n):
        return gammaln(n + 0.5) - gammaln(n + 1.0) + n * np.log(1.0 / 1.5)

    release = [np.array([v]) for v in (a["xstar1"], a["xstar2"], a["ystar"])]
    log_odds = two_level_log_odds(_design(a, log_rest_prior=log_prior), *release, p=0.5)
    return float(measures.posterior(log_odds)[0, 0, 0])


def _tree_of_nodes(name, a):
    counts = [a[k] for k in ("root", "A", "B", "t", "b1", "b2", "b3", "b4")]
    rho = [a["rho_root"], a["rho_bg"], a["rho_bg"], *[a["rho_block"]] * 5]
    prior = LeafPrior.poisson(0.5) if "poisson" in name else LeafPrior.flat()
    solved = solve_tree([-1, 0, 0, 1, 1, 1, 2, 2], counts, [0.5 / r for r in rho], prior, known=0)
    return float(solved.log_likelihood_ratio[0])


def _chain(name, a):
    sigma2 = [0.5 / r for r in a["rho"]]
    rest = [d * s for d, s in zip(a["d"], sigma2, strict=False)]
    alone = path_log_odds(a["xstar"], sigma2, a["ystar"], rest)
    shared = UpperMessage(a["xstar"][1:], sigma2[1:], a["ystar"][1:], rest[1:])
    assert abs(shared.block_log_odds(a["xstar"][0], a["ystar"][0], sigma2[0], rest[0])[0] - alone) < 1e-12
    return alone


def answer(name):
    """What the risk modules say to an id; KeyError if it is none of theirs."""
    a = ENTRIES[name]["inputs"]
    start = name.split("_")[0]
    if name.startswith("R_limit"):
        return expected_one_level(0.5 / a["rho1"], log_odds=-60.0).risk
    if name.startswith("f3_break"):
        # the place where the threshold passes m: one at each side
        rho = ENTRIES[name]["exact_value"]
        prior = measures.prior_log_odds(probability(a["p"]))
        sides = [int(measures.decision_threshold(prior, 0.5 / (rho * s))) for s in (1 - 1e-9, 1 + 1e-9)]
        assert sides == [a["m"] + 1, a["m"]]
        return float(-prior / (2 * a["m"] - 1))
    if name.startswith("ext_shift") or start in {"post", "risk", "thr", "ext", "alt", "t5", "f2", "f3"}:
        return _single(name, a)
    if name.startswith("t4_"):
        return float(np.exp(dg.log_pmf(a["xstar"] - a["x"], 0.5 / a["rho1"])))
    if name.startswith("hier_E_"):
        mode = name.split("_")[2]
        return expected_two_level(_design(a, mode), a["x2"], p=probability(a["p"])).posterior
    if start in {"f5", "f5t0", "f6"}:
        truth = "absent" if start == "f5t0" else "present"
        return expected_two_level(
            _design(a, name.split("_")[1]), a["x2"], p=probability(a["p"]), truth=truth
        ).right
    if start in {"f4", "mc"}:
        return _figure4(name, a)
    if start == "f7":
        found = levels.expected_uniqueness([0.5 / r for r in a["rhos"]], p=probability(a["p"]))
        return found.risk if "_R_" in name else found.posterior
    if start == "s13":
        prior = measures.prior_log_odds(probability(a["p"]))
        return float(
            measures.posterior(measures.uniqueness_log_odds(a["xstar"], [0.5 / r for r in a["rhos"]], prior))
        )
    if name.startswith("rho_eff"):
        rho = a.get("rho") or [a["rho1"], a["rho2"]]
        d = a["d"] if isinstance(a["d"], list) else [a["d"]]
        sigma2 = [0.5 / r for r in rho]
        return levels.effective_information(sigma2, [k * s for k, s in zip(d, sigma2, strict=False)])
    if start == "cells3":
        log_p = measures.record_log_posterior(a["a"], 0.5 / a["rho"], np.log(a["prior"]))
        return float(np.exp(log_p)[int(name[-1])])
    if start == "cells2":
        log_p = measures.record_log_posterior(a["a"], 0.5 / a["rho"])
        return float(log_p[0] - log_p[1])  # the id is a log-odds
    if start == "s2":
        found = approximation.assess_sum(0.5 / a["rho1"], a["d"])
        return found.total_variation
    if start == "tree":
        return _tree_of_nodes(name, a)
    if start == "chain":
        return _chain(name, a)
    if name.startswith(("t8_exact", "s4_poisson", "s4_geom")):
        return _posterior_of_tree(name, a)
    if name.startswith(("s4_unif", "s4_negbin")):
        return _proper_rest(name, a)
    if name.startswith("hier_nohier"):
        return float(measures.posterior((2 * (a["xstar1"] - a["c"]) - 1) * a["rho1"]))
    if name.startswith("hier_known"):
        counts = [a["xstar1"], a["xstar2"]]
        return float(
            measures.posterior(measures.uniqueness_log_odds(counts, [0.5 / a["rho1"], 0.5 / a["rho2"]], 0.0))
        )
    if name.startswith(("hier_ext", "noise_")):
        return _one_release(name, a)
    if name.startswith("hier_") and "gibbs" not in name:
        log_odds = _one_release(name, a)
        return log_odds if name.endswith("logodds") else float(measures.posterior(log_odds))
    raise KeyError(name)
