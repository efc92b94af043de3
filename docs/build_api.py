"""Write the API pages from the docstrings: ``make docs``, or ``python docs/build_api.py --out build/docs``.

One HTML page a public module, by pdoc. The package imports its names only when they are asked for, so they are asked for
here before pdoc looks. Held to account by ``tests/usability/test_docs.py``.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import warnings
from pathlib import Path

import adversary


def public_modules(package: str = "adversary") -> list[str]:
    """Return the modules without an underscore in their name, the command line's left out."""
    found = [package]
    for info in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        parts = info.name.split(".")[1:]
        if not any(p.startswith(("_", "cli")) for p in parts):
            found.append(info.name)
    return found


def build(out: Path, modules: list[str] | None = None) -> list[Path]:
    """Write the pages and return them."""
    from pdoc import pdoc, render

    for name in adversary.__all__:
        getattr(adversary, name)
    render.configure(docformat="numpy", math=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of modules that need an extra which is not installed
        pdoc(*(modules or public_modules()), output_directory=out)
    return sorted(out.rglob("*.html"))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("build/docs"))
    pages = build(parser.parse_args().out)
    print(f"{len(pages)} pages in {parser.parse_args().out}: begin with index.html")  # noqa: T201 - this is a program


if __name__ == "__main__":
    main()
