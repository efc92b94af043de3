"""Write PL 94-171 files: a writer for the tests, and the synthetic state that ships with the package.

Run ``python tests/make_demo_pl94.py`` to write ``adversary/data/demo_pl94`` again; the same bytes come out on
every machine, because only ``random.Random.random`` is drawn from, whose stream Python keeps.

The writer is the second road to the layout: it names every column in full, field by field, and shares no
code with the reader, so a slip in the reader's column numbers shows up as a wrong count.
"""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

SINGLE = ["white", "black", "aian", "asian", "nhopi", "sor"]
RACES = ["+".join(c) for k in range(1, 7) for c in combinations(SINGLE, k)]
GEO_FIELDS = """
FILEID STUSAB SUMLEV GEOVAR GEOCOMP CHARITER CIFSN LOGRECNO GEOID GEOCODE REGION DIVISION STATE
STATENS COUNTY COUNTYCC COUNTYNS COUSUB COUSUBCC COUSUBNS SUBMCD SUBMCDCC SUBMCDNS ESTATE ESTATECC
ESTATENS CONCIT CONCITCC CONCITNS PLACE PLACECC PLACENS TRACT BLKGRP BLOCK AIANHH AIHHTLI AIANHHFP
AIANHHCC AIANHHNS AITS AITSFP AITSCC AITSNS TTRACT TBLKGRP ANRC ANRCCC ANRCNS CBSA MEMI CSA METDIV
NECTA NMEMI CNECTA NECTADIV CBSAPCI NECTAPCI UA UATYPE UR CD116 CD118 CD119 CD120 CD121 SLDU18
SLDU22 SLDU24 SLDU26 SLDU28 SLDL18 SLDL22 SLDL24 SLDL26 SLDL28 VTD VTDI ZCTA SDELM SDSEC SDUNI PUMA
AREALAND AREAWATR BASENAME NAME FUNCSTAT GCUNI POP100 HU100 INTPTLAT INTPTLON LSADC PARTFLAG UGA
""".split()  # noqa: SIM905 (a table of names reads better than a list of quoted ones)
WIDTHS = {"040": 2, "050": 5, "140": 11, "150": 12, "750": 15}
NAMES = {
    "040": "Demo State",
    "050": "Condado de Ñandú",
    "140": "Census Tract",
    "150": "Block Group",
    "750": "Block",
}


def race_table(by_race):
    """71 columns from {race: people}: the total, one race, its six, more, then two to six with leaves."""
    of = {k: [by_race.get(race, 0) for race in RACES if race.count("+") == k - 1] for k in range(1, 7)}
    more = sum(sum(of[k]) for k in range(2, 7))
    columns = [sum(of[1]) + more, sum(of[1]), *of[1], more]
    for k in range(2, 7):
        columns += [sum(of[k]), *of[k]]
    return columns


def add(people, quarters, homes):
    """A geounit: people by (age, hispanic, race), seven kinds of quarters, (occupied, vacant) homes."""
    return {"people": dict(people), "quarters": list(quarters), "homes": list(homes)}


def tables(unit):
    """The three segments' counts of one geounit."""
    races = {}
    for which, keep in (
        ("p1", lambda age, origin: True),
        ("p2", lambda age, origin: origin == "not_hispanic"),
        ("p3", lambda age, origin: age == "18_and_over"),
        ("p4", lambda age, origin: age == "18_and_over" and origin == "not_hispanic"),
    ):
        races[which] = {}
        for (age, origin, race), n in unit["people"].items():
            if keep(age, origin):
                races[which][race] = races[which].get(race, 0) + n
    p1, p2, p3, p4 = (race_table(races[which]) for which in ("p1", "p2", "p3", "p4"))
    q, (occupied, vacant) = unit["quarters"], unit["homes"]
    return (
        [*p1, p1[0], p1[0] - p2[0], *p2],
        [*p3, p3[0], p3[0] - p4[0], *p4, occupied + vacant, occupied, vacant],
        [sum(q), sum(q[:4]), *q[:4], sum(q[4:]), *q[4:]],
    )


def total_of(units):
    """The sum of geounits."""
    whole = add({}, [0] * 7, [0, 0])
    for unit in units:
        for cell, n in unit["people"].items():
            whole["people"][cell] = whole["people"].get(cell, 0) + n
        whole["quarters"] = [a + b for a, b in zip(whole["quarters"], unit["quarters"], strict=True)]
        whole["homes"] = [a + b for a, b in zip(whole["homes"], unit["homes"], strict=True)]
    return whole


def all_levels(blocks):
    """[(SUMLEV, code, unit)] of every level, from {15-digit code: unit}; blocks of a group follow it."""
    rows = []
    for sumlev, width in WIDTHS.items():
        codes = dict.fromkeys(code[:width] for code in blocks)
        rows += [
            (sumlev, code, total_of(u for c, u in blocks.items() if c.startswith(code))) for code in codes
        ]
    return rows


def write_pl94(folder, blocks, *, state="zz", suffix="2020", record="{:07d}", rows=None):
    """Write the four files of a state; the segments' rows stand in another order than the header's."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    geo, segments = [], ([], [], [])
    for number, (sumlev, code, unit) in enumerate(rows or all_levels(blocks), start=1):
        logrecno = record.format(number)
        values = dict.fromkeys(GEO_FIELDS, "")
        counts = tables(unit)
        values |= dict.fromkeys(("GEOVAR", "GEOCOMP", "CIFSN"), "00")
        values |= {"FILEID": "PLST", "STUSAB": state.upper(), "SUMLEV": sumlev, "CHARITER": "000"}
        values |= {"LOGRECNO": logrecno, "GEOID": f"{sumlev}0000US{code}", "GEOCODE": code}
        values |= {"STATE": code[:2], "COUNTY": code[2:5], "TRACT": code[5:11], "BLKGRP": code[11:12]}
        values |= {"BLOCK": code[11:], "AREALAND": "1000", "AREAWATR": "0", "BASENAME": code[-4:]}
        values |= {"NAME": f"{NAMES[sumlev]} {code[-4:]}", "POP100": str(counts[0][0])}
        values["HU100"] = str(counts[1][-3])
        geo.append("|".join(values[name] for name in GEO_FIELDS))
        for index, row in enumerate(counts, start=1):
            key = ["PLST", state.upper(), "000", f"0{index}", logrecno]
            segments[index - 1].append("|".join([*key, *map(str, row)]))
    (folder / f"{state}geo{suffix}.pl").write_bytes("".join(f"{line}\n" for line in geo).encode("latin-1"))
    for index, lines in enumerate(segments, start=1):
        text = "".join(f"{line}\n" for line in reversed(lines))
        (folder / f"{state}0000{index}{suffix}.pl").write_bytes(text.encode("latin-1"))
    return folder


def demo_blocks(seed=2020):
    """Forty blocks in groups of 24, 15 and 1: some empty, some with a lone resident, one dormitory."""
    rng = random.Random(seed)
    weight = {"white": 62, "black": 11, "aian": 1, "asian": 7, "nhopi": 0.4, "sor": 8, "white+sor": 5}
    weight |= {
        "white+black": 2,
        "white+asian": 1.6,
        "white+aian": 1.2,
        "black+sor": 0.4,
        "black+aian+sor": 0.2,
    }
    blocks = {}
    for group, size in ((1, 24), (2, 15), (3, 1)):
        for number in range(size):
            draw = rng.random()
            persons = 0 if draw < 0.25 else 1 if draw < 0.3 else int(2 + 60 * rng.random() ** 2)
            unit = add({}, [0] * 7, [0, 0])
            for _ in range(persons):
                put_person(unit, rng, weight, adult=0.77)
            unit["homes"] = [-(-persons // 3), int(3 * rng.random()) if persons else 0]
            if (group, number) == (2, 4):
                unit["quarters"][4] = 45
                for _ in range(45):
                    put_person(unit, rng, weight, adult=0.98)
            blocks[f"03001000100{group}{number:03d}"] = unit
    return blocks


def put_person(unit, rng, weight, adult):
    """Add one made-up person."""
    at = rng.random() * sum(weight.values())
    for race, w in weight.items():  # noqa: B007 (the race where the walk ends is the one drawn)
        at -= w
        if at < 0:
            break
    likely = 0.8 if "sor" in race else 0.08
    cell = (
        "18_and_over" if rng.random() < adult else "under_18",
        "hispanic" if rng.random() < likely else "not_hispanic",
        race,
    )
    unit["people"][cell] = unit["people"].get(cell, 0) + 1


if __name__ == "__main__":
    write_pl94(Path(__file__).parents[1] / "adversary" / "data" / "demo_pl94", demo_blocks())
