"""The explorer's numbers are those of the declared scenarios."""

import math

import numpy as np
import pytest

from adversary import Prior, Release, load, run
from adversary.errors import AdversaryError
from adversary.explore import explored
from adversary.plots import plot_by_count
from adversary.privacy.accounting import epsilon
from adversary.risk import expected_one_level


@pytest.mark.parametrize("convention", ["bounded", "unbounded"])
@pytest.mark.parametrize(
    ("rho", "prior", "block", "known"), [("0.1", 0.5, 2, 0), (0.03, 0.01, -4, 3), (2.0, 0.9, 7, 6)]
)
def test_one_level_is_the_declared_scenario(convention, rho, prior, block, known):
    found = explored(rho=rho, prior=prior, block=block, known=known, convention=convention)
    release = Release.from_counts({"block": block}, rho={"block": str(rho)}, convention=convention)
    asked = load("single_level").assuming(known=known, present=Prior("Bernoulli", p=prior))
    result = run(asked, release)
    assert found.posterior == pytest.approx(result.posterior, rel=1e-10)
    assert found.risk == pytest.approx(result.risk.value, rel=1e-10)
    assert found.decision == ("present" if result.posterior > 0.5 else "absent")


def test_two_levels_are_the_declared_scenario():
    release = Release.from_counts(
        {"block": 3, "block_group": 9, "rest": 5},
        rho={"block": "0.1", "block_group": "0.3", "rest": "0.1"},
        groups={"rest": 12},
    )
    result = run(load("two_level").assuming(known=1, present=Prior("Bernoulli", p=0.2)), release)
    found = explored(rho=0.1, prior=0.2, block=3, known=1, group=(0.3, 9, 5, 12))
    assert found.posterior == pytest.approx(
        result.posterior, abs=1e-6
    )  # the sum's noise is one discrete Gaussian
    assert found.sigma2 == pytest.approx((5.0, 0.5 / 0.3))
    assert found.information == pytest.approx(0.4)
    assert found.epsilon == pytest.approx(float(epsilon("0.4", 1e-10)))


def test_the_ceiling_holds_on_average_and_may_be_exceeded_once():
    found = explored(rho=0.1, prior=0.01, block=8)
    assert found.risk > found.ceiling
    assert expected_one_level(5.0, p=0.01).risk < found.ceiling < min(100, math.exp(0.2))


def test_the_bars_are_the_answers_at_the_other_counts():
    found = explored(rho=0.1, prior=0.3, block=45)
    assert 45 in found.counts  # far out, and yet on the picture
    for block in (-3, 2):
        at = int(np.flatnonzero(found.counts == block)[0])
        assert found.by_count[at] == explored(rho=0.1, prior=0.3, block=block).posterior
    bars = {round(b.get_x() + b.get_width() / 2): b.get_height() for b in plot_by_count(found, 45).patches}
    assert bars == dict(zip(found.counts.tolist(), found.by_count.tolist(), strict=True))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rho": -1}, "must not be negative"),
        ({"prior": 1.0}, "strictly between"),
        ({"known": -1}, "fewer than no one"),
        ({"convention": "x"}, "unbounded"),
    ],
)
def test_senseless_settings_are_refused(wrong, words):
    with pytest.raises(AdversaryError, match=words):
        explored(**{"rho": 0.1, "prior": 0.5, "block": 1} | wrong)
