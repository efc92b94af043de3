import math

import numpy as np
import pytest

from adversary.errors import ModelError, UnsupportedModelError
from adversary.privacy import discrete_gaussian as dg
from adversary.risk.expected import expected_one_level
from adversary.risk.record import expected_whole_record


def _brute(log_prior, sigma2, true_cell, top):
    log_prior = np.asarray(log_prior) - np.log(np.exp(log_prior).sum())
    cells = log_prior.size
    half = math.ceil(9 * math.sqrt(sigma2))
    noise = np.arange(-half, half + 1)
    grid = np.meshgrid(*[noise] * cells, indexing="ij")
    weight = np.exp(sum(dg.log_pmf(g, sigma2) for g in grid))
    score = np.stack([log_prior[k] + (grid[k] + (k == true_cell)) / sigma2 for k in range(cells)])
    posterior = np.exp(score - score.max(axis=0))
    posterior /= posterior.sum(axis=0)
    above = sum((score[k] > score[true_cell] + 1e-9).astype(float) for k in range(cells) if k != true_cell)
    equal = sum(
        (abs(score[k] - score[true_cell]) <= 1e-9).astype(float) for k in range(cells) if k != true_cell
    )
    lot = np.clip((top - above) / (equal + 1), 0, 1)
    values = (posterior[true_cell], lot, above + equal < top, above < top, 1 + above + equal / 2)
    return [float((weight * v).sum()) for v in values]


@pytest.mark.parametrize(
    ("log_prior", "sigma2", "true_cell", "top"),
    [
        ([0.0, 0.0], 5.0, 0, 1),
        ([0.0, 0.0, 0.0], 2.0, 1, 2),
        (np.log([0.5, 0.3, 0.2]), 3.0, 2, 2),
        (np.log([0.5, 0.3, 0.2]), 0.3, 0, 1),
        (np.log([0.5, 0.25, 0.25]), 1 / math.log(2), 0, 1),  # ties between cells of different priors
    ],
)
def test_a_record_over_few_cells_equals_the_full_sum(log_prior, sigma2, true_cell, top):
    found = expected_whole_record(sigma2, log_prior=log_prior, true_cell=true_cell, top=top)
    got = [found.posterior, found.top, found.top_strict, found.top_lenient, found.expected_rank]
    np.testing.assert_allclose(got, _brute(log_prior, sigma2, true_cell, top), rtol=1e-11)


def test_two_complementary_cells_double_the_information():
    """Off the lattice's finest scale: the mean posterior is that of one count with twice the information."""
    two = expected_whole_record(8.0, cells=2).posterior
    assert two == pytest.approx(expected_one_level(4.0, p=0.5).posterior, rel=1e-9)


@pytest.mark.parametrize("cells", [864, 2016])
def test_many_cells_agree_with_a_simulation(cells):
    rng = np.random.default_rng(3)
    found = expected_whole_record(1.0, cells=cells, top=20)
    noise = dg.sample(1.0, (1500, cells), rng)
    noise[:, 0] += 1
    score = np.exp(noise - noise.max(axis=1, keepdims=True))
    posterior = score[:, 0] / score.sum(axis=1)
    above = (noise[:, 1:] > noise[:, :1]).sum(axis=1)
    equal = (noise[:, 1:] == noise[:, :1]).sum(axis=1)
    lot = np.clip((20 - above) / (equal + 1), 0, 1)
    for sample, value in (
        (posterior, found.posterior),
        (lot, found.top),
        (1 + above + equal / 2, found.expected_rank),
    ):
        assert abs(sample.mean() - value) < 4.5 * sample.std() / math.sqrt(sample.size)
    assert found.integration_error < 1e-14
    assert found.risk == pytest.approx(found.posterior * cells)


def test_risk_of_a_record_in_many_cells_tends_to_the_single_cells_limit():
    """With K cells of equal prior the risk tends to exp(2 rho), as p does to 0 for one cell."""
    risks = [expected_whole_record(5.0, cells=k).risk for k in (20, 200, 20_000)]
    assert np.all(np.diff(risks) > 0)
    assert risks[-1] == pytest.approx(math.exp(1 / 5.0), rel=1e-4)


def test_the_average_over_true_cells_is_the_priors_average():
    prior = np.array([0.5, 0.3, 0.2])
    single = [expected_whole_record(3.0, log_prior=np.log(prior), true_cell=k).posterior for k in range(3)]
    assert expected_whole_record(3.0, log_prior=np.log(prior)).posterior == pytest.approx(
        prior @ single, rel=1e-12
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "cells or log_prior"),
        ({"cells": 1}, "at least two"),
        ({"cells": 5, "true_cell": 5}, "index below 5"),
        ({"cells": 5, "top": 5}, "between 1 and 4"),
        ({"log_prior": [0.0, -math.inf]}, "finite log priors"),
    ],
)
def test_impossible_records_are_refused(arguments, message):
    with pytest.raises(ModelError, match=message):
        expected_whole_record(1.0, **arguments)


def test_noise_out_of_range_is_refused():
    with pytest.raises(ModelError, match="must be positive"):
        expected_whole_record(0.0, cells=3)
    with pytest.raises(UnsupportedModelError, match="too wide"):
        expected_whole_record(1e8, cells=3)
