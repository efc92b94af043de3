"""Shares of configurations an adversary assumes: they add up to what was put in."""

from __future__ import annotations

import numpy as np
import pytest

from adversary.errors import ModelError
from adversary.reconstruction.beliefs import BEDROOMS_FLAT, attacker_shares, bedrooms_given_size
from adversary.reconstruction.households import (
    CENSUS_ATTRIBUTES,
    OVER_LIMIT,
    SUBSIDISED,
    household_configurations,
)
from adversary.reconstruction.synthetic import (
    BEDROOMS_LOOSE,
    BEDROOMS_RIGHT_SIZED,
    BEDROOMS_TO_NEED,
    StateShape,
    synthetic_state,
)

TABLE = household_configurations(properties=2)
STATE = synthetic_state(StateShape(blocks=40), seed=3)
CENSUS = STATE.shares(TABLE)


@pytest.mark.parametrize(
    "bedrooms", [BEDROOMS_FLAT, bedrooms_given_size(), bedrooms_given_size(BEDROOMS_LOOSE, 0.2)]
)
def test_what_the_sample_shows_is_kept_and_the_rest_is_as_assumed(bedrooms):
    p = attacker_shares(TABLE, CENSUS, subsidised=0.3, bedrooms=bedrooms)
    assert p.sum() == pytest.approx(1.0)
    cell, cells = TABLE.cells(list(CENSUS_ATTRIBUTES))
    merged = np.bincount(cell, p)
    sample = STATE.sample / STATE.sample.sum()
    np.testing.assert_allclose(cells.carry(sample, STATE.census), merged, atol=1e-15)
    its = TABLE.mask(SUBSIDISED)
    assert p[its].sum() == pytest.approx(0.3)
    homes = [p[TABLE.mask({"property": home})].sum() for home in ("1", "2")]
    assert homes[0] == pytest.approx(homes[1])
    size = TABLE.number("size")
    for z in range(1, 8):
        of_size = its & (size == z)
        found = [
            p[of_size & TABLE.mask({"bedrooms": b})].sum() / p[of_size].sum() for b in ("0-1", "2", "3+")
        ]
        np.testing.assert_allclose(found, np.asarray(bedrooms)[z - 1], atol=1e-12)


@pytest.mark.parametrize("within", [BEDROOMS_RIGHT_SIZED, BEDROOMS_TO_NEED, BEDROOMS_LOOSE])
def test_the_share_over_the_limit_is_the_one_asked_for(within):
    p = attacker_shares(TABLE, CENSUS, bedrooms=bedrooms_given_size(within, 0.05))
    large = TABLE.mask(SUBSIDISED) & (TABLE.number("size") >= 3)
    assert p[TABLE.mask(OVER_LIMIT)].sum() / p[large].sum() == pytest.approx(0.05)
    none = attacker_shares(TABLE, CENSUS, bedrooms=bedrooms_given_size(within, 0.0))
    assert none[TABLE.mask(OVER_LIMIT)].sum() == 0
    assert (attacker_shares(TABLE, CENSUS)[TABLE.mask(OVER_LIMIT) & (CENSUS > 0)] > 0).all()


def test_subsidy_may_depend_on_the_household():
    large = (TABLE.number("size") >= 3) * 0.8 + 0.1
    p = attacker_shares(TABLE, CENSUS, subsidised=large)
    its = TABLE.number("size") >= 3
    assert p[its & TABLE.mask(SUBSIDISED)].sum() / p[its].sum() == pytest.approx(0.9)


def test_beliefs_that_are_none_are_refused():
    bad = [
        {"subsidised": 1.2},
        {"subsidised": [0.1, 0.2]},
        {"bedrooms": ((0.5, 0.5, 0.5),) * 7},
        {"bedrooms": np.full((7, 2), 0.5)},
    ]
    for options in bad:
        with pytest.raises(ModelError, match="probabilities"):
            attacker_shares(TABLE, CENSUS, **options)
    for shares in (CENSUS[1:], -CENSUS, CENSUS * 0, CENSUS * np.nan):
        with pytest.raises(ModelError, match="census shares"):
            attacker_shares(TABLE, shares)
    with pytest.raises(ModelError, match="violating"):
        bedrooms_given_size(violating=2)
    inside = TABLE.select(SUBSIDISED)
    with pytest.raises(ModelError, match="positive share"):
        attacker_shares(inside, np.ones(len(inside)), subsidised=0.0)
