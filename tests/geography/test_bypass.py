"""Bypass: path sums are kept exactly; variances grow where the rule fails, and nowhere else."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from adversary.errors import AdversaryError
from adversary.geography.bypass import bypass, bypass_only_children, pure_dp_worthwhile
from adversary.geography.optimize import (
    COUNTY_LEVELS,
    PRIMITIVE_LEVELS,
    CountyBlocks,
    SpineSettings,
    optimize_county,
)
from adversary.geography.spine import Spine


def random_blocks(rng: np.random.Generator) -> CountyBlocks:
    n = int(rng.integers(1, 40))
    tract = rng.integers(0, rng.integers(1, 8), n)
    return CountyBlocks(
        np.array([f"{i:04d}" for i in rng.permutation(n)]),
        np.array([f"{t:02d}" for t in tract]),
        rng.choice(["11111", "22222", "99999"], (n, int(rng.integers(1, 3)))),
        rng.choice(["0", "1"], n, p=[0.8, 0.2]),
        rng.choice(["a", "b"], n),
    )


def random_settings(rng: np.random.Generator) -> SpineSettings:
    primitive = rng.random() < 0.2
    return SpineSettings(
        fanout_cutoff=int(rng.integers(0, 4)),
        entity_threshold=int(rng.integers(0, 4)),
        bypass_cutoff=int(rng.integers(0, 20)),
        mechanism=str(rng.choice(["zcdp", "pure"])),
        tract_groups=bool(rng.random() < 0.5) and not primitive,
        group_type=str(rng.choice(["orig", "even"])),
        code="dhc" if primitive else str(rng.choice(["redist", "dhc"])),
        primitive=primitive,
    )


def test_every_path_of_a_thousand_random_spines_sums_to_its_total() -> None:
    rng = np.random.default_rng(11)
    for _ in range(1000):
        settings = random_settings(rng)
        levels = PRIMITIVE_LEVELS if settings.primitive else COUNTY_LEVELS
        shares = {k: Fraction(int(rng.integers(0, 50)), int(rng.integers(1, 4100))) for k in levels}
        if not settings.primitive and not settings.tract_groups:
            shares["Tract_Group"] = Fraction(0)
        tree = optimize_county(random_blocks(rng), shares, settings).tree
        total = np.array(tree.fractions(0), object)[tree.parent[1]]
        for k in range(1, tree.depth):
            total = total + np.array(tree.fractions(k), object)
            if k + 1 < tree.depth:
                total = total[tree.parent[k + 1]]
        assert set(total.tolist()) == {sum(shares.values())}
        assert (tree.children(tree.depth - 2) >= 1).all()


def random_spine(rng: np.random.Generator) -> Spine:
    n = int(rng.integers(2, 30))
    group = np.sort(rng.integers(0, 10, n))
    tract, county = group // 2, group // 5
    table = {
        "US": ["u"] * n,
        "county": [f"c{c}" for c in county],
        "tract": [f"t{t}" for t in tract * 10 + county],
        "group": [f"g{g}" for g in group],
        "block": [f"b{i}" for i in range(n)],
    }
    return Spine.from_blocks(
        table, {"US": "1/9", "county": "2/9", "tract": "1/9", "group": "1/9", "block": "4/9"}
    )


@pytest.mark.parametrize("mechanism", ["zcdp", "pure"])
def test_bypassing_any_spine_keeps_its_paths_blocks_and_sums(mechanism: str) -> None:
    rng = np.random.default_rng(12)
    moved = 0
    for _ in range(100):
        spine = random_spine(rng)
        new = bypass(spine, mechanism=mechanism, top="county", cutoff=12)
        assert new.path_totals() == {Fraction(1)}
        assert sorted(new.codes(new.leaves)) == sorted(spine.codes(spine.leaves))
        assert new.uniform
        measured = [
            u for u in range(len(new)) if new.n_children[u] == 1 and new.share(int(new.children(u)[0])) > 0
        ]
        assert not measured  # a lone child keeps nothing
        moved += len(new) != len(spine)
    assert (moved > 0) == (mechanism == "pure")


def variances(spine: Spine, power: int) -> dict[str, float]:
    """Variance of every unit's total: precision share (zCDP) or share squared (pure DP), up to a factor."""
    a = np.zeros((len(spine), spine.leaves.size))
    for i, leaf in enumerate(spine.leaves):
        a[spine.path(int(leaf)), i] = 1
    cov = np.linalg.inv(a.T @ (a * spine.shares[:, None] ** power))
    blocks = [tuple(row) for row in a]
    return dict(zip(map(str, blocks), np.diag(a @ cov @ a.T), strict=True))


def three_levels(children: int, unit: int, child: int) -> Spine:
    """Root (no budget apart from 1), one unit with some children, another with two; shares by unit."""
    table = {
        "root": ["r"] * (children + 2),
        "unit": ["p"] * children + ["q"] * 2,
        "leaf": [f"a{i}" for i in range(children)] + ["b0", "b1"],
    }
    spine = Spine.from_blocks(table)
    share = np.array([3, unit, 2, *([child] * children), 1, 1])
    return spine.with_numerators(share, 10)


def test_pure_dp_no_variance_grows_where_the_rule_holds_and_some_does_where_it_fails() -> None:
    held = failed = 0
    for children in range(1, 7):
        for unit in range(1, 6):
            for child in range(1, 8):
                before = variances(three_levels(children, unit, child), 2)
                share = np.array([3, 0, 2, *([child + unit] * children), 1, 1])
                after = variances(three_levels(children, unit, child).with_numerators(share, 10), 2)
                growth = max(after[u] - before[u] for u in before)
                if pure_dp_worthwhile(unit, [child] * children):
                    held += 1
                    assert growth < 1e-9
                else:
                    failed += growth > 1e-9
    assert held > 50
    assert failed > 20


def test_zcdp_only_the_bypass_of_a_lone_child_is_free() -> None:
    for children in range(1, 6):
        before = variances(three_levels(children, 2, 3), 1)
        share = np.array([3, 0, 2, *([5] * children), 1, 1])
        after = variances(three_levels(children, 2, 3).with_numerators(share, 10), 1)
        growth = max(after[u] - before[u] for u in before)
        assert (abs(growth) < 1e-12) == (children == 1)


def test_shares_climb_a_whole_chain() -> None:
    spine = Spine.from_parents(["r", "a", "b", "c", "d", "e"], ["", "r", "a", "b", "r", "d"]).with_numerators(
        np.array([1, 2, 3, 4, 5, 6]), 7
    )
    new = bypass_only_children(spine)
    assert spine.codes(range(6)) == ["r", "a", "d", "b", "e", "c"]  # level by level
    assert [new.share(u) * 7 for u in range(6)] == [1, 2 + 4 + 6, 3 + 5, 0, 0, 0]
    stopped = bypass_only_children(spine, lowest="level 2")
    assert [stopped.share(u) * 7 for u in range(6)] == [1, 2 + 4, 3 + 5, 0, 0, 6]


def test_a_cutoff_stops_families_that_grow_too_large() -> None:
    table = {
        "root": ["r"] * 6,
        "unit": ["p", "p", "p", "q", "q", "q"],
        "leaf": ["a", "b", "c", "d", "e", "f"],
    }
    spine = Spine.from_blocks(table, {"root": 1, "unit": 1, "leaf": 1})
    sizes = {
        c: len(bypass(spine, mechanism="pure", cutoff=c, top="unit").units("unit")) for c in (3, 4, 5, 6)
    }
    assert sizes == {3: 2, 4: 4, 5: 4, 6: 6}  # the second family sees the three new siblings


def test_what_is_no_rule_is_refused() -> None:
    spine = Spine.from_parents(["r", "a", "b", "b1"], ["", "r", "r", "b"])
    with pytest.raises(AdversaryError, match="ragged"):
        bypass(spine, mechanism="pure")
    with pytest.raises(AdversaryError, match="mechanism must be"):
        bypass(spine, mechanism="rdp")
    with pytest.raises(AdversaryError, match="'county' is no level"):
        bypass(spine, top="county")
