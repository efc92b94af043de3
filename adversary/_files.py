"""Files that appear whole or not at all, and folders that one process at a time writes.

What it is: the context managers that every writer of this package goes through, and two functions that read text or say why
it is none. A file is written beside its final name,
brought to the disk, and put in its place in one step; whatever goes wrong (no room, no right to write, a kill) leaves what
was there before. A folder of many parts is held by a lock of the operating system, which gives it back however the process
ends, so that a killed run never locks its own continuation out. What it is not: a lock between machines on a network drive
that does not carry ``flock``.

Held to account by ``tests/robustness/test_files.py``.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import os
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adversary.errors import FileFormatError, ScenarioError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "LOCK",
    "check_hdf5",
    "csv_rows",
    "end_with_parent",
    "make_folder",
    "read_text",
    "whole",
    "write_netcdf",
    "write_whole",
    "writing",
]

LOCK = ".lock"
"""Name of the lock's file, where the folder itself cannot be locked."""


LONGEST_FIELD = 1000
"""Characters of one field: more is a quotation mark without its end, and a column of such fields fills the memory."""


CHECKSUM = b"\nadversary sha256 "
"""Stands between the netCDF file and its SHA-256 in hexadecimal digits; every reader of netCDF stops before it."""


def read_text(path: str | Path, encoding: str = "utf-8-sig") -> str:
    """Read a text file whole, or say why it cannot be.

    Raises
    ------
    FileFormatError
        Where there is no such file, it cannot be read, or it is not text of this encoding.
    """
    path = Path(path)
    try:
        return path.read_text(encoding=encoding)
    except FileNotFoundError as error:
        msg = f"{path}: there is no such file: check the name"
        raise FileFormatError(msg, path) from error
    except UnicodeError as error:
        msg = f"{path}: not text in {encoding.removesuffix('-sig')} ({error}): save it in that encoding"
        raise FileFormatError(msg, path) from error
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror or error})"
        raise FileFormatError(msg, path) from error


def check_hdf5(path: str | Path) -> None:
    """Refuse a damaged netCDF file before it is read.

    HDF5 can turn for ever, or bring the process down, on a few changed bytes. What :func:`write_netcdf` wrote ends with a
    checksum, which is compared first, so that HDF5 never sees a damaged file of ours. Of any other file groups, attributes and
    the shapes of variables are read (h5netcdf would leave a traceback of its own on standard error); the values are not.

    Raises
    ------
    FileFormatError
        For what is no netCDF-4 file, a damaged one, or one that was changed after it was written.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror or error})"
        raise FileFormatError(msg, path) from error
    body, found, said = data.rpartition(CHECKSUM)
    if found:
        if said != hashlib.sha256(body).hexdigest().encode():
            msg = f"{path}: damaged, or changed after it was saved (its checksum differs): make it again"
            raise FileFormatError(msg, path)
        return
    import h5py  # type: ignore[import-untyped]

    def look(_: str, item: Any) -> None:
        list(item.attrs.items())
        if isinstance(item, h5py.Dataset):
            repr((item.shape, item.dtype, item.maxshape))

    try:
        with h5py.File(path, "r") as file:
            look("/", file)
            file.visititems(look)
    except (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError) as error:
        msg = f"{path}: no netCDF file, or a damaged one ({str(error)[:200]}): write it again"
        raise FileFormatError(msg, path) from error


def csv_rows(lines: Iterable[str], name: str) -> Iterator[list[str]]:
    """Yield the rows of a CSV text, or name the line that is none.

    Parameters
    ----------
    lines
        Lines of text, or a file that is open for reading (with ``newline=""``).
    name
        Name of the file, for messages.

    Raises
    ------
    FileFormatError
        For bytes that are no text, a quotation mark without its end, a NUL, a field longer than 1000 characters.
    """
    reader = csv.reader(lines)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except (csv.Error, UnicodeError) as error:
            msg = (
                f"{name}, line {reader.line_num + 1}: no row of a CSV file in UTF-8 ({error}): mend the file"
            )
            raise FileFormatError(msg, reader.line_num + 1) from error
        longest = max(map(len, row), default=0)
        if longest > LONGEST_FIELD:
            msg = f"{name}, line {reader.line_num}: a field of {longest} characters: a quotation mark may lack its end"
            raise FileFormatError(msg, reader.line_num)
        yield row


def make_folder(folder: str | Path) -> Path:
    """Make a folder with those above it, or say why it cannot be.

    Raises
    ------
    FileFormatError
        Where a file has that name, or the place cannot be written.
    """
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        taken = next((p for p in (path, *path.parents) if p.exists() and not p.is_dir()), None)
        why = f"{taken} is a file" if taken else error.strerror or str(error)
        msg = f"{path}: this folder cannot be made ({why}): give another folder"
        raise FileFormatError(msg, path) from error
    return path


@contextlib.contextmanager
def whole(path: str | Path) -> Iterator[Path]:
    """Yield the name of a draft, which takes the place of ``path`` when the block ends well.

    Parameters
    ----------
    path
        Final name of a file (or of a folder such as a zarr store). What was there is replaced, at the end and in one step.

    Raises
    ------
    FileFormatError
        Where the folder is missing or cannot be written, or the disk is full; what was there before is left as it was.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole(Path(folder) / "a.txt") as draft:
    ...         _ = draft.write_text("all of it")
    ...     [p.name for p in Path(folder).iterdir()]
    ['a.txt']
    """
    final = Path(path)
    if not final.parent.is_dir():
        msg = f"{final}: the folder {final.parent} does not exist: make it first, or write elsewhere"
        raise FileFormatError(msg, final)
    draft = final.with_name(f".{final.name}.{uuid.uuid4().hex[:12]}.part")
    try:
        yield draft
        _to_disk(draft)
        if draft.is_dir() and final.is_dir():
            shutil.rmtree(final)
        draft.replace(final)
    except OSError as error:
        why = error.strerror or str(error)
        msg = (
            f"{final}: could not be written ({why}), and what was there is unchanged: make room or choose another folder, "
            "and run again"
        )
        raise FileFormatError(msg, final) from error
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(draft) if draft.is_dir() else draft.unlink(missing_ok=True)


def _to_disk(path: Path) -> None:
    """Wait until the bytes are on the disk: a rename may otherwise outlive them when the power fails."""
    if path.is_file():
        with path.open("rb+") as handle:
            os.fsync(handle.fileno())


def write_whole(path: str | Path, data: bytes | str) -> Path:
    """Write a file so that it is there whole or not at all; text as UTF-8.

    Raises
    ------
    FileFormatError
        As :func:`whole`.
    """
    with whole(path) as draft:
        draft.write_bytes(data.encode() if isinstance(data, str) else data)
    return Path(path)


def write_netcdf(path: str | Path, data: Any) -> Path:
    """Write a Dataset or DataTree as netCDF, whole or not at all, with a checksum behind the end that HDF5 knows of.

    The file is made in memory first: HDF5 that finds no room on the disk brings the process down (a segmentation fault). The
    copy as ``bytes`` lets go of xarray's view at once, which Python 3.12.1 cannot always collect without crashing.

    Raises
    ------
    FileFormatError
        As :func:`whole`.
    """
    body = bytes(data.to_netcdf(engine="h5netcdf"))
    return write_whole(path, body + CHECKSUM + hashlib.sha256(body).hexdigest().encode())


@contextlib.contextmanager
def writing(folder: str | Path) -> Iterator[Path]:
    """Hold a folder for as long as the block runs; it is made where it does not exist.

    Raises
    ------
    FileFormatError
        Where the folder cannot be made or written.
    ScenarioError
        Where another process (or another call in this one) is writing there.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, writing(folder) as held:
    ...     held.is_dir()
    True
    """
    path = make_folder(folder)
    if not os.access(path, os.W_OK | os.X_OK):
        msg = f"{path}: this folder cannot be written (no right to): give another folder"
        raise FileFormatError(msg, path)
    with contextlib.ExitStack() as stack:
        if not _lock_folder(path, stack):
            _lock_file(path, stack)
        yield path


def _lock_folder(folder: Path, stack: contextlib.ExitStack) -> bool:
    """Lock the folder itself, which leaves no trace; False where the system (Windows) or the drive (NFS) cannot."""
    try:
        import fcntl
    except ImportError:
        return False
    held = os.open(folder, os.O_RDONLY)
    stack.callback(os.close, held)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _refuse(folder)
    except OSError:
        return False
    return True


def _lock_file(folder: Path, stack: contextlib.ExitStack) -> None:
    """Lock a file in the folder; it stays, since taking it away would let two processes hold two files of one name."""
    try:
        handle = stack.enter_context((folder / LOCK).open("a+b"))
    except OSError as error:
        msg = f"{folder}: this folder cannot be written ({error.strerror or error}): give another folder"
        raise FileFormatError(msg, folder) from error
    try:
        try:
            import fcntl
        except ImportError:
            import msvcrt

            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        _refuse(folder)


def _refuse(folder: Path) -> None:
    msg = f"another process is writing in {folder}: wait for it, or give another folder"
    raise ScenarioError(msg, folder) from None


def end_with_parent() -> None:
    """Let a worker process end when the process that started it was killed: the initializer of our pools.

    Without it, a worker of a killed run waits for work for ever.
    """
    import multiprocessing
    import threading
    from multiprocessing.connection import wait

    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="end with parent", daemon=True).start()
