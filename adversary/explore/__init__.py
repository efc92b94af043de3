"""A local page with sliders: what one noisy release would tell an adversary, while she is still being imagined.

`numbers` computes (closed forms, no PyMC), `app` is the page (a marimo app), `serve` shows it on this machine alone.
"""

from adversary.explore.numbers import Explored, explored
from adversary.explore.serve import serve

__all__ = ["Explored", "explored", "serve"]
