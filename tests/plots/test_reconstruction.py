"""Figures of reconstruction: what is drawn is what was computed."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from adversary.errors import AdversaryError
from adversary.plots import plot_flagged_blocks, plot_precision_recall, plot_solution_variability
from adversary.reconstruction.linkage import Flags, curve


def test_the_cumulative_line_is_the_share_of_blocks_at_or_below_every_value():
    rng = np.random.default_rng(3)
    shares = np.append(np.round(rng.uniform(0, 1, 40), 1), [0.0, 0.0, np.nan])
    ax = plot_solution_variability({"base tables": shares, "rich tables": np.zeros(5)})
    line = ax.lines[0]
    assert line.get_drawstyle() == "steps-post"
    x, y = line.get_xdata(), line.get_ydata()
    known = shares[~np.isnan(shares)]
    for value in np.unique(known):
        last = y[np.flatnonzero(x == value)[-1]]
        assert last == pytest.approx((known <= value).mean())
    assert y[0] == 0
    assert y[-1] == 1
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["base tables (42 blocks, 1 open)", "rich tables (5 blocks)"]
    assert ax.lines[1].get_ydata().max() == 1
    assert "synthetic households only" in ax.get_title(loc="left")
    assert "synthetic" not in plot_solution_variability({"a": [0.5]}, note="").get_title(loc="left")


def test_blocks_that_are_all_open_give_an_empty_line_and_say_so():
    ax = plot_solution_variability({"all open": [np.nan, np.nan]})
    assert len(ax.lines[0].get_xdata()) == 0
    assert "0 blocks, 2 open" in ax.get_legend().get_texts()[0].get_text()


def test_precision_and_recall_are_those_of_the_curve_and_the_band_holds_every_order_within_ties():
    rng = np.random.default_rng(1)
    score, hit = rng.integers(0, 3, 30), rng.random(30) < 0.3
    its = curve(score, hit)
    ax = plot_precision_recall({"none": its, "swapping 10 %": curve(-score, hit)}, base_rate=hit.mean())
    np.testing.assert_allclose(ax.lines[0].get_xdata(), its.recall)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), its.precision)
    assert ax.lines[2].get_ydata()[0] == pytest.approx(hit.mean())
    band = ax.patches[0].get_xy()
    n = len(its)
    low, high = band[:n], band[n : 2 * n][::-1]
    for _ in range(50):
        order = np.lexsort((rng.random(30), -score))
        hits = np.cumsum(hit[order])
        precision, recall = hits / its.k, hits / hit.sum()
        assert (low[:, 0] - 1e-12 <= recall).all()
        assert (recall <= high[:, 0] + 1e-12).all()
        assert (low[:, 1] - 1e-12 <= precision).all()
        assert (precision <= high[:, 1] + 1e-12).all()
    np.testing.assert_allclose(low[-1], high[-1])


def test_a_mechanism_with_nothing_to_be_found_is_said_and_not_drawn():
    ax = plot_precision_recall({"none": curve([1, 2], [False, False]), "other": curve([], [])})
    assert [len(line.get_xdata()) for line in ax.lines] == [0, 0]
    assert all("nothing to be found" in text.get_text() for text in ax.get_legend().get_texts())


def test_bars_of_flags_stack_to_what_is_flagged_beside_what_is_harmed():
    flags = {
        "none": Flags(10, 10, 18, 40),
        "swapping 10 %": Flags(6, 5, 18, 40),
        "quiet": Flags(0, 0, 18, 40),
    }
    mine = Figure().add_subplot()
    ax = plot_flagged_blocks(flags, ax=mine)
    assert ax is mine
    heights = np.array([bar.get_height() for bar in ax.patches]).reshape(2, 3)
    bottoms = np.array([bar.get_y() for bar in ax.patches]).reshape(2, 3)
    assert heights.sum(axis=0).tolist() == [10, 6, 0]
    assert heights[0].tolist() == bottoms[1].tolist() == [10, 5, 0]
    segments = ax.collections[0].get_segments()
    assert [s[0, 1] for s in segments] == [18, 18, 18]
    assert [text.get_text() for text in ax.texts] == ["100%", "83%", "none"]
    assert [text.get_text() for text in ax.get_xticklabels()] == list(flags)
    assert "synthetic households only" in ax.get_title(loc="left")


def test_what_cannot_be_drawn_is_refused():
    many = {str(i): [0.5] for i in range(8)}
    for call, words in (
        (lambda: plot_solution_variability(many), "8 lines to draw"),
        (lambda: plot_solution_variability({}), "0 lines to draw"),
        (lambda: plot_solution_variability({"a": [1.5]}), "shares of a run from 1.5 to 1.5"),
        (lambda: plot_precision_recall({}), "0 lines to draw"),
        (lambda: plot_flagged_blocks({}), "no mechanism"),
    ):
        with pytest.raises(AdversaryError, match=words):
            call()


def test_no_global_state_is_touched():
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    before, open_before = dict(mpl.rcParams), plt.get_fignums()
    plot_solution_variability({"a": [0.1]})
    plot_flagged_blocks({"a": Flags(1, 1, 1, 1)})
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == open_before
