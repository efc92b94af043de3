import dataclasses
import math

import numpy as np
import pytest

from adversary.errors import ModelError, UnsupportedModelError
from adversary.privacy import discrete_gaussian as dg
from adversary.risk.expected import expected_one_level
from adversary.risk.two_level import TwoLevelDesign, expected_two_level, two_level_log_odds

SMALL = TwoLevelDesign(sigma2=0.5, group_sigma2=0.8, others=3)


def _brute(design, total, p, here, half_credit=False):
    """Triple sum of the definition, the rest's true count summed inside, nothing cleverly arranged."""
    s1, s2, s3 = design.sigma2, design.group_sigma2, design.summed_sigma2
    n1, n2, n3 = (
        np.arange(-math.ceil(9 * math.sqrt(s)), math.ceil(9 * math.sqrt(s)) + 1) for s in (s1, s2, s3)
    )
    y = np.arange(-200 if design.mode == "integer" else 0, total + 200)

    def rest_noise(n):
        return dg.sum_log_pmf(n, s1, design.others) if design.noise == "exact" else dg.log_pmf(n, s3)

    prior = np.zeros(y.size) if design.log_rest_prior is None else design.log_rest_prior(y)
    mean = right = 0.0
    for j, w3 in zip(n3, np.exp(rest_noise(n3)), strict=True):
        read = rest_noise((total - here + j) - y) + prior
        for i, w2 in zip(n2, np.exp(dg.log_pmf(n2, s2)), strict=True):
            by_k = [np.logaddexp.reduce(read - (total + i - k - y) ** 2 / (2 * s2)) for k in (0, 1)]
            odds = math.log(p / (1 - p)) + by_k[1] - by_k[0] + (2 * (n1 + here) - 1) / (2 * s1)
            yes = np.where(abs(odds) < 1e-9, 0.5 if half_credit else 0.0, odds > 0)
            w = w2 * w3 * np.exp(dg.log_pmf(n1, s1))
            mean += float(w @ (1 / (1 + np.exp(-odds))))
            right += float(w @ (yes if here else 1 - yes))
    return mean, right


def _poisson(n):
    return np.array([k * math.log(2.0) - math.lgamma(k + 1) for k in n]) if n.min() >= 0 else np.zeros(n.size)


@pytest.mark.parametrize(
    "design",
    [
        SMALL,
        dataclasses.replace(SMALL, mode="integer"),
        dataclasses.replace(SMALL, noise="exact"),
        dataclasses.replace(SMALL, log_rest_prior=_poisson),
        TwoLevelDesign(sigma2=0.5, group_sigma2=0.5, others=4),
        TwoLevelDesign(sigma2=0.05, group_sigma2=0.05, others=10),
    ],
)
@pytest.mark.parametrize("truth", ["present", "absent"])
def test_expected_risk_equals_the_triple_sum_of_the_definition(design, truth):
    for total, p in ((1, 0.5), (4, 0.1)):
        mean, right = _brute(design, total, p, int(truth == "present"))
        found = expected_two_level(design, total, p=p, truth=truth)
        assert found.posterior == pytest.approx(mean, rel=1e-11)
        assert found.right == pytest.approx(right, abs=2e-11)
        assert found.left_out_bound <= 1e-12


def test_ties_carry_five_percent_of_the_mass_and_are_reported():
    """Off the constraint a tie is 5 (2a - 1) + 2 (b - y) - 1 = 0 here; the spec's 7.3 % mixes two centres."""
    n = np.arange(-30, 31)
    own, rest = np.exp(dg.log_pmf(n, 0.5)), np.exp(dg.log_pmf(n, 2.0))
    a, b, y = np.meshgrid(n + 1, n, n - 1, indexing="ij")
    on_tie = 5 * (2 * a - 1) + 2 * (b - y) - 1 == 0
    tied = float((own[:, None, None] * own[None, :, None] * rest)[on_tie].sum())
    assert tied == pytest.approx(0.0470, abs=1e-4)
    design = TwoLevelDesign(sigma2=0.5, group_sigma2=0.5, others=4)
    strict = expected_two_level(design, 40, p=0.5)
    half = expected_two_level(design, 40, p=0.5, ties="half")
    assert strict.near_tie_mass == pytest.approx(tied, rel=1e-9)
    assert half.right - strict.right == pytest.approx(strict.near_tie_mass / 2)
    assert half.right == pytest.approx(_brute(design, 40, 0.5, 1, half_credit=True)[1], abs=1e-11)


def test_without_a_group_count_the_answer_tends_to_one_level():
    """The model returns to the one-level answer as rho2 goes to 0, the literal sampler does not."""
    design = TwoLevelDesign(sigma2=2.0, group_sigma2=4e4, others=3)
    alone = expected_one_level(2.0, p=0.2).posterior
    assert expected_two_level(design, 200, p=0.2, tolerance=1e-6).posterior == pytest.approx(alone, rel=2e-3)


def test_the_averages_over_a_flat_rest_give_back_the_prior():
    """Off the constraint both truths have the same law of rests, so p E1 + (1 - p) E0 = p."""
    found = expected_two_level(dataclasses.replace(SMALL, mode="integer"), 5, p=0.03, truth="average")
    assert found.posterior == pytest.approx(0.03, rel=1e-12)


def test_risk_tends_to_exp_twice_the_effective_information_as_the_prior_vanishes():
    design = TwoLevelDesign(sigma2=2.0, group_sigma2=1.0, others=3, mode="integer")
    effective = 1 / 4.0 + 1 / (2 * 1.0 + 2 * 6.0)
    assert expected_two_level(design, 5, log_odds=-27.0).risk == pytest.approx(
        math.exp(2 * effective), rel=1e-7
    )


def test_what_the_tolerance_leaves_out_is_what_it_says():
    fine = expected_two_level(SMALL, 3, p=0.3, tolerance=1e-15)
    for tolerance in (1e-3, 1e-6, 1e-9):
        coarse = expected_two_level(SMALL, 3, p=0.3, tolerance=tolerance)
        assert coarse.left_out_bound <= tolerance
        assert abs(coarse.posterior - fine.posterior) <= coarse.left_out_bound
        assert abs(coarse.right - fine.right) <= coarse.left_out_bound


def test_exceedance_and_quantile_equal_the_sum_over_all_atoms():
    found = expected_two_level(SMALL, 2, p=0.3, tolerance=1e-8)
    ratio, mass = found.atoms(limit=10**7)
    assert found.exceedance(1.2) == pytest.approx(mass[ratio > 1.2].sum(), abs=1e-12)
    assert found.quantile(0.9) == pytest.approx(ratio[np.searchsorted(np.cumsum(mass), 0.9)], rel=1e-9)
    assert ratio @ mass == pytest.approx(found.risk, rel=1e-12)


def test_releases_far_from_every_truth_are_read_by_logarithms():
    """The box of products underflows; the log-sum-exp does not: by brute force in 60 digits."""
    import mpmath as mp

    design = TwoLevelDesign(sigma2=0.3, group_sigma2=0.2, others=2)
    odds = two_level_log_odds(design, np.array([0]), np.array([60]), np.array([-40]), p=0.5)[0, 0, 0]
    mp.mp.dps = 60
    term = [
        mp.fsum(
            mp.exp(-(mp.mpf(60 - k - y) ** 2) / mp.mpf(0.4) - mp.mpf(-40 - y) ** 2 / mp.mpf(1.2))
            for y in range(200)
        )
        for k in (0, 1)
    ]
    wanted = float(mp.log(term[1]) - mp.log(term[0]) - 1 / mp.mpf(0.6))
    assert odds == pytest.approx(wanted, rel=1e-12)


def test_a_simulation_of_the_mechanism_agrees_within_its_error():
    rng = np.random.default_rng(11)
    n, total, p = 4000, 2, 0.4
    design = TwoLevelDesign(sigma2=1.0, group_sigma2=1.0, others=2)
    found = expected_two_level(design, total, p=p)
    x1, x2 = 1 + dg.sample(1.0, n, rng), total + dg.sample(1.0, n, rng)
    y1 = total - 1 + dg.sample(2.0, n, rng)
    y = np.arange(0, 60)
    by_k = [
        np.logaddexp.reduce(-((x2[:, None] - k - y) ** 2) / 2 - (y1[:, None] - y) ** 2 / 4, axis=1)
        for k in (0, 1)
    ]
    odds = math.log(p / (1 - p)) + by_k[1] - by_k[0] + (2 * x1 - 1) / 2
    posterior = 1 / (1 + np.exp(-odds))
    assert abs(posterior.mean() - found.posterior) < 4 * posterior.std() / math.sqrt(n)
    assert abs((odds > 1e-9).mean() - found.right) < 4 * math.sqrt(found.right * (1 - found.right) / n)


def test_drawn_exactly_and_read_approximately_lies_off_both_for_narrow_noise():
    base = TwoLevelDesign(sigma2=0.25, group_sigma2=0.5, others=5)
    rights = {
        noise: expected_two_level(dataclasses.replace(base, noise=noise), 6, p=0.4).right
        for noise in ("approximate", "exact", "mixed")
    }
    assert len({round(v, 6) for v in rights.values()}) >= 2
    assert rights["mixed"] <= rights["exact"] + 1e-2


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"sigma2": 0.0}, ModelError, "sigma2 must be positive"),
        ({"group_sigma2": math.inf}, ModelError, "group_sigma2 must be positive"),
        ({"others": 0}, ModelError, "only child"),
        ({"mode": "gibbs"}, ModelError, "mode must be one of"),
        ({"mode": "literal", "noise": "exact"}, UnsupportedModelError, "replicates the paper"),
    ],
)
def test_impossible_designs_are_refused(change, kind, message):
    with pytest.raises(kind, match=message):
        dataclasses.replace(SMALL, **change)


def test_a_present_target_in_an_empty_group_is_refused():
    with pytest.raises(ModelError, match="give at least 1"):
        expected_two_level(SMALL, 0, p=0.5)
    assert expected_two_level(SMALL, 0, p=0.5, truth="absent").right > 0.5


def test_releases_that_are_no_runs_are_refused():
    run = np.array([0])
    with pytest.raises(ModelError, match="consecutive"):
        two_level_log_odds(SMALL, np.array([0, 2]), run, run, p=0.5)


def test_a_prior_that_allows_no_rest_is_refused():
    impossible = dataclasses.replace(SMALL, log_rest_prior=lambda n: np.full(n.size, -np.inf))
    with pytest.raises(ModelError, match="allows no count"):
        expected_two_level(impossible, 2, p=0.5)


def test_every_count_of_persons_elsewhere_speaks_against_the_target():
    run = np.arange(-20, 21)
    odds = two_level_log_odds(SMALL, np.array([1]), np.arange(-3, 8), run, p=0.5)[0]
    assert np.all(np.diff(odds, axis=1) <= 1e-12)
    assert np.all(np.diff(odds, axis=0) >= -1e-12)
