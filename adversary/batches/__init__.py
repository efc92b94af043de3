"""Many targets in one call: ``batch`` in memory or through dask, ``batch_to_folder`` out of core.

Room just above ``attack``. Held to account by ``tests/test_batches.py``.
"""

from __future__ import annotations

from adversary.batches.folder import BatchPlan, batch_to_folder
from adversary.batches.many import batch

__all__ = ["BatchPlan", "batch", "batch_to_folder"]
