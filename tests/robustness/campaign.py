"""The long run of ``test_fuzz.py``: the same readers and mutations, drawn by ``random`` (Hypothesis costs ten times the readers).

    python tests/robustness/campaign.py 100000 [reader ...]

Prints one line a reader: inputs, how many gave an object, and each kind of failure with one input that shows it.
"""

import importlib.util
import random
import sys
import tempfile
import traceback
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

spec = importlib.util.spec_from_file_location("test_fuzz", Path(__file__).with_name("test_fuzz.py"))
fuzz = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fuzz)


class Folders:
    """What the tests ask of pytest's factory of folders."""

    def __init__(self, base):
        self.base = Path(base)

    def getbasetemp(self):
        return self.base

    def mktemp(self, name):
        (self.base / name).mkdir()
        return self.base / name


def steps(r):
    return [
        (r.choice(fuzz.OPS), r.randrange(2**20), r.randrange(2**16)) for _ in range(r.choice([1, 1, 1, 2, 3]))
    ]


def cell(r):
    texts = ["A", "AA", "01", "", "a\0", "²", "\ud800", "B", "1"]
    return r.choice([*texts, *texts, None, 3, 2.5, float("nan"), True, 10**30])


def number(r):
    seed = r.choice([b"0.0992264", b"165/4099", b"inf", b"1e-3"])
    kinds = (
        lambda: fuzz.spoilt(seed, steps(r)).decode("utf-8", "replace"),
        lambda: r.choice([1, -1]) * r.randrange(10 ** r.randint(1, 5000)),
        lambda: r.choice([r.gauss(0, 1), float("nan"), float("inf"), -0.0, 1e308, 5e-324]),
        lambda: Fraction(r.randrange(-5, 10**9), r.randrange(1, 10**9)),
        lambda: Decimal((r.randrange(2), (r.randrange(10),), r.randrange(-(10**6), 10**6))),
        lambda: r.choice([None, True, 1j, [], [1], {}, object, b"1", Decimal("NaN"), Decimal("sNaN")]),
    )
    return r.choice(kinds)()


def cases(folders):
    pl94 = (
        fuzz.pl94.__wrapped__(folders)
        if hasattr(fuzz.pl94, "__wrapped__")
        else fuzz.pl94._get_wrapped_function()(folders)
    )
    f = {"tmp_path_factory": folders}
    return {
        "release_json": lambda r: {"seed": r.choice(fuzz.JSON)},
        "release_csv": lambda r: {"seed": r.choice(fuzz.CSV)},
        "release_files": lambda r: {
            "seed": r.choice([*fuzz.JSON, *fuzz.CSV]),
            "suffix": r.choice([".json", ".csv", ""]),
            **f,
        },
        "pl94": lambda r: {
            "which": r.randrange(4),
            "level": r.choice(["block", "tract", "state"]),
            "pl94": pl94,
            **f,
        },
        "baf": lambda r: {"which": r.randrange(len(fuzz.BAF)), **f},
        "grfc": lambda r: f,
        "block_csv": lambda r: {"fill": r.random() < 0.3, **f},
        "hud": lambda r: {"level": r.choice([None, "tract"]), **f},
        "pums": lambda r: f,
        "batch_source_csv": lambda r: {"chunk": r.choice([1, 2, 100]), **f},
        "batch_source_parquet": lambda r: f,
        "assumptions": lambda r: {"seed": r.choice(fuzz.TEXTS)},
        "grids": lambda r: {"seed": r.choice(fuzz.GRIDS)},
        "rho": lambda r: {"value": number(r), "steps": None},
        "spines": lambda r: {"nested": r.random() < 0.5},
        "spines_of_any_pairs": lambda r: {
            "units": [cell(r) for _ in range(r.randrange(7))],
            "parents": [cell(r) for _ in range(r.randrange(7))],
            "steps": None,
        },
    }


def main(n, *only):
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    except ImportError:
        pass
    bad = 0
    with tempfile.TemporaryDirectory() as base:
        table = cases(Folders(base))
        for name in only or table:
            test = getattr(fuzz, f"test_{name}").hypothesis.inner_test
            failures, shown, objects = Counter(), {}, 0
            r = random.Random(f"{name} {n}")
            fuzz.PASSED.clear()
            for _ in range(n):
                arguments = table[name](r)
                if "steps" in arguments:
                    arguments = {k: v for k, v in arguments.items() if k != "steps"}
                else:
                    arguments = {**arguments, "steps": steps(r)}
                try:
                    test(**arguments)
                except Exception as error:  # noqa: BLE001 - every class of error is what is looked for
                    place = [
                        f for f in traceback.extract_tb(error.__traceback__) if "adversary" in f.filename
                    ]
                    where = f"{Path(place[-1].filename).name}:{place[-1].lineno}" if place else "?"
                    kind = f"{type(error).__name__} at {where}"
                    failures[kind] += 1
                    shown.setdefault(
                        kind,
                        (
                            str(error)[:300],
                            {k: v for k, v in arguments.items() if k not in {"pl94", "tmp_path_factory"}},
                        ),
                    )
            objects = sum(fuzz.PASSED.values())
            print(
                f"{name}: {n} inputs, {objects} calls gave an object, {sum(failures.values())} failures",
                flush=True,
            )
            for kind, times in failures.items():
                print(f"   {times} x {kind}: {shown[kind]!r:.900}", flush=True)
            bad += len(failures)
    return bad


if __name__ == "__main__":
    sys.exit(min(main(int(sys.argv[1]), *sys.argv[2:]), 1))
