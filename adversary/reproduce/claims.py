"""The paper side by side: what it prints, what its model gives, what the literal sampler gives, and a verdict in words.

The printed values, with their places, are in ``adversary/data/kazan_reiter_printed.csv``; nothing is printed there that is
not legible in the paper's text, and nothing is changed to fit.

Held to account by ``tests/test_reproduce.py``.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from adversary.reproduce.values import VALUES, cuts_to, rounds_to

__all__ = ["Claim", "Printed", "compare_all", "printed_values"]

YES, CUT = "reproduced", "not as rounded: it is the value cut off"
LITERAL = "not by the stated model; the literal sampler gives it"
WITHIN = "not by the stated model; within Monte Carlo error of the literal sampler"
NO = "not reproduced"


@dataclass(frozen=True)
class Printed:
    """One printed value or statement.

    Parameters
    ----------
    id, place, statement, printed
        Its name here, where it stands, what it says, and the print itself.
    number, half_unit
        The printed number and half a unit of its last place; None for statements, which hold or do not.
    monte_carlo
        Standard error of the printed number, where it comes from draws and that matters.
    note
        What explains a difference.
    """

    id: str
    place: str
    statement: str
    printed: str
    number: float | None
    half_unit: float | None
    monte_carlo: float | None
    note: str


@dataclass(frozen=True)
class Claim:
    """A printed value with what we find.

    Parameters
    ----------
    printed
        The paper's.
    model, literal
        What the stated model gives and what the literal sampler gives: a number, or for a statement whether it holds; None
        where no sampler is involved.
    verdict
        In words.
    """

    printed: Printed
    model: Any
    literal: Any
    verdict: str

    @property
    def reproduced(self) -> bool:
        """Whether the stated model gives what is printed, rounded as numbers are."""
        return self.verdict == YES

    def row(self) -> dict[str, Any]:
        """Return a flat row for a table."""
        p = self.printed
        return {
            "id": p.id,
            "place": p.place,
            "statement": p.statement,
            "printed": p.printed,
            "model": _text(self.model),
            "literal": _text(self.literal),
            "verdict": self.verdict,
            "note": p.note,
        }


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "holds" if value else "does not hold"
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def printed_values() -> list[Printed]:
    """Read the printed values.

    Examples
    --------
    >>> len(printed_values()) > 30
    True
    """
    text = files("adversary").joinpath("data/kazan_reiter_printed.csv").read_text(encoding="utf-8")
    numbers = ("number", "half_unit", "monte_carlo")
    return [
        Printed(**{k: (float(v) if v else None) if k in numbers else v for k, v in row.items()})  # type: ignore[arg-type]
        for row in csv.DictReader(text.splitlines())
    ]


def _matches(p: Printed, value: Any) -> str | None:
    """Say how a value matches the print: exactly, cut off, within Monte Carlo error; None if not at all."""
    if p.number is None or p.half_unit is None:
        return "exact" if value is True else None
    if rounds_to(value, p.number, p.half_unit):
        return "exact"
    # two standard errors, and the rounding of the print
    if p.monte_carlo is not None:
        return "within" if abs(value - p.number) <= 2 * p.monte_carlo + p.half_unit else None
    return "cut" if cuts_to(value, p.number, p.half_unit) else None


def judge(p: Printed, model: Any, literal: Any) -> str:
    """Put a comparison into words.

    Examples
    --------
    >>> p = Printed("x", "Table 0", "", ".50", 0.5, 0.005, None, "")
    >>> judge(p, 0.5033, None), judge(p, 0.509, None), judge(p, 0.4, 0.503), judge(p, 0.4, None)[:3]
    ('reproduced', 'not as rounded: it is the value cut off', 'not by the stated model; the literal sampler gives it', 'not')
    """
    by_model = _matches(p, model)
    if by_model is not None:
        return CUT if by_model == "cut" else YES
    by_literal = _matches(p, literal) if literal is not None else None
    if by_literal is None or by_literal == "cut":
        return NO
    return LITERAL if by_literal == "exact" else WITHIN


def compare_all() -> list[Claim]:
    """Compute every claim of the paper.

    Returns
    -------
    list of Claim
        In the order of the paper.
    """
    out = []
    for p in printed_values():
        model, literal = VALUES[p.id]()
        out.append(Claim(p, model, literal, judge(p, model, literal)))
    return out
