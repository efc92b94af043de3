"""Commands of reconstruction: ``adversary reconstruct simulate | solve | variability | posterior | evaluate``.

Nothing here computes. Data are a synthetic state (a folder that ``simulate`` wrote) or a folder of PL 94-171
files; every number about the first is about synthetic households only, and says so. Exit 1 where something is
certain (a harm, a table), 2 where a block could not be asked.

Held to account by ``tests/test_cli_reconstruct.py``.
"""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

import click

from adversary.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from adversary.reconstruction.folders import Source

__all__ = ["reconstruct"]

_SHOWN = 20  # blocks written out as sentences


def _needs(*backends: str) -> None:
    """Say at once that the extra is missing, not once a block."""
    from adversary.reconstruction._program import require

    for backend in backends:
        require(backend)


def _limits(options: Mapping[str, Any]) -> Any:
    from adversary.reconstruction.solve import Limits

    return Limits(options["seconds"], options["megabytes"])


def _view(options: Mapping[str, Any]) -> Any:
    from adversary.reconstruction.ask import StateView
    from adversary.reconstruction.folders import parse_mechanism

    return StateView(
        parse_mechanism(options["mechanism"]),
        options["tables"] or "base",
        options["seed"],
        options["mend"],
        options["backend"],
        _limits(options),
    )


def _seen(options: Mapping[str, Any], attributes: tuple[str, ...] = ()) -> Any:
    from adversary.reconstruction.blocks import PERSONS, Pl94Question
    from adversary.reconstruction.pl94 import PL94_TABLES

    households: dict[str, int] = {}
    for text in options["households"]:
        code, _, number = text.partition("=")
        if not number.isdecimal():
            msg = f"--households takes CODE=PERSONS, got {text!r}"
            raise ModelError(msg, text)
        households[code] = int(number)
    tables = tuple(options["tables"].split(",")) if options["tables"] else PL94_TABLES
    quarters = options["quarters"] or bool(households)
    default = ("quarters", *PERSONS) if quarters else PERSONS
    return Pl94Question(
        tables, quarters, attributes or default, households, options["backend"], _limits(options)
    )


def _options(*added: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decorate(command: Any) -> Any:
        for option in reversed(added):
            command = option(command)
        return command

    return decorate


_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_which = (
    click.option("--block", "chosen", multiple=True, help="Only these blocks: 3,4 or 440070001011000."),
    click.option("--first", type=click.IntRange(min=1), default=None, help="Only the first so many."),
)
_run = (
    click.option(
        "--out",
        type=click.Path(file_okay=False),
        default=None,
        help="Folder of one file a block; run again to go on where it stopped.",
    ),
    click.option("--processes", type=click.IntRange(min=1), default=1, show_default=True),
    _json,
)
_solver = (
    click.option("--backend", type=click.Choice(["highs", "cpsat"]), default="highs", show_default=True),
    click.option(
        "--seconds",
        type=click.FloatRange(min=0),
        default=60.0,
        show_default=True,
        help="Time limit of each question.",
    ),
    click.option("--megabytes", type=click.FloatRange(min=1), default=None, help="Growth of memory allowed."),
)
_published = (
    click.option(
        "--mechanism",
        default="none",
        show_default=True,
        help="Synthetic state: none, swapping-10, 2020-budget, uniform-budget, 2020-budget-HUD-noised; "
        "or swap=0.05, census=0.1, census=2020,hud=0.01.",
    ),
    click.option(
        "--tables",
        default=None,
        help="Synthetic state: base (default) or rich. PL 94-171: P1,P2,P3 (all five by default).",
    ),
    click.option(
        "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of swaps and noise."
    ),
    click.option("--mend", is_flag=True, help="Widen contradictory rows by the least error first."),
    click.option("--quarters", is_flag=True, help="PL 94-171: tell apart kinds of group quarters."),
    click.option(
        "--households",
        multiple=True,
        metavar="CODE=N",
        help="PL 94-171: persons in households of a block, from another source.",
    ),
    click.option(
        "--level",
        default="block",
        show_default=True,
        help="PL 94-171: block, block_group, tract, county, state.",
    ),
)


@click.group()
def reconstruct() -> None:
    """Rebuild households from published tables: what is certain, what is likely, what stays open."""


@reconstruct.command()
@click.option("--out", type=click.Path(file_okay=False), required=True, help="A folder not there yet.")
@click.option("--seed", type=click.IntRange(min=0), required=True, help="Seed of the state.")
@click.option("--blocks", type=click.IntRange(min=1), default=300, show_default=True)
@click.option("--smallest", type=click.IntRange(min=1), default=10, show_default=True, help="Households.")
@click.option("--largest", type=click.IntRange(min=1), default=80, show_default=True, help="Households.")
@click.option("--subsidised", type=float, default=0.47, show_default=True, help="Share of households.")
@click.option("--violating", type=float, default=0.034, show_default=True, help="Share of the subsidised.")
@click.option("--violating-blocks", type=float, default=0.449, show_default=True, help="Share of blocks.")
@click.option(
    "--bedrooms",
    type=click.Choice(["right-sized", "to-need", "loose"]),
    default="right-sized",
    show_default=True,
    help="How units are fitted to need.",
)
@click.option("--beyond-sample", is_flag=True, help="Households may be of a kind that no sample has.")
@_json
def simulate(out: str, as_json: bool, **options: Any) -> None:
    """Write a synthetic state to a folder (plain files; see its README.md)."""
    from adversary.reconstruction.believe import BEDROOMS
    from adversary.reconstruction.state_files import NOTE, write_state
    from adversary.reconstruction.synthetic import StateShape, synthetic_state

    seed, within = options.pop("seed"), not options.pop("beyond_sample")
    options["bedrooms"] = BEDROOMS[options["bedrooms"]]
    state = synthetic_state(StateShape(**options, within_sample=within), seed=seed)
    path = write_state(state, out, seed=seed)
    data = {"folder": str(path), "blocks": len(state), "households": len(state.records), "seed": seed}
    line = f"{len(state):,} blocks, {len(state.records):,} households in {path}; {NOTE}"
    click.echo(json.dumps({**data, "note": NOTE}, ensure_ascii=False) if as_json else line)


@reconstruct.command()
@click.argument("data", type=click.Path())
@click.option(
    "--question",
    type=click.Choice(["feasible", "bounds", "most-likely", "top", "claims", "closest"]),
    default="feasible",
    show_default=True,
)
@click.option(
    "--harm",
    default=None,
    help="over-limit (default for a synthetic state), subsidised, or size=3|4,bedrooms=0-1; none for none.",
)
@click.option("--attributes", default=None, help="Attributes of the cells of bounds and claims: size,race.")
@click.option("--top", type=click.IntRange(min=1), default=100, show_default=True, help="Length of the list.")
@_options(*_which, *_published, *_solver, *_run)
def solve(data: str, question: str, harm: str | None, **options: Any) -> None:
    """Put one question to the blocks of DATA (a synthetic state, or a folder of PL 94-171 files).

    Exit 1 where the harm is certain in some block: every solution has a household (a person) with it.
    """
    from adversary.reconstruction.ask import ask_pl94, ask_state
    from adversary.reconstruction.folders import open_folder
    from adversary.reconstruction.questions import Question, parse_harm

    _needs(options["backend"], *(["cpsat"] if question == "top" else []))
    source = open_folder(data, options["level"])
    if harm is None:
        harm = "over-limit" if source.table is None and question in {"feasible", "bounds", "top"} else "none"
    names = tuple(options["attributes"].split(",")) if options["attributes"] else ()
    asked = Question(question, None if harm == "none" else parse_harm(harm), names, options["top"])
    blocks = _blocks(source, options)
    how = _how(options)
    if source.table is None:
        found = ask_state(source.state, _view(options), asked, blocks, **how)
    else:
        found = ask_pl94(source.table, _seen(options), asked, blocks, **how)
    head = f"{question}{'' if harm == 'none' else f' ({harm})'}"
    _report(source, head, found, question, options["as_json"])


@reconstruct.command()
@click.argument("data", type=click.Path())
@click.option(
    "--attributes", default=None, help="size,race; or simplified: the paper's table. All by default."
)
@click.option("--harm", default=None, help="Look only at these: over-limit, subsidised, size=3|4.")
@click.option("--figure", type=click.Path(dir_okay=False), default=None, help="Draw the blocks (.png).")
@_options(*_which, *_published, *_solver, *_run)
def variability(
    data: str, attributes: str | None, harm: str | None, figure: str | None, **options: Any
) -> None:
    """Say how far two solutions of a block can be apart; for PL 94-171 also bounds of every cell.

    Exit 1 where a block with people is determined: the tables leave one solution only.
    """
    from adversary.reconstruction.ask import ask_state
    from adversary.reconstruction.blocks import reconstruct_pl94
    from adversary.reconstruction.folders import open_folder
    from adversary.reconstruction.questions import Question, parse_harm

    _needs(options["backend"])
    source = open_folder(data, options["level"])
    names = tuple(attributes.split(",")) if attributes else ()
    blocks = _blocks(source, options)
    how = _how(options)
    if source.table is None:
        asked = Question("variability", None if harm is None else parse_harm(harm), names)
        found = ask_state(source.state, _view(options), asked, blocks, **how)
        if figure:
            shares = [answer.get("share") for answer in found.values()]
            _draw_shares(options["mechanism"], [math.nan if s is None else s for s in shares], figure)
        _report(source, "variability", found, "variability", options["as_json"])
        return
    if harm is not None:
        msg = "--harm belongs to a synthetic state: for PL 94-171 choose --attributes"
        raise click.UsageError(msg)
    answers = reconstruct_pl94(source.table, _seen(options, names), blocks, **how)
    summary = answers.summary()
    if figure:
        _draw_shares(", ".join(answers.question.tables), answers.shares, figure, note="")
    if options["as_json"]:
        cells = [answers.question.cells.label(k) for k in range(len(answers.question.cells))]
        told = {"note": source.note, "summary": summary, "cells": cells}
        told["blocks"] = {b.block: b.to_dict() for b in answers.blocks}
        click.echo(json.dumps(told, ensure_ascii=False))
    else:
        click.echo("\n".join([*answers.lines(), source.note]))
    _leave(summary["statuses"].get("error", 0), summary["determined_with_people"])


@reconstruct.command()
@click.argument("data", type=click.Path())
@click.option("--harm", default=None, help="As for solve; over-limit by default for a synthetic state.")
@click.option(
    "--bedrooms",
    type=click.Choice(["flat", "right-sized", "to-need", "loose"]),
    default="flat",
    show_default=True,
    help="What she believes of bedrooms given size.",
)
@click.option("--subsidised", type=float, default=0.47, show_default=True, help="P(subsidised), her belief.")
@click.option("--violating", type=float, default=0.034, show_default=True, help="P(over the limit), hers.")
@click.option(
    "--likelihood", type=click.Choice(["exchangeable", "ordered"]), default="exchangeable", show_default=True
)
@click.option(
    "--method", type=click.Choice(["auto", "exact", "tempering"]), default="auto", show_default=True
)
@click.option("--draws", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option("--states", type=click.IntRange(min=1), default=400_000, show_default=True, help="Of exact.")
@click.option("--sweeps", type=click.IntRange(min=100), default=4_000, show_default=True, help="Sampled.")
@click.option(
    "--threshold", type=float, default=0.5, show_default=True, help="P above which it is a finding."
)
@_options(*_which, *_published, *_solver, *_run)
def posterior(data: str, harm: str | None, threshold: float, **options: Any) -> None:
    """Give the posterior probability that a household (a person) with the harm is in each block of DATA.

    Exit 1 where it exceeds the threshold in some block.
    """
    from adversary.reconstruction.believe import Belief, believe_pl94, believe_state
    from adversary.reconstruction.folders import open_folder
    from adversary.reconstruction.posterior import Effort
    from adversary.reconstruction.questions import parse_harm

    _needs(options["backend"])
    source = open_folder(data, options["level"])
    if harm is None and source.table is not None:
        msg = "--harm is needed for PL 94-171, for example votingage=under_18,hispanic=hispanic"
        raise click.UsageError(msg)
    names = ("bedrooms", "subsidised", "violating", "likelihood", "method", "draws", "seed")
    effort = Effort(states=options["states"], sweeps=options["sweeps"])
    named = {name: options[name] for name in names}
    belief = Belief(parse_harm(harm or "over-limit"), effort=effort, **named)
    blocks = _blocks(source, options)
    how = _how(options)
    if source.table is None:
        found = believe_state(source.state, _view(options), belief, blocks, **how)
    else:
        found = believe_pl94(source.table, _seen(options), belief, blocks, **how)
    for answer in found.values():
        answer["finding"] = answer.get("probability", 0.0) > threshold
    head = f"P(a household that {belief.harm.name})" if source.table is None else f"P(a person with {harm})"
    _report(source, head, found, None, options["as_json"])


@reconstruct.command()
@click.argument("state", type=click.Path())
@click.option(
    "--mechanism", "mechanisms", multiple=True, help="As for solve; several times. All five by default."
)
@click.option(
    "--top", type=click.IntRange(min=0), default=100, show_default=True, help="Length of the list; 0: none."
)
@click.option("--posterior", "with_posterior", is_flag=True, help="Rank by the posterior too; slower.")
@click.option(
    "--bedrooms",
    type=click.Choice(["unknown", "to need"]),
    default="unknown",
    show_default=True,
    help="What she takes for granted of bedrooms given size.",
)
@click.option("--tables", type=click.Choice(["base", "rich"]), default="base", show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of all draws.")
@click.option("--first", type=click.IntRange(min=1), default=None, help="Only the first so many blocks.")
@click.option("--seconds", type=click.FloatRange(min=0), default=60.0, show_default=True)
@click.option("--megabytes", type=click.FloatRange(min=1), default=None)
@click.option("--figures", type=click.Path(file_okay=False), default=None, help="Folder for two figures.")
@_options(*_run)
def evaluate(state: str, mechanisms: tuple[str, ...], **options: Any) -> None:
    """Run the housing study on a synthetic STATE: publish under each mechanism, rebuild, compare with the truth."""
    from adversary.reconstruction.evaluation import evaluate as compare
    from adversary.reconstruction.folders import parse_mechanism
    from adversary.reconstruction.state_files import NOTE, read_state
    from adversary.reconstruction.study import StudyOptions, reconstruct_state

    _needs("highs", "cpsat")
    source = read_state(state)
    asked = StudyOptions(
        options["top"],
        options["tables"],
        options["with_posterior"],
        options["bedrooms"],
        limits=_limits(options),
    )
    result = reconstruct_state(
        source,
        [parse_mechanism(text) for text in mechanisms] or None,
        options["out"],
        seed=options["seed"],
        options=asked,
        blocks=None if options["first"] is None else range(min(options["first"], len(source))),
        processes=options["processes"],
        progressbar=sys.stderr.isatty() and not options["as_json"],
    )
    found = compare(source, result, seed=options["seed"])
    figures = (
        [] if options["figures"] is None else _draw(found, options["figures"], by_posterior=asked.posterior)
    )
    if options["as_json"]:
        told = {
            "note": NOTE,
            "blocks": len(result.blocks),
            "flags": {
                name: {**f._asdict(), "precision": _finite(f.precision), "recall": _finite(f.recall)}
                for name, f in found.flags.items()
            },
            "statuses": found.statuses,
            "seconds_a_block": {k: _finite(v) for k, v in result.seconds_a_block().items()},
            "linkage": [_told(setting, its) for setting, its in found.curves.items()],
            "figures": figures,
        }
        click.echo(json.dumps(told, ensure_ascii=False))
    else:
        click.echo("\n".join([found.table(), "", result.projection(options["processes"]), *figures, NOTE]))
    _leave(sum(its.get("error", 0) for its in found.statuses.values()), 0)


def _told(setting: Any, its: Any) -> dict[str, Any]:
    """One curve as JSON: at as many households as have the harm, with the range over the order within ties."""
    k = min(its.total, len(its))
    low, high = its.precision_range
    at = {"mean": its.precision, "low": low, "high": high}
    return {
        **setting._asdict(),
        "households": len(its),
        "harmed": its.total,
        "base_rate": _finite(its.precision[-1]) if len(its) else None,
        "precision_at_harmed": {name: float(values[k - 1]) for name, values in at.items()} if k else None,
        "precision_at_recall_10": _finite(its.precision_at(0.10)),
        "recall_at_precision_66": its.recall_at(0.66),
    }


def _draw(found: Any, folder: str, *, by_posterior: bool) -> list[str]:
    """Save the flags and, for a holder of HUD's records, precision against recall."""
    from adversary._files import make_folder
    from adversary.plots import plot_flagged_blocks, plot_precision_recall
    from adversary.reconstruction.evaluation import KNOWLEDGE, Setting

    path = make_folder(folder)
    ranking = "posterior" if by_posterior else "list a household"
    knows = KNOWLEDGE[0].name
    curves = {m: found.curve(Setting(m, knows, ranking)) for m in found.mechanisms}
    base = next((float(its.precision[-1]) for its in curves.values() if len(its)), None)
    drawn = {
        "flagged-blocks.png": plot_flagged_blocks(found.flags),
        "precision-recall.png": plot_precision_recall(curves, base_rate=base),
    }
    for name, ax in drawn.items():
        _save(ax, path / name)
    return [str(path / name) for name in drawn]


def _draw_shares(label: str, shares: Any, file: str, **note: str) -> None:
    from adversary.plots import plot_solution_variability

    _save(plot_solution_variability({label: shares}, **note), file)


def _save(ax: Any, path: Any) -> None:
    import io

    from adversary._files import write_whole

    image = io.BytesIO()
    ax.figure.savefig(image, dpi=150, format="png")
    write_whole(path, image.getvalue())


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _blocks(source: Source, options: Mapping[str, Any]) -> list[Any] | None:
    if options["chosen"] and options["first"] is not None:
        msg = "--block and --first exclude each other"
        raise click.UsageError(msg)
    return source.blocks(options["chosen"], options["first"])


def _how(options: Mapping[str, Any]) -> dict[str, Any]:
    show = sys.stderr.isatty() and not options["as_json"]
    return {"out": options["out"], "processes": options["processes"], "progressbar": show}


def _report(
    source: Source, head: str, found: Mapping[str, Mapping[str, Any]], question: str | None, as_json: bool
) -> None:
    from adversary.reconstruction.sentences import answer_sentence, answers_summary, belief_sentence

    summary = answers_summary(found)
    if as_json:
        data = {"note": source.note, "asked": head, **summary, "answers": found}
        click.echo(json.dumps(data, ensure_ascii=False))
    else:
        told = ", ".join(f"{name} {n:,}" for name, n in summary["statuses"].items())
        lines = [f"{head}: {summary['blocks']:,} blocks ({told}); {summary['findings']:,} with a finding"]
        for name, answer in list(found.items())[:_SHOWN]:
            said = belief_sentence(answer) if question is None else answer_sentence(question, answer)
            lines.append(f"  {name}: {said}")
        if len(found) > _SHOWN:
            lines.append(f"  ... and {len(found) - _SHOWN:,} more: see --json, or the files in --out")
        click.echo("\n".join([*lines, source.note]))
    _leave(summary["errors"], summary["findings"])


def _leave(errors: int, findings: int) -> None:
    """Exit 2 where a block could not be asked, 1 where something was found."""
    if errors:
        click.echo(f"adversary: {errors:,} blocks could not be asked: see their errors", err=True)
        sys.exit(2)
    if findings:
        sys.exit(1)
