# SPDX-License-Identifier: MIT
"""Programs of the distribution, which no one here compiled and which have no symbols: probes on all
functions that unwinders know, counted as gdb's breakpoints count.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ftpatch.image import open_image
from ftpatch.names.function_names import FunctionNames
from ftpatch.names.functions import read_functions
from tests.support.command import PATIENCE, ftpatch

LOADED = 0x5555_5555_4000
"""Where Linux loads a PIE that gdb starts."""
NUMBERS = "\n".join(str(n * 7919 % 1009) for n in range(400)) + "\n"
SQL = "create table t(a); insert into t values (3), (1), (2); select * from t order by a;\n"
PROGRAMS: dict[str, tuple[list[str], str]] = {
    "sort": (["-n", "numbers"], ""),
    "mawk": (["{ s += $1 } END { print s, NR }", "numbers"], ""),
    "xz": (["--keep", "--stdout", "--threads=1", "numbers"], ""),
    "sqlite3": ([":memory:"], SQL),
}
FILES = {"numbers": NUMBERS}


def _program(name: str, folder: Path) -> Path:
    found = shutil.which(name)
    if found is None or shutil.which("gdb") is None:
        pytest.skip(f"no {name}, or no gdb")
    copy = folder / name
    shutil.copy(found, copy)
    for file, text in FILES.items():
        (folder / file).write_text(text)
    return copy


def _run(program: Path, words: list[str], text: str) -> tuple[bytes, int]:
    done = subprocess.run(
        [program, *words],
        cwd=program.parent,
        input=text.encode(),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        env={"PATH": "/bin", "FTPATCH_TRACE": str(program.parent / "trace")},
    )
    return done.stdout, done.returncode


def _counted(program: Path, words: list[str], text: str, places: list[int]) -> dict[int, int]:
    """How often each place is reached, as gdb counts."""
    (program.parent / "input").write_text(text)
    lines = ["set pagination off", f"starti {' '.join(map(repr, words))} < input > /dev/null"]
    for number, place in enumerate(places, 1):
        lines += [f"break *{LOADED + place:#x}", f"ignore {number} 100000000"]
    lines += ["continue", "info breakpoints"]
    script = program.parent / "script"
    script.write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        ["gdb", "-nx", "-batch", "-x", str(script), str(program)],
        cwd=program.parent,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={"PATH": "/usr/bin:/bin", "DEBUGINFOD_URLS": "", "SHELL": "/bin/sh"},
    )
    counts = dict.fromkeys(places, 0)
    found = re.findall(
        r"breakpoint +keep +y +0x([0-9a-f]+).*\n(?:\s+breakpoint already hit (\d+) time)?",
        done.stdout,
    )
    assert len(found) == len(places), done.stdout[-2000:] + done.stderr[-2000:]
    for address, times in found:
        counts[int(address, 16) - LOADED] = int(times or 0)
    return counts


@pytest.mark.parametrize("way", ["--optimize", "--no-optimize"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_all_calls_are_counted(name: str, way: str, tmp_path: Path) -> None:
    words, text = PROGRAMS[name]
    program = _program(name, tmp_path)
    functions = read_functions(open_image(program))
    places = [at for at in functions.start.tolist() if functions.is_called(at)]
    expected = _run(program, words, text)
    assert expected[1] == 0
    probes = [f"p:e{at:x} 0x{at:x} $stack" for at in places]
    twice = FunctionNames(open_image(program)).twice  # calls of setjmp() have no one return
    once = [at for at in places if at not in twice]
    probes += [f"r:r{at:x} 0x{at:x} ret=$retval" for at in once]
    patched = tmp_path / f"{name}.probed"
    done = ftpatch("probe", program, *probes, way, "-o", patched)
    assert done.code == 0, done.err
    assert _run(patched, words, text) == expected
    report = ftpatch("report", tmp_path / "trace", "--json")
    sums = {row["probe"]: row for row in report.json if "hits" in row}
    assert not any(row["missed"] for row in sums.values())
    counts = _counted(program, words, text, places)
    assert {at: sums[f"e{at:x}"]["hits"] for at in places} == counts
    assert sum(counts.values()) > 10
    # What ends the program does not return.
    stays = [at for at in once if sums[f"r{at:x}"]["hits"] != counts[at]]
    assert all(counts[at] - sums[f"r{at:x}"]["hits"] == 1 for at in stays)
    assert len(stays) < 5
    back = tmp_path / "back"
    assert ftpatch("undo", patched, "-o", back).code == 0
    assert back.read_bytes() == program.read_bytes()
