import contextlib
import json
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adversary import AttackResult, Prior, Release, load, run
from adversary.assumption_text import parse_assumption, parse_prior, parse_value
from adversary.cli import main
from adversary.config import KEYS, SAMPLERS, answer, declared, plan, read_config, schema
from adversary.errors import AdversaryError, FileFormatError, ScenarioError

STUDY = """
scenario = "two_level"
seed = 1
out = "result.nc"

[release]
convention = "unbounded"
measurements.block = { value = 2, rho = "0.0992264" }
measurements.block_group = { value = 1, rho = 0.2464845 }
measurements.rest = { value = -1, rho = "0.0992264", groups = 27 }

[sampler]
name = "exact"
draws = 10

[assumptions]
known = 0
elsewhere = "Poisson(mu=5)"
present.p = "1/864"
"""
RELEASE = Release.from_counts(
    {"block": 2, "block_group": 1, "rest": -1},
    rho={"block": "0.0992264", "block_group": "0.2464845", "rest": "0.0992264"},
    groups={"rest": 27},
)


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


def write(folder, text):
    path = folder / "study.toml"
    path.write_text(text)
    return path


def call(*arguments, code=0):
    found = CliRunner().invoke(main, list(map(str, arguments)))
    assert found.exit_code == code, (found.output, found.exception)
    return found


def test_a_file_says_what_a_program_would(study):
    config = read_config(study)
    assert config.release == RELEASE
    assert config.release["block_group"].rho == Fraction(
        "0.2464845"
    )  # a bare TOML number, and not its binary neighbour
    ready = declared(config, load(config.scenario))
    assert ready.assumptions["present"] == Prior("Bernoulli", p=1 / 864)
    assert ready.assumptions["elsewhere"] == Prior("Poisson", mu=5)
    assert (config.sampler, dict(config.options), config.seed) == ("exact", {"draws": 10}, 1)


def test_run_answers_and_saves_beside_the_file(study):
    data = json.loads(call("run", study, "--json").stdout)
    changed = load("two_level").assuming(
        present=Prior("Bernoulli", p=1 / 864), elsewhere=Prior("Poisson", mu=5)
    )
    direct = run(changed, RELEASE, seed=1, draws=10)
    assert data["posterior"] == direct.posterior
    assert AttackResult.load(study.parent / "result.nc").tree["posterior"].identical(direct.tree["posterior"])


def test_paths_are_relative_to_the_file(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub" / "release.json").write_text(RELEASE.to_json())
    (tmp_path / "sub" / "mine.py").write_text(
        "from adversary import Prior, measured, scenario\n"
        "@scenario(target='present')\n"
        "def mine(release, *, present=Prior('Bernoulli', p=0.5)):\n"
        "    'Is she there?'\n"
        "    measured(release['block'], present)\n"
    )
    path = write(tmp_path / "sub", 'scenario = "mine.py::mine"\nrelease = "release.json"\n')
    config = read_config(path)
    assert config.release == RELEASE
    assert declared(config, load(config.scenario)).question == "Is she there?"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('scenaro = "two_level"', r"unknown key 'scenaro' \(did you mean scenario\?\)"),
        ('scenario = "t"\n[relase]', r"unknown key 'relase' \(did you mean release\?\)"),
        ('scenario = "t"\n[sampler]\nnmae = "exact"', r"unknown key 'sampler.nmae' \(did you mean name\?\)"),
        (
            'scenario = "t"\n[release.measurements.block]\nvalu = 2',
            r"unknown key 'release.measurements.block.valu' \(did you mean value\?\)",
        ),
        (
            'scenario = "t"\n[release]\nconvenion = "bounded"',
            r"'release.convenion' \(did you mean convention\?\)",
        ),
        ('scenario = 3\nrelease = "r.json"', "scenario must be a text in quotes, got 3"),
        ('scenario = "t"', 'release is missing: write release = "release.json"'),
        ('release = "r.json"', 'scenario is missing: write scenario = "two_level"'),
        ('scenario = "t"\nrelease = "r.json"\nseed = true', "seed must be a whole number, got True"),
        ('scenario = "t"\nrelease = "r.json"\nseed = 1979-05-27', "seed must be a whole number"),
        ('scenario = "t"\nrelease = "none.json"', "there is no such file"),
        ('scenario = "t"\nsampler = "exakt"\nrelease = "r.json"', r"'exakt' \(did you mean exact\?\)"),
        ('scenario = "t"\nrelease = "r.json"\nsampler.mode = "literal"', "sampler.mode belongs to gibbs"),
        (
            'scenario = "t"\nrelease = "r.json"\nsampler = { name = "mcmc", draws = 0 }',
            "sampler.draws must be at least 1, got 0",
        ),
        ("scenario = ", r"not TOML \("),
        ('scenario = "t"\n[release.measurements]\nblock = 2', "block must be a table such as"),
        (
            'scenario = "t"\n[release.measurements.block]\nvalue = 2.5\nrho = 1',
            "value must be a whole number",
        ),
        (
            'scenario = "t"\n[release.measurements.block]\nvalue = 2\nrho = 1',
            "say which neighbours rho is for",
        ),
    ],
)
def test_what_a_file_may_not_say_is_refused_with_place_and_way_out(text, words, tmp_path):
    with pytest.raises(FileFormatError, match=words) as caught:
        read_config(write(tmp_path, text))
    assert "study.toml" in str(caught.value) or "none.json" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("knwon = 3", r"assumptions.knwon: .*did you mean known\?"),
        ("present.q = 0.1", "present.q is no parameter of a prior"),
        ("presnt.p = 0.1", r"did you mean present\?"),
        ('present = "Bernoulli(0.1)"', "named parameters"),
        ("present = { prior = 3 }", "prior names a distribution"),
        ("known = true", "must be a number, a list"),
        ("known = -1", "cannot be negative"),
        ("known = { p = 1 }", "has no prior to change"),
        ('present = { prior = "Bernoulli", p = 1979-05-27 }', "must be a number, a list"),
        ("present = \"Bernoulli(p=__import__('os'))\"", "."),
    ],
)
def test_an_assumption_that_cannot_be_names_file_and_key(line, words, tmp_path):
    text = f'scenario = "two_level"\nrelease = "release.json"\n[assumptions]\n{line}\n'
    (tmp_path / "release.json").write_text(RELEASE.to_json())
    config = read_config(write(tmp_path, text))
    with pytest.raises(ScenarioError, match=words) as caught:
        declared(config, load("two_level"))
    assert "study.toml: assumptions." in str(caught.value)


def test_priors_may_be_tables_and_lean_on_others(tmp_path):
    (tmp_path / "release.json").write_text(RELEASE.to_json())
    text = (
        'scenario = "two_level"\nrelease = "release.json"\n[assumptions]\n'
        'elsewhere = { prior = "Poisson", mu = { prior = "Gamma", alpha = 2.0, beta = "1/2" } }\n'
    )
    ready = declared(read_config(write(tmp_path, text)), load("two_level"))
    assert ready.assumptions["elsewhere"] == Prior("Poisson", mu=Prior("Gamma", alpha=2.0, beta=0.5))


def test_a_plan_names_targets_noise_and_sampler_and_samples_nothing(study, monkeypatch):
    from adversary import attack

    monkeypatch.setattr(attack, "run", lambda *a, **k: pytest.fail("a dry run must not answer"))
    found = json.loads(call("run", study, "--dry-run", "--json").stdout)
    assert found["target"] == "present"
    rows = {m["name"]: m for m in found["measurements"]}
    assert rows["rest"]["groups"] == 27
    assert rows["block"]["sigma2"] == [pytest.approx(1 / (2 * 0.0992264), rel=1e-14)]
    assert found["draws_bytes"] == 8 * 10 * 4 * 2
    assert not (study.parent / "result.nc").exists()
    text = call("run", study, "--dry-run").stdout
    assert "nothing was sampled" in text
    assert "not used" not in text
    single = write(
        study.parent, STUDY.replace("two_level", "single_level").replace('elsewhere = "Poisson(mu=5)"', "")
    )
    assert {
        m["name"] for m in plan(read_config(single), load("single_level"))["measurements"] if not m["used"]
    } == {
        "block_group",
        "rest",
    }


def test_the_schema_and_the_parser_know_the_same_keys():
    found = json.loads(call("schema").stdout)
    assert found == schema()
    place = {
        "": found,
        "release": found["$defs"]["release"],
        "release.measurements": found["$defs"]["measurement"],
        "sampler": found["$defs"]["sampler"],
    }
    assert set(place) == set(KEYS)
    for name, table in place.items():
        assert set(table["properties"]) == set(KEYS[name])
        assert table["additionalProperties"] is False
    names = found["$defs"]["sampler"]["properties"]["name"]["enum"]
    assert names == list(SAMPLERS) == found["properties"]["sampler"]["oneOf"][0]["enum"]


def test_every_key_of_the_schema_is_accepted_by_the_parser(tmp_path):
    samples = {
        "draws": "5",
        "chains": "2",
        "tolerance": "1e-10",
        "mode": '"literal"',
        "tune": "7",
        "name": '"gibbs"',
    }
    for sampler, own in SAMPLERS.items():
        lines = [f"{k} = {samples[k]}" for k in ("draws", "chains", *own)]
        text = 'scenario = "two_level"\n[release.measurements.block]\nvalue = [1, 2]\nsigma2 = [1.5, 2]\ngroups = 2\n'
        config = read_config(write(tmp_path, f'{text}[sampler]\nname = "{sampler}"\n' + "\n".join(lines)))
        assert set(config.options) == {"draws", "chains", *own}
        assert config.release["block"].groups == 2


def test_the_samplers_of_the_file_are_those_of_run():
    from adversary.attack import SAMPLERS as ENGINES

    assert set(SAMPLERS) == set(ENGINES)


def test_beside_a_file_only_what_does_not_change_the_question_may_be_given(study, tmp_path):
    found = call("run", study, "--assume", "known=1", code=2)
    assert "--assume belongs into" in found.stderr
    call("run", study, "--seed", "3", "--out", tmp_path / "other.nc")
    assert AttackResult.load(tmp_path / "other.nc").attrs["seed"] == "3"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "two_level", "release.json", "--out", "r.csv"), "the result is written as .nc"),
        (("study", "two_level", "release.json", "--over", "known=0,1", "--out", "s.nc"), "kept in a folder"),
        (
            ("assess", "pl94", ".", "--rho", "1", "--seed", "1", "--out", "t.nc"),
            "the table is written as .csv",
        ),
        (("run", "two_level"), "needs a release"),
    ],
)
def test_a_wrong_ending_is_refused_before_any_work(arguments, words):
    assert words in call(*arguments, code=2).stderr


def test_a_missing_folder_of_the_result_is_said_before_any_work(study, monkeypatch):
    from adversary import attack

    monkeypatch.setattr(attack, "run", lambda *a, **k: pytest.fail("must be refused first"))
    found = call("run", study, "--out", study.parent / "none" / "r.nc", code=2)
    assert "does not exist: make it first" in found.stderr


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=60))
def test_no_text_of_an_assumption_ends_in_a_traceback(text):
    for read in (parse_value, parse_prior, lambda t: parse_assumption(t, load("two_level"))):
        with contextlib.suppress(AdversaryError):
            read(text)


_SCALARS = (
    st.none()
    | st.sampled_from(["1/3", "x", "", "[1", "Bernoulli(p=2)", "inf", "two_level"])
    | st.integers(-3, 10**20)
)
_KEYS = st.sampled_from(
    [*KEYS[""], *KEYS["release"], *KEYS["release.measurements"], *KEYS["sampler"], "known", "odd"]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.recursive(
        _SCALARS, lambda inner: st.dictionaries(_KEYS, inner, max_size=4) | st.lists(inner, max_size=3)
    )
)
def test_no_file_ends_in_a_traceback(tmp_path, data):
    def toml(value):
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k} = {toml(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(toml, value)) + "]"
        return "1.5" if value is None else json.dumps(value)

    table = data if isinstance(data, dict) else {"release": data}
    text = "\n".join(
        f"{k} = {toml(v)}" for k, v in ({"scenario": "two_level", "release": {}} | table).items()
    )
    with contextlib.suppress(AdversaryError):
        config = read_config(write(tmp_path, text))
        declared(config, load("two_level"))


def test_nothing_in_a_file_is_executed(tmp_path):
    mark = tmp_path / "executed"
    bomb = f"__import__('pathlib').Path('{mark}').touch()"
    (tmp_path / "release.json").write_text(RELEASE.to_json())
    for line in (
        f'present = "Bernoulli(p={bomb})"',
        f'known = "{bomb}"',
        f'known = ["{bomb}"]',
        f'present.p = "{bomb}"',
    ):
        config = read_config(
            write(tmp_path, f'scenario = "two_level"\nrelease = "release.json"\n[assumptions]\n{line}\n')
        )
        with pytest.raises(AdversaryError):
            declared(config, load("two_level"))(config.release)
    assert not mark.exists()


@pytest.mark.parametrize("arguments", [["schema"], ["--help"], ["run", "--help"]], ids=" ".join)
def test_commands_that_do_not_sample_import_nothing_heavy(arguments):
    code = (
        "import sys\nfrom adversary.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    pass\n"
        "heavy = {'pymc', 'pytensor', 'arviz', 'matplotlib', 'pandas', 'scipy', 'xarray', 'jinja2'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_example_in_the_modules_own_text_is_read(tmp_path):
    from adversary import config

    example = re.search(r"::\n\n(.*?)\nPaths are", config.__doc__, re.DOTALL)[1]
    text = "\n".join(line[4:] for line in example.splitlines())
    found = read_config(write(tmp_path, text))
    assert declared(found, load(found.scenario)).assumptions["present"] == Prior("Bernoulli", p=1 / 864)
    assert found.out == Path(tmp_path) / "result.nc"


def test_a_parameter_that_the_prior_lacks_is_refused_with_those_it_has(tmp_path):
    (tmp_path / "a.toml").write_text(
        'scenario = "two_level"\n[release]\nmeasurements.block = { value = 2, sigma2 = 5 }\n'
        "measurements.block_group = { value = 1, sigma2 = 5 }\nmeasurements.rest = { value = 1, sigma2 = 5 }\n"
        '[assumptions]\npresent = "Bernoulli(q=0.3)"\n'
    )
    config = read_config(tmp_path / "a.toml")
    with pytest.raises(ScenarioError, match=r"Bernoulli takes p, logit_p") as caught:
        answer(config, load("two_level"))
    assert "of present" in str(caught.value)
