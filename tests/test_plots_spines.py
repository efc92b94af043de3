"""Figures about spines: what the artists hold is what the tables say."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from adversary.geography.accuracy import Accuracy, AccuracyRow
from adversary.geography.spine import Spine
from adversary.plots.spines import plot_entity_distances, plot_spine_accuracy, plot_spine_risk
from adversary.spine_risk import UniquePerson, spine_risk

ROWS = (
    AccuracyRow("conventional", "county", 3, 1.9, 1.9, 2.1),
    AccuracyRow("conventional", "place", 24, 107.0, 100.0, 148.0),
    AccuracyRow("optimised", "county", 3, 2.1, 2.1, 2.2),
    AccuracyRow("optimised", "place", 24, 2.5, 2.4, 3.9),
)


def test_accuracy_has_a_point_at_the_mean_and_a_line_to_the_largest():
    ax = plot_spine_accuracy(Accuracy(ROWS, {}))
    assert [line.get_label() for line in ax.lines] == ["conventional", "optimised"]
    assert ax.lines[0].get_xdata().tolist() == [1.9, 107.0]
    assert ax.lines[1].get_xdata().tolist() == [2.1, 2.5]
    ends = [segment[:, 0].tolist() for c in ax.collections for segment in c.get_segments()]
    assert ends == [[1.9, 2.1], [107.0, 148.0], [2.1, 2.2], [2.5, 3.9]]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["county", "place"]
    assert ax.get_xscale() == "log"
    exact = tuple(AccuracyRow(name, "state", 1, 0.0, 0.0, 0.0) for name in ("conventional", "optimised"))
    assert plot_spine_accuracy(Accuracy((*exact, *ROWS), {})).lines[0].get_xdata().tolist() == [1.9, 107.0]
    only = plot_spine_accuracy(Accuracy(ROWS, {}), kinds=["place"])
    assert only.lines[0].get_xdata().tolist() == [107.0]


def test_risk_steps_down_from_all_blocks_to_the_riskiest():
    mixes = {"tract": {"total": 1}, "block": {"total": 1}}
    table = {"tract": ["1", "1", "2"], "block": ["11", "12", "21"]}
    spine = Spine.from_blocks(table, {"tract": "1/2", "block": "1/2"})
    risk = spine_risk(spine, mixes, 1, UniquePerson("total", prior=0.1), "mine")
    mine = Figure().add_subplot()
    ax = plot_spine_risk([risk], what="risk", ax=mine)
    assert ax is mine
    x, y = ax.lines[0].get_xdata(), ax.lines[0].get_ydata()
    np.testing.assert_array_equal(x, np.sort(risk.risk))
    np.testing.assert_allclose(y, [1, 2 / 3, 1 / 3])
    for value in (x[0], x[-1]):
        at = y[np.searchsorted(x, value, side="left")]
        assert at == pytest.approx((risk.risk >= value).mean())
    assert "prior 0.1" in ax.get_title(loc="left")
    assert "R = averaged posterior / prior" in ax.get_xlabel()


def test_distances_are_one_point_an_entity_and_counted_by_side():
    before, after = {"A": 10, "B": 3, "C": 4, "D": 1}, {"A": 2, "B": 5, "C": 4, "D": 1}
    ax = plot_entity_distances(before, after, labels=("old", "new"), what="place")
    points = {
        line.get_label(): list(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in ax.lines[1:]
    }
    assert points == {
        "nearer: 1": [(10.0, 2.0)],
        "further: 1": [(3.0, 5.0)],
        "as before: 2": [(4.0, 4.0), (1.0, 1.0)],
    }
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("distance, old spine", "distance, new spine")
