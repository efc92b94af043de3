"""The declared spine against the tree that answers spines of any size: same question, same number."""

import math

import numpy as np
import pytest

from adversary import Prior, Release, load
from adversary.geography.spine import Spine
from adversary.samplers.leaf_prior import LeafPrior
from adversary.samplers.prepared import prepare
from adversary.spine_attack import SpineCounts, attack_block, attack_blocks

ORDER = ("tract", "block_group", "other_groups", "block", "siblings", "cousins")


def both(counts, sigma2, scenario, priors, known, p):
    """Log-odds by the exact engine and by the tree; blocks b0, then siblings, then cousins."""
    kept = {k: s for k, s in sigma2.items() if s != math.inf}
    release = Release.from_counts(
        {k: counts[k] for k in ORDER}, sigma2={**dict.fromkeys(ORDER, math.inf), **kept}
    )
    scenario = scenario.assuming(known=known, present=Prior("Bernoulli", p=p))
    engine = prepare(scenario, release).answer(scenario, release).posterior
    near, far = len(counts["siblings"]), len(counts["cousins"])
    spine = Spine.from_blocks(
        {
            "tract": ["1"] * (1 + near + far),
            "group": ["11"] * (1 + near) + ["12"] * far,
            "block": [f"11{i}" for i in range(1 + near)] + [f"12{i}" for i in range(far)],
        }
    )
    noisy = [counts["tract"], counts["block_group"], counts["other_groups"], counts["block"]]
    s2 = [sigma2["tract"], sigma2["block_group"], sigma2["other_groups"], sigma2["block"]]
    noisy += [*counts["siblings"], *counts["cousins"]]
    s2 += [sigma2["siblings"]] * near + [sigma2["cousins"]] * far
    on = SpineCounts(spine, noisy, s2)
    options = {
        "known": known,
        "prior": p,
        "leaf_prior": [LeafPrior.flat(), *priors],
        "prior_of": range(1 + near + far),
    }
    tree = attack_blocks(on, ["110"], **options).log_odds[0]
    path = attack_block(on, "110", **options).log_odds
    posterior = dict(zip(engine.support.tolist(), engine.p.tolist(), strict=True))
    return math.log(posterior[1] / posterior[0]), tree, path


COUNTS = {"tract": 6, "block_group": 4, "other_groups": 2, "block": 2, "siblings": [1, -1], "cousins": [0, 3]}


@pytest.mark.parametrize(
    ("sigma2", "near", "far"),
    [
        (dict.fromkeys(ORDER, 1.5), None, None),
        ({**dict.fromkeys(ORDER, 1.5), "other_groups": math.inf}, [1.0, 2.5], [0.5, 4.0]),
        ({**dict.fromkeys(ORDER, 2.0), "tract": 0.0}, None, [0.5, 4.0]),
    ],
    ids=["flat", "a group not measured, Poisson", "exact tract"],
)
def test_the_engine_the_tree_and_the_path_give_one_answer(sigma2, near, far):
    scenario = load("on_spine")
    priors = []
    for name, mean, dims in (("elsewhere", near, "sibling"), ("beyond", far, "cousin")):
        if mean is None:
            priors += [LeafPrior.flat()] * 2
        else:
            scenario = scenario.assuming(**{name: Prior("Poisson", mu=np.array(mean), dims=dims)})
            priors += [LeafPrior.poisson(m) for m in mean]
    engine, tree, path = both(COUNTS, sigma2, scenario, priors, known=1, p=0.3)
    assert tree == pytest.approx(engine, abs=1e-10)
    assert path == pytest.approx(engine, abs=1e-10)


def test_another_noise_or_prior_is_another_answer():
    """The agreement above has power: ten per cent on one noise shows."""
    scenario = load("on_spine")
    engine, tree, _ = both(
        COUNTS, dict.fromkeys(ORDER, 1.5), scenario, [LeafPrior.flat()] * 4, known=1, p=0.3
    )
    _, other, _ = both(
        COUNTS,
        {**dict.fromkeys(ORDER, 1.5), "block_group": 1.65},
        scenario,
        [LeafPrior.flat()] * 4,
        known=1,
        p=0.3,
    )
    assert tree == pytest.approx(engine, abs=1e-10)
    assert abs(other - engine) > 1e-3
