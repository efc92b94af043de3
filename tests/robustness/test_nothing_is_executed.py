"""No data file is code: nothing in the package evaluates what it reads, and what could hold a pickle is read without it.

A *scenario* file is code, on purpose; ``docs/scenario-files-are-code.md`` says so.
"""

import ast
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from adversary import AttackResult, Release, load, study
from adversary.assumption_text import parse_assumption
from adversary.batches.sources import open_source
from adversary.cli import main
from adversary.errors import AdversaryError, FileFormatError, ScenarioError
from adversary.readers.hud import read_hud_picture

PACKAGE = Path(__file__).parents[2] / "adversary"
ALLOWED = {
    ("declaring.py", "exec_module"): "FILE.py::NAME: a scenario file is code, and the documentation says so",
    (
        "studies/grid.py",
        "pickle.loads",
    ): "what this process pickled for its own workers, and the check that it can be",
    (
        "testing.py",
        "pickle.loads",
    ): "checks that a scenario can be sent to a worker: it pickled it the line before",
    ("language.py", "cloudpickle.loads"): "a scenario from a notebook cell arrives in a worker of this run",
    ("explore/serve.py", "Popen"): "starts the page's own server, a program of this package",
}
CALLS = {
    "eval", "exec", "compile", "__import__", "exec_module", "pickle.load", "pickle.loads", "pickle.Unpickler", "cloudpickle.load",
    "cloudpickle.loads", "dill.loads", "marshal.loads", "shelve.open", "joblib.load", "yaml.load", "os.system", "os.popen",
    "pd.read_pickle", "pandas.read_pickle", "runpy.run_path",
}  # fmt: skip


def calls(path):
    """(name, line, call) of every call in a module that could execute what it is given."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        short = name if name.count(".") < 2 and "(" not in name else name.rpartition(".")[2]
        if short in {"eval", "exec", "compile"} and name != short:  # PyTensor's .eval(), re.compile
            continue
        if (
            short in CALLS
            or name.rpartition(".")[2] in {"exec_module", "run_path"}
            or name.startswith("subprocess.")
        ):
            yield (short if short in CALLS else name.rpartition(".")[2]), node.lineno, node
        if name in {"np.load", "numpy.load"}:
            safe = any(k.arg == "allow_pickle" and ast.unparse(k.value) == "False" for k in node.keywords)
            if not safe:
                yield "np.load", node.lineno, node


def test_the_package_executes_nothing_that_it_reads():
    found = {
        (str(path.relative_to(PACKAGE)), name) for path in PACKAGE.rglob("*.py") for name, _, _ in calls(path)
    }
    assert found <= set(ALLOWED), sorted(found - set(ALLOWED))
    assert found >= set(ALLOWED) - {("explore/serve.py", "Popen")}, "an exception that is no longer needed"


def test_the_search_finds_what_it_looks_for(tmp_path):
    (tmp_path / "bad.py").write_text(
        "import pickle\npickle.loads(b'')\neval('1')\nnp.load('x')\nnp.load('x', allow_pickle=False)\n"
    )
    assert [name for name, _, _ in calls(tmp_path / "bad.py")] == ["pickle.loads", "eval", "np.load"]


@pytest.fixture
def trap(tmp_path):
    """A file that appears when somebody executes what a data file says, and texts that would make it."""
    mark = tmp_path / "executed"
    call = f"__import__('pathlib').Path({str(mark)!r}).touch()"
    yield [
        call,
        f"exec({call!r})",
        f"{{{{{call}}}}}",
        f"=cmd|'{call}'!A1",
        f"!!python/object/apply:exec [{call!r}]",
        f"$({call})",
    ]
    assert not mark.exists()


class Bomb:
    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return open, (self.mark, "w")


def test_a_release_is_data(trap, tmp_path):
    import json

    for text in trap:
        for field in ("value", "rho", "groups"):
            entry = {"value": 2, "rho": "0.1", "groups": 1, field: text}
            with pytest.raises(AdversaryError):
                Release.from_json(json.dumps({"convention": "unbounded", "measurements": {"block": entry}}))
        quoted = '"' + text.replace('"', '""') + '"'
        for row in (f"block,{quoted},5", f"block,2,{quoted}"):
            path = tmp_path / "release.csv"
            path.write_text(f"name,value,sigma2\n{row}\n")
            with pytest.raises(FileFormatError):
                Release.read(path)


def test_an_assumption_is_data(trap):
    two_level = load("two_level")
    for text in trap:
        for wanted in (
            f"known={text}",
            f"present=Bernoulli(p={text})",
            f"present.p={text}",
            f"present={text}(p=0.1)",
        ):
            with pytest.raises(ScenarioError):
                two_level.assuming(**dict([parse_assumption(wanted, two_level)]))


def test_tables_are_data(trap, tmp_path):
    for text in trap:
        quoted = '"' + text.replace('"', '""') + '"'
        (tmp_path / "targets.csv").write_text(f"block,block_sigma2\n{quoted},5\n")
        with pytest.raises(FileFormatError):
            list(open_source(tmp_path / "targets.csv", 10).pieces())
        (tmp_path / "hud.csv").write_text(
            f"program,name,code,total_units,number_reported\n1,a,b,{quoted},3\n"
        )
        with pytest.raises(FileFormatError):
            read_hud_picture(tmp_path / "hud.csv").number("total_units")


def test_a_configuration_is_data(trap, tmp_path):
    for text in trap:
        (tmp_path / "study.toml").write_text(
            f"scenario = 'two_level'\n[release.measurements.block]\nvalue = '''{text}'''\nrho = '0.1'\n"
        )
        found = CliRunner().invoke(main, ["run", str(tmp_path / "study.toml")])
        assert found.exit_code == 2, found.output


def test_a_pickle_in_a_studys_folder_is_not_opened(tmp_path):
    scenario, release = load("single_level"), Release.from_counts({"block": 2}, sigma2=5.0)
    study(scenario.over(known=range(40)), release, out=tmp_path / "study")
    bomb = np.empty(1, dtype=object)
    bomb[0] = Bomb(tmp_path / "executed")
    chunk = sorted((tmp_path / "study").glob("chunk_*.npz"))[0]
    np.savez(chunk, point=bomb)
    with pytest.raises(FileFormatError, match="not a chunk"):
        study(scenario.over(known=range(40)), release, out=tmp_path / "study")
    assert not (tmp_path / "executed").exists()


def test_a_pickle_is_no_result(tmp_path):
    import pickle

    (tmp_path / "result.nc").write_bytes(pickle.dumps(Bomb(tmp_path / "executed")))
    with pytest.raises(FileFormatError, match="no netCDF file"):
        AttackResult.load(tmp_path / "result.nc")
    assert not (tmp_path / "executed").exists()
