"""The command line of risk and of many targets: ``expect``, ``approximation``, ``reproduce``, ``batch``.

Nothing here computes. Only ``batch`` imports PyMC. The group in :mod:`adversary.cli` finds the commands by name, and turns
errors into one sentence and exit code 2.

Held to account by ``tests/test_cli_risk.py``.
"""

from __future__ import annotations

import json
import math
import sys
from fractions import Fraction
from typing import Any

import click

from adversary.errors import ModelError, ScenarioError

__all__ = ["approximation", "batch", "expect", "reproduce"]

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
convention_option = click.option(
    "--convention",
    type=click.Choice(["bounded", "unbounded"]),
    default="unbounded",
    show_default=True,
    help="What rho means: unbounded is noise 1/(2 rho), as in the paper; bounded 1/rho, the Census's production.",
)


def _emit(as_json: bool, data: dict[str, Any], lines: list[str]) -> None:
    click.echo(json.dumps(data, ensure_ascii=False) if as_json else "\n".join(lines))


def _number(text: str, option: str) -> float:
    """Read 0.5 or 1/864."""
    try:
        return float(Fraction(text)) if "/" in text else float(text)
    except (ValueError, ZeroDivisionError):
        msg = f"{option} must be a number such as 0.5 or 1/864, got {text!r}"
        raise ModelError(msg, text) from None


def _noise(rho: str | None, sigma2: float | None, convention: str, names: tuple[str, str]) -> float:
    if (rho is None) == (sigma2 is None):
        msg = f"give exactly one of {names[0]} and {names[1]}: rho is the zCDP budget of the count, sigma2 its noise parameter"
        raise ModelError(msg, (rho, sigma2))
    if rho is None:
        return float(sigma2)  # type: ignore[arg-type]
    from adversary.privacy.budget import Rho, noise_scale

    return float(noise_scale(Rho(rho), convention))


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


@click.command()
@click.option("--rho", default=None, help="Budget of the block's count, exact: 0.0992264, 165/4099.")
@click.option(
    "--sigma2", type=float, default=None, help="Noise parameter of the block's count, instead of --rho."
)
@convention_option
@click.option("--prior", default="0.5", show_default=True, help="Prior probability of presence: 0.5, 1/864.")
@click.option(
    "--truth", type=click.Choice(["present", "absent", "average"]), default="present", show_default=True
)
@click.option("--ties", type=click.Choice(["strict", "half"]), default="strict", show_default=True)
@click.option("--rho2", default=None, help="Budget of the block group's count: asks about two levels.")
@click.option(
    "--sigma2-2", "sigma2_2", type=float, default=None, help="Its noise parameter, instead of --rho2."
)
@click.option(
    "--d", "others", type=click.IntRange(min=1), default=None, help="Two levels: number of other blocks."
)
@click.option(
    "--x2", type=int, default=None, help="Two levels: true count of the group, less the known persons."
)
@click.option(
    "--mode",
    type=click.Choice(["exact", "literal", "integer"]),
    default="exact",
    show_default=True,
    help="Two levels: literal repeats the paper's sampler, which belongs to no posterior.",
)
@click.option(
    "--above", type=float, multiple=True, metavar="R", help="Also print P[R' > R]; may be repeated."
)
@json_option
def expect(
    rho: str | None,
    sigma2: float | None,
    convention: str,
    prior: str,
    truth: str,
    ties: str,
    rho2: str | None,
    sigma2_2: float | None,
    others: int | None,
    x2: int | None,
    mode: str,
    above: tuple[float, ...],
    as_json: bool,
) -> None:
    """Average the disclosure risk over releases: a sum with a bound, not a simulation."""
    p = _number(prior, "--prior")
    block = _noise(rho, sigma2, convention, ("--rho", "--sigma2"))
    given = {"--rho2 or --sigma2-2": rho2 or sigma2_2, "--d": others, "--x2": x2}
    asked = [k for k, v in given.items() if v is not None]
    if asked and len(asked) < len(given):
        missing = [k for k in given if k not in asked]
        msg = f"two levels need {', '.join(given)}: add {' and '.join(missing)}"
        raise ModelError(msg, missing)
    found: Any
    if asked:
        from adversary.risk.two_level import TwoLevelDesign, expected_two_level

        group = _noise(rho2, sigma2_2, convention, ("--rho2", "--sigma2-2"))
        design = TwoLevelDesign(sigma2=block, group_sigma2=group, others=others or 0, mode=mode)  # type: ignore[arg-type]
        found = expected_two_level(design, x2 or 0, p=p, truth=truth, ties=ties)  # type: ignore[arg-type]
    else:
        if mode != "exact":
            msg = f"--mode belongs to two levels, got --mode {mode} without --rho2"
            raise ModelError(msg, mode)
        from adversary.risk.expected import expected_one_level

        found = expected_one_level(block, p=p, truth=truth, ties=ties)  # type: ignore[arg-type]
    data = _risk_numbers(found, above)
    data |= {
        "mode": mode if asked else None,
        "convention": convention if rho or rho2 else None,
        "sigma2": block,
    }
    _emit(as_json, data, _risk_lines(found, data, mode if asked else "exact"))


def _risk_numbers(found: Any, above: tuple[float, ...]) -> dict[str, Any]:
    return {
        "truth": found.truth,
        "prior": found.prior,
        "posterior": found.posterior,
        "risk": found.risk,
        "right": found.right,
        "log_right": _finite(found.log_right),
        "threshold": found.threshold,
        "near_tie_mass": found.near_tie_mass,
        "ties": found.ties,
        "left_out_bound": found.left_out_bound,
        "quantiles": {str(q): found.quantile(q) for q in (0.05, 0.5, 0.95)},
        "above": {f"{r:g}": found.exceedance(r) for r in above},
        "method": found.method,
    }


def _risk_lines(found: Any, data: dict[str, Any], mode: str) -> list[str]:
    low, middle, high = data["quantiles"].values()
    right = f"{found.right:.6g}" if found.right > 0 else f"exp({found.log_right:.6g})"
    lines = [
        f"given the target {found.truth}: averaged posterior {found.posterior:.6g} from a prior of {found.prior:.6g}",
        f"averaged risk R = {found.risk:.6g}; R' from release to release: 5 % {low:.4g}, median {middle:.4g}, 95 % {high:.4g}",
        f"decision right with probability {right} ({found.ties} rule for ties, near-ties {found.near_tie_mass:.2g})",
    ]
    if data["convention"]:
        rule = "1/(2 rho)" if data["convention"] == "unbounded" else "1/rho"
        lines.append(
            f"noise of the block's count: sigma2 = {rule} = {data['sigma2']:.6g}, {data['convention']} neighbours"
        )
    if found.threshold is not None:
        lines.append(
            f"she is said to be present from a noisy count of {found.threshold} above the known persons on"
        )
    lines += [f"P[R' > {r}] = {v:.6g}" for r, v in data["above"].items()]
    lines.append(f"{found.method}; left out: at most {found.left_out_bound:.1g} of the probability")
    if mode == "literal":
        lines.append(
            "mode literal is the paper's sampler, which ignores X1 <= X2 in one step: no posterior has these numbers"
        )
    return lines


@click.command()
@click.option("--rho", default=None, help="Budget of one noisy count.")
@click.option(
    "--sigma2", type=float, default=None, help="Noise parameter of one noisy count, instead of --rho."
)
@convention_option
@click.option("--d", "count", type=click.IntRange(min=1), required=True, help="How many counts are summed.")
@json_option
def approximation(rho: str | None, sigma2: float | None, convention: str, count: int, as_json: bool) -> None:
    """Say how far the noise of a sum of counts is from one discrete Gaussian (eq. (3.7), supplement S2)."""
    from dataclasses import asdict

    from adversary.risk.approximation import assess_sum, needs_exact_sum

    noise = _noise(rho, sigma2, convention, ("--rho", "--sigma2"))
    found = assess_sum(noise, count)
    exact = needs_exact_sum(noise, count)
    data = {**asdict(found), "probability_error": found.probability_error, "needs_exact_sum": exact}
    lines = [
        f"sum of {count} counts with sigma2 = {noise:.6g} each, against one discrete Gaussian with {count * noise:.6g}:",
        f"total variation                {found.total_variation:.3g}",
        f"largest log-odds error         {found.log_odds_error:.3g} (neighbouring counts, |noise| <= {found.half_width})",
        f"no adversary's log-odds change by more than {found.log_odds_error_bound:.3g}, her posterior by more than "
        f"{found.probability_error:.3g}",
        "use the exact convolution (the engines do)"
        if exact
        else "the approximation serves (the engines use it)",
    ]
    _emit(as_json, data, lines)


@click.command()
@click.option("--out", type=click.Path(file_okay=False), default=None, help="Folder for tables and figures.")
@json_option
def reproduce(out: str | None, as_json: bool) -> None:
    """Put the paper side by side: what it prints, what its model gives, what the literal sampler gives."""
    from adversary.reproduce import reproduce as run

    found = run(out, progressbar=sys.stderr.isatty() and not as_json)
    data = {"claims": [c.row() for c in found.claims], "files": [str(f) for f in found.files]}
    _emit(as_json, data, found.lines())


@click.command()
@click.argument("scenario")
@click.argument("data", type=click.Path())
@click.option(
    "--out", type=click.Path(file_okay=False), required=True, help="Folder of the parts and their manifest."
)
@click.option(
    "--assume",
    "assumptions",
    multiple=True,
    metavar="NAME=VALUE",
    help="As for run: what is the same for all.",
)
@click.option(
    "--chunk", type=click.IntRange(min=1), default=100_000, show_default=True, help="Targets a part."
)
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes.")
@click.option(
    "--form",
    type=click.Choice(["netcdf", "parquet", "zarr"]),
    default=None,
    help="Form of the parts; that of DATA by default.",
)
@click.option(
    "--carry", multiple=True, metavar="COLUMN", help="Copy a column, such as an identifier, to the answer."
)
@click.option("--dry-run", is_flag=True, help="Print targets, memory and time, and write nothing.")
@json_option
def batch(
    scenario: str,
    data: str,
    out: str,
    assumptions: tuple[str, ...],
    chunk: int,
    workers: int,
    form: str | None,
    carry: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Answer SCENARIO for every row of DATA (.parquet, .nc, .zarr, .csv).

    DATA has the published values by their names (block), the noise of one noisy count (block_sigma2), the number of counts
    summed (block_groups), and whatever differs from row to row of what she knows (known, present.p). A run that was stopped
    goes on where it stopped.
    """
    from adversary.assumption_text import parse_assumption
    from adversary.batches import batch_to_folder
    from adversary.discover import load

    adversary = load(scenario)
    adversary = adversary.assuming(**dict(parse_assumption(a, adversary) for a in assumptions))
    if not out.strip():
        msg = "--out needs the name of a folder"
        raise ScenarioError(msg, out)
    plan = batch_to_folder(
        adversary,
        data,
        out,
        chunk=chunk,
        workers=workers,
        form=form,
        carry=carry,
        dry_run=dry_run,
        progressbar=sys.stderr.isatty() and not as_json,
    )
    numbers = {
        "folder": str(plan.folder),
        "targets": plan.targets,
        "parts": plan.parts,
        "done_before": plan.done,
        "engine": plan.engine,
        "bytes_per_worker": plan.bytes_per_worker,
        "seconds": plan.seconds,
        "dry_run": dry_run,
    }
    _emit(as_json, numbers, plan.lines())


@click.command()
@click.option(
    "--risk", type=float, default=None, help="Keep the averaged risk R = E[posterior]/prior at or below this."
)
@click.option(
    "--right", type=float, default=None, help="Keep P[her decision is right] at or below this, instead."
)
@click.option(
    "--exceed",
    nargs=2,
    type=float,
    default=None,
    metavar="R A",
    help="Keep P[R' > R] at or below A, instead.",
)
@click.option(
    "--prior",
    "priors",
    multiple=True,
    required=True,
    help="Prior of presence; twice for all between two values.",
)
@json_option
def largest(
    risk: float | None,
    right: float | None,
    exceed: tuple[float, float] | None,
    priors: tuple[str, ...],
    as_json: bool,
) -> None:
    """Find the largest rho of one noisy count that keeps a target who is present within a bound.

    The answer is safe: the bound holds for every smaller rho too (down to 0.001). The risk need not grow with rho, so all
    crossings are printed.
    """
    from adversary.risk import Criterion, guaranteed_information, largest_information

    asked = [x for x in (risk, right, exceed) if x is not None]
    if len(asked) != 1 or len(priors) > 2:
        msg = "give one of --risk, --right and --exceed, and one or two priors"
        raise click.UsageError(msg)
    if exceed is not None:
        criterion = Criterion("exceedance", exceed[1], ratio=exceed[0])
    else:
        criterion = Criterion("risk", risk) if risk is not None else Criterion("right", float(right or 0.0))
    p = sorted(_number(text, "--prior") for text in priors)
    found = largest_information(criterion, p[0] if len(p) == 1 else (p[0], p[1]))
    crossings = [{"rho": c.low, "breaks": c.breaks, "jump": c.jump} for c in found.crossings]
    data = {
        "rho": _finite(found.safe),
        "sigma2": _finite(0.5 / found.safe if found.safe else math.inf),
        "value": _finite(found.value),
        "crossings": crossings,
        "rho_bounded": _finite(2 * found.safe),
        "priors": p,
        "rho_for_every_prior": guaranteed_information(risk) if risk is not None else None,
        "scanned": [found.low, found.high],
    }
    bound = (
        f"R <= {risk:g}"
        if risk is not None
        else f"P[right] <= {right:g}"
        if exceed is None
        else f"P[R' > {exceed[0]:g}] <= {exceed[1]:g}"
    )
    for_whom = f"prior {p[0]:g}" if len(p) == 1 else f"every prior from {p[0]:g} to {p[1]:g}"
    noise = f"sigma2 = 1/(2 rho) = {0.5 / found.safe:.4f} (there {found.value:.6f})" if found.safe else ""
    lines = [
        f"one count, target present, {for_whom}: {bound} holds up to rho = {found.safe:.6f} of the count, {noise}"
        if found.safe
        else f"{bound} is broken from rho = {found.low:g} on",
        f"as a budget of this count: {found.safe:.6f} under unbounded neighbours, {2 * found.safe:.6f} under bounded ones",
    ]
    if len(found.crossings) > 1:
        places = ", ".join(
            f"{c.low:.4f} ({'broken' if c.breaks else 'holds again'} above)" for c in found.crossings
        )
        lines.append(f"it does not grow steadily: crossings at {places}")
    if risk is not None:
        ceiling = guaranteed_information(risk)
        lines.append(
            f"for every prior whatsoever R <= {risk:g} is guaranteed up to rho = ln({risk:g})/2 = {ceiling:.6f}"
        )
    _emit(as_json, data, lines)
