"""Coverage-guided fuzzing of what is read byte by byte, with atheris: python coverage_guided.py READER [-runs=N].

READER is release-json, release-csv, result or toml. Anything but an object or an AdversaryError ends the run with a traceback.
"""

import contextlib
import sys
import tempfile
from pathlib import Path


def main(reader, *flags):
    import atheris

    with atheris.instrument_imports(include=["adversary"]):
        from adversary import AttackResult, Release
        from adversary.config import read_config
        from adversary.errors import AdversaryError

    readers = {
        "release-json": ("a.json", Release.read),
        "release-csv": ("a.csv", Release.read),
        "result": ("a.nc", AttackResult.load),
        "toml": ("a.toml", read_config),
    }
    name, read = readers[reader]
    path = Path(tempfile.mkdtemp()) / name

    def once(data):
        path.write_bytes(data)
        with contextlib.suppress(AdversaryError):
            read(path)

    atheris.Setup([sys.argv[0], *flags], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
