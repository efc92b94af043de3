"""Codebooks of IPUMS extracts (DDI 2.5, XML): where each variable stands in a line. Internal: see :mod:`adversary.readers.ipums`.

The XML comes from a data file's neighbour and is not trusted: a document type declaration, and with it every entity, is
refused before anything is expanded; nothing outside the file is ever opened.

Held to account by ``tests/readers/test_ipums.py``. Sources: IPUMS USA's codebooks of extracts; the layout of the extract
EXT1940USCB is the SPSS syntax file that IPUMS publishes with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET
from xml.parsers import expat

from adversary.errors import FileFormatError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EXT1940USCB", "Codebook", "Field", "read_ddi"]

_LARGEST = 100_000_000  # bytes; a codebook of thousands of variables has a few million
_WIDEST = 1000  # characters of a field


@dataclass(frozen=True)
class Field:
    """Where a variable stands.

    Attributes
    ----------
    name
        Its name, upper case.
    start, stop
        Columns of the line, counted from 0, ``stop`` not included.
    records
        Kinds of line that have it: ``"H"``, ``"P"`` or both; empty in a rectangular file.
    decimals
        Implied decimal places.
    """

    name: str
    start: int
    stop: int
    records: str = ""
    decimals: int = 0

    @property
    def width(self) -> int:
        """Number of characters."""
        return self.stop - self.start


@dataclass(frozen=True)
class Codebook:
    """Layout of an extract.

    Attributes
    ----------
    fields
        Name -> where it stands.
    hierarchical
        Whether households and persons have lines of their own (``RECTYPE`` H and P).
    source
        Name of the file.
    """

    fields: Mapping[str, Field]
    hierarchical: bool
    source: str

    def field(self, *names: str) -> Field:
        """Return the first of the names that the extract has.

        Raises
        ------
        FileFormatError
            If it has none of them.
        """
        found = next((self.fields[n] for n in names if n in self.fields), None)
        if found is None:
            listed = ", ".join(self.fields)
            msg = (
                f"{self.source}: the extract has no variable {' or '.join(names)}: add it to the extract; it has "
                f"{listed if len(listed) < 300 else f'{len(self.fields)} others'}"
            )
            raise FileFormatError(msg, names)
        return found


def _fields(records: str, text: str) -> dict[str, Field]:
    out = {}
    for entry in text.split(","):
        name, _, columns = entry.strip().partition(" ")
        first, _, last = columns.partition("-")
        out[name] = Field(name, int(first) - 1, int(last or first), records)
    return out


EXT1940USCB = Codebook(
    MappingProxyType(
        {
            **_fields(
                "H",
                "NUMPREC 16-17, STATEICP 52-53, STATEFIP 54-55, COUNTY 56-59, GQ 94, GQTYPE 95, GQTYPED 96-98",
            ),
            **_fields("H", "ENUMDIST 125-128, SUPDIST 129-131, EDMISS 159"),
            **_fields(
                "P",
                "PERNUM 16-19, RELATE 67-68, SEX 73, AGE 74-76, RACE 85, RACED 86-88, HISPAN 89, HISPAND 90-92",
            ),
            **_fields("HP", "RECTYPE 1, YEAR 2-5, DATANUM 6-7, SERIAL 8-15"),
        }
    ),
    True,
    "EXT1940USCB",
)
"""Layout of the 1940 full count that was made for tests of the Disclosure Avoidance System; the variables used here."""


def _tree(path: Path) -> ET.Element:
    """Parse without a document type and without entities."""
    data = path.read_bytes()
    if len(data) > _LARGEST:
        msg = f"{path.name} has {len(data):,} bytes: a codebook is an XML file of a few million; give that, not the data"
        raise FileFormatError(msg, len(data))
    builder = ET.TreeBuilder()
    parser = expat.ParserCreate(namespace_separator="}")

    def refuse(*_: Any) -> int:
        msg = f"{path.name}: a codebook has no document type or entities: this file may be made to do harm"
        raise FileFormatError(msg, path.name)

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    parser.StartElementHandler = lambda tag, given: builder.start(tag.rpartition("}")[2], given)
    parser.EndElementHandler = lambda tag: builder.end(tag.rpartition("}")[2])
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(data, True)
        return builder.close()
    except (expat.ExpatError, UnicodeError, AssertionError, LookupError) as error:
        msg = f"{path.name} is no XML ({shown(str(error))}): download the extract's DDI codebook again"
        raise FileFormatError(msg, path.name) from error


def _number(text: str | None, what: str, source: str) -> int:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 6:
        msg = f"{source}: {what} is {shown(text)}, but a column of a line is expected: download the codebook again"
        raise FileFormatError(msg, text)
    return int(text)


def read_ddi(path: str | Path) -> Codebook:
    """Layout from the DDI codebook of an extract (``usa_00001.xml``).

    Parameters
    ----------
    path
        The XML file that IPUMS gives beside the data.

    Raises
    ------
    FileFormatError
        For a file that is no XML or no codebook, has a document type or entities, or places a variable nowhere.

    Examples
    --------
    >>> import tempfile
    >>> text = (
    ...     '<codeBook><fileDscr><fileTxt><fileStrc type="rectangular"/></fileTxt></fileDscr><dataDscr>'
    ...     '<var name="AGE"><location StartPos="5" EndPos="7"/></var></dataDscr></codeBook>'
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "usa_00001.xml"
    ...     _ = path.write_text(text)
    ...     read_ddi(path).fields["AGE"].width
    3
    """
    file = Path(path)
    if not file.is_file():
        msg = f"{file} is no file: give the DDI codebook (.xml) that IPUMS gives beside the data"
        raise FileFormatError(msg, str(file))
    root = _tree(file)
    kind = root.find("./fileDscr/fileTxt/fileStrc")
    structure = None if kind is None else kind.get("type")
    if root.tag != "codeBook" or structure not in ("hierarchical", "rectangular"):
        msg = (
            f"{file.name} is no codebook of an IPUMS extract: its structure is {shown(structure)}, "
            "not hierarchical or rectangular"
        )
        raise FileFormatError(msg, structure)
    fields = {}
    for entry in root.iterfind("./dataDscr/var"):
        name = (entry.get("name") or "").upper()
        place = entry.find("./location")
        if not name or place is None:
            msg = f"{file.name}: variable {name or '(without a name)'} stands nowhere: download the codebook again"
            raise FileFormatError(msg, name)
        start = _number(place.get("StartPos"), f"StartPos of {name}", file.name) - 1
        stop = _number(place.get("EndPos"), f"EndPos of {name}", file.name)
        decimals = _number(entry.get("dcml") or "0", f"dcml of {name}", file.name)
        if not 0 <= start < stop <= start + _WIDEST:
            msg = f"{file.name}: {name} stands from {start + 1} to {stop}: download the codebook again"
            raise FileFormatError(msg, (start, stop))
        records = "".join(r for r in (entry.get("rectype") or "").split() if r in ("H", "P"))
        fields[name] = Field(name, start, stop, records, decimals)
    if structure == "hierarchical" and "RECTYPE" not in fields:
        msg = f"{file.name}: a hierarchical extract has the variable RECTYPE: download the codebook again"
        raise FileFormatError(msg, "RECTYPE")
    return Codebook(MappingProxyType(fields), structure == "hierarchical", file.name)
