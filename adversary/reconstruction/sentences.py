"""Answers of blocks as sentences: one a block, and what they come to together.

What it is: words for the records of :mod:`adversary.reconstruction.questions` and
:mod:`adversary.reconstruction.believe`. What it is not: a computation. Held to account by
tests/test_cli_reconstruct.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["answer_sentence", "answers_summary", "belief_sentence"]


def answers_summary(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Count blocks by how they ended, as JSON.

    Parameters
    ----------
    found
        Answers by block.

    Examples
    --------
    >>> answers_summary({"a": {"status": "optimal", "finding": True, "seconds": 0.5}})
    {'blocks': 1, 'statuses': {'optimal': 1}, 'findings': 1, 'errors': 0, 'seconds': 0.5}
    """
    statuses = [str(answer["status"]) for answer in found.values()]
    return {
        "blocks": len(found),
        "statuses": {s: statuses.count(s) for s in dict.fromkeys(statuses)},
        "findings": sum(bool(answer.get("finding")) for answer in found.values()),
        "errors": statuses.count("error"),
        "seconds": round(sum(answer.get("seconds", 0.0) for answer in found.values()), 3),
    }


def answer_sentence(question: str, answer: Mapping[str, Any]) -> str:
    """Say what one block's answer to one question is.

    Parameters
    ----------
    question
        One of `adversary.reconstruction.questions.QUESTIONS`.
    answer
        Its record.

    Examples
    --------
    >>> answer_sentence("bounds", {"status": "optimal", "low": 1, "high": 3, "finding": True})
    'optimal: 1 to 3 of them in every solution: CERTAIN'
    """
    status = answer["status"]
    if answer.get("error") and status == "error":
        return f"error: {answer['error']}"
    if status == "infeasible":
        return f"infeasible: {answer.get('clash') or 'no block meets the rows; ask feasible for the rows that clash'}"
    return f"{status}: {_WORDS[question](answer)}{': CERTAIN' if answer['finding'] else ''}"


def _feasible(answer: Mapping[str, Any]) -> str:
    size = sum((answer["block"] or {}).values())
    found = f"a solution of {size}" if answer["block"] is not None else "no solution found"
    return f"{found}; {answer['verdict']}" if "verdict" in answer else found


def _bounds(answer: Mapping[str, Any]) -> str:
    if "low" in answer:
        return f"{answer['low']} to {answer['high']} of them in every solution"
    wide = sum(c["low"] != c["high"] for c in answer.get("cells", ()))
    return f"{len(answer.get('cells', ()))} cells may be occupied, {wide} of them not settled"


def _most_likely(answer: Mapping[str, Any]) -> str:
    if answer["block"] is None:
        return "no solution found"
    harmed = "" if answer["harmed"] is None else f", {answer['harmed']} with the harm"
    proved = "" if answer["bound"] is None else f" (none below {answer['bound'] / 1000:.3f})"
    return f"cost {answer['cost'] / 1000:.3f} nats{proved}{harmed}; ties are usual"


def _top(answer: Mapping[str, Any]) -> str:
    last = (
        "all there are"
        if answer["exhausted"]
        else "cut within a tie"
        if answer["cut"]
        else "cut between levels"
    )
    harm = f", {answer['with_harm']:.0%} of them with the harm" if "with_harm" in answer else ""
    return f"{answer['listed']} solutions, {last}, {answer['tied_share']:.0%} in one tie{harm}"


def _claims(answer: Mapping[str, Any]) -> str:
    claims = answer.get("claims", ())
    some = "; ".join(f"{c['count']} x {c['what']}" for c in claims[:3])
    return f"{len(claims)} certain claims{': ' + some if some else ''}{' ...' if len(claims) > 3 else ''}"


def _variability(answer: Mapping[str, Any]) -> str:
    if answer["value"] is None:
        return "no solution found"
    share = "" if answer["share"] is None else f", at most {answer['share']:.1%} can be wrong"
    span = (
        answer["value"] if answer["value"] == answer["bound"] else f"{answer['value']} to {answer['bound']}"
    )
    return f"distance {span} for {answer['counted']}{share}{'; unique' if answer['unique'] else ''}"


def _closest(answer: Mapping[str, Any]) -> str:
    if answer["block"] is None:
        return "no block found"
    rows = ", ".join(f"{r['table']} {r['cell']}" for r in answer["missed"][:3])
    more = " ..." if len(answer["missed"]) > 3 else ""
    return f"error {answer['error'] / 1000:.3f}, {len(answer['missed'])} rows missed{': ' + rows + more if rows else ''}"


_WORDS = {
    "feasible": _feasible,
    "bounds": _bounds,
    "most-likely": _most_likely,
    "top": _top,
    "claims": _claims,
    "variability": _variability,
    "closest": _closest,
}


def belief_sentence(answer: Mapping[str, Any]) -> str:
    """Say what one block's posterior is.

    Parameters
    ----------
    answer
        The answer.

    Examples
    --------
    >>> belief_sentence({"status": "exact", "probability": 0.5, "prior": 0.25, "risk": 2.0, "expected": 0.6,
    ...                  "sound": True})
    'exact: P = 0.5000 (before 0.2500, risk 2.00), expected 0.600'
    """
    if answer["status"] == "error":
        return f"error: {answer['error']}"
    if "probability" not in answer:
        return f"{answer['status']}: {answer.get('clash') or 'no block meets the rows'}"
    risk = "-" if answer["risk"] is None else f"{answer['risk']:.3g}"
    risk = f"{answer['risk']:.2f}" if answer["risk"] is not None and answer["risk"] < 1000 else risk
    doubt = "" if answer["sound"] else "; A CHECK FAILED"
    return (
        f"{answer['status']}: P = {answer['probability']:.4f} (before {answer['prior']:.4f}, risk {risk}),"
        f" expected {answer['expected']:.3f}{doubt}"
    )
