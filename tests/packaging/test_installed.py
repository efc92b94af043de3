"""What is built can be installed where nothing of the repository is, and holds what it must.

The wheel goes into an empty environment of its own that borrows the other packages from this one, so that no network is
needed; every command runs in an empty folder.
"""

import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (ROOT / "LICENSE").is_file(), reason="this is no checkout: nothing to build from"),
]


def output(command, folder, **options):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and sdist; the wheel is made from the unpacked sdist, as an installer without a wheel would."""
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("dist")
    hatchling = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    output([*hatchling, "-t", "sdist"], ROOT)
    (sdist,) = out.glob("*.tar.gz")
    source = tmp_path_factory.mktemp("source")
    with tarfile.open(sdist) as archive:
        archive.extractall(source, filter="data")
    (root,) = source.iterdir()
    output([*hatchling, "-t", "wheel"], root)
    (wheel,) = out.glob("*.whl")
    return wheel, sdist, root


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """Folder of the programs of an environment that has the wheel, and an empty folder to work in."""
    import venv

    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False, symlinks=True)
    scheme = {"base": str(home), "platbase": str(home)}
    packages = Path(sysconfig.get_path("purelib", "venv", vars=scheme))
    programs = Path(sysconfig.get_path("scripts", "venv", vars=scheme))
    python = programs / Path(sys.executable).name
    python = python if python.exists() else programs / "python"
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        str(built[0]),
    ]
    output(command, home)
    # only now the others: a path, without the .pth files of this environment, which would lead back to the checkout
    others = [
        p for p in map(Path, sys.path) if p.name == "site-packages" and ROOT / "adversary" not in p.parents
    ]
    (packages / "others.pth").write_text("\n".join(map(str, others)) + "\n")
    return python, programs / "adversary", tmp_path_factory.mktemp("empty")


def test_the_wheel_holds_the_package_its_scenarios_and_nothing_else(built):
    names = zipfile.ZipFile(built[0]).namelist()
    tops = {n.partition("/")[0] for n in names}
    assert {"adversary", "adversary_models"} == {t for t in tops if not t.endswith(".dist-info")}
    for needed in (
        "adversary/py.typed",
        "adversary/__init__.pyi",
        "adversary/data/citation.bib",
        "adversary/data/2020-pl94-persons.toml",
        "adversary/data/demo_pl94/zzgeo2020.pl",
        "adversary/data/kazan_reiter_printed.csv",
    ):
        assert needed in names
    assert any(n.endswith("licenses/LICENSE") for n in names)
    assert not [
        n for n in names if "test_" in n or "__pycache__" in n or n.endswith((".ipynb", ".pyc", ".nc"))
    ]
    package = {p.relative_to(ROOT).as_posix() for p in (ROOT / "adversary").rglob("*.py")}
    assert package <= set(names)


def test_the_sdist_holds_what_the_tests_need(built):
    root = built[2]
    for needed in (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CITATION.cff",
        "Makefile",
        "constraints.txt",
    ):
        assert (root / needed).is_file(), needed
    for needed in ("tests", "notebooks", "models", "docs"):
        assert (root / needed).is_dir(), needed
    assert (root / ".ci" / "run").is_file() or not (ROOT / ".ci").exists()


def test_it_imports_from_the_wheel_and_knows_its_version(installed, built):
    python, _, empty = installed
    code = (
        "import adversary, importlib.metadata as m\n"
        "print(adversary.__file__)\nprint(adversary.__version__, m.version('dp-adversary'))"
    )
    where, versions = output([python, "-c", code], empty).splitlines()
    assert not Path(where).is_relative_to(ROOT)
    first, second = versions.split()
    assert first == second
    assert f"-{first}-" in built[0].name


def test_every_public_name_and_every_scenario_loads(installed):
    python, _, empty = installed
    code = (
        "import adversary\n"
        "for name in adversary.__all__: assert getattr(adversary, name) is not None, name\n"
        "from adversary.discover import list_scenarios, load\n"
        "found = list_scenarios()\n"
        "assert not [v for v in found.values() if isinstance(v, str)], found\n"
        "print(*sorted(found))\n"
    )
    names = output([python, "-c", code], empty).split()
    assert set(PROJECT["entry-points"]["adversary.scenarios"]) <= set(names)


def test_the_program_runs_where_there_is_nothing(installed):
    _, adversary, empty = installed
    assert "What would a determined adversary learn" in output([adversary, "--help"], empty)
    assert output([adversary, "--version"], empty).startswith("adversary ")
    assert "@" in output([adversary, "--citation"], empty)
    assert "two_level" in output([adversary, "list"], empty)
    (empty / "release.json").write_text('{"measurements": {"block": {"value": 2, "sigma2": 5}}}')
    assert "P(present) 0.500" in output([adversary, "run", "single_level", "release.json"], empty)
    table = output([adversary, "account", "--rho", "2.56", "--delta", "1e-10"], empty)
    assert "17.158309" in table


def test_every_command_explains_itself(installed):
    _, adversary, empty = installed
    text = output([adversary, "--help"], empty)
    commands = [
        line.split()[0]
        for line in text.partition("Commands:")[2].splitlines()
        if line.startswith("  ") and line[2] != " "
    ]
    assert len(commands) >= 10
    for command in commands:
        assert "Usage:" in output([adversary, command, "--help"], empty), command


def test_the_embedded_data_are_found(installed):
    python, _, empty = installed
    code = (
        "from adversary import Allocation\n"
        "from adversary.readers.pl94 import demo_folder, read_pl94\n"
        "print(len(read_pl94(demo_folder())), len([Allocation.load(n) for n in Allocation.names()]))\n"
    )
    assert output([python, "-c", code], empty).split() == ["40", "8"]


def test_a_type_checker_sees_the_types(installed, tmp_path):
    python, _, empty = installed
    pytest.importorskip("mypy")
    (empty / "use.py").write_text(
        "from adversary import Release\nreveal_type(Release.from_counts({'a': 1}, sigma2=5.0))\n"
    )
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--python-executable",
        str(python),
        "--cache-dir",
        str(tmp_path),
        "use.py",
    ]
    told = output([*command, "--follow-imports=silent"], empty)
    assert 'Revealed type is "adversary.release.measurement.Release"' in told


def test_the_dependencies_are_those_that_are_imported():
    """Every package that a module imports is named in pyproject.toml, as a dependency or in an extra."""
    import ast
    import re

    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(d for k in extras if k not in {"test", "docs"} for d in extras[k])]
    named = {re.split(r"[\[<>=!~ ]", d)[0] for d in lines}
    named = {n.lower().replace("-", "_") for n in named} | {"adversary", "adversary_models"}
    found = set()
    for path in (ROOT / "adversary").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {a.name.partition(".")[0] for a in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add((node.module or "").partition(".")[0])
    assert found - sys.stdlib_module_names - {"__future__"} - {"zarr"} <= named
