"""A synthetic state as a folder of plain files, written whole or not at all, read back to the last digit.

What it is: ``households.csv`` (the truth, one line a household), ``blocks.csv`` (neighbourhood, place on the
map, number of properties), ``sample.csv`` (the microdata sample as counts) and ``state.json`` (the shape, the
seed, the attributes, the SHA-256 of each file). No pickle; every file can be read and written by other
software. What it is not: a release. ``households.csv`` is what an adversary must *not* have.

Synthetic households only. Held to account by tests/reconstruction/test_state_files.py (round trips; every
file spoiled).
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from adversary._files import make_folder, whole
from adversary._version import __version__
from adversary.errors import FileFormatError
from adversary.reconstruction.households import Attribute, Configurations, household_configurations
from adversary.reconstruction.synthetic import StateShape, SyntheticState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

__all__ = ["NOTE", "is_state", "read_state", "write_state"]

NOTE = "synthetic households only: nobody in these files exists"
_FORM, _VERSION = "adversary synthetic state", 1
_HOUSEHOLD = ("block", "property", "bedrooms", "size", "children", "elderly", "race")
_BLOCK = ("block", "tract", "x", "y", "properties")
_README = f"""# A synthetic state ({NOTE})

* `households.csv`: one line a household, by block. `property` is `none` or the number of the subsidised
  property in the block, `bedrooms` is `NA` exactly if it is `none`; `size` and `children` are persons.
* `blocks.csv`: one line a block: its number from 0, neighbourhood, place on the map, number of properties.
* `sample.csv`: households in the microdata sample by size, children, elderly, race.
* `state.json`: shape, seed, levels of the attributes, SHA-256 of each file. Take a file out of `files` to have
  it read without that check.

Read with `adversary.reconstruction.state_files.read_state`.
"""


def write_state(state: SyntheticState, folder: str | Path, *, seed: int | None = None) -> Path:
    """Write a synthetic state to a new folder.

    Parameters
    ----------
    state
        See `adversary.reconstruction.synthetic.synthetic_state`.
    folder
        Must not exist, or be empty.
    seed
        Written into ``state.json``, so that the state can be drawn again; None if it is not known.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    FileFormatError
        If the folder holds something.

    Examples
    --------
    >>> import tempfile
    >>> from adversary.reconstruction.synthetic import synthetic_state
    >>> state = synthetic_state(StateShape(blocks=60), seed=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_state(state, Path(folder) / "state", seed=1)
    ...     names, back = sorted(p.name for p in path.iterdir()), read_state(path)
    >>> names
    ['README.md', 'blocks.csv', 'households.csv', 'sample.csv', 'state.json']
    >>> bool((back.records == state.records).all())
    True
    """
    path = Path(folder)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        msg = f"{path} is not an empty folder: give another name"
        raise FileFormatError(msg, str(path))
    tables = {
        "households.csv": _households(state),
        "blocks.csv": _blocks(state),
        "sample.csv": _sample(state),
    }
    head = {
        "format": _FORM,
        "version": _VERSION,
        "note": NOTE,
        "adversary": __version__,
        "seed": seed,
        "shape": asdict(state.shape),
        "attributes": [a._asdict() for a in state.census.attributes],
        "files": {name: hashlib.sha256(text.encode()).hexdigest() for name, text in tables.items()},
    }
    tables |= {"README.md": _README, "state.json": json.dumps(head, indent=1, ensure_ascii=False) + "\n"}
    make_folder(path.parent)
    if path.exists():
        path.rmdir()  # it is empty
    with whole(path) as draft:
        draft.mkdir()
        for name, text in tables.items():
            (draft / name).write_bytes(text.encode())
    return path


def is_state(folder: str | Path) -> bool:
    """Whether a folder looks like one that `write_state` wrote."""
    return (Path(folder) / "state.json").is_file()


def read_state(folder: str | Path) -> SyntheticState:
    """Read a synthetic state.

    Parameters
    ----------
    folder
        What `write_state` wrote, or files of the same form.

    Raises
    ------
    FileFormatError
        A file is missing, was changed, or has a line that cannot be; file, line and field are named.
    """
    path = Path(folder)
    head = _head(path)
    shape = _shape(head.get("shape", {}))
    attributes = _attributes(head.get("attributes"))
    names = tuple(a.name for a in attributes)
    seen = _table(path, "sample.csv", (*names, "households"), head)
    codes = np.column_stack([seen.codes(a) for a in attributes]) if attributes else np.zeros((0, 0), np.int64)
    census = Configurations(attributes, codes)
    sample = seen.whole("households")
    blocks = _table(path, "blocks.csv", _BLOCK, head)
    homes = blocks.whole("properties")
    if not len(homes) or not np.array_equal(blocks.whole("block"), np.arange(len(homes))) or homes.min() < 1:
        msg = "blocks.csv: blocks are numbered 0, 1, 2, ... in order, each with a property or more"
        raise FileFormatError(msg, "block")
    position = np.column_stack([blocks.real("x"), blocks.real("y")])
    truth = _table(path, "households.csv", _HOUSEHOLD, head)
    block = truth.whole("block")
    full = household_configurations(properties=int(homes.max()))
    records = np.column_stack([truth.codes(a) for a in full.attributes])
    home = records[:, full.column("property")]
    for bad, rule in (
        (block >= len(homes), "its block is not in blocks.csv"),
        (np.append(False, np.diff(block) < 0), "households stand in the order of their blocks"),
        (full.find(records) < 0, "bedrooms are NA exactly if property is none, and somebody is an adult"),
        (home > homes[np.minimum(block, len(homes) - 1)], "its block has fewer properties"),
    ):
        if bad.any():
            line = int(np.flatnonzero(bad)[0]) + 2
            msg = f"households.csv, line {line}: {rule}; mend the file"
            raise FileFormatError(msg, line)
    return SyntheticState(shape, census, sample, records, block, blocks.whole("tract"), position, homes)


def _csv(names: Iterable[str], columns: Iterable[Iterable[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(zip(*columns, strict=True))
    return out.getvalue()


def _labels(table: Configurations, records: NDArray[np.int64]) -> list[list[str]]:
    return [
        np.array(a.levels, dtype=np.str_)[records[:, column]].tolist()
        for column, a in enumerate(table.attributes)
    ]


def _households(state: SyntheticState) -> str:
    return _csv(_HOUSEHOLD, [state.block.tolist(), *_labels(state.configurations(), state.records)])


def _blocks(state: SyntheticState) -> str:
    x, y = state.position.T.tolist()  # written by repr, which reads back to the last digit
    return _csv(_BLOCK, [range(len(state)), state.tract.tolist(), x, y, state.homes.tolist()])


def _sample(state: SyntheticState) -> str:
    columns = _labels(state.census, state.census.codes)
    return _csv((*state.census.names, "households"), [*columns, state.sample.tolist()])


def _head(path: Path) -> Mapping[str, Any]:
    file = path / "state.json"
    try:
        head = json.loads(file.read_text(encoding="utf-8"))
    except OSError:
        msg = f"{path} holds no state.json: write a state with `adversary reconstruct simulate`"
        raise FileFormatError(msg, str(path)) from None
    except ValueError:
        msg = f"{file.name} is not JSON: write the state again"
        raise FileFormatError(msg, file.name) from None
    if not isinstance(head, dict) or (head.get("format"), head.get("version")) != (_FORM, _VERSION):
        found = (head.get("format"), head.get("version")) if isinstance(head, dict) else head
        msg = f"{file.name} is of {found}, not of {(_FORM, _VERSION)}: write the state again"
        raise FileFormatError(msg, found)
    return head


def _shape(given: Mapping[str, Any]) -> StateShape:
    known = {f.name for f in fields(StateShape)}
    unknown = sorted(set(given) - known)
    if unknown:
        msg = f"state.json: a shape has no {unknown[0]!r}: it has {', '.join(sorted(known))}"
        raise FileFormatError(msg, unknown)

    def frozen(value: Any) -> Any:
        return tuple(frozen(v) for v in value) if isinstance(value, list) else value

    return StateShape(**{name: frozen(value) for name, value in given.items()})


def _attributes(given: Any) -> tuple[Attribute, ...]:
    wanted = household_configurations(census_only=True).attributes
    try:
        found = tuple(Attribute(a["name"], tuple(a["levels"]), tuple(a["values"])) for a in given)
    except (TypeError, KeyError):
        found = ()
    if found != wanted:
        msg = "state.json: attributes must be those of the package (size, children, elderly, race): take them over"
        raise FileFormatError(msg, given)
    return found


class _Table(NamedTuple):
    """A file's columns as text."""

    name: str
    columns: Mapping[str, list[str]]

    def _numbers(self, name: str, kind: Callable[[str], Any], rule: str) -> list[Any]:
        out = []
        for line, text in enumerate(self.columns[name], start=2):
            try:
                value = kind(text)
            except ValueError:
                value = None
            if value is None or not np.isfinite(value) or (kind is int and not 0 <= value < 2**31):
                msg = f"{self.name}, line {line}: {name} is {text!r}: {rule}"
                raise FileFormatError(msg, text)
            out.append(value)
        return out

    def whole(self, name: str) -> NDArray[np.int64]:
        return np.array(self._numbers(name, int, "a whole number of 0 or more belongs there"), dtype=np.int64)

    def real(self, name: str) -> NDArray[np.float64]:
        return np.array(self._numbers(name, float, "a number belongs there"), dtype=np.float64)

    def codes(self, attribute: Attribute) -> NDArray[np.int64]:
        place = {level: code for code, level in enumerate(attribute.levels)}
        out = []
        for line, text in enumerate(self.columns[attribute.name], start=2):
            if text not in place:
                levels = ", ".join(attribute.levels)
                msg = f"{self.name}, line {line}: {attribute.name} is {text!r}: choose one of {levels}"
                raise FileFormatError(msg, text)
            out.append(place[text])
        return np.array(out, dtype=np.int64)


def _table(path: Path, name: str, columns: tuple[str, ...], head: Mapping[str, Any]) -> _Table:
    """Read one file, whose digest must be the one written down, if one is."""
    try:
        content = (path / name).read_bytes()
        text = content.decode()
    except OSError:
        msg = f"{path} lacks {name}: a state is households.csv, blocks.csv, sample.csv and state.json"
        raise FileFormatError(msg, name) from None
    except UnicodeDecodeError:
        msg = f"{name} is not UTF-8: write the state again"
        raise FileFormatError(msg, name) from None
    digest = head.get("files", {}).get(name)
    if digest is not None and digest != hashlib.sha256(content).hexdigest():
        msg = f"{name} was changed since it was written: restore it, or take it out of files in state.json"
        raise FileFormatError(msg, name)
    rows = list(csv.reader(io.StringIO(text)))
    if not rows or tuple(rows[0]) != columns:
        msg = f"{name}: the first line is {rows[0] if rows else ''}, not {','.join(columns)}"
        raise FileFormatError(msg, name)
    for line, row in enumerate(rows[1:], start=2):
        if len(row) != len(columns):
            msg = f"{name}, line {line}: {len(row)} fields where there are {len(columns)}: mend the file"
            raise FileFormatError(msg, len(row))
    body = rows[1:]
    return _Table(name, {c: [row[i] for row in body] for i, c in enumerate(columns)})
