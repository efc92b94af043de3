"""A job that says which blocks it was asked, in a module of its own so that a spawned process finds it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from adversary.errors import ModelError


@dataclass(frozen=True)
class Length:
    """Answers with the length of the name and writes every name it was asked to a file."""

    log: str
    bad: str = ""
    status: str = "optimal"
    fatal: bool = False

    def __call__(self, block: str) -> dict[str, Any]:
        with open(self.log, "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(block + "\n")
        if block == self.bad and self.fatal:
            os._exit(3)
        if block == self.bad:
            msg = f"block {block} is bad: mend it"
            raise ModelError(msg, block)
        return {"status": self.status, "n": len(block), "name": block}
