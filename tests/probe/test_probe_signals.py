# SPDX-License-Identifier: MIT
"""Nothing that a program or its libraries do with the signal of traps ends it, or loses a hit: by
whichever function, by number, from a constructor, from a library that is opened later."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.cross_root import CROSS, use_cross_root
from tests.support.tracer_programs import ARCHES, Outcome, run

SOURCES = Path(__file__).parent.parent / "programs"
FORMS = [
    ("gcc", "-O0", "dynamic"),
    ("gcc", "-O2 -Wl,-z,now", "dynamic"),
    ("gcc", "-Os", "static"),
    ("gcc", "-O1", "static-pie"),
    ("musl-gcc", "-O2", "dynamic"),
    ("musl-gcc", "-O1", "static"),
    ("i686-linux-gnu-gcc", "-O1", "dynamic"),
    ("i686-linux-gnu-gcc", "-O0", "static"),
    ("i686-linux-gnu-gcc", "-Os", "static-pie"),
    ("aarch64-linux-gnu-gcc", "-O1", "dynamic"),
    ("aarch64-linux-gnu-gcc", "-O2", "static"),
    ("loongarch64-linux-gnu-gcc", "-O1", "dynamic"),
    ("loongarch64-linux-gnu-gcc", "-O2", "static"),
]
SIGNAL = {arch: ["-DTRAPPED=SIGTRAP"] for arch in ("i386", "loongarch64")}
"""The signal of traps, where it is not SIGILL."""


def _built(compiler: str, flags: str, link: str, folder: Path) -> tuple[Path, list[str], str]:
    """The program, its arguments and its architecture."""
    first = compiler.split("-")[0]
    if first in CROSS:
        use_cross_root(first)
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    named = {"aarch64": "arm64", "i686": "i386", "loongarch64": "loongarch64"}
    arch = named.get(first, "x86_64")
    if arch == "arm64" and shutil.which("qemu-aarch64-static") is None:
        pytest.skip("no qemu-aarch64-static")
    command = [compiler, *flags.split(), "-w", *SIGNAL.get(arch, ())]
    program = folder / "routes"
    more = [] if link == "dynamic" else [f"-{link}"]
    args = []
    if link == "dynamic":
        handles = str(SOURCES / "libraries" / "handles.c")
        shared = [*command, "-fPIC", "-shared", handles, "-o"]
        subprocess.run([*shared, str(folder / "libhandles.so")], check=True)
        subprocess.run([*shared, str(folder / "opened.so"), "-DOPENED"], check=True)
        more = ["-DLIBRARY", f"-L{folder}", "-lhandles", f"-Wl,-rpath,{folder}"]
        args = [str(folder / "opened.so")]
    subprocess.run([*command, str(SOURCES / "routes.c"), "-o", str(program), *more], check=True)
    return program, args, arch


def _both(program: Path, args: list[str], arch: str, *probes: str) -> tuple[Outcome, Outcome, int]:
    """What it does without traps and with them, and how often they were hit."""
    patched, trace = program.with_name("patched"), program.with_name("trace")
    done = ftpatch("probe", program, *probes, "--no-optimize", "-o", patched)
    assert done.code == 0 and "trap" in done.out, done.err
    assert "fatal" not in done.out
    folder = program.parent
    expected = run(program, args, cwd=folder, arch=arch)
    got = run(patched, args, cwd=folder, arch=arch, env={"FTPATCH_TRACE": str(trace)})
    rows = ftpatch("report", trace, "--no-children", "--json").json
    assert not any(row.get("missed") for row in rows)
    return expected, got, sum(row.get("hits", 0) for row in rows)


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
def test_every_route(form: tuple[str, str, str], tmp_path: Path) -> None:
    program, args, arch = _built(*form, tmp_path)
    assert arch in ARCHES
    expected, got, hits = _both(program, args, arch, "p:work work")
    assert (got.status, got.out) == (expected.status, expected.out), str(got)
    *_, last = expected.out.decode().splitlines()
    name, calls = last.split()
    assert (expected.status, name) == (0, "calls")
    assert hits == int(calls) > 30


def test_where_nothing_can_be_recorded(tmp_path: Path) -> None:
    """Nor is there a file for copies of pages where files may not be so large."""
    program, args, _ = _built("gcc", "-O1", "dynamic", tmp_path)
    patched = tmp_path / "patched"
    assert ftpatch("probe", program, "p work", "--no-optimize", "-o", patched).code == 0
    expected = run(program, args, cwd=tmp_path)
    nowhere = {"FTPATCH_TRACE": str(tmp_path / "nowhere" / "trace")}
    got = run(patched, args, cwd=tmp_path, env=nowhere)
    assert (got.status, got.out) == (expected.status, expected.out), str(got)
    limited = ["sh", "-c", 'ulimit -f 8; exec "$0" "$@"', str(patched), *args]
    done = subprocess.run(limited, capture_output=True, check=False, env=nowhere, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (expected.status, expected.out)


def test_where_a_thread_is_cancelled(tmp_path: Path) -> None:
    """What it waits in is unwound, through the system call that was led elsewhere."""
    source = tmp_path / "cancelled.cpp"
    source.write_text(
        "#include <poll.h>\n#include <pthread.h>\n#include <signal.h>\n#include <stdio.h>\n"
        '#include <unistd.h>\nstruct told { ~told() { puts("unwound"); } };\n'
        'extern "C" __attribute__((noinline)) void work() { __asm__ volatile(""); }\n'
        "static void *waits(void *) {\n"
        "  told here; sigset_t all; sigfillset(&all);\n"
        "  work(); ppoll(nullptr, 0, nullptr, &all); return nullptr; }\n"
        "int main() { pthread_t other; pthread_create(&other, nullptr, waits, nullptr);\n"
        "  usleep(20000); pthread_cancel(other); pthread_join(other, nullptr); work(); }\n"
    )
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    program = tmp_path / "cancelled"
    subprocess.run(["g++", "-O1", str(source), "-o", str(program)], check=True)
    expected, got, hits = _both(program, [], "x86_64", "p work")
    assert expected.out == b"unwound\n"
    assert (got.status, got.out, hits) == (expected.status, expected.out, 2), str(got)


def test_a_program_as_it_is_shipped(tmp_path: Path) -> None:
    """zstd sets its handler by __sysv_signal(), and prints a stack of its own from there."""
    zstd = shutil.which("zstd")
    if zstd is None:
        pytest.skip("no zstd")
    program, plain = tmp_path / "zstd", tmp_path / "plain"
    shutil.copy(zstd, program)
    plain.write_bytes(Path(zstd).read_bytes()[: 1 << 20])
    expected, got, hits = _both(program, ["-q", "-c", str(plain)], "x86_64", "p fclose")
    assert (got.status, got.err) == (expected.status, expected.err) == (0, b"")
    assert got.out == expected.out and len(got.out) > 1000
    assert hits > 0


def test_what_cannot_be_led_is_refused(tmp_path: Path) -> None:
    """push 13; pop rax; syscall, as a compiler writes it that saves bytes."""
    source, program = tmp_path / "odd.c", tmp_path / "odd"
    source.write_text(
        "__attribute__((noinline)) int work(int n) { return n + 1; }\n"
        "int main(void) {\n"
        "  unsigned long action[4] = {1}; long ret;\n"
        '  __asm__ volatile("push $13; pop %%rax; mov $8, %%r10d; syscall"\n'
        '    : "=a"(ret) : "D"(4), "S"(action), "d"(0) : "rcx", "r10", "r11", "memory");\n'
        "  return work(1); }\n"
    )
    subprocess.run(["gcc", "-O1", "-mno-red-zone", str(source), "-o", str(program)], check=True)
    done = ftpatch("probe", program, "p:one work", "--no-optimize", "-o", tmp_path / "out")
    assert done.code == 2 and not (tmp_path / "out").exists()
    assert "one: it needs a trap, and the system call at 0x" in done.err
    assert "cannot be redirected" in done.err


def test_it_says_what_is_handled(tmp_path: Path) -> None:
    source, program = tmp_path / "quiet.c", tmp_path / "quiet"
    source.write_text(
        "__attribute__((noinline)) int work(int n) { return n + 1; }\n"
        "int main(void) { return work(1); }\n"
    )
    subprocess.run(["gcc", "-O1", str(source), "-o", str(program)], check=True)
    done = ftpatch("probe", program, "p work", "--no-optimize", "--dry-run")
    assert done.code == 0 and "SIGILL" not in done.out
    source.write_text(
        "#include <signal.h>\n"
        + source.read_text().replace("return work", "signal(SIGILL, SIG_IGN); return work")
    )
    subprocess.run(["gcc", "-O1", str(source), "-o", str(program)], check=True)
    done = ftpatch("probe", program, "p:one work", "--no-optimize", "--dry-run")
    assert "one: handles the program's own use of SIGILL: signal\n" in done.out
    (row,) = ftpatch("probe", program, "p:one work", "--no-optimize", "--dry-run", "--json").json
    assert row["handled"] == ["signal"]
