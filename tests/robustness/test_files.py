"""Full disks, read-only folders, two writers, killed writers: a sentence, and nothing lost."""

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from adversary import Release, load, run, study
from adversary._files import make_folder, whole, write_whole, writing
from adversary.assess import assess_pl94
from adversary.batches import batch_to_folder
from adversary.errors import AdversaryError, FileFormatError, ScenarioError
from adversary.readers.pl94 import demo_folder

RELEASE = Release.from_counts({"block": 2}, sigma2=5.0)
single_level = load("single_level")
TABLE = {"block": np.arange(40), "block_sigma2": np.full(40, 5.0)}


def a_result(folder):
    return run(single_level, RELEASE, draws=0).save(folder / "result.nc")


def a_study(folder):
    study(single_level.over(known=range(40)), RELEASE, out=folder)


def a_batch(folder):
    batch_to_folder(single_level, TABLE, folder, chunk=10)


def an_assessment(folder):
    assess_pl94(demo_folder(), rho="0.05", seed=1).to_csv(folder / "risk.csv")


def a_figure(folder):
    from adversary.plots.paper import draw
    from adversary.reproduce.tables import FIGURES

    draw("figure_1", FIGURES["figure_1"](), folder / "figure.png")


WRITERS = [a_result, a_study, a_batch, an_assessment, a_figure]


def finals(folder):
    """What lies under a final name."""
    return {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    out = {}
    for write in WRITERS:
        folder = tmp_path_factory.mktemp(write.__name__)
        write(folder)
        out[write.__name__] = finals(folder)
    return out


@contextlib.contextmanager
def mounted(folder, options):
    """A small drive of its own, where the user may make one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if (
        os.geteuid() != 0
        or not Path("/proc/mounts").exists()
        or subprocess.run(command, check=False, capture_output=True).returncode
    ):
        pytest.skip("a drive of a few kilobytes takes the right to mount one")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("write", WRITERS)
def test_a_full_disk_is_one_sentence_and_nothing_under_a_final_name_is_half(write, sound, tmp_path):
    with mounted(tmp_path / "small", "size=64k") as folder:
        room = 16_000 if write in (a_study, a_batch) else 1000
        rest = 65_536 - room
        (folder / "ballast").write_bytes(b"x" * rest)
        with pytest.raises(FileFormatError, match=r"could not be written") as caught:
            write(folder / "out" if write in (a_study, a_batch) else folder)
        assert str(folder) in str(caught.value)
        assert "make room or choose another folder" in str(caught.value)
        (folder / "ballast").unlink()
        there = {k: v for k, v in finals(folder).items() if k != "manifest.json"}
        assert there.items() <= sound[write.__name__].items()


@pytest.mark.parametrize("write", [a_study, a_batch])
def test_what_was_stopped_by_a_full_disk_is_finished_when_there_is_room(write, sound, tmp_path):
    with mounted(tmp_path / "small", "size=256k") as folder:
        (folder / "ballast").write_bytes(b"x" * 240_000)
        with pytest.raises(FileFormatError, match="could not be written"):
            write(folder / "out")
        (folder / "ballast").unlink()
        write(folder / "out")
        assert finals(folder / "out") == sound[write.__name__]


@pytest.mark.parametrize("write", WRITERS)
def test_no_room_reported_by_the_system_is_one_sentence(write, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(FileFormatError, match="No space left on device"):
        write(tmp_path)
    assert not finals(tmp_path)
    assert not [p for p in tmp_path.rglob(".*") if p.is_file() and p.suffix == ".part"]


@pytest.mark.parametrize("write", WRITERS)
def test_a_folder_that_may_not_be_written_is_named(write, tmp_path):
    with contextlib.ExitStack() as stack:
        if os.geteuid() == 0:  # root may write everywhere but on a drive that is read-only
            folder = stack.enter_context(mounted(tmp_path / "locked", "size=64k,ro"))
        else:
            folder = tmp_path / "locked"
            folder.mkdir(mode=0o500)
        with pytest.raises(FileFormatError, match=r"locked.*(another folder)"):
            write(folder)
        assert not list(folder.iterdir())


@pytest.mark.parametrize("write", WRITERS)
def test_a_file_where_a_folder_should_be_is_named(write, tmp_path):
    (tmp_path / "letter").write_text("dear all")
    with pytest.raises(AdversaryError, match="letter"):
        write(tmp_path / "letter" / "in")
    assert (tmp_path / "letter").read_text() == "dear all"


def test_what_was_there_stays_when_the_new_one_fails(tmp_path):
    path = write_whole(tmp_path / "a.txt", "old")

    def spoil():
        with whole(path) as draft:
            draft.write_text("half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spoil()
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "old"


def test_a_folder_replaces_a_folder(tmp_path):
    for text in ("one", "two"):
        with whole(tmp_path / "store.zarr") as draft:
            draft.mkdir()
            (draft / text).write_text(text)
    assert [p.name for p in (tmp_path / "store.zarr").iterdir()] == ["two"]


@pytest.mark.parametrize("write", [a_study, a_batch])
def test_two_writers_of_one_folder_are_refused(write, tmp_path):
    with writing(tmp_path), pytest.raises(ScenarioError, match="another process is writing in"):
        write(tmp_path)
    write(tmp_path)


@pytest.mark.parametrize("write", [a_study, a_batch])
def test_another_process_holds_the_folder_until_it_is_killed(write, tmp_path):
    script = (
        "import sys, time\nfrom adversary._files import writing\n"
        "with writing(sys.argv[1]):\n    print('held', flush=True)\n    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline().strip() == b"held"
        with pytest.raises(ScenarioError, match="wait for it, or give another folder"):
            write(tmp_path)
        other.kill()
        other.wait()
    write(tmp_path)


def test_where_a_folder_cannot_be_locked_a_file_in_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("adversary._files._lock_folder", lambda *_: False)
    with writing(tmp_path), pytest.raises(ScenarioError, match="another process is writing"):  # noqa: SIM117
        with writing(tmp_path):
            pass
    with writing(tmp_path):
        pass


def test_the_workers_of_a_killed_batch_end_with_it(tmp_path):
    pytest.importorskip("fcntl")
    script = (
        "import os, sys, time, threading, numpy as np, xarray as xr\n"
        "from adversary import load\n"
        "from adversary.batches import batch_to_folder\n"
        "def pieces():\n"
        "    for k in range(3):\n"
        "        yield xr.Dataset({'block': ('target', [k]), 'block_sigma2': 5.0})\n"
        "    while True:\n"
        "        time.sleep(0.05)\n"
        "        import multiprocessing as m\n"
        "        if len(m.active_children()) >= 2 and list(__import__('pathlib').Path(sys.argv[1]).glob('part-*')):\n"
        "            print(*[c.pid for c in m.active_children()], flush=True)\n"
        "            time.sleep(600)\n"
        "if __name__ == '__main__':\n"
        "    batch_to_folder(load('single_level'), pieces(), sys.argv[1], workers=2)\n"
    )
    (tmp_path / "job.py").write_text(script)
    command = [sys.executable, tmp_path / "job.py", tmp_path / "out"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        workers = [int(p) for p in parent.stdout.readline().split()]
        parent.kill()
        # the workers hold the other end of this pipe: it closes when they are gone
        parent.stdout.read()
    assert len(workers) == 2


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "nonsense", '{"parts": 3}', "[" * 100_000, "\0\xff"],
    ids=["empty", "list", "no parts", "text", "number", "deep", "bytes"],
)
def test_a_manifest_that_is_none_is_named_and_not_written_over(text, tmp_path):
    (tmp_path / "manifest.json").write_text(text, encoding="latin-1")
    for write in (a_batch, a_study):
        with pytest.raises(AdversaryError, match=r"manifest|another study"):
            write(tmp_path)
        assert (tmp_path / "manifest.json").read_text(encoding="latin-1") == text


def test_a_part_that_the_manifest_does_not_describe_is_computed_again(tmp_path, sound):
    import json

    a_batch(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["parts"] = [{"file": "../../elsewhere"}, 3, *manifest["parts"][2:]]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    a_batch(tmp_path)
    assert finals(tmp_path) == sound["a_batch"]
    with xr.open_dataset(tmp_path / "part-000000.nc", engine="h5netcdf") as part:
        assert part.sizes["target"] == 10


def test_a_folder_is_made_with_those_above_it(tmp_path):
    assert make_folder(tmp_path / "a" / "b").is_dir()
