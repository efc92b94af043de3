import numpy as np
import pytest
import xarray as xr

from adversary.errors import FileFormatError
from adversary.sealing import SEAL, content_hash, sealed, unsealed


def tree():
    node = xr.Dataset(
        {
            "p": ("k", np.array([0.25, np.nan, -np.inf])),
            "n": ("k", np.array([1, -2, 3], dtype=np.int64)),
            "yes": ("k", np.array([True, False, True])),
            "word": ("k", np.array(["a", "", "ü"], dtype=object)),
        },
        coords={"k": [10, 20, 30]},
        attrs={"half": 0.5, "count": 3},
    )
    node["p"].attrs["long_name"] = "a probability"
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs={"name": "t", "empty": ""}), "/a": node})


def test_the_hash_survives_the_file_whatever_types_netcdf_chooses(tmp_path):
    first = tree()
    sealed(first).to_netcdf(tmp_path / "t.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "t.nc", engine="h5netcdf") as opened:
        read = opened.load()
    assert read.attrs[SEAL] == content_hash(first) == content_hash(read)
    assert unsealed(read, "t.nc")
    assert SEAL not in read.attrs
    assert not unsealed(read, "t.nc")


def test_sealing_leaves_the_tree_in_memory_as_it_was():
    first = tree()
    sealed(first)
    assert first.identical(tree())


def _value(t):
    t["a"]["p"].values[0] = np.nextafter(0.25, 1)


def _sign(t):
    t["a"]["n"].values[1] = 2


def _word(t):
    t["a"]["word"].values[0] = "b"


def _label(t):
    t["a"] = t["a"].to_dataset().assign_coords(k=[10, 20, 31])


def _attribute(t):
    t["a"].attrs["half"] = 0.25


def _root(t):
    t.attrs["name"] = "u"


def _meaning(t):
    t["a"]["p"].attrs["long_name"] = "another"


def _renamed(t):
    t["a"] = t["a"].to_dataset().rename(n="m")


def _added(t):
    t["b"] = xr.Dataset({"x": 1})


@pytest.mark.parametrize(
    "edit",
    [_value, _sign, _word, _label, _attribute, _root, _meaning, _renamed, _added],
    ids=lambda f: f.__name__,
)
def test_any_edit_is_noticed(edit):
    changed = sealed(tree()).copy(deep=True)
    edit(changed)
    with pytest.raises(FileFormatError, match=r"x\.nc: this file was changed after it was saved"):
        unsealed(changed, "x.nc")


def test_texts_cannot_be_moved_from_one_place_to_the_next():
    one = xr.Dataset({"w": ("k", np.array(["ab", "c"], dtype=object))})
    two = xr.Dataset({"w": ("k", np.array(["a", "bc"], dtype=object))})
    assert content_hash(one) != content_hash(two)
