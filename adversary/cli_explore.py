"""``adversary explore``: a local page with sliders. Held to account by ``tests/explore/test_serve.py``."""

from __future__ import annotations

import sys

import click

__all__ = ["explore"]


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="0 takes a free one."
)
@click.option("--browser/--no-browser", default=True, show_default=True, help="Open the page.")
def explore(port: int, browser: bool) -> None:
    """Open a page with sliders for budget, prior, noisy counts and levels, on this machine only.

    Needs the extra [explore]. Nobody else can reach the page: it is bound to the loopback address.
    """
    from adversary.explore import serve

    sys.exit(serve(port, browser=browser))
