"""What the demonstration leaves behind can be used as README says."""

import pytest

from adversary.demo import demo_blocks, run_demo
from adversary.geography.das import conventional_spine, optimized_spine
from adversary.geography.off_spine import entity_distances
from adversary.geography.plans import level_shares
from adversary.privacy.budget import Allocation
from adversary.readers.block_csv import read_blocks


def test_the_made_up_blocks_show_what_an_optimised_spine_is_for(tmp_path):
    path = tmp_path / "blocks.csv"
    path.write_text("\n".join(demo_blocks()) + "\n")
    blocks = read_blocks(path)
    shares = level_shares(Allocation.load("2020-pl94-persons"))
    place = dict(zip(blocks.block.tolist(), blocks.place.tolist(), strict=True))

    def farthest(spine):
        codes = [place[code[-16:]] for code in spine.geocodes[spine.leaves].tolist()]
        return max(d for code, d in entity_distances(spine, codes).items() if code.strip("9"))

    assert len(blocks.block) == 216
    assert farthest(conventional_spine(blocks, shares)) > 4 * farthest(optimized_spine(blocks, shares))


@pytest.mark.slow
def test_the_demonstration_writes_what_it_says(tmp_path):
    lines = list(run_demo(tmp_path / "out"))
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        *("blocks.csv", "paper_example.png", "risk.csv", "risk.csv.about.json", "risk.png")
    ]
    assert any("0.5033" in line for line in lines)
