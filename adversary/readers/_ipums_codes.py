"""Codes of the 1940 census at IPUMS, in the order of the axes of ``PERSONS_1940``. Internal.

Held to account by ``tests/readers/test_ipums.py``. Source: IPUMS USA, variable descriptions of GQTYPE, HISPAN and RACE.
"""

from __future__ import annotations

__all__ = ["GQTYPE", "HISPAN", "RACE"]

GQTYPE = (0, 2, 3, 4, 6, 7, 8, 9)
"""Codes of 1940 in the order of the axis ``hhgq``: none, correctional, mental, elderly and poor, military, college,
rooming house, other."""
HISPAN = (0, 1, 2, 3, 4, 9)
"""Codes in the order of the axis ``hispanic``: not Hispanic, Mexican, Puerto Rican, Cuban, other, not reported."""
RACE = tuple(range(1, 10))
"""Codes in the order of the axis ``cenrace``; 7 to 9 do not occur in 1940."""
