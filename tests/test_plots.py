import numpy as np
import pytest
from matplotlib.figure import Figure

from adversary import Release, load, run
from adversary.diagnostics import compare
from adversary.errors import AdversaryError
from adversary.plots import plot_agreement, plot_count_posterior, plot_prior_posterior, plot_risks

RELEASE = Release.from_counts({"block": 2, "block_group": 1, "rest": -1}, rho="0.1", groups={"rest": 27})


@pytest.fixture(scope="module")
def exact():
    return run(load("two_level"), RELEASE, draws=0)


def test_bars_of_prior_and_posterior_have_the_heights_of_the_probabilities(exact):
    ax = plot_prior_posterior(exact)
    heights = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(heights, [0.5, 0.5, 1 - exact.posterior, exact.posterior], rtol=1e-12)
    assert ax.get_xlabel() == "present"


def test_counts_are_drawn_as_bars_at_whole_numbers(exact):
    ax = plot_count_posterior(exact, "elsewhere")
    centres = np.array([bar.get_x() + bar.get_width() / 2 for bar in ax.patches])
    np.testing.assert_allclose(centres, np.round(centres), atol=1e-12)
    heights = np.array([bar.get_height() for bar in ax.patches])
    exact_p = exact.values("exact", "elsewhere")
    np.testing.assert_allclose(heights, exact_p[: len(heights)], rtol=1e-12)
    assert exact_p[len(heights) :].sum() < 1e-3
    with pytest.raises(AdversaryError, match="it has elsewhere"):
        plot_count_posterior(exact, "nothing")


def test_agreement_draws_one_point_a_sampled_variable_with_an_exact_mean():
    comparison = compare(load("two_level"), RELEASE, ("exact", "gibbs"), seed=1, draws=500)
    ax = plot_agreement(comparison)
    drawn = [x for line in ax.containers for x in line.lines[0].get_xdata()]
    wanted = [r.difference for r in comparison.rows if r.sampler == "gibbs" and np.isfinite(r.difference)]
    np.testing.assert_allclose(drawn, wanted)


def test_risks_count_every_target_once_on_the_given_axes():
    figure = Figure()
    mine = figure.add_subplot()
    risk, noisy = np.array([0.9, 1.1, 1.2, 1.1]), np.array([-1, 3, 5, 3])
    ax = plot_risks(risk, noisy, threshold=1.15, ax=mine)
    assert ax is mine
    assert sum(bar.get_height() for bar in ax.patches) == 4
    right = figure.axes[-1]
    np.testing.assert_allclose(np.sort(right.lines[0].get_ydata()), np.sort(risk))
    assert any(np.allclose(line.get_ydata(), 1.15) for line in right.lines)


def test_a_figure_touches_no_global_state(exact):
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    before, open_before = dict(mpl.rcParams), plt.get_fignums()
    plot_prior_posterior(exact)
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == open_before


def test_the_frontier_draws_every_split_at_its_noise_and_risk():
    from adversary.plots import plot_frontier
    from adversary.risk import TwoLevelDesign, two_level_frontier

    design = TwoLevelDesign(sigma2=1.0, group_sigma2=1.0, others=10)
    points = two_level_frontier(design, 5, 0.5, [0.2, 0.5, 0.8], p=0.1)
    ax = plot_frontier(points)
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [p.block_sd for p in points])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [p.risk for p in points])
    assert len(ax.lines[1].get_xdata()) == sum(p.efficient for p in points)
