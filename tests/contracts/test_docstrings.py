"""Every exported name is documented as numpydoc asks: what it is, what each argument is, what comes back.

Held for every name in ``__all__`` of the public modules, and for the public methods of the classes there:

* GL08 there is a docstring; SS03 its first line is a sentence with a full stop;
* PR01 every argument is documented; PR02 and PR10 none is that is not there, none is malformed;
* RT03 a result that has a section is described; YD01 what is yielded is documented.

An argument counts as documented in a "Parameters" section or, for a record, in "Attributes"; a brief docstring without sections,
or a record of one sentence, may name it in its text. Not asked for: types beside the names (PR04, RT01, RT02), which signatures
have and mypy checks; the signature's order (PR03), since arguments that share a sentence stand together; an extended summary
(ES01), examples and "see also" for every name (EX01, SA01), which stand where they help; capitals and full stops of fragments
(PR08, PR09, RT04, RT05) and the mood of verbs (SS05: ruff's D401 has it).

Not looked into: the rooms within the exact engine, whose names no public module exports, and the methods that PyMC calls on a
distribution, whose arguments are PyMC's.
"""

import importlib
import inspect
import pkgutil
import re

import pytest
from numpydoc.validate import validate

import adversary

CHECKS = {"GL08", "SS03", "PR01", "PR02", "PR10", "RT03", "YD01"}
INSIDE = "adversary.samplers.exact."
PYMC = (
    "adversary.distributions.",
    "adversary.samplers.grid_gibbs.GridGibbs.",
    "adversary.priors.CreatesVariable",
)
KNOWN: set[str] = set()
"""Names that are not clean yet; to be emptied, and no name may stay in it that is."""


def public_modules():
    found = (info.name for info in pkgutil.walk_packages(adversary.__path__, "adversary."))
    open_to_all = (n for n in found if not any(p.startswith("_") for p in n.split(".")[1:]))
    return ["adversary", *(n for n in open_to_all if not n.startswith(INSIDE))]


def exported(module):
    """(name, object) of functions, classes and their public methods, where they are defined."""
    here = importlib.import_module(module)
    for name in getattr(here, "__all__", []):
        item = getattr(here, name)
        if not (inspect.isclass(item) or inspect.isfunction(item)) or item.__module__ != module:
            continue
        yield f"{module}.{name}", item
        if inspect.isclass(item) and not issubclass(item, BaseException):
            for own, value in vars(item).items():
                plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
                if not own.startswith("_") and inspect.isfunction(plain) and plain.__doc__:
                    yield f"{module}.{name}.{own}", plain


def left_out(item, text):
    """Arguments of a PR01 that no permitted place names."""
    names = [n.lstrip("*") for n in re.findall(r"'(\*{0,2}\w+)'", text)]
    if inspect.isclass(item) and issubclass(item, BaseException):
        return []  # message and value, those of their base
    doc = inspect.getdoc(item) or ""
    if re.search(r"(?i)\b(arguments|parameters)\b[^.]* as ", doc):  # "Arguments as `that_function`."
        return []
    has = {s for s in ("Parameters", "Attributes") if f"{s}\n---" in doc}
    by_name = not has if not inspect.isclass(item) else has <= {"Attributes"}
    return [n for n in names if not n.startswith("_") and not (by_name and re.search(rf"\b{n}\b", doc))]


def faults(module):
    for name, item in exported(module):
        if name.startswith(PYMC):
            continue
        for code, text in validate(name)["errors"]:
            if code in CHECKS and (code != "PR01" or left_out(item, text)):
                yield name, f"{name}: {code} {left_out(item, text) if code == 'PR01' else text}"


@pytest.mark.parametrize("module", public_modules())
def test_every_exported_name_is_documented(module):
    found = dict(faults(module))
    assert not [text for name, text in found.items() if name not in KNOWN]
    assert not {n for n in KNOWN if n.rpartition(".")[0] == module} - set(found), (
        "clean by now: take it off the list"
    )
