"""Start-up: what is imported when, checked by modules and not by seconds."""

import subprocess
import sys

import pytest

HEAVY = ("pymc", "pytensor", "arviz", "matplotlib", "pandas", "xarray", "scipy", "numba")


def imported(code):
    script = f"import sys\n{code}\nprint(' '.join(m for m in {HEAVY!r} if m in sys.modules))"
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()


def test_importing_the_package_imports_nothing_heavy():
    assert imported("import adversary") == []


@pytest.mark.parametrize(
    "module",
    [
        "adversary.privacy.accounting",
        "adversary.release.measurement",
        "adversary.readers.pl94",
        "adversary.risk.expected",
    ],
)
def test_rooms_of_formulas_and_files_import_no_more_than_numpy(module):
    assert imported(f"import {module}") == []


def test_declaring_a_scenario_does_not_import_pymc():
    code = (
        "from adversary import Prior, measured, scenario\n"
        "@scenario(target='present')\n"
        "def one(release, *, present=Prior('Bernoulli', p=0.5)):\n"
        "    measured(release['block'], present)\n"
        "one.assuming(present=Prior('Bernoulli', p=0.1))"
    )
    assert "pymc" not in imported(code)


def test_every_public_name_is_there():
    import adversary

    for name in adversary.__all__:
        assert getattr(adversary, name) is not None
    from adversary import scenario

    assert callable(scenario)
