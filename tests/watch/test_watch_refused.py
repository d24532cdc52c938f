# SPDX-License-Identifier: MIT
"""Where the kernel sets no watch: the program runs on, and its trace says why."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import PATIENCE, ftpatch
from tests.support.watch_programs import build_watched, refusal, rows_of, run_watched, watched


def test_no_events_without_the_kernel(tmp_path: Path) -> None:
    """An emulator without perf_event_open(): the program runs on, and the trace says why."""
    if shutil.which("qemu-x86_64-static") is None:
        pytest.skip("no qemu-x86_64-static")
    program = build_watched(tmp_path, "static")
    patched = tmp_path / "patched"
    assert ftpatch("watch", program, "counter:rw-", "-o", patched).code == 0
    done, trace = run_watched(patched, "sizes", before=["qemu-x86_64-static"])
    plain = subprocess.run(
        [str(program), "sizes"], capture_output=True, timeout=PATIENCE, check=False
    )
    assert (done.stdout, done.returncode) == (plain.stdout, 0)
    out = ftpatch("report", "--force", trace).out
    assert "# counter:rw-: not watched: errno 38, no perf_event_open(): an emulator" in out
    assert [row["errno"] for row in rows_of(trace)] == [38]


FILTER = """
import ctypes, os, struct, sys
# ld [nr]; jeq perf_event_open -> ACTION; allow
code = b"".join(struct.pack("<HBBI", *row) for row in (
    (0x20, 0, 0, 0), (0x15, 0, 1, 298), (0x06, 0, 0, ACTION), (0x06, 0, 0, 0x7FFF0000)))
held = ctypes.create_string_buffer(code)
program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", 4, ctypes.addressof(held)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("action", "number"),
    [("0x0005000D", 13), ("0x80000000", 1), ("0x00030000", 1)],
    ids=["errno", "kill", "trap"],
)
def test_no_events_where_a_sandbox_forbids_them(tmp_path: Path, action: str, number: int) -> None:
    """Neither where the filter gives an error, nor where it ends the process."""
    program = build_watched(tmp_path)
    patched = tmp_path / "patched"
    assert ftpatch("watch", program, "counter:rw-", "-o", patched).code == 0
    script = FILTER.replace("ACTION", action)
    done, trace = run_watched(patched, before=[sys.executable, "-c", script])
    plain = subprocess.run([str(program)], capture_output=True, timeout=PATIENCE, check=True)
    assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr
    assert f"counter:rw-: not watched: errno {number}, denied by the kernel" in (
        ftpatch("report", trace).out
    )


TAKEN = """
import ctypes, os, struct, sys
held = ctypes.c_long()
fields = (5, 128, 0, 0, 0, 0, 1 << 5 | 1 << 6, 0, 2, ctypes.addressof(held), 8)
event = struct.pack("<2I5Q2I2Q", *fields).ljust(128, b"\\0")
libc = ctypes.CDLL(None)
assert all(libc.syscall(298, event, 0, -1, -1, 0) >= 0 for _ in range(3))
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_too_few_breakpoints(tmp_path: Path) -> None:
    """Others have three of the four: one watch is set, the second is not."""
    patched = watched(tmp_path, "counter:rw-", "flag:rw-")
    done, trace = run_watched(patched, "sizes", before=[sys.executable, "-c", TAKEN])
    assert done.returncode == 0, done.stderr
    ends = [row for row in rows_of(trace) if "hits" in row]
    assert [(row["errno"], row["hits"] > 0) for row in ends] == [(0, True), (28, False)]
    assert "# flag:rw-: not watched: errno 28, no free breakpoint: used by a debugger" in (
        ftpatch("report", trace).out
    )


CLOSES = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
volatile int v;
int main(void) {
    int i, fd;
    closefrom(3); v = 1;
    printf("%d\\n", close_range(3, ~0u, 0)); v = 2;
    for (i = 3; i < 1100; i++) close(i);
    v = 3; fd = open("/dev/null", 0);
    for (i = fd + 1; i < 1024; i++) if (dup2(fd, i) != i || dup3(fd, i, O_CLOEXEC) != i) return 1;
    v = 4; printf("%d %d %d\\n", fd, close(-1), close_range(9, 3, 0));
    closefrom(3); v = 5;
    return 0;
}
"""


@pytest.mark.parametrize("link", [["-Wl,-z,now"], ["-no-pie", "-Wl,-z,lazy"]], ids=["now", "lazy"])
def test_a_program_that_closes_all(tmp_path: Path, link: list[str]) -> None:
    """It is watched on, and finds no descriptor that is not its own."""
    if refusal():
        pytest.skip(refusal())
    (tmp_path / "c.c").write_text(CLOSES)
    program, patched = tmp_path / "c", tmp_path / "patched"
    subprocess.run(["gcc", "-O1", *link, str(tmp_path / "c.c"), "-o", str(program)], check=True)
    assert ftpatch("watch", program, "v:-w-", "-o", patched).code == 0
    plain = subprocess.run([str(program)], capture_output=True, timeout=PATIENCE, check=True)
    done, trace = run_watched(patched)
    assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr
    assert [row["new"] for row in rows_of(trace) if "access" in row] == [
        "0x1", "0x2", "0x3", "0x4", "0x5"
    ]  # fmt: skip


def test_too_few_descriptors(tmp_path: Path) -> None:
    patched = watched(tmp_path, "counter:rw-")
    plain = subprocess.run(
        [str(tmp_path / "watched")], capture_output=True, timeout=PATIENCE, check=True
    )
    done, trace = run_watched(patched, before=["sh", "-c", 'ulimit -n 8; exec "$0" "$@"'])
    assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr
    assert "counter:rw-: not watched: errno 24, no free descriptor" in (
        ftpatch("report", trace).out
    )


def test_descriptors_are_as_without(tmp_path: Path) -> None:
    """Those that a program opens count from 3, as ever."""
    source = tmp_path / "open.c"
    source.write_text(
        "#include <fcntl.h>\n#include <stdio.h>\nvolatile int v;\n"
        'int main(void) { v = open("/dev/null", 0); printf("%d\\n", v); return 0; }\n'
    )
    subprocess.run(["gcc", "-O1", str(source), "-o", str(tmp_path / "open")], check=True)
    patched = tmp_path / "patched"
    assert ftpatch("watch", tmp_path / "open", "v:rw-", "-o", patched).code == 0
    plain = subprocess.run(
        [str(tmp_path / "open")], capture_output=True, timeout=PATIENCE, check=True
    )
    assert run_watched(patched)[0].stdout == plain.stdout
