"""The page itself: what the saved files say, put into words, tables and figures, and written whole or not at all.

What it is: text around numbers that the views of the saved trees compute. What it is not: a judgement. Everything printed is
escaped by the template engine; the page loads nothing and runs nothing (its own policy forbids it).

Held to account by ``tests/test_report.py`` (the page, parsed) and ``tests/test_cli_report.py`` (in a real browser).
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from adversary._files import write_whole
from adversary._version import __version__
from adversary.errors import FileFormatError, ScenarioError
from adversary.privacy.accounting import epsilon
from adversary.privacy.semantics import odds_bound
from adversary.report.figures import answer_figures, study_figure, table_figure
from adversary.report.reproduce import toml_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adversary.report.inputs import Answer, Inputs, Study, Table
    from adversary.results import AttackResult

__all__ = ["number", "render", "write_report"]

DELTA = 1e-6
"""Probability with which the bound on odds may fail."""

ROWS, COLUMNS, VALUES = 50, 12, 12
"""Targets above the threshold, columns of them, and values of a target that are printed."""

VERDICTS = {True: ("passed", "ok"), False: ("FAILED", "bad"), None: ("note", "note")}

CONVENTIONS = {
    "unbounded": "unbounded neighbours: rho protects against adding or removing one record; sigma² = 1/(2 rho), as in Kazan & "
    "Reiter",
    "bounded": "bounded neighbours: rho protects against replacing one record by another; sigma² = 1/rho, as in the Census's "
    "production system",
    "sigma2 given": "the noise was given directly as sigma²; for which neighbours it was set is not recorded",
}


def number(value: Any, digits: int = 6) -> str:
    """Return a number as it is printed in the page.

    Parameters
    ----------
    value
        A number.
    digits
        How many significant ones.

    Returns
    -------
    str
        ``not defined`` for nan; never 1 for what is not 1.

    Examples
    --------
    >>> number(0.5032878), number(float("nan")), number(float("inf")), number(3)
    ('0.503288', 'not defined', 'infinite', '3')
    """
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value}"
    if math.isnan(value):
        return "not defined"
    if math.isinf(value):
        return "infinite" if value > 0 else "minus infinite"
    if value != 0 and abs(value) < 1e-4:
        return f"{value:.3g}"
    # a probability that is not 1 is never printed as 1
    text = f"{value:.{digits}g}"
    return f"{value:.15g}" if text == "1" and value != 1 else text


def render(inputs: Inputs, *, title: str | None = None, threshold: float = 1.5) -> str:
    """Return the report as one HTML document.

    Parameters
    ----------
    inputs
        What :func:`adversary.report.read_inputs` read.
    title
        Heading of the page; made from the scenario where left out.
    threshold
        R' above which a target of a table is listed, > 0.

    Returns
    -------
    str
        The same inputs give the same text: it holds no time of day.

    Raises
    ------
    ScenarioError
        Where there is nothing to report, or the threshold is none.
    """
    from jinja2 import Environment, StrictUndefined

    if not (inputs.answers or inputs.studies or inputs.tables):
        msg = "a report needs at least one saved result, study or table: adversary run ... --out result.nc makes one"
        raise ScenarioError(msg, inputs)
    if not threshold > 0 or not math.isfinite(threshold):
        msg = f"the threshold is a risk R', so a number > 0, got {threshold}"
        raise ScenarioError(msg, threshold)
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["number"] = number
    source = files("adversary").joinpath("data/report.html.j2").read_text(encoding="utf-8")
    answers = [_answer(a, k) for k, a in enumerate(inputs.answers, start=1)]
    names = list(
        dict.fromkeys(
            [a.result.scenario for a in inputs.answers] + [s.data.attrs["scenario"] for s in inputs.studies]
        )
    )
    page: str = environment.from_string(source).render(
        title=title or f"Disclosure risk: {', '.join(names) or 'a table of targets'}",
        answers=answers,
        studies=[_study(s, k) for k, s in enumerate(inputs.studies, start=1)],
        tables=[_table(t, k, threshold) for k, t in enumerate(inputs.tables, start=1)],
        threshold=threshold,
        version=__version__,
        delta=f"{DELTA:g}",
        rows=ROWS,
    )
    return page


def write_report(
    inputs: Inputs, out: str | Path, *, title: str | None = None, threshold: float = 1.5
) -> Path:
    """Write the report, whole or not at all.

    Parameters
    ----------
    inputs
        What :func:`adversary.report.read_inputs` read.
    out
        A file that ends in ``.html``.
    title, threshold
        As for :func:`render`.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    FileFormatError
        For another ending, or a place that cannot be written.
    """
    if Path(out).suffix.lower() not in (".html", ".htm"):
        msg = f"{out}: a report is a page: give a name that ends in .html"
        raise FileFormatError(msg, out)
    return write_whole(out, render(inputs, title=title, threshold=threshold))


# ---------------------------------------------------------------------- one answer
def _answer(answer: Answer, place: int) -> dict[str, Any]:
    r = answer.result
    attrs = r.attrs
    name = f"answer{place}"
    versions = json.loads(str(attrs["versions"]))
    toml, needs = toml_of(r)
    code = str(attrs["code"])
    return {
        "id": name,
        "place": place,
        "file": answer.name,
        "sha256": answer.sha256,
        "result": r,
        "attrs": attrs,
        "text": _paragraphs(str(attrs["text"])),
        "code": _without_docstring(code),
        "code_sha256": hashlib.sha256(code.encode()).hexdigest() if code else "",
        "knows": [(k, v) for k, v in r.assumptions.items() if not v.startswith("Prior(")],
        "believes": [(k, v) for k, v in r.assumptions.items() if v.startswith("Prior(")],
        "counts": _counts(r),
        "not_measured": list(r.release.not_measured),
        "unused": list(r.unused_evidence()),
        "convention": CONVENTIONS[r.convention],
        "values": _values(r),
        "guarantee": _guarantee(r),
        "checks": [
            {"verdict": VERDICTS[c.passed][0], "mark": VERDICTS[c.passed][1], "check": c} for c in r.checks
        ],
        "figures": answer_figures(r, name),
        "sentence": _sentence(r),
        "improper": json.loads(str(attrs["improper"])),
        "versions": versions,
        "other_version": versions["adversary"] if versions["adversary"] != __version__ else "",
        "options": ", ".join(f"{k} = {v}" for k, v in json.loads(str(attrs["options"])).items()),
        "toml": toml,
        "needs": needs,
    }


def _paragraphs(text: str) -> list[list[tuple[bool, str]]]:
    """Cut a docstring into paragraphs of (is a name between double backticks, text), for the template to escape and mark."""
    return [
        [(bool(k % 2), part) for k, part in enumerate(" ".join(p.split()).split("``")) if part]
        for p in re.split(r"\n\s*\n", text)
        if p.strip()
    ]


def _without_docstring(code: str) -> str:
    """Take the text, which the page prints above, out of the declaration; the hash is that of the whole."""
    try:
        body = ast.parse(code).body[0].body  # type: ignore[attr-defined]
        first = body[0]
        said = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(body) > 1
    except (SyntaxError, ValueError, AttributeError, IndexError, RecursionError):
        return code
    lines = code.splitlines()
    return "\n".join(lines[: first.lineno - 1] + lines[first.end_lineno :]) if said else code


def _sentence(r: AttackResult) -> str:
    target = r.attrs["target"]
    if not r.is_event:
        best, p = r.top(1)[0]
        return f"After looking at the release she holds {target} = {best} most probable, with probability {number(p)}."
    if math.isnan(r.prior):
        return f"After looking at the release she holds P({target}) = {number(r.posterior)}; her prior of it is not defined."
    verb = "rises" if r.posterior > r.prior else "falls" if r.posterior < r.prior else "stays"
    return (
        f"By looking at the release, her probability of {target} {verb} from {number(r.prior)} to {number(r.posterior)}: "
        f"the risk R' = posterior / prior is {number(r.risk.value)}."
    )


def _counts(r: AttackResult) -> list[dict[str, str]]:
    """One row a measurement: value, budget, noise, and by how much the target changes it."""
    unused = set(r.unused_evidence())
    changes: Mapping[str, Any] | None = json.loads(str(r.attrs["changes"]))
    rows = []
    for m in r.release.values():
        rho = () if m.rho is None else m.rho
        rhos = [number(float(x), 10) for x in (rho if isinstance(rho, tuple) else (rho,))]
        change = (
            "not recorded"
            if changes is None
            else _several(np.asarray(changes[m.name]).ravel().tolist())
            if m.name in changes
            else "not used"
        )
        rows.append(
            {
                "name": m.name,
                "value": _several(np.asarray(m.value).ravel().tolist()),
                "rho": _several(list(dict.fromkeys(rhos))) if m.rho is not None else "not recorded",
                "sigma2": _several([number(s) for s in np.unique(np.asarray(m.sigma2)).tolist()]),
                "groups": str(m.groups),
                "scale": "none (exact)"
                if m.exact
                else _several([number(math.sqrt(s)) for s in np.unique(np.asarray(m.noise_sigma2)).tolist()]),
                "convention": m.convention or "not recorded",
                "used": "not used" if m.name in unused else "used",
                "change": change,
            }
        )
    return rows


def _several(values: list[Any], most: int = VALUES) -> str:
    shown = ", ".join(str(v) for v in values[:most])
    return shown + (f", ... ({len(values)} in all)" if len(values) > most else "")


def _values(r: AttackResult) -> list[dict[str, str]]:
    """Prior, posterior and ratio of each value of the target (the most probable, where there are many)."""
    before, after = (r.values("answer", f"log_{w}") for w in ("prior", "posterior"))
    order = (
        np.arange(len(r.support)) if len(r.support) <= VALUES else np.argsort(-after, kind="stable")[:VALUES]
    )
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = np.exp(after - before)
    return [
        {
            "value": str(int(r.support[i])),
            "prior": number(float(np.exp(before[i]))),
            "posterior": number(float(np.exp(after[i]))),
            "risk": number(float(ratio[i])),
        }
        for i in order
    ]


def _guarantee(r: AttackResult) -> dict[str, str] | None:
    """Put what the budget promises whatever she believes beside what she found; None where it is not recorded."""
    rho, ceiling = r.divergence, r.risk_ceiling
    if rho is None or ceiling is None:
        return None
    bounded = math.isfinite(rho)
    return {
        "rho": number(rho),
        "ceiling": number(ceiling),
        "odds": number(odds_bound(rho, DELTA)) if bounded else "infinite",
        "epsilon": number(float(epsilon(rho, DELTA))) if bounded else "infinite",
        "gain": number(math.exp(min(r.log_odds_gain, 709.0)))
        if not math.isnan(r.log_odds_gain)
        else "not defined",
        "above": "yes" if r.risk.value > ceiling else "",
    }


# ---------------------------------------------------------------------- studies and tables
_ABOUT = (
    *(
        "scenario",
        "target",
        "assumptions",
        "engine",
        "source",
        "level",
        "levels",
        "query",
        "allocation",
        "rho",
    ),
    *("convention", "sigma2", "prior", "elsewhere", "seed", "people", "ceiling", "note"),
)
"""What the file beside a table says that belongs on the page."""


def _study(study: Study, place: int) -> dict[str, Any]:
    data = study.data
    posterior = data["posterior"]
    found: dict[str, Any] = {
        "id": f"study{place}",
        "place": place,
        "file": study.name,
        "sha256": study.sha256,
        "attrs": {str(k): v for k, v in data.attrs.items()},
        "fixed": list(json.loads(str(data.attrs["assumptions"])).items()),
        "points": int(data["cut_off_bound"].size),
        "bound": number(float(data["cut_off_bound"].max())),
        "axes": [(str(d), _axis(data, str(d))) for d in data["cut_off_bound"].dims],
        "ends": [],
        "figure": study_figure(data, f"study{place}-figure"),
    }
    if "target" in posterior.dims:
        return found
    ends = [("lowest posterior", posterior.argmin(...)), ("highest posterior", posterior.argmax(...))]
    if bool(data["risk"].notnull().any()):
        ends.append(("highest risk", data["risk"].argmax(...)))
    for word, at in ends:
        here = data.isel({d: int(i.values) for d, i in at.items()})
        found["ends"].append(
            {
                "word": word,
                "where": ", ".join(f"{k} = {_shown(here[k].values.item())}" for k in here.coords),
                "prior": number(float(here["prior"])),
                "posterior": number(float(here["posterior"])),
                "risk": number(float(here["risk"])),
            }
        )
    return found


def _axis(data: Any, dim: str) -> str:
    if dim not in data.coords:
        return f"{data.sizes[dim]} points"
    values = data[dim].values
    if np.asarray(values).dtype.kind in "iuf":
        return f"{len(values)} values from {number(values.min())} to {number(values.max())}"
    return _several([str(v) for v in values])


def _shown(value: Any) -> str:
    return number(value) if isinstance(value, int | float) else str(value)


def _table(table: Table, place: int, threshold: float) -> dict[str, Any]:
    risk = table.columns["risk"]
    above = np.flatnonzero(risk > threshold)
    sound = risk[~np.isnan(risk)]
    worst = above[np.argsort(-risk[above], kind="stable")][:ROWS]
    names = list(table.columns)[:COLUMNS]
    for own in ("prior", "posterior", "risk"):  # what the page is about is never cut off
        if own in table.columns and own not in names:
            names.append(own)
    return {
        "id": f"table{place}",
        "place": place,
        "file": table.name,
        "sha256": table.sha256,
        "sealed": table.sealed,
        "about": [(k.replace("_", " "), table.about[k]) for k in _ABOUT if k in table.about],
        "targets": f"{len(table):,}",
        "above": f"{len(above):,}",
        "unanswered": f"{len(risk) - len(sound):,}" if len(sound) < len(risk) else "",
        "more": len(above) > ROWS,
        "left_out": [c for c in table.columns if c not in names],
        "mean": number(math.fsum(sound.tolist()) / len(sound)) if len(sound) else "not defined",
        "largest": number(float(sound.max())) if len(sound) else "not defined",
        "quantiles": [
            (f"{q:.0%}", number(float(np.quantile(sound, q, method="inverted_cdf"))))
            for q in (0.5, 0.9, 0.99)
        ]
        if len(sound)
        else [],
        "head": names,
        "rows": [[_shown(_cell(table.columns[c][i])) for c in names] for i in worst],
        "figure": table_figure(table, threshold, f"table{place}-figure"),
    }


def _cell(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
