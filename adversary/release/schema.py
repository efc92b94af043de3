"""Which cells a census counts people in: the histograms of 2020 and 1940, by name.

What it is not: the algebra of queries on them (:mod:`adversary.release.queries`), nor the labels of their levels in a file
(:mod:`adversary.readers`).

Held to account by ``tests/release/test_schema.py`` and the ids ``cells_`` of the reference. Sources: Kazan & Reiter (arXiv
2204.04253), sec. 2.3 (2020) and 4 (1940); the Bureau's 1940 test data, extract EXT1940USCB of IPUMS USA.
"""

from __future__ import annotations

import difflib

from adversary.errors import ReleaseError
from adversary.release.queries import PL94_PERSONS, PL94_UNITS, Histogram

__all__ = ["HISTOGRAMS", "PERSONS_1940", "PERSONS_1940_TEST", "histogram"]

PERSONS_1940 = Histogram({"votingage": 2, "hispanic": 6, "hhgq": 8, "cenrace": 9})
"""Persons of the 1940 study: 864 = 2 x 6 x 8 x 9 cells.

The paper prints the product. Which factor belongs to which attribute is inferred from the codes of the extract: HISPAN
has six (0-4, 9), GQTYPE eight (0, 2-4, 6-9), RACE nine (1-9).
"""

PERSONS_1940_TEST = Histogram({"hhgq": 8, "votingage": 2, "hispanic": 2, "cenrace": 6})
"""Persons in the Bureau's end-to-end test on 1940 data: 192 cells; any HISPAN above 0 is Hispanic, six races occur."""

HISTOGRAMS: dict[str, Histogram] = {
    "2020-pl94-persons": PL94_PERSONS,
    "2020-pl94-units": PL94_UNITS,
    "1940-persons": PERSONS_1940,
    "1940-test-persons": PERSONS_1940_TEST,
}
"""Name -> histogram."""


def histogram(name: str) -> Histogram:
    """Return a histogram by name.

    Parameters
    ----------
    name
        One of :data:`HISTOGRAMS`, in upper or lower case.

    Returns
    -------
    Histogram
        The histogram's axes and levels.

    Raises
    ------
    ReleaseError
        For a name that is none of them.

    Examples
    --------
    >>> histogram("2020-pl94-persons").cells, histogram("1940-persons").cells
    (2016, 864)
    """
    if name.lower() not in HISTOGRAMS:
        near = difflib.get_close_matches(name.lower(), HISTOGRAMS, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        msg = f"there is no histogram called {name!r}{hint}: there are {', '.join(HISTOGRAMS)}"
        raise ReleaseError(msg, name)
    return HISTOGRAMS[name.lower()]
