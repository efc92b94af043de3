"""The report: one self-contained HTML page about saved answers, for those who decide whether to publish.

What it is: a reader of saved files (:mod:`adversary.report.inputs`) and a page made of them (:mod:`adversary.report.page`). What
it is not: an engine. No number is computed that the saved files do not determine, and a file that was edited, or that belongs to
another question, is refused.

Held to account by ``tests/test_report.py`` and ``tests/test_cli_report.py``.
"""

from adversary.report.inputs import Inputs, Table, read_inputs
from adversary.report.page import render, write_report

__all__ = ["Inputs", "Table", "read_inputs", "render", "write_report"]
