"""Every reader and parser on spoilt input: an object, or a sentence that names the place. Never another error, never a hang.

A bounded slice runs with the tests; ``ADVERSARY_FUZZ=100000 pytest tests/robustness/test_fuzz.py`` runs so many inputs a
reader. The inputs are valid files with bytes flipped, fields and lines taken away, doubled, swapped or replaced by what
breaks parsers, other encodings, other delimiters, cut ends. Whether a *plausible* change of a digit should have been noticed
cannot be decided here; saved results, which carry a checksum, are in ``test_damaged_results.py``.
"""

import contextlib
import csv
import importlib.util
import io
import os
import re
import signal
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from adversary import Release, Rho, load
from adversary.assumption_text import parse_assumption, parse_prior, parse_value
from adversary.batches.sources import open_source
from adversary.cli_study import grid_of
from adversary.errors import AdversaryError
from adversary.geography.spine import Spine
from adversary.readers.baf import read_baf, read_grfc
from adversary.readers.block_csv import read_blocks, read_levels, read_pairs
from adversary.readers.hud import read_hud_picture
from adversary.readers.pl94 import read_pl94
from adversary.readers.pums import household_table, read_pums

LONG = int(os.environ.get("ADVERSARY_FUZZ", "0"))
ROOT = Path(__file__).parents[1]


def fuzzed(slice_):
    """Run as many inputs as asked for; the slice with the tests is the same on every run."""
    return settings(
        max_examples=LONG or slice_,
        deadline=None,
        database=None,
        derandomize=not LONG,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


NASTY = [
    b"", b"0", b"-1", b"-0", b"2.5", b"1e5", b"1e999", b"1e-999", b"1e999999999", b"-1e400", b"NaN", b"inf", b"-inf", b"1/0",
    b"1/3", b"0x10", b"1_000", b"9007199254740993", b"9223372036854775808", b"9" * 40, b"9" * 5000, b"\x00", b"\xff", b"\xff\xfe",
    b"\xef\xbb\xbf", "²".encode(), "٣".encode(), "é".encode("latin-1"), b"\xb2", b"\x1c", b"\x85", b"\x0b", b"\r", b"\n",
    b"\r\n", b'"',
    b"'", b"|", b",", b";", b"\t", b"{", b"}", b"[", b"]", b"(", b")", b":", b"=", b"[" * 3000, b"null", b"true", b"{}", b"[]",
    b"__import__('os')", b"31FEB2022", b"01JAN0000", b"\xed\xa0\x80", b"a" * 200_000, b" ", b"None", b"*", b"%s",
    b"\\", b"\\u0000",
]  # fmt: skip

OPS = (
    "flip", "insert", "delete", "double", "cut", "line_away", "line_twice", "lines_swapped", "field", "field", "field",
    "field_away",
    "number", "number", "delimiter", "encoding", "grow",
)  # fmt: skip
STEP = st.tuples(st.sampled_from(OPS), st.integers(0, 2**20), st.integers(0, 2**16))
STEPS = st.lists(STEP, min_size=1, max_size=4)
FIELD = re.compile(rb"[|,;\t\n{}\[\]():=]")


def spoilt(data, steps):
    """Change a valid input in a few steps, each a name and two numbers."""
    for op, where, what in steps:
        token = NASTY[what % len(NASTY)]
        at = where % (len(data) + 1)
        far = min(len(data), at + 1 + what % 40)
        if op == "flip" and data:
            at %= len(data)
            data = data[:at] + bytes([data[at] ^ (1 << what % 8)]) + data[at + 1 :]
        elif op == "insert":
            data = data[:at] + token + data[at:]
        elif op == "delete":
            data = data[:at] + data[far:]
        elif op == "double":
            data = data[:far] + data[at:far] + data[far:]
        elif op == "cut":
            data = data[:at]
        elif op.startswith("line"):
            data = _lines(data, op, where, what)
        elif op in {"field", "field_away", "number"}:
            pattern = rb"-?\d+(\.\d+)?" if op == "number" else rb"[^|,;\t\n{}\[\]():=]+"
            places = list(re.finditer(pattern, data))
            if places:
                place = places[where % len(places)]
                data = data[: place.start()] + (b"" if op == "field_away" else token) + data[place.end() :]
        elif op == "delimiter":
            old, new = [
                (b"|", b","),
                (b",", b"|"),
                (b",", b";"),
                (b"|", b"\t"),
                (b"\n", b"\r"),
                (b"\n", b"\r\n"),
            ][what % 6]
            data = data.replace(old, new)
        elif op == "encoding":
            data = data.decode("latin-1").encode(("utf-16", "utf-8-sig", "utf-32", "utf-7")[what % 4])
        elif op == "grow":
            data = data[:200_000] * (2 + what % 3)
    return data[:2_000_000]


def _lines(data, op, where, what):
    lines = data.splitlines(keepends=True) or [b""]
    i, j = where % len(lines), what % len(lines)
    if op == "line_away":
        del lines[i]
    elif op == "line_twice":
        lines.insert(j, lines[i])
    else:
        lines[i], lines[j] = lines[j], lines[i]
    return b"".join(lines)


@contextlib.contextmanager
def no_hang():
    """Interrupt what takes more than a minute: that is a hang, not a measurement of speed."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def ring(*_):
        raise TimeoutError("still reading after a minute")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(60)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


PASSED = Counter()
"""How often spoilt input was accepted, for the campaign's figures."""


def permitted(call, *names):
    """Call; an ``AdversaryError`` with a sentence that names the place is permitted, every other error is not."""
    with no_hang(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = call()
            PASSED["objects"] += 1
            return found
        except AdversaryError as error:
            text = str(error)
            assert len(text) > 15, text
            assert not names or any(n in text for n in names), f"the place is not named: {text[:300]}"
            return None


# ---------------------------------------------------------------------------------------------------- releases
JSON = [
    b'{"convention": "unbounded", "measurements": {"block": {"value": 2, "rho": "0.0992264"},'
    b' "rest": {"value": -1, "rho": "1666368/16793603", "groups": 27}, "gone": {"value": null, "rho": "0"}}}',
    b'{"convention": "bounded", "measurements": {"a": {"value": [1, 2, 3], "rho": ["0.1", "1/3", "0.5"]},'
    b' "b": {"value": 7, "rho": "inf"}}}',
    b'{"measurements": {"a": {"value": [1, 2], "sigma2": [5.0, 2.5e0]}, "b": {"value": NaN, "sigma2": Infinity}}}',
]
CSV = [
    b"name,value,rho,sigma2,groups,convention\nblock,2,0.1,,1,unbounded\nrest,-1,1/3,,27,unbounded\nlow,,,inf,1,unbounded\n",
    b"name,value,sigma2\nblock,3.0,5\nnone,,inf\nlow,-2.0,5\n",
]


def used(release):
    """Read, write and read again: what was accepted can be written and says the same."""
    assert Release.from_json(release.to_json()) == release
    return release.hash


@fuzzed(120)
@given(seed=st.sampled_from(JSON), steps=STEPS)
def test_release_json(seed, steps):
    data = spoilt(seed, steps)
    text = data.decode("utf-8", "replace")
    permitted(lambda: used(Release.from_json(text, where="release.json")), "release.json")


@fuzzed(120)
@given(seed=st.sampled_from(CSV), steps=STEPS)
def test_release_csv(seed, steps):
    text = spoilt(seed, steps).decode("utf-8", "replace")
    permitted(lambda: used(Release.from_csv(text, where="release.csv")), "release.csv")


@fuzzed(60)
@given(
    seed=st.sampled_from([*JSON, *CSV]), steps=STEPS, suffix=st.sampled_from([".json", ".csv", ".CSV", ""])
)
def test_release_files(seed, steps, suffix, tmp_path_factory):
    path = folder_of(tmp_path_factory, "release") / f"release{suffix}"
    path.write_bytes(spoilt(seed, steps))
    permitted(lambda: used(Release.read(path)), path.name)


def folder_of(factory, name):
    """One folder for all examples of a test: it is emptied, not made anew."""
    folder = factory.getbasetemp() / f"fuzz_{name}"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    return folder


# ---------------------------------------------------------------------------------------------------- readers
def _module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _files(folder):
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def pl94(tmp_path_factory):
    writer = _module(ROOT / "make_demo_pl94.py")
    folder = tmp_path_factory.mktemp("pl94")
    blocks = dict(list(writer.demo_blocks().items())[:3])
    writer.write_pl94(folder, blocks)
    assert len(read_pl94(folder)) == 3
    return _files(folder)


@fuzzed(40)
@given(which=st.integers(0, 3), steps=STEPS, level=st.sampled_from(["block", "block", "tract", "state"]))
def test_pl94(which, steps, level, pl94, tmp_path_factory):
    folder = folder_of(tmp_path_factory, "pl94")
    for i, (name, data) in enumerate(pl94.items()):
        (folder / name).write_bytes(spoilt(data, steps) if i == which else data)
    permitted(lambda: read_pl94(folder, level).histogram().sum(), *pl94, str(folder))


BAF = _module(ROOT / "readers" / "test_baf.py").FILES


@fuzzed(40)
@given(which=st.integers(0, len(BAF) - 1), steps=STEPS)
def test_baf(which, steps, tmp_path_factory):
    folder = folder_of(tmp_path_factory, "baf")
    for i, (kind, text) in enumerate(BAF.items()):
        data = text.encode("latin-1")
        (folder / f"BlockAssign_ST01_AL_{kind}.txt").write_bytes(spoilt(data, steps) if i == which else data)
    permitted(lambda: read_baf(folder).state, "BlockAssign_ST01_AL", str(folder), "row", "block")


GRFC = (
    b"TABBLKST|TABBLKCOU|TABTRACTCE|TABBLK|AIANNHCE|COUSUBFP|PLACEFP|COUSUBFS|PLACEFS|SDUNILEA|SDSECLEA|SDELMLEA\n"
    b"44|001|030100|1000|9999|05140|99999|A|F|00240|99999|99999\n"
    b"44|001|030100|1001|0100|05140|22960|A|F|00240|99999|99999\n"
)


@fuzzed(60)
@given(steps=STEPS)
def test_grfc(steps, tmp_path_factory):
    path = folder_of(tmp_path_factory, "grfc") / "grfc.txt"
    path.write_bytes(spoilt(GRFC, steps))
    permitted(lambda: read_grfc(path).state)


BLOCKS = (
    b"GEOID20,AIANNHCE,COUSUBFP,PLACEFP,COUSUBFS,PLACEFS\n"
    b"010010201001000,9999,90171,00124,A,F\n010010201001001,0100,90171,,A,F\n"
)


@fuzzed(60)
@given(steps=STEPS, fill=st.booleans())
def test_block_csv(steps, fill, tmp_path_factory):
    path = folder_of(tmp_path_factory, "blocks") / "blocks.csv"
    path.write_bytes(spoilt(BLOCKS, steps))
    permitted(lambda: read_blocks(path, fill_zeros=fill).state)
    path.write_bytes(spoilt(PAIRS, steps))
    permitted(lambda: Spine.from_parents(*read_pairs(path)))
    path.write_bytes(spoilt(LEVELS, steps))
    permitted(lambda: Spine.from_blocks(read_levels(path)))


HUD = (
    b"quarter,program,program_label,sub_program,name,code,total_units,pct_occupied,number_reported,people_per_unit,pct_bed1\n"
    b'31DEC2022,1,"Summary, all",NA,Tract 201,01001020100,40,95,38,2.1,55\n'
    b"44926,3,Vouchers,NA,Tract 202,1001020200,12,-1,-4,-4,-4\n"
    b'31DEC2022,2,Public,NA,XX Missing,,"1,204",50,30,1.0,20\n'
)


@fuzzed(80)
@given(steps=STEPS, level=st.sampled_from([None, "tract"]))
def test_hud(steps, level, tmp_path_factory):
    path = folder_of(tmp_path_factory, "hud") / "TRACT_AL_2022.csv"
    path.write_bytes(spoilt(HUD, steps))

    def read():
        picture = read_hud_picture(path, level)
        assert len(picture.quarter if "quarter" in picture.columns else picture) == len(picture)
        for i in range(min(len(picture), 5)):
            picture.line(i)
        return picture.interval("number_reported"), picture.located, picture.of_program(1)

    permitted(read, path.name)


PUMS = (
    b"RT,SERIALNO,PUMA,PWGTP,AGEP,RAC1P,HISP,RELSHIPP\n"
    b"P,0000123,00101,20,34,1,01,20\nP,0000123,00101,21,5,1,02,25\nP,2020GQ01,00101,7,80,2,01,37\nH,0000123,00101,20,,,,\n"
)


@fuzzed(80)
@given(steps=STEPS)
def test_pums(steps, tmp_path_factory):
    path = folder_of(tmp_path_factory, "pums") / "psam_p44.csv"
    path.write_bytes(spoilt(PUMS, steps))

    def read():
        sample = read_pums(path)
        return sample.puma, household_table(sample)

    permitted(read, path.name)


TARGETS = b"block,block_sigma2,known,geoid\n2,5.04,0,1\n-3,5.04,1,2\n7,5.04,0,3\n"


@fuzzed(60)
@given(steps=STEPS, chunk=st.sampled_from([1, 2, 100]))
def test_batch_source_csv(steps, chunk, tmp_path_factory):
    path = folder_of(tmp_path_factory, "targets") / "targets.csv"
    path.write_bytes(spoilt(TARGETS, steps))
    permitted(lambda: [p.load() for p in open_source(path, chunk).pieces()], path.name)


@fuzzed(40)
@given(steps=STEPS)
def test_batch_source_parquet(steps, tmp_path_factory):
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    buffer = io.BytesIO()
    pq.write_table(
        pa.table({"block": [2, -5, 3], "block_sigma2": [5.0, 5.0, 5.0], "geoid": ["01", "02", "3"]}), buffer
    )
    path = folder_of(tmp_path_factory, "parquet") / "targets.parquet"
    path.write_bytes(spoilt(buffer.getvalue(), steps))
    permitted(lambda: [p.load() for p in open_source(path, 2).pieces()], path.name)


# ---------------------------------------------------------------------------------------------------- texts
TEXTS = [
    b"present=Bernoulli(p=0.1)", b"known=4", b"present.p=1/864", b"elsewhere=Poisson(mu=5)", b"known=[1,2,3]",
    b"levels=block,tract",
    b"elsewhere=Prior('NegativeBinomial', mu=5, alpha=[1,2])", b"elsewhere=FlatCount()",
]  # fmt: skip


GRIDS = [
    b"present.p=0.1:0.9:3",
    b"known=0,1",
    b"elsewhere=FlatCount(),Poisson(mu=5)",
    b"elsewhere=UniformTotal(209)",
]


@fuzzed(120)
@given(seed=st.sampled_from(TEXTS), steps=STEPS)
def test_assumptions(seed, steps):
    text = spoilt(seed, steps).decode("utf-8", "replace")
    two_level = load("two_level")
    permitted(lambda: two_level.assuming(**dict([parse_assumption(text, two_level)])))
    permitted(lambda: parse_prior(text.partition("=")[2]))
    permitted(lambda: parse_value(text.partition("=")[2]))


@fuzzed(60)
@given(
    seed=st.sampled_from(GRIDS),
    steps=STEPS,
)
def test_grids(seed, steps):
    text = spoilt(seed, steps).decode("utf-8", "replace")
    permitted(lambda: grid_of(load("two_level"), (text,)))


@fuzzed(150)
@given(
    value=st.one_of(
        st.builds(
            lambda s, t: spoilt(s, t).decode("utf-8", "replace"),
            st.sampled_from([b"0.0992264", b"165/4099", b"inf", b"1e-3"]),
            STEPS,
        ),
        st.integers(),
        st.floats(),
        st.fractions(),
        st.decimals(),
        st.none(),
        st.booleans(),
        st.complex_numbers(),
        st.lists(st.integers(), max_size=2),
        st.sampled_from([np.float32(0.1), np.int8(3), np.array(2), np.array([1, 2]), object, b"1", {}]),
    )
)
@example(value="1e999999999")
@example(value="9" * 5000)
def test_rho(value):
    found = permitted(lambda: Rho(value), "rho")
    if found is not None:
        assert Rho(str(found)) == found
        assert float(found) >= 0


# ---------------------------------------------------------------------------------------------------- spines
PAIRS = b"unit,parent\nA,\nAA,A\nAB,A\nB,\nBA,B\nAA1,AA\n"
LEVELS = b"county,tract,block\n001,000100,1000\n001,000100,1001\n003,000200,1002\n"


@fuzzed(120)
@given(steps=STEPS, nested=st.booleans())
def test_spines(steps, nested):
    def table(seed):
        text = spoilt(seed, steps).decode("utf-8", "replace").replace("\0", "")
        rows = [r for r in csv.reader(text.splitlines(), strict=False) if r]
        head = rows[0] if rows else []
        return {name: [r[i] if i < len(r) else None for r in rows[1:]] for i, name in enumerate(head)}

    with contextlib.suppress(csv.Error):
        columns = table(LEVELS)
        permitted(lambda: Spine.from_blocks(columns, dict.fromkeys(columns, "1/3"), nested=nested).leaves)
        pairs = list(table(PAIRS).values())
        permitted(lambda: Spine.from_parents(*([*pairs, [], []])[:2]).leaves)
        codes = next(iter(columns.values()), [])
        permitted(lambda: Spine.from_geocodes(codes, {"county": 1, "block": 3}).leaves)


CELL = st.one_of(
    st.text(max_size=4),
    st.none(),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.sampled_from(["A", "AA", "01", ""]),
)


@fuzzed(120)
@given(units=st.lists(CELL, max_size=6), parents=st.lists(CELL, max_size=6))
def test_spines_of_any_pairs(units, parents):
    permitted(lambda: Spine.from_parents(units, parents).depth)
    permitted(lambda: Spine.from_blocks({"a": units, "b": parents}).depth)
    permitted(lambda: Spine.from_geocodes(units, {"a": 1, "b": 2}).depth)
