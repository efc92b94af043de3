"""Fifty digits for every test of this folder, whatever the one before left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mpmath
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _fifty_digits() -> Iterator[None]:
    with mpmath.workdps(50):
        yield
