# SPDX-License-Identifier: MIT
"""Probes in copies of the libraries of a program on arm64, under qemu."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.command import Result, ftpatch
from tests.support.gnu import runner
from tests.support.tracer_programs import ARCHES
from tests.support.whole_library import built, command, told

ROOT = Path(ARCHES["arm64"].root)
PROBES = (
    "p again",
    "p:deep libwhole.so.1:whole_deep n=$arg1:s32",
    "r:back libwhole.so.1:whole_back ret=$retval:s32",
    "p:leaf libwhole.so.1:whole_leaf n=$arg1:s32 if n > 1",
    "p:calls libwhole.so.1:whole_calls",
    "p:said libc.so.6:printf",
    "p:inside libwhole.so.1:whole_back+4",
)


@pytest.fixture
def linker(tmp_path: Path) -> Path:
    """What runs glibc's dynamic linker of arm64 here."""
    place = tmp_path / "ld-linux-aarch64.sh"
    words = [*runner("arm64"), "-L", str(ROOT), "-cpu", "max"]
    place.write_text(
        f"#!/bin/sh\nexec {' '.join(words)} {ROOT}/lib/ld-linux-aarch64.so.1 "
        f'--library-path {ROOT}/lib "$@"\n'
    )
    place.chmod(0o755)
    return place


def _probed(linker: Path, program: Path, *probes: str) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        for module in ("image.needed", "probe.library_copies"):
            patch.setattr(f"ftpatch.{module}.linker_of", lambda _: str(linker))
        return ftpatch("probe", program, *probes, "-o", program.with_name("probed"))


@pytest.mark.parametrize("level", ["-O1", "-O2"])
def test_it_counts_as_the_program_does(level: str, linker: Path, tmp_path: Path) -> None:
    """Program, library and libc record into one trace, in the middle of functions too."""
    _, program = built(tmp_path, level, compiler=ARCHES["arm64"].gcc, pad="-g")
    plain = told(command("arm64", program), tmp_path)
    original = program.read_bytes()
    done = _probed(linker, program, *PROBES)
    assert done.code == 0, done.err
    ran = told(command("arm64", tmp_path / "probed"), tmp_path)
    assert (ran.code, ran.out) == (plain.code, plain.out), ran.err
    (line,) = (one for one in ran.out.splitlines() if one.startswith("parent"))
    _, deep, back = map(int, line.split()[1:4])
    report = ftpatch("report", ran.traces[0], "--json", "--no-children")
    rows = [row for row in report.json if "probe" in row and "time" in row]
    hits = Counter(row["probe"] for row in rows)
    leaves = [row["values"]["n"] for row in rows if row["probe"] == "leaf"]
    assert min(leaves) == 2 and len(leaves) == 4 * (50 + 48)
    assert {name: hits[name] for name in ("deep", "back", "calls", "said", "inside")} == {
        "deep": deep,
        "back": back,
        "calls": 1,
        "said": 3,  # the child's is its own
        "inside": back,
    }
    assert ftpatch("undo", tmp_path / "probed").code == 0
    assert (tmp_path / "probed").read_bytes() == original


def test_signed_functions_are_refused(linker: Path, tmp_path: Path) -> None:
    flags = "-mbranch-protection=standard"
    _, program = built(tmp_path, flags, compiler=ARCHES["arm64"].gcc, pad="-g")
    done = _probed(linker, program, "p libwhole.so.1:whole_deep")
    assert done.code == 2 and "no room for a jump" in done.err and "probe -c" in done.err
    assert not (tmp_path / "probed").exists() and not (tmp_path / "probed.libs").exists()
