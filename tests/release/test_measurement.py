import json
import math
from fractions import Fraction

import numpy as np
import pytest

from adversary.errors import AdversaryError, FileFormatError, ReleaseError
from adversary.release.measurement import Measurement, Release

PAPER = {
    "convention": "unbounded",
    "measurements": {
        "block": {"value": 2, "rho": "0.0992264"},
        "rest": {"value": -1, "rho": "0.0992", "groups": 27},
    },
}


def test_the_paper_s_release_reads_back_equal_from_json_and_csv():
    release = Release.from_json(json.dumps(PAPER))
    assert release["rest"].noise_sigma2 == pytest.approx(27 / (2 * 0.0992), rel=1e-15)
    assert Release.from_json(release.to_json()) == release
    assert Release.from_csv(release.to_csv()) == release
    assert Release.from_json(release.to_json()).hash == release.hash


def test_rho_is_kept_exact():
    release = Release.from_counts({"block": 2}, rho="165/4099")
    assert release["block"].rho == Fraction(165, 4099)
    assert release["block"].sigma2 == float(Fraction(4099, 330))


def test_the_bounded_convention_has_twice_the_noise_of_the_unbounded_one():
    unbounded = Release.from_counts({"block": 2}, rho="0.1")
    bounded = Release.from_counts({"block": 2}, rho="0.1", convention="bounded")
    assert bounded["block"].sigma2 == 2 * unbounded["block"].sigma2


def test_another_rho_is_another_hash():
    one = Release.from_counts({"block": 2}, rho="0.1")
    two = Release.from_counts({"block": 2}, rho="0.10000000000000000000001")
    assert one.hash != two.hash


@pytest.mark.parametrize(
    "given",
    [3, 3.0, np.int64(3), np.float32(3), "3", "3.0"],
    ids=["int", "float", "int64", "float32", "text", "point"],
)
def test_integers_in_any_dress_are_integers(given):
    assert Measurement("block", given, 1.0).value == 3


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (2.5, "2.5"),
        ("-2.5", "2.5"),
        ("two", "'two'"),
        (math.nan, "although its variance is finite"),
        (math.inf, "inf"),
        (2**53 + 1, "2^53"),
        (-(2**60), "2^53"),
        (True, "bool"),
        ([[1]], "2 dimensions"),
    ],
)
def test_what_is_no_count_is_refused_with_its_name_and_value(given, words):
    with pytest.raises(ReleaseError, match="block") as caught:
        Measurement("block", given, 1.0)
    assert words in str(caught.value)


def test_counts_beyond_thirty_two_bits_keep_their_value():
    assert Measurement("nation", 2**31 + 5, 1.0).value == 2**31 + 5
    assert Measurement("nation", [2**40, -(2**40)], 1.0).value.tolist() == [2**40, -(2**40)]


def test_rho_zero_or_infinite_variance_is_not_measured_and_said():
    release = Release.from_counts({"a": 1, "b": 2, "c": 3}, rho={"a": "0.1", "b": 0, "c": "inf"})
    assert release.not_measured == ("b",)
    assert release["c"].exact
    with pytest.raises(ReleaseError, match="was not measured"):
        release["b"]
    a, b, c = (
        '"a": {"value": NaN, "sigma2": Infinity}',
        '"b": {"value": null, "sigma2": "inf"}',
        '"c": {"value": 1, "sigma2": 2}',
    )
    text = f'{{"measurements": {{{a}, {b}, {c}}}}}'
    assert Release.from_json(text).not_measured == ("a", "b")


@pytest.mark.parametrize("rho", ["-0.5", -1, "nan"])
def test_an_impossible_rho_is_refused(rho):
    with pytest.raises(AdversaryError, match="rho"):
        Release.from_counts({"block": 1}, rho=rho)


def test_a_float_rho_is_refused_with_what_to_write():
    with pytest.raises(AdversaryError, match=r"0\.1"):
        Release.from_counts({"block": 1}, rho=0.1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "line 1"),
        ("[]", "measurements"),
        ('{"measurements": {"a": {"value": 1, "rho": "0.1"}}}', "which neighbours"),
        ('{"convention": "both", "measurements": {"a": {"value": 1, "rho": "0.1"}}}', "'both'"),
        ('{"convention": "bounded", "measurements": {"a": {"value": 1, "roh": "0.1"}}}', "'roh'"),
        (
            '{"convention": "bounded", "measurements": {"a": {"value": 1, "rho": "0.1"}, "a": {"value": 2, "rho": "0.1"}}}',
            "twice",
        ),
        ('{"convention": "bounded", "measurements": {"a": {"value": 2.5, "rho": "0.1"}}}', "2.5"),
        (
            '{"convention": "bounded", "measurements": {"a": {"value": 1, "rho": "0.1", "sigma2": 1}}}',
            "exactly one",
        ),
        (
            '{"convention": "bounded", "measurements": {"a": {"value": 1, "rho": "0.1", "groups": 0}}}',
            "groups",
        ),
        ('{"convention": "bounded", "measurements": {"a": 1}}', "object"),
        ('{"convention": "bounded", "counts": {}, "measurements": {}}', "'counts'"),
    ],
)
def test_a_bad_file_is_refused_with_its_name_and_place(text, words, tmp_path):
    path = tmp_path / "release.json"
    path.write_text(text)
    with pytest.raises(FileFormatError) as caught:
        Release.read(path)
    assert words in str(caught.value)
    assert "release.json" in str(caught.value)


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(FileFormatError, match="no such file"):
        Release.read(tmp_path / "none.json")


def test_csv_names_the_row(tmp_path):
    path = tmp_path / "release.csv"
    path.write_text("name,value,rho,convention\na,1,0.1,bounded\na,2,0.1,bounded\n")
    with pytest.raises(FileFormatError, match="row 3"):
        Release.read(path)
    path.write_text("name,value,rho,convention\na,,0.1,bounded\n")
    with pytest.raises(FileFormatError, match="finite"):
        Release.read(path)
    path.write_text("name,value,rho,convention\na,,0,bounded\nb,3.0,0.1,bounded\n")
    release = Release.read(path)
    assert release.not_measured == ("a",)
    assert release["b"].value == 3


def test_the_name_that_is_not_there_is_answered_with_those_that_are():
    release = Release.from_counts({"block": 1, "block_group": 3}, rho="0.1")
    with pytest.raises(ReleaseError, match="did you mean 'block_group'"):
        release["blockgroup"]


def test_exact_and_noisy_values_do_not_share_a_measurement():
    with pytest.raises(ReleaseError, match="mixes exact and noisy"):
        Measurement("cells", [1, 2], [0.0, 1.0])


@pytest.mark.parametrize(
    "entry",
    ['"value": [], "sigma2": 5', '"value": 1, "sigma2": true', '"value": 1, "sigma2": 5, "groups": [1]'],
    ids=["empty", "bool", "list"],
)
def test_an_entry_that_says_nothing_sensible_is_refused(entry):
    with pytest.raises(AdversaryError, match="block"):
        Release.from_json(f'{{"measurements": {{"block": {{{entry}}}}}}}')
