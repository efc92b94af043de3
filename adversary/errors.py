"""The few kinds of error that the package raises on purpose.

Every message gives the value, the rule and the way out; every error carries the offending object in ``.value`` so that
a program can act on it. The command line prints the message in one sentence and exits with 2.
"""

from __future__ import annotations

__all__ = [
    "AdversaryError",
    "BudgetError",
    "DisagreementError",
    "FileFormatError",
    "ModelError",
    "ReleaseError",
    "SamplingError",
    "ScenarioError",
    "UnsupportedModelError",
]


def shown(value: object, longest: int = 80) -> str:
    """Return ``repr(value)`` as an error message can hold it: cut where it is long, and never an error of its own.

    Examples
    --------
    >>> shown("12a"), len(shown("9" * 5000)) < 120
    ("'12a'", True)
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of more than 4300 digits has no repr
        return f"a {type(value).__name__} of too many digits or levels to print"
    return text if len(text) <= longest else f"{text[: longest - 3]}... ({len(text)} characters)"


class AdversaryError(ValueError):
    """Base of all errors raised on purpose.

    Parameters
    ----------
    message
        The value, the rule and the way out, in one sentence.
    value
        The offending object.
    """

    def __init__(self, message: str, value: object = None) -> None:
        super().__init__(message)
        self.value = value


class BudgetError(AdversaryError):
    """A privacy-loss budget, a share of it, or a noise scale that cannot be."""


class ReleaseError(AdversaryError):
    """A published value that cannot be what it says it is."""


class FileFormatError(AdversaryError):
    """A file that does not follow its format; names file, row and field."""


class ScenarioError(AdversaryError):
    """A scenario declared or used in a way that has no meaning."""


class ModelError(AdversaryError):
    """What the adversary knows, believes and sees cannot all be true."""


class UnsupportedModelError(AdversaryError):
    """A sound model that the asked engine cannot answer; says which one can."""


class SamplingError(AdversaryError):
    """A sampler that did not do its work: a chain that cannot move, a start with no probability."""


class DisagreementError(AdversaryError):
    """Two roads to one number that do not meet."""
