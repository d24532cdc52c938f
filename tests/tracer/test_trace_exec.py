# SPDX-License-Identifier: MIT
"""``trace --follow-exec``: programs that a traced one starts. How often each was called, the
programs count themselves; what they print and how they end is as without ftpatch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from elftools.elf.constants import P_FLAGS
from elftools.elf.elffile import ELFFile

from tests.support.command import PATIENCE, ROOT, child_env, ftpatch_command, ftpatch_process
from tests.support.stopping import running, until
from tests.support.trace_file_programs import entries, native

pytestmark = native
SOURCE = Path(__file__).with_name("starting.c")
PADS = "-fpatchable-function-entry=5"
PTRACE = 101
"""Number of ptrace(2) (arch/x86/entry/syscalls/syscall_64.tbl)."""
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program in several forms, and `log`, to which they write."""
    folder = tmp_path_factory.mktemp("starting")
    for name, flags in {
        "pads": [PADS],
        "static": [PADS, "-static"],
        "fixed": [PADS, "-no-pie", "-DONLY"],
        "bare": [],
    }.items():
        log = f'-DLOG="{folder}/log"'
        words = ["gcc", "-O1", "-w", "-pthread", log, *flags, str(SOURCE), "-o"]
        subprocess.run([*words, str(folder / name)], check=True)
    return folder


def _words(folder: Path, text: str) -> list[str]:
    """Names of programs with their paths."""
    names = ("pads", "static", "fixed", "bare")
    return [str(folder / word) if word in names else word for word in text.split()]


def _alone(words: Sequence[str], folder: Path) -> tuple[int, str, int]:
    """Exit code, output, and calls that the programs counted."""
    (folder / "log").unlink(missing_ok=True)
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stdout, _counted(folder)


def _counted(folder: Path) -> int:
    lines = (folder / "log").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines)


CHAINS = (
    "pads fork pads 5",
    "pads vfork pads 5",
    "pads spawn pads 5",
    "pads empty pads 5",
    "pads exec pads 5",
    "pads thread pads 5",
    "pads fork static 5",
    "pads spawn fixed 5",
    "static vfork pads 5",
    "pads exec pads exec pads exec fixed 6",
    "pads fork pads thread static spawn pads vfork pads 7",
    "pads spawn /bin/true",
    "bare vfork pads 2",
    "/bin/sh -c",
    "pads many 8 pads 1",
    "pads spawn pads killed",
    "pads children pads 1",
    "pads blocked pads state",
    "pads stops pads stop",
    "pads spawn pads ignores",
    "pads ignores",
)


@pytest.mark.parametrize("text", CHAINS, ids=lambda text: text.replace(" ", "-"))
def test_all_calls_of_all_programs(text: str, built: Path, tmp_path: Path) -> None:
    words = _words(built, text)
    if text.endswith("-c"):
        words.append(f"{built}/pads 3 | {built}/static fork {built}/pads 2; {built}/bare 1")
    code, out, counted = _alone(words, built)
    (built / "log").unlink()
    kept = tmp_path / "kept"
    options = ["--follow-exec", "--tracer", "function", "-f", "work", "--size", "1M"]
    found = ftpatch_process("trace", *options, "-o", kept, "--", *words)
    assert (found.code, found.err) == (128 + 9 if code < 0 else code, "")
    assert found.out.startswith(out)
    assert _counted(built) == counted
    bare = 3 * sum("bare" in word for word in " ".join(words).split())  # which are not traced
    if "/bin/sh" not in text:
        bare = 3 * text.startswith("bare")
    assert sum(map(entries, tmp_path.glob("kept*"))) == counted - bare > 0


@pytest.mark.parametrize("tracer", ["function_graph", "function_profile"])
def test_they_are_in_the_report(tracer: str, built: Path, tmp_path: Path) -> None:
    words = _words(built, "pads system")
    found = ftpatch_process(
        "trace", "--follow-exec", "--tracer", tracer, "-f", "work", *words, f"{built}/static 2"
    )
    assert found.code == 2 and found.err == ""
    assert "# 2 processes: pads-" in found.out and ", static-" in found.out


def test_the_program_itself_may_have_no_sites(built: Path) -> None:
    found = ftpatch_process(
        "trace", "--follow-exec", f"{built}/bare", "spawn", f"{built}/pads", "1"
    )
    assert (found.code, found.err) == (1, "") and found.out.count("work();") == 3


def test_no_page_of_code_has_room(built: Path, tmp_path: Path) -> None:
    """The code of a static program may fill its last page."""
    program = tmp_path / "filled"
    free = 64
    for _ in range(2):  # the second leaves hardly a byte
        more = f'-DMORE="{free - 64}"'
        words = ["gcc", "-O1", "-w", "-pthread", PADS, "-static", more, "-DLOG=0"]
        subprocess.run([*words, str(SOURCE), "-o", str(program)], check=True)
        with program.open("rb") as file:
            (code,) = (
                one
                for one in ELFFile(file).iter_segments("PT_LOAD")
                if one["p_flags"] & P_FLAGS.PF_X
            )
        free = -(code["p_vaddr"] + code["p_memsz"]) % 4096
    assert free < 100
    words = [f"{built}/pads", "spawn", str(program), "waits"]
    with subprocess.Popen(
        ftpatch_command("trace", "--follow-exec", "-f", "work", *words),
        stdout=subprocess.PIPE,
        text=True,
        env=child_env(),
    ) as traced:
        assert traced.stdout is not None
        pid = int(traced.stdout.readline().split()[1])
        os.kill(pid, signal.SIGTERM)
        out = traced.stdout.read()
    assert traced.returncode == 3 and "# 2 processes: " in out and ", filled-" in out
    with running(program, "waits") as alone:
        found = ftpatch_process(
            "enable", "--pid", str(alone.pid), "-f", "work", "-o", tmp_path / "rec"
        )
        assert (found.code, found.err) == (0, "")
        found = ftpatch_process("undo", "--pid", str(alone.pid))
        assert (found.code, found.err) == (0, "")


def test_a_filter_that_matches_nothing_is_named(built: Path) -> None:
    words = _words(built, "pads spawn static 0")
    found = ftpatch_process("trace", "--follow-exec", "-f", "wrok", *words)
    assert found.code == 0
    assert "filter 'wrok' matches no function of any program" in found.err
    words = _words(built, "pads spawn fixed 0")
    also = ftpatch_process("trace", "--follow-exec", "-f", "work", "-f", "only", *words)
    assert (also.code, also.err) == (0, "")


def test_exceptions_cannot_pass_it(tmp_path: Path, built: Path) -> None:
    """As in a running process: a program that may throw is left alone and named."""
    source, program = tmp_path / "throws.cpp", tmp_path / "throws"
    source.write_text("int main() { try { throw 3; } catch (int n) { return n; } }\n")
    subprocess.run(["g++", "-O1", PADS, source, "-o", program], check=True)
    words = [f"{built}/pads", "spawn", str(program)]
    found = ftpatch_process("trace", "--follow-exec", *words)
    assert found.code == 3
    assert found.err.count("\n") == 1 and f"{program}: not traced: it may throw" in found.err
    found = ftpatch_process("trace", "--follow-exec", "--tracer", "function", *words)
    assert (found.code, found.err) == (3, "") and "main" in found.out


def test_a_program_under_a_filter_is_left_alone(built: Path) -> None:
    words = _words(built, "pads filter -1 static 6")
    found = ftpatch_process("trace", "--follow-exec", *words)
    assert found.code == 6
    assert f"{built}/static: not traced: it was started under a seccomp filter" in found.err


@as_root
def test_a_setuid_program_is_left_alone(built: Path, tmp_path: Path) -> None:
    program = tmp_path / "owned"
    program.write_bytes((built / "pads").read_bytes())
    program.chmod(0o4755)
    for folder in (tmp_path, *tmp_path.parents, *built.parents, built):
        if folder != Path("/") and folder.stat().st_uid == os.getuid():
            folder.chmod(folder.stat().st_mode | 0o755)
    (built / "log").touch()
    (built / "log").chmod(0o666)
    words = [f"{built}/pads", "user", str(NOBODY), str(program), "2"]
    found = ftpatch_process("trace", "--follow-exec", *words)
    assert found.code == 2 and "2 2 0\n" in found.out  # its user is root
    assert f"{program}: not traced: it was started with privileges" in found.err


def test_who_may_not_trace_starts_nothing(built: Path) -> None:
    (built / "log").unlink(missing_ok=True)
    inner = ftpatch_command("trace", "--follow-exec", f"{built}/pads", "5")
    words = [f"{built}/bare", "filter", str(PTRACE), *inner]
    done = subprocess.run(
        words, capture_output=True, text=True, env=child_env(), timeout=PATIENCE, check=False
    )
    assert done.returncode == 125 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "cannot be followed" in done.stderr
    assert len((built / "log").read_text().splitlines()) == 1  # that of the outer program


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_the_programs(number: int, built: Path) -> None:
    words = ftpatch_command(
        "trace", "--follow-exec", f"{built}/pads", "exec", f"{built}/pads", "waits"
    )
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=child_env()) as traced:
        assert traced.stdout is not None
        pid = int(traced.stdout.readline().split()[1])
        os.kill(pid if number == signal.SIGINT else traced.pid, number)
        rest = traced.stdout.read()
    assert traced.returncode == 3 and rest.startswith(f"signal {number}\n")


def test_killed_it_lets_all_go(built: Path) -> None:
    """The program goes on, and starts others, which are not traced."""
    (built / "log").unlink(missing_ok=True)
    inner = _words(built, "pads spawn pads gate pads 5")
    words = ftpatch_command("trace", "--follow-exec", *inner)
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=child_env()
    ) as traced:
        assert traced.stdin is not None and traced.stdout is not None
        pid = int(traced.stdout.readline().split()[1])
        assert "TracerPid:\t0\n" not in Path(f"/proc/{pid}/status").read_text()
        traced.kill()
        until(lambda: "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text())
        traced.stdin.close()
        assert traced.stdout.read() == f"5 5 {os.geteuid()}\nspawn 5 {os.geteuid()}\n"
    assert _counted(built) == 3 + (3 + 1) + 3


def test_what_it_leaves_running_goes_on(built: Path, tmp_path: Path) -> None:
    """The command ends with the program, whatever that has started."""
    (built / "log").unlink(missing_ok=True)
    script = f"{built}/pads gate {built}/static 5 <{tmp_path}/gate >{tmp_path}/out 2>&1 & exit 6"
    os.mkfifo(tmp_path / "gate")
    gate = os.open(tmp_path / "gate", os.O_RDWR)
    done = ftpatch_process("trace", "--follow-exec", "--", "/bin/sh", "-c", script)
    assert done.code == 6
    os.close(gate)
    until(lambda: (tmp_path / "out").read_text().endswith(f"5 5 {os.geteuid()}\n"), 60)


def test_not_with_a_running_process(built: Path) -> None:
    found = ftpatch_process("trace", "--follow-exec", "--pid", "1")
    assert found.code == 125 and "--follow-exec works on programs" in found.err


KILLED = """
import os, signal, subprocess
from ftpatch.tracer.following import Following
Following._follow = lambda self, pid: os.kill(os.getpid(), signal.SIGKILL)
subprocess.Popen(["echo", "ran"], preexec_fn=Following(lambda *_: False).before)
"""


def test_a_program_does_not_wait_for_a_tracer_that_was_killed() -> None:
    """Nor does it run: its output has an end, and nothing else."""
    words = [sys.executable, "-c", KILLED]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")
