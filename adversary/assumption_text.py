"""Assumptions written as text: ``known=4``, ``present=Bernoulli(p=0.1)``, ``present.p=1/864``.

What it is: the one reader of such texts, for the command line and for configuration files. What it is not: Python. A text is
taken apart as a tree and only numbers, lists, names and distributions are accepted; nothing in it is called or executed.

Held to account by ``tests/test_cli.py`` and ``tests/test_config.py``.
"""

from __future__ import annotations

import ast
from fractions import Fraction
from typing import Any

from adversary.errors import ScenarioError
from adversary.priors import Prior

__all__ = ["changed_prior", "parse_assumption", "parse_prior", "parse_value"]


def parse_assumption(text: str, scenario: Any) -> tuple[str, Any]:
    """Turn ``NAME=VALUE`` into an assumption of the scenario; nothing is evaluated.

    Parameters
    ----------
    text
        ``known=4``, ``known=[1,0,2]``, ``present=Bernoulli(p=0.1)``, ``levels=block,tract`` or ``present.p=1/864``, which
        changes one parameter of the prior that is there.
    scenario
        Whose assumptions they are.

    Returns
    -------
    tuple
        The argument's name, and its new value or prior.

    Raises
    ------
    ScenarioError
        For a text of another form, a parameter that the prior lacks, a word where a number is wanted.

    Examples
    --------
    >>> from adversary import load
    >>> parse_assumption("present.p=1/8", load("two_level"))
    ('present', Prior('Bernoulli', p=0.125))
    """
    name, equals, value = text.partition("=")
    name, value = name.strip(), value.strip()
    if not equals or not value:
        msg = f"--assume takes NAME=VALUE, got {text!r}: for example known=4 or present=Bernoulli(p=0.1)"
        raise ScenarioError(msg, text)
    if "." in name:
        argument, parameter = name.split(".", 1)
        return argument, changed_prior(scenario, argument, {parameter: parse_value(value)})
    if value.endswith(")") and "(" in value:
        return name, parse_prior(value)
    found = parse_value(value)
    is_text = isinstance(found, str) or (isinstance(found, tuple) and any(isinstance(v, str) for v in found))
    if is_text and isinstance(scenario.assumptions.get(name), int | float):
        msg = f"{name} of {scenario.name} is a number, got {value!r}: write one, or a list such as [1,2]"
        raise ScenarioError(msg, value)
    return name, found


def changed_prior(scenario: Any, argument: str, parameters: dict[str, Any]) -> Any:
    """Return the prior of an argument with some of its parameters changed.

    Parameters
    ----------
    scenario
        Whose assumptions they are.
    argument
        The argument whose prior it is.
    parameters
        Parameter -> new value.

    Raises
    ------
    ScenarioError
        Where the argument has no prior, or its prior no such parameter.
    """
    old = scenario.assumptions.get(argument)
    there = getattr(old, "parameters", {})
    wrong = [k for k in parameters if k not in there]
    if not hasattr(old, "parameters") or wrong:
        name = f"{argument}.{wrong[0]}" if wrong else argument
        msg = f"{name} is no parameter of a prior of {scenario.name}: its assumptions are {', '.join(scenario.assumptions)}"
        raise ScenarioError(msg, name)
    return Prior(old.distribution, dims=old.dims, shape=old.shape, **{**there, **parameters})


def parse_prior(text: str) -> Any:
    """Read ``Bernoulli(p=0.1)`` or ``Prior('Bernoulli', p=0.1)``.

    Parameters
    ----------
    text
        The name of a distribution with named parameters, which are numbers (fractions too) or lists of numbers.

    Raises
    ------
    ScenarioError
        For anything else.

    Examples
    --------
    >>> parse_prior("Poisson(mu=5)")
    Prior('Poisson', mu=5)
    """
    try:
        call = ast.parse(text, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise SyntaxError
        arguments = [ast.literal_eval(a) for a in call.args]
        distribution = arguments.pop(0) if call.func.id == "Prior" and arguments else call.func.id
        if arguments or any(k.arg is None for k in call.keywords):
            raise SyntaxError
        parameters = {str(k.arg): parse_value(ast.unparse(k.value)) for k in call.keywords}
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, ScenarioError):
            raise
        msg = f"{text!r} is not a prior: write the distribution with named parameters, as in Bernoulli(p=0.1)"
        raise ScenarioError(msg, text) from None
    return Prior(distribution, **parameters)


def parse_value(text: str) -> Any:
    """Read a number (1/864 too), a list of numbers, or names separated by commas.

    Parameters
    ----------
    text
        As it was typed.

    Raises
    ------
    ScenarioError
        For what begins like a list and is none.

    Examples
    --------
    >>> parse_value("1/8"), parse_value("[1, 2]"), parse_value("block,tract")
    (0.125, [1, 2], ('block', 'tract'))
    """
    text = text.replace(" ", "")
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(Fraction(text)) if "/" in text else float(text)
    except (ValueError, ZeroDivisionError, OverflowError):
        pass
    if text[:1] in tuple("[('\""):
        try:
            return ast.literal_eval(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            msg = f"{text!r} is not a value: write a number, a list such as [1,2,3], or names separated by commas"
            raise ScenarioError(msg, text) from None
    return tuple(text.split(",")) if "," in text else text
