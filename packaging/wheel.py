"""Puts programs and libraries into a wheel, or makes a wheel of programs only.

usage: wheel.py STAGE WHEEL OUT            what `maturin` built, with what lies in STAGE (bin/, lib/, share/)
       wheel.py STAGE NAME==VERSION OUT    a wheel that has programs only

`pip` puts a wheel's `.data/scripts` into the environment's bin/ and `.data/data` into the environment itself, so that programs find
their libraries as they do below /usr/local (PEP 427).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import deflate

PLATFORM = "manylinux_2_28_x86_64"


def bare(name: str, version: str, work: Path) -> Path:
    """An unpacked wheel without content."""
    top = work / f"{name}-{version}"
    info = top / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: {name.replace('_', '-')}\nVersion: {version}\n"
        "Summary: The SQL engine of Terrace: `terrace sql`, `terrace savime`, Flight SQL\nLicense-Expression: Apache-2.0\n"
        "Requires-Python: >=3.8\n"
    )
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: terrace\nRoot-Is-Purelib: false\nTag: py3-none-{PLATFORM}\n")
    (info / "RECORD").touch()
    return top


class Smallest:
    """What zipfile compresses a member with, but by libdeflate, which leaves 4% less of a program than zlib does."""

    LEVEL = 12

    def __init__(self) -> None:
        self.content = bytearray()

    def compress(self, part: bytes) -> bytes:
        self.content += part
        return b""

    def flush(self) -> bytes:
        return bytes(deflate.deflate_compress(self.content, self.LEVEL))


def make_smaller(wheel: Path) -> None:
    packed = wheel.with_suffix(".packed")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(packed, "w") as new:
        for entry in old.infolist():
            copy = zipfile.ZipInfo(entry.filename, entry.date_time)
            copy.external_attr = entry.external_attr
            copy.compress_type = zipfile.ZIP_DEFLATED
            with new.open(copy, "w") as member:
                # Without this attribute a later Python would compress with zlib, and the wheel be as good.
                member._compressor = Smallest()
                member.write(old.read(entry))
    with zipfile.ZipFile(packed) as new:
        if broken := new.testzip():
            sys.exit(f"{wheel}: {broken} is not what was packed")
    packed.replace(wheel)


def main(stage: Path, what: str, out: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory) / "unpacked"
        packed = Path(directory) / "packed"
        work.mkdir()
        packed.mkdir()
        if "==" in what:
            top = bare(*what.split("=="), work)
        else:
            subprocess.run([sys.executable, "-m", "wheel", "unpack", "--dest", work, what], check=True, stdout=subprocess.DEVNULL)
            (top,) = work.iterdir()
        data = top / f"{top.name}.data"
        for place in stage.iterdir():
            target = data / "scripts" if place.name == "bin" else data / "data" / place.name
            shutil.copytree(place, target, symlinks=False)
        subprocess.run([sys.executable, "-m", "wheel", "pack", "--dest-dir", packed, top], check=True, stdout=subprocess.DEVNULL)
        (wheel,) = packed.iterdir()
        make_smaller(wheel)
        shutil.move(wheel, out)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
