"""``adversary spine``: build a spine, look at it, say what it promises, compare it with others.

Nothing here computes, and nothing imports PyMC. The group in :mod:`adversary.cli` finds the commands by name and turns errors
into one sentence and exit code 2.

Held to account by ``tests/test_cli_spine.py``.
"""

from __future__ import annotations

import click

from adversary.cli_spine.build import build
from adversary.cli_spine.compare import compare
from adversary.cli_spine.look import osed, privacy, show
from adversary.cli_spine.simulate import simulate

__all__ = ["spine_command"]


@click.group("spine", context_settings={"help_option_names": ["-h", "--help"]})
def spine_command() -> None:
    """Geographic spines: where the counts live, what budget they have, how near places are, what she can learn.

    SOURCE is a folder of block assignment files (BlockAssign_ST44_RI_MCD.txt ...), a reference file with codes (GRF-C), or a CSV
    table with a column GEOID20 and, where there are any, AIANNHCE, COUSUBFP and PLACEFP.
    """


for command in (build, show, osed, privacy, compare, simulate):
    spine_command.add_command(command)
