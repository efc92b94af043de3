"""Write people as a file of the 1940 layout, for tests and simulations. Internal: see :mod:`adversary.readers.ipums`.

Held to account by ``tests/readers/test_ipums.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from adversary._files import whole
from adversary.errors import FileFormatError
from adversary.readers._ipums_codes import GQTYPE, HISPAN, RACE
from adversary.readers._ipums_ddi import EXT1940USCB, Field
from adversary.release.schema import PERSONS_1940

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from adversary.readers.population import BlockCounts

__all__ = ["write_ipums_1940"]

_CSV = (
    "YEAR",
    "SERIAL",
    "STATEFIP",
    "COUNTY",
    "ENUMDIST",
    "GQ",
    "GQTYPE",
    "PERNUM",
    "SEX",
    "AGE",
    "RACE",
    "HISPAN",
)


def write_ipums_1940(
    path: str | Path, counts: BlockCounts, *, vacant: Sequence[str] = (), form: str = "hierarchical"
) -> Path:
    """Write people as a file of this layout: synthetic data for tests, never IPUMS's.

    Parameters
    ----------
    path
        Where; it appears whole or not at all.
    counts
        People by district (codes of 10 digits: state, county, number) and the 864 cells.
    vacant
        Districts to which a vacant unit is added, one an entry (hierarchical only).
    form
        ``"hierarchical"`` (the columns of EXT1940USCB) or ``"csv"`` (rectangular, codes as numbers without zeros).

    Returns
    -------
    Path

    Raises
    ------
    FileFormatError
        For another histogram or form, or codes of another width.

    Examples
    --------
    >>> import tempfile
    >>> from adversary.readers.population import BlockCounts
    >>> people = BlockCounts.of(["4400100010"], [0], [3], PERSONS_1940)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_ipums_1940(Path(folder) / "a.dat", people).name
    'a.dat'
    """
    codes = [*counts.blocks.tolist(), *vacant]
    bad = next((c for c in codes if len(c) != 10 or not c.isdigit()), None)
    if counts.histogram is not PERSONS_1940 or form not in ("hierarchical", "csv") or bad is not None:
        what = f"district {bad!r}" if bad is not None else f"form {form!r}, {counts.histogram.cells} cells"
        msg = f"a file of 1940 has districts of 10 digits, 864 cells, and is hierarchical or csv, got {what}"
        raise FileFormatError(msg, bad or form)
    with whole(path) as draft, draft.open("w", encoding="ascii", newline="\n") as handle:
        if form == "csv":
            handle.write(",".join(_CSV).replace("COUNTY", "COUNTYICP") + "\n")
        for serial, (code, quarters, people) in enumerate(_made_up_units(counts, vacant), start=1):
            gq = 0 if not people else 1 if quarters == 0 else 3 if quarters in (2, 3, 4) else 4
            unit = {
                "SERIAL": serial,
                "STATEFIP": int(code[:2]),
                "COUNTY": int(code[2:6]),
                "ENUMDIST": int(code[6:]),
            }
            unit |= {"YEAR": 1940, "GQ": gq, "GQTYPE": quarters, "NUMPREC": len(people)}
            if form == "hierarchical":
                handle.write(_line("H", unit, 159))
            for k, (age, race, hispan) in enumerate(people, start=1):
                person = {
                    "YEAR": 1940,
                    "SERIAL": serial,
                    "PERNUM": k,
                    "SEX": 1 + k % 2,
                    "AGE": age,
                    "RACE": race,
                    "HISPAN": hispan,
                }
                if form == "hierarchical":
                    handle.write(_line("P", person, 200))
                else:
                    both = {**unit, **person}
                    handle.write(",".join(str(both[n]) for n in _CSV) + "\n")
    return Path(path)


def _line(record: str, values: Mapping[str, int], length: int) -> str:
    out = list(record + " " * (length - 1))
    for name, value in values.items():
        at: Field = EXT1940USCB.fields[name]
        out[at.start : at.stop] = f"{value:0{at.width}d}"
    return "".join(out) + "\n"


def _made_up_units(
    counts: BlockCounts, vacant: Sequence[str]
) -> Iterator[tuple[str, int, list[tuple[int, int, int]]]]:
    """District, GQTYPE and people (age, race, origin) of made-up units of up to six people, then the vacant ones."""
    axes = np.unravel_index(counts.cell, PERSONS_1940.sizes)
    waiting: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for b, n, adult, origin, kind, race in zip(
        counts.block.tolist(), counts.count.tolist(), *(a.tolist() for a in axes), strict=True
    ):
        person = (40 if adult else 8, RACE[race], HISPAN[origin])
        waiting.setdefault((b, GQTYPE[kind]), []).extend([person] * n)
    for (b, quarters), people in sorted(waiting.items()):
        for first in range(0, len(people), 6):
            yield str(counts.blocks[b]), quarters, people[first : first + 6]
    for code in vacant:
        yield code, 0, []
