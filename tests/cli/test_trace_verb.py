# SPDX-License-Identifier: MIT
"""``ftpatch trace``: the program as ever, and what it did."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import PATIENCE, ftpatch, ftpatch_command, ftpatch_process

PAD = "-fpatchable-function-entry=5"
PROGRAM = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) int twice(int n) { return 2 * n; }
__attribute__((noinline)) int work(int n) { return n ? twice(n) + work(n - 1) : 0; }
int main(int argc, char **argv)
{
    printf("%s %d %d\n", argv[0], argc, work(3));
    fflush(stdout);
    if (argc > 1 && !strcmp(argv[1], "-k"))
        raise(SIGTERM);
    if (argc > 1 && !strcmp(argv[1], "-f")) {
        if (!fork()) {
            work(1);
            _exit(0);
        }
        wait(0);
    }
    return argc > 1 ? atoi(argv[1]) : 0;
}
"""
pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)


def _compile(folder: Path, text: str = PROGRAM, name: str = "prog", *flags: str) -> Path:
    path = folder / name
    source = path.with_suffix(".c")
    source.write_text(text)
    words = ["gcc", "-O1", PAD, str(source), "-o", str(path), *flags]
    subprocess.run(words, check=True)
    return path


def _graph(text: str) -> list[str]:
    """The calls of a graph, without times and threads."""
    return [line.split("|", 1)[1].strip() for line in text.splitlines() if ") " in line]


def test_output_and_status_are_the_programs(tmp_path: Path) -> None:
    path = _compile(tmp_path)
    before = {p.name for p in tmp_path.iterdir()}
    result = ftpatch_process("trace", path, "42", "--tracer", cwd=tmp_path)
    assert result.code == 42
    assert result.out.startswith(f"{path} 3 12\n"), "the words behind it are the program's"
    assert _graph(result.out)[:3] == ["main() {", "work() {", "twice();"]
    assert {p.name for p in tmp_path.iterdir()} == before, "nothing is left"


def test_killed_by_a_signal(tmp_path: Path) -> None:
    result = ftpatch_process("trace", _compile(tmp_path), "-k")
    assert result.code == 128 + 15
    assert "work() {" in _graph(result.out), "what was recorded before is shown"


SLEEPER = r"""
#include <signal.h>
#include <unistd.h>
static void ended(int number) { (void)number; _exit(7); }
int main(void)
{
    char byte;

    signal(SIGTERM, ended);
    return write(1, "ready\n", 6) != 6 || read(0, &byte, 1);
}
"""
"""It ends when it is told to, or when its standard input ends."""


@pytest.mark.parametrize("ending", ["signal", "reader"])
def test_nothing_is_left(ending: str, tmp_path: Path) -> None:
    """When ftpatch itself is told to end, the program is; when nobody reads on, it ends."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    path = _compile(tmp_path, SLEEPER)
    before = set(tmp_path.iterdir())
    with subprocess.Popen(
        ftpatch_command("trace", path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder)},
    ) as child:
        assert child.stdin and child.stdout and child.stderr
        assert child.stdout.readline() == b"ready\n"
        if ending == "signal":
            child.terminate()
            assert child.wait(PATIENCE) == 7
        else:
            child.stdout.close()
            child.stdin.close()
            assert child.wait(PATIENCE) == 128 + 13
            assert child.stderr.read() == b""
    assert set(tmp_path.iterdir()) == before and not list(folder.iterdir())


def test_a_program_of_the_path(tmp_path: Path) -> None:
    path = _compile(tmp_path)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    result = ftpatch_process("trace", "-f", "twice", "--", "prog", env=environment)
    assert result.code == 0 and result.out.startswith("prog 1 12\n"), "argv[0] as it was typed"
    assert _graph(result.out) == ["twice();"] * 3
    assert path.exists()


def test_libraries_beside_it(tmp_path: Path) -> None:
    """$ORIGIN is the folder of the program."""
    _compile(tmp_path, "int other(void) { return 5; }", "libother.so", "-shared", "-fPIC")
    text = "int other(void); int main(void) { return other(); }"
    flags = (f"-L{tmp_path}", "-lother", "-Wl,-rpath,$ORIGIN")
    path = _compile(tmp_path, text, "user", *flags)
    result = ftpatch_process("trace", path)
    assert result.code == 5 and _graph(result.out) == ["main();"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = _compile(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.access", lambda where, mode: Path(where) != folder)
        result = ftpatch("trace", path)
    assert result.code == 0


def test_the_trace_is_kept(tmp_path: Path) -> None:
    path = _compile(tmp_path)
    kept = tmp_path / "kept"
    result = ftpatch_process("trace", "-o", kept, "--format", "json", path, "-f")
    assert result.code == 0 and json.loads(result.out.splitlines()[-1])
    children = sorted(tmp_path.glob("kept.*"))
    assert len(children) == 1, "the child of fork has a file of its own"
    for file in (kept, *children):
        assert file.stat().st_size <= 4096 + 16384
    assert "main() {" in ftpatch_process("report", kept, *children).out
    again = ftpatch_process("trace", "-o", kept, path)
    assert again.code == 125 and "kept: the output exists; use --force to overwrite it" in again.err


def test_force_takes_the_place_of_an_earlier_run(tmp_path: Path) -> None:
    """Of all of its files: children of two runs are not to be mixed up. What only has such a name
    stays, and so does everything if the program cannot be patched."""
    path, kept = _compile(tmp_path), tmp_path / "kept"
    assert ftpatch_process("trace", "-o", kept, path, "-f").code == 0
    (tmp_path / "kept.1").write_text("mine\n")
    before = {p.name: p.read_bytes() for p in tmp_path.glob("kept*")}
    assert len(before) == 3
    refused = ftpatch_process("trace", "-o", kept, "--force", "-f", "nosuch", "--", path)
    assert (
        refused.code == 125 and {p.name: p.read_bytes() for p in tmp_path.glob("kept*")} == before
    )
    done = ftpatch_process("trace", "-o", kept, "--force", path)
    assert (done.code, done.err) == (0, "")
    assert {p.name for p in tmp_path.glob("kept*")} == {"kept", "kept.1"}
    assert kept.read_bytes() != before["kept"] and "main() {" in ftpatch("report", kept).out


def test_force_leaves_other_recordings(tmp_path: Path) -> None:
    """Of other runs, of other programs, and what links name."""
    path, kept = _compile(tmp_path), tmp_path / "kept"
    for name in ("kept", "kept.1", "other"):
        assert ftpatch_process("trace", "-o", tmp_path / name, path, "-f").code == 0
    (tmp_path / "kept.2").symlink_to(tmp_path / "other")
    (tmp_path / "kept.3").hardlink_to(tmp_path / "other")
    mine = {one for one in tmp_path.glob("kept.*") if one.suffix[1:] not in "123"}
    mine -= set(tmp_path.glob("kept.1.*"))
    before = {p.name: p.read_bytes() for p in tmp_path.glob("*[er]*") if p not in (kept, *mine)}
    mode = (tmp_path / "other").stat().st_mode
    assert len(mine) == 1
    assert ftpatch_process("trace", "-o", kept, "--force", path).code == 0
    assert not any(one.exists() for one in mine)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert (tmp_path / "kept.2").is_symlink() and (tmp_path / "other").stat().st_mode == mode


def test_a_program_that_does_not_start_overwrites_nothing(tmp_path: Path) -> None:
    path = _compile(tmp_path, PROGRAM, "p", "-Wl,--dynamic-linker=/nowhere/ld.so")
    kept = tmp_path / "k"
    kept.write_bytes(b"an earlier one")
    done = ftpatch_process("trace", "-o", kept, "--force", path)
    assert done.code == 125 and "cannot run" in done.err and kept.read_bytes() == b"an earlier one"


def test_a_program_for_another_machine(tmp_path: Path) -> None:
    code = "int main(void) { return 0; }"
    (tmp_path / "p.c").write_text(code)
    words = ["-static", "-fpatchable-function-entry=4", "-o", "p", "p.c"]
    subprocess.run(["riscv64-linux-gnu-gcc", *words], check=True, cwd=tmp_path)
    done = ftpatch_process("trace", tmp_path / "p")
    assert done.code == 125 and "Exec format error" in done.err
    assert "`ftpatch enable --tracer` makes a copy" in done.err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["p", "p.c"]


def test_a_recording_that_is_still_written(tmp_path: Path) -> None:
    source = '#include <stdio.h>\nint main(void) { puts("ready"); fflush(stdout); getchar(); }'
    path, kept = _compile(tmp_path, source, "waits"), tmp_path / "kept"
    traced = tmp_path / "traced"
    assert ftpatch("enable", path, "--tracer", "function_graph", "-o", traced).code == 0
    pipe = subprocess.PIPE
    environment = {**os.environ, "FTPATCH_TRACE": str(kept)}
    with subprocess.Popen([traced], stdin=pipe, stdout=pipe, env=environment) as running:
        assert running.stdout is not None and running.stdout.readline() == b"ready\n"
        done = ftpatch_process("trace", "-o", kept, "--force", path)
        assert done.code == 125 and f"kept: still written by process {running.pid}" in done.err
        running.communicate()
    assert "main() {" in ftpatch("report", kept).out or "main();" in ftpatch("report", kept).out


def test_files_of_the_program_by_such_names(tmp_path: Path) -> None:
    """A log that it rotates, and links: neither their modes nor its exit status change."""
    source = r"""
#include <stdio.h>
#include <unistd.h>
int main(void) {
    fputs("mine", fopen("t.1", "w"));
    symlink("victim", "t.2");
    link("victim", "t.3");
    return 3;
}
"""
    path, victim = _compile(tmp_path, source, "logs"), tmp_path / "victim"
    victim.write_text("text")
    victim.chmod(0o644)
    done = ftpatch_process("trace", "-o", "t", path, cwd=tmp_path)
    assert (done.code, done.err) == (3, "") and "main();" in done.out
    for name in ("victim", "t.1"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o644


def test_what_force_does_not_overwrite(tmp_path: Path) -> None:
    path = _compile(tmp_path)
    (tmp_path / "link").symlink_to(path)
    for output, reason in (
        ("link", "the output is a symbolic link"),
        (".", "the output is a directory"),
        ("prog", "would overwrite another file of this run"),
    ):
        before = path.read_bytes()
        done = ftpatch("trace", "--force", "-o", tmp_path / output, path)
        assert done.code == 125 and reason in done.err and path.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["nosuch_program"], "no such program 'nosuch_program'"),
        (["./nosuch"], "cannot read"),
        (["/tmp"], "/tmp: a folder; name a file in it"),
        (["/bin/true"], "no __mcount_loc and no __patchable_function_entries; use --libcalls ("),
        (["-D", "0", "/bin/true"], "ftpatch: --max-depth 0 is less than 1; see"),
        (["-D", "x", "/bin/true"], "ftpatch: --max-depth 'x' is not a whole number; see"),
        (["-D", "\u0663", "/bin/true"], "is not a whole number; see"),
        (["--max-calls", "9" * 30, "/bin/true"], "has more than 18 digits; see"),
        (["--max-stack", "65537", "/bin/true"], "--max-stack 65537 is more than 65536; see"),
        (["--seconds", "x", "/bin/true"], "ftpatch: --seconds 'x' is not a time; see"),
        (["--size", "\u0663M", "/bin/true"], "invalid size"),
        (["-t", "\u0663us", "/bin/true"], "is not a time with a unit"),
        (["-o", "", "/bin/true"], "an empty path"),
        (["--tracer", "nosuch", "PROG"], "unknown tracer 'nosuch'; use nop"),
        (["-f", "nosuch", "PROG"], "matches no site"),
        (["--size", "much", "PROG"], "invalid size 'much'"),
        (["--tracer", "function", "--args", "PROG"], "does not record arguments"),
    ],
)
def test_failures_of_our_own(words: list[str], reason: str, tmp_path: Path) -> None:
    path = _compile(tmp_path)
    result = ftpatch_process("trace", *(str(path) if word == "PROG" else word for word in words))
    assert result.code == 125 and reason in result.err and not result.out
    assert result.err.count("\n") == 1 and sorted(p.name for p in tmp_path.iterdir()) == [
        "prog",
        "prog.c",
    ]


def test_setuid(tmp_path: Path) -> None:
    path = _compile(tmp_path)
    path.chmod(0o4755)
    result = ftpatch_process("trace", path)
    assert result.code == 125 and "setuid" in result.err


def test_a_program_of_this_folder_needs_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _compile(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in (path.name, "prog.c"):
        done = ftpatch("trace", name)
        assert (done.code, done.out) == (125, "")
        assert done.err == f"ftpatch: {name!r} is not in $PATH; use ./{name}\n"
