# SPDX-License-Identifier: MIT
"""Exceptions, cancelled threads and backtraces in a process whose returns are traced: the program
compares what comes of them with what it knows (tests/programs/walks.cc)."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from ftpatch.process.loaded import loaded_images
from ftpatch.process.process import find_process
from ftpatch.process.unwinders import find_unwinders
from tests.support.busy import ours_in
from tests.support.command import ftpatch
from tests.support.sampling import scaled
from tests.support.stopping import until

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
SOURCE = Path(__file__).parent.parent / "programs" / "walks.cc"
PADS = "-fpatchable-function-entry=5"
FORMS = {
    "shared": (),
    "now": ("-Wl,-z,now", "-no-pie", "-fno-pie"),
    "static-libgcc": ("-static-libgcc", "-static-libstdc++"),
}
PATIENCE = 60


def _built(folder: Path, *flags: str) -> Path:
    """Compile it to FOLDER/walks, with its library."""
    words = ["g++", "-O1", "-rdynamic", PADS, str(SOURCE)]
    library = folder / "libthrough.so"
    subprocess.run([*words, "-DLIBRARY", "-shared", "-fpic", "-o", library], check=True)
    path = folder / "walks"
    subprocess.run([*words, library, *flags, "-o", path, "-pthread"], check=True)
    return path


class Walks:
    """The program, running."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self.program = program
        self.pid = str(program.pid)

    def said(self) -> str:
        """Its next line."""
        assert self.program.stdout is not None
        return self.program.stdout.readline().strip()

    def go_on(self) -> str:
        """Let it go on, and return where it waits next."""
        assert self.program.stdin is not None
        self.program.stdin.write("\n")
        self.program.stdin.flush()
        return self.said()

    def slots(self) -> dict[int, int]:
        """What the slots of its unwinders hold, by address."""
        loaded, _ = loaded_images(find_process(self.program.pid))
        return {one.address: one.old for one in find_unwinders(loaded).slots}


@contextmanager
def _running(path: Path, *words: str) -> Iterator[Walks]:
    pipe = subprocess.PIPE
    with subprocess.Popen([path, *words], stdin=pipe, stdout=pipe, text=True) as program:
        running = Walks(program)
        assert running.said() == "ready"
        try:
            yield running
        finally:
            said, _ = program.communicate()
    assert (program.returncode, said) == (0, "0 errors\n")


def _attached(running: Walks, trace: Path, tracer: str = "function_graph") -> None:
    words = ("--lib", "libthrough*", "--tracer", tracer, "-o", trace)
    said = ftpatch("enable", "--pid", running.pid, *words)
    assert said.code == 0, said.err


def _left(running: Walks, maps: Sequence[str]) -> None:
    """Take the tracer out, whatever lies on a stack; its memory is as before."""
    end = time.monotonic() + PATIENCE
    while (said := ftpatch("undo", "--pid", running.pid)).code:
        assert time.monotonic() < end and "stays mapped" in said.err, said.err
    assert ours_in(int(running.pid)) == []
    if maps:
        assert _maps(running) == maps
    checked = ftpatch("check", "--pid", running.pid)
    assert checked.code == 0, checked.out


def _maps(running: Walks) -> list[str]:
    """Its mappings but for the heap's size."""
    held = Path(f"/proc/{running.pid}/maps").read_text().splitlines()
    return [re.sub(r"-\S+", "", line) if "[heap]" in line else line for line in held]


@pytest.mark.scaled
@pytest.mark.parametrize("tracer", ["function_graph", "function_profile"])
@pytest.mark.parametrize("form", FORMS)
def test_walks_pass_traced_returns(tmp_path: Path, form: str, tracer: str) -> None:
    with _running(_built(tmp_path, *FORMS[form])) as running:
        for number in range(scaled(4, 2, 40)):
            trace = tmp_path / f"{number}.trace"
            _attached(running, trace, tracer)
            time.sleep(0.1)  # for some walks; more come while it is taken out
            _left(running, [])
            said = ftpatch("report", trace, "--format", "profile")
            assert said.code == 0 and "caught" in said.out, said.err


def test_taken_out_while_an_exception_cleans_up(tmp_path: Path) -> None:
    """Its search has passed calls that return directly when it goes on."""
    with _running(_built(tmp_path), "step") as running:
        before, slots = _maps(running), running.slots()
        _attached(running, tmp_path / "t.trace")
        assert running.slots() != slots
        assert running.go_on() == "clean-up"
        _left(running, before)
        assert running.go_on() == "between"
        assert running.slots().keys() == slots.keys()
        assert running.go_on() == "walk"
        assert running.go_on() == "between"


def test_brought_in_while_an_exception_cleans_up(tmp_path: Path) -> None:
    with _running(_built(tmp_path), "step") as running:
        before = _maps(running)
        assert running.go_on() == "clean-up"
        _attached(running, tmp_path / "t.trace")
        assert running.go_on() == "between"
        assert running.go_on() == "walk"
        assert running.go_on() == "between"
        _left(running, before)


def test_a_walk_is_waited_for(tmp_path: Path) -> None:
    with _running(_built(tmp_path), "step") as running:
        before = _maps(running)
        _attached(running, tmp_path / "t.trace")
        assert running.go_on() == "clean-up"
        assert running.go_on() == "between"
        assert running.go_on() == "walk"
        said = ftpatch("undo", "--pid", running.pid)
        assert said.code != 0 and "stays mapped: a thread was in the tracer" in said.err
        assert ours_in(int(running.pid)) != []
        assert running.go_on() == "between"
        _left(running, before)


def test_what_walks_left_on_a_stack_is_not_waited_for(tmp_path: Path) -> None:
    """Its stack still has the unwinder's return addresses, in a variable that nothing was put
    into."""
    with _running(_built(tmp_path), "step") as running:
        before = _maps(running)
        _attached(running, tmp_path / "t.trace")
        assert running.go_on() == "clean-up"
        assert running.go_on() == "between"
        said = ftpatch("undo", "--pid", running.pid, "--json")
        assert said.code == 0, said.err
        assert _maps(running) == before
        assert running.go_on() == "walk"
        assert running.go_on() == "between"


@pytest.mark.parametrize("strip", [False, True], ids=["symbols", "stripped"])
def test_unwinders_that_cannot_be_reached(tmp_path: Path, *, strip: bool) -> None:
    """A static program asks nobody; one whose own unwinder has no name cannot be waited for."""
    path = tmp_path / "static"
    words = [PADS, "-DLIBRARY", "-x", "c++", str(SOURCE), "-x", "c++", "-"]
    source = '#include <cstdio>\n#include <cstdlib>\nint main() { puts("ready"); fflush(stdout); '
    source += 'getchar(); puts("0 errors"); if (getenv("NONE")) throw 1; }'
    link = ["-static-libgcc", "-static-libstdc++", "-s"] if strip else ["-static"]
    subprocess.run(["g++", *words, *link, "-o", path], input=source.encode(), check=True)
    with _running(path) as running:
        before = _maps(running)
        said = ftpatch("enable", "--pid", running.pid, "-o", tmp_path / "t.trace")
        assert said.code == 2 and said.err.count("\n") == 1
        assert "it may throw exceptions, which cannot pass calls whose return is traced" in said.err
        assert "use --tracer function, or trace a copy of the file" in said.err
        assert _maps(running) == before
        assert not (tmp_path / "t.trace").exists()


PHDR = r"""
#include <link.h>
#include <stdint.h>
static int each(struct dl_phdr_info *info, size_t size, void *data)
{
    uintptr_t pc = *(uintptr_t *)data;
    int inside = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *one = &info->dlpi_phdr[i];
        if (one->p_type == PT_LOAD)
            inside |= pc - info->dlpi_addr - one->p_vaddr < one->p_memsz;
    }
    for (int i = 0; inside && i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_GNU_EH_FRAME)
            return *(unsigned char *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    return 0;
}
/* An unwinder by its name: the version of the table that has an address, 1 if there is one. */
int _Unwind_Backtrace(uintptr_t pc) { return dl_iterate_phdr(each, &pc); }
"""
ASKING = r"""
#include <stdint.h>
#include <stdio.h>
int _Unwind_Backtrace(uintptr_t pc);
static uintptr_t from;
__attribute__((noinline)) static int found(void)
{
    from = (uintptr_t)__builtin_return_address(0);
    return _Unwind_Backtrace(from - 1);
}
__attribute__((noinline)) static int ask(void) { return found() - 1; }
int main(void)
{
    int wrong = ask(), traced = 0;
    uintptr_t plain = from;
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {
        wrong += ask();
        traced |= from != plain;
        puts(from != plain ? "traced" : "plain");
        fflush(stdout);
    }
    printf("%d errors\n", wrong + !traced);
    return 0;
}
"""


def test_those_that_list_the_objects_find_it(tmp_path: Path) -> None:
    """dl_iterate_phdr() shows what return_to_handler lies in, and its unwind information."""
    for name, text in (("phdr", PHDR), ("asking", ASKING)):
        (tmp_path / f"{name}.c").write_text(text)
    library, path = tmp_path / "libphdr.so", tmp_path / "asking"
    flags = ("-D_GNU_SOURCE", "-O1")
    subprocess.run(
        ["gcc", *flags, "-shared", "-fpic", f"{tmp_path}/phdr.c", "-o", library], check=True
    )
    words = ["gcc", *flags, PADS, f"{tmp_path}/asking.c", str(library), "-o", str(path)]
    subprocess.run(words, check=True)
    with _running(path) as running:
        before = _maps(running)
        assert running.go_on() == "plain"
        trace = tmp_path / "t.trace"
        said = ftpatch("enable", "--pid", running.pid, "-f", "found", "-o", trace)
        assert said.code == 0, said.err
        assert running.go_on() == "traced"
        assert ftpatch("undo", "--pid", running.pid).code == 0
        assert running.go_on() == "plain"
        assert _maps(running) == before
        until(lambda: ours_in(int(running.pid)) == [])
