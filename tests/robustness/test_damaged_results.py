"""Saved results with changed bytes: refused, every one, before HDF5 sees them (it can turn for ever on a few changed bytes)."""

import os
import random

import pytest
import xarray as xr

from adversary import Release, load, run
from adversary._files import CHECKSUM, check_hdf5, write_netcdf
from adversary.batches.sources import open_source
from adversary.errors import FileFormatError
from adversary.results import AttackResult

LONG = int(os.environ.get("ADVERSARY_FUZZ", "0"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "result.nc"
    run(load("single_level"), Release.from_counts({"block": 2}, sigma2=5.0), draws=0).save(path)
    return path.read_bytes()


def test_a_result_with_any_byte_changed_is_refused(saved, tmp_path):
    path = tmp_path / "result.nc"
    draw = random.Random(1)
    body = len(saved) - len(CHECKSUM) - 64
    for _ in range(LONG or 300):
        data = bytearray(saved)
        for _ in range(draw.choice([1, 1, 2, 5, 20])):
            at = draw.randrange(body)
            data[at] ^= draw.randrange(1, 256)
        if bytes(data) == saved:
            continue
        path.write_bytes(data)
        with pytest.raises(FileFormatError, match=r"result\.nc: damaged, or changed after it was saved"):
            AttackResult.load(path)


def test_a_result_that_is_cut_is_refused(saved, tmp_path):
    path = tmp_path / "result.nc"
    for length in [0, 1, 8, 100, len(saved) // 2, len(saved) - 100, len(saved) - 1]:
        path.write_bytes(saved[:length])
        with pytest.raises(FileFormatError, match=r"result\.nc: "):
            AttackResult.load(path)


@pytest.mark.parametrize(
    "data", [b"", b"text", b"\x89HDF\r\n\x1a\n", b"CDF\x01" + bytes(100), CHECKSUM, os.urandom(5000)]
)
def test_what_is_no_netcdf_is_refused(data, tmp_path):
    path = tmp_path / "result.nc"
    path.write_bytes(data)
    for read in (AttackResult.load, check_hdf5, lambda p: open_source(p, 10)):
        with pytest.raises(FileFormatError, match=r"result\.nc"):
            read(path)


def test_other_netcdf_files_are_read_and_are_no_result(tmp_path):
    xr.Dataset({"block": ("target", [1, 2]), "block_sigma2": 5.0}).to_netcdf(
        tmp_path / "t.nc", engine="h5netcdf"
    )
    assert sum(p.sizes["target"] for p in open_source(tmp_path / "t.nc", 1).pieces()) == 2
    with pytest.raises(FileFormatError, match=r"t\.nc: not a result"):
        AttackResult.load(tmp_path / "t.nc")


def test_the_checksum_is_invisible_to_xarray(tmp_path):
    data = xr.Dataset({"a": ("x", [1, 2, 3])})
    write_netcdf(tmp_path / "a.nc", data)
    with xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as back:
        xr.testing.assert_identical(back.load(), data)
    check_hdf5(tmp_path / "a.nc")
