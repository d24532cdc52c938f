# SPDX-License-Identifier: MIT
"""What `watch --pid` refuses, each with one line and exit code 2."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ftpatch.cli.attended import looks
from ftpatch.process.process import find_process
from tests.support.command import ftpatch, ftpatch_as
from tests.support.stopping import until
from tests.support.watch_live import Shared, built_shared, shared, watching

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(scope="module")
def program() -> Iterator[Shared]:
    with tempfile.TemporaryDirectory(prefix="ft", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with shared(built_shared(folder), "1") as one:
            yield one


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cel:rw-",), r"\S+/shared: cel: no such symbol; .*cell.*"),
        (("put:rw-",), r"\S+/shared: put: a function, not a variable; .*"),
        (("cell",), r"no `:` in the request: 'cell'; .*"),
        (("cell:---",), r"\S+/shared: cell:---: no such watch to clear; nothing is watched"),
        (("*:---",), r"\S+/shared: nothing to watch; .*"),
        ((), r"no variable to watch; specify a watch, such as counter:rw-"),
        (("cell:rw-", "--in-place"), r"--in-place does not work with --pid; remove it"),
        (("cell:rw-", "--dry-run"), r"--dry-run does not work with --pid; remove it"),
        (("cell:rw-", "--allow-setuid"), r"--allow-setuid does not work with --pid; remove it"),
        (("cell:rw-", "--seconds", "0"), r"--seconds 0: not a time; use more than 0"),
        (("cell:rw-", "--report", "folded"), r".*folded.*"),
        (("cell:rw-", "-o", "/nowhere/t"), r"/nowhere/t: cannot write: no such directory"),
        (("cell:rw-", "--size", "1K"), r"trace file size 1K is too small; the minimum is 64K"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_one_line(program: Shared, words: tuple[str, ...], said: str) -> None:
    result = ftpatch("watch", "--pid", str(program.pid), *words)
    assert result.code == 2 and not result.out
    assert re.fullmatch(f"ftpatch: {said}\n", result.err), result.err


def test_no_such_process(program: Shared) -> None:
    with subprocess.Popen(["true"]) as ended:
        until(lambda: ") Z" in Path(f"/proc/{ended.pid}/stat").read_text())
        zombie = ftpatch("watch", "--pid", str(ended.pid), "cell:rw-")
    gone = ftpatch("watch", "--pid", str(ended.pid), "cell:rw-")
    kernel = ftpatch("watch", "--pid", "2", "cell:rw-")
    for result, said in ((zombie, "it has ended"), (gone, "no such process")):
        assert result.code == 2 and said in result.err and result.err.count("\n") == 1
    assert kernel.code == 2 and "a kernel thread" in kernel.err


def test_it_ends_before_the_first_look() -> None:
    """And its parent has waited for it: there is nothing more to wait for."""
    with subprocess.Popen(["sleep", "60"]) as child:
        process = find_process(child.pid)
        child.kill()
    assert list(looks(process, threading.Event(), None, 0.1)) == []


def test_options_of_a_process_alone(program: Shared) -> None:
    for words in (("--seconds", "1"), ("--report", "ksym")):
        result = ftpatch("watch", "prog", "cell:rw-", *words)
        assert (result.code, result.out) == (2, "")
        assert result.err == (
            f"ftpatch: {words[0]} needs --pid; name a running process, or remove it\n"
        )
    assert ftpatch("watch").err.endswith(
        "no PROG and no --pid; name a program, or a running process\n"
    )


@as_root
def test_another_user(program: Shared) -> None:
    """Neither another user's process, nor a user's own without leave to load BPF programs."""
    with watching(program.pid, "cell:rw-", "--seconds", "0.01") as watcher:
        assert watcher.end(None).code == 0
    ftpatch("watch", "--pid", str(program.pid), "a:rw-", "--seconds", "0.01")  # all is imported
    result = ftpatch_as(NOBODY, "watch", "--pid", str(program.pid), "cell:rw-")
    assert result.code == 2 and not result.out
    assert re.fullmatch(r"ftpatch: .*another user's process.*; run as .+\n", result.err)
    path = Path(f"/proc/{program.pid}/exe").readlink()
    pipe = subprocess.PIPE
    with subprocess.Popen([path, "0"], stdin=pipe, stdout=pipe, user=NOBODY, group=NOBODY) as own:
        assert own.stdout is not None and own.stdout.readline().startswith(b"ready")
        scope = Path("/proc/sys/kernel/yama/ptrace_scope")
        allowed = Path("/proc/sys/kernel/unprivileged_bpf_disabled").read_text().strip() == "0"
        if not allowed and (not scope.exists() or scope.read_text().strip() == "0"):
            result = ftpatch_as(NOBODY, "watch", "--pid", str(own.pid), "cell:rw-")
            assert result.code == 2 and not result.out
            assert result.err == (
                f"ftpatch: {own.pid} (shared): this user may not load the BPF programs that read "
                "the values; run as root, or with CAP_BPF and CAP_PERFMON\n"
            )
        own.communicate()


def test_32_bits(tmp_path: Path, program: Shared) -> None:
    if shutil.which("i686-linux-gnu-gcc") is None:
        pytest.skip("needs a compiler for i386")
    source = tmp_path / "prog.c"
    source.write_text(
        "#include <stdio.h>\n#include <unistd.h>\nint cell;\n"
        'int main(void) { puts("ready"); fflush(stdout); return read(0, &cell, 1); }\n'
    )
    path = tmp_path / "prog"
    subprocess.run(["i686-linux-gnu-gcc", "-static", str(source), "-o", str(path)], check=True)
    pipe = subprocess.PIPE
    with subprocess.Popen([path], stdin=pipe, stdout=pipe) as one:
        assert one.stdout is not None and one.stdout.readline() == b"ready\n"
        result = ftpatch("watch", "--pid", str(one.pid), "cell:rw-")
        one.communicate()
    assert result.code == 2 and not result.out
    assert result.err == (
        f"ftpatch: {one.pid} (prog): a 32-bit process; "
        "only those of the machine's own kind can be watched\n"
    )
