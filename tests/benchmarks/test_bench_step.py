"""GridGibbs against PyMC's default step on a wide integer prior, both in one run, both held to the exact
answer.

Not in the default run: ``pytest tests/benchmarks/test_bench_step.py -s``. Effective draws of ``y`` per CPU
second of sampling; steps are compiled before the clock starts.
"""

from __future__ import annotations

import logging
import time

import arviz as az
import numpy as np
import pymc as pm
import pytest

from adversary.distributions import DiscreteGaussian
from adversary.samplers.grid_gibbs import GridGibbs

PROMISED = 30

# the default step's own: it overflows on its way from the middle of the support
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def model_b(upper):
    with pm.Model() as model:
        b = pm.Bernoulli("b", 0.5)
        y = pm.DiscreteUniform("y", 0, upper)
        DiscreteGaussian("x1", 4 + b, sigma2=5.0, observed=6)
        DiscreteGaussian("x2", 4 + b + y, sigma2=2.5, observed=66)
        DiscreteGaussian("y1", y, sigma2=50.0, observed=57)
    return model


def exact_rest():
    y = np.arange(400)
    w = sum(np.exp(-((6 - k) ** 2) / 10 - (66 - k - y) ** 2 / 5 - (57 - y) ** 2 / 100) for k in (4, 5))
    return (w * y).sum() / w.sum()


def effective_per_second(steps, *, seed, draws=4_000, tune=1_000, chains=4):
    """Return (effective draws of y per CPU second, mean, its standard error)."""
    with (model := model_b(2_000)):
        made = steps(model)
        start = time.process_time()
        tree = pm.sample(
            draws,
            tune=tune,
            chains=chains,
            cores=1,
            step=made,
            random_seed=seed,
            progressbar=False,
            compute_convergence_checks=False,
        )
        seconds = time.process_time() - start
    y = tree["posterior"]["y"].astype(float)
    return float(az.ess(y)) / seconds, float(y.mean()), float(az.mcse(y))


def test_grid_gibbs_gives_thirty_times_the_effective_draws_of_the_default():
    logging.getLogger("pymc").setLevel(logging.ERROR)
    ours, theirs = [], []
    for seed in range(3):  # interleaved: the machine's load falls on both
        rate, mean, error = effective_per_second(lambda m: GridGibbs([m["b"], m["y"]], model=m), seed=seed)
        assert abs(mean - exact_rest()) < 4 * error
        ours.append(rate)
        theirs.append(
            effective_per_second(
                lambda m: [pm.BinaryGibbsMetropolis([m["b"]]), pm.Metropolis([m["y"]])], seed=seed
            )[0]
        )
    ratio = np.median(ours) / np.median(theirs)
    print(f"effective draws of y per CPU second: GridGibbs {ours}, default {theirs}, ratio {ratio:.0f}")
    assert ratio >= PROMISED
