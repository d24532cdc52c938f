# SPDX-License-Identifier: MIT
"""Probes in 32-bit ARM programs of both instruction sets, by gdb through qemu: the same hits, with
the same values."""

from __future__ import annotations

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.regs_gdb import registers_by_gdb
from tests.support.tracer_programs import ARCHES, emulator, run
from tests.support.user_stubs import compiled_program, functions_of

ARCH = "arm"
FUNCTIONS = {"many": 4, "both": 3, "all": 2, "half": 1, "less": 2, "fib": 1}
"""Registers of their arguments: what is in others depends on the length of the program's path."""
NAMES = (*(f"r{n}" for n in range(4)), "lr", "sp")
FORMS = {
    "t32 O0": ("-O0", "-mthumb"),
    "t32 O2": ("-O2", "-mthumb"),
    "t32 bare": ("-O1", "-mthumb", "-fpatchable-function-entry=0"),
    "a32 O0": ("-O0", "-marm", "-fpatchable-function-entry=2"),
    "a32 bare": ("-O2", "-marm", "-fpatchable-function-entry=0"),
}

LEAVES = r"""
#include <cstdio>
#include <stdexcept>
#include <csetjmp>
#include <pthread.h>
#include <unistd.h>
static jmp_buf out;
static volatile int ready;
struct Guard { ~Guard() { puts("left"); } };
__attribute__((noinline)) int thrower(int n)
{
	if (n == 0)
		throw std::runtime_error("x");
	int deeper = thrower(n - 1);
	return deeper + 1;
}
__attribute__((noinline)) int catcher(int n)
{
	try { return thrower(n); } catch (std::exception &) { return -n; }
}
__attribute__((noinline)) void jumper(int n)
{
	if (!n)
		longjmp(out, 1);
	jumper(n - 1);
	ready = ready;
}
__attribute__((noinline)) void waits(int n)
{
	Guard guard;
	for (ready = 1; ; n += getpid(), ready = n | 1)
		pause();
}
static void *run(void *) { waits(1); return 0; }
int main()
{
	int sum = 0;
	pthread_t thread;

	for (int i = 0; i < 20; i++) {
		sum += catcher(i % 7);
		if (!setjmp(out))
			jumper(i % 5);
	}
	printf("%d\n", sum);
	fflush(stdout);
	pthread_create(&thread, 0, run, 0);
	while (!ready)
		usleep(1000);
	pthread_cancel(thread);
	pthread_join(thread, 0);
}
"""

IMPORTS = r"""
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) int say(const char *text) { return puts(text); }
int main(void)
{
	for (int i = 0; i < 3; i++) {
		void *volatile made = malloc(i + 1);
		say("a");
		free(made);
	}
	return 0;
}
"""


def _reported(program: Path, *probes: str, skipped: int = 0) -> list[dict[str, object]]:
    """``skipped``: the most that may be refused."""
    out, trace = program.with_name("out"), program.with_name("trace")
    trace.unlink(missing_ok=True)
    going = ["--keep-going"] if skipped else []
    done = ftpatch("probe", program, *probes, *going, "-o", out, "--force")
    assert done.code == 0 or skipped >= done.err.count("no probe at") > 0, done.err
    plain = run(program, cwd=program.parent, arch=ARCH)
    ran = run(out, cwd=program.parent, arch=ARCH, env={"FTPATCH_TRACE": str(trace)})
    assert (ran.status, ran.out) == (plain.status, plain.out) and ran.status == 0, str(ran)
    return [row for row in ftpatch("report", trace, "--json").json if "time" in row]


@pytest.mark.parametrize("form", FORMS)
def test_registers_are_what_gdb_sees(form: str, tmp_path: Path) -> None:
    program = compiled_program(ARCH, tmp_path, *FORMS[form])
    places = {name: at for name, at in functions_of(program).items() if name in FUNCTIONS}
    seen, _ = registers_by_gdb(program, places, NAMES, emulator(ARCH))
    fetched = " ".join(f"{name}=%{name}" for name in NAMES)
    rows = _reported(program, *(f"p:{name} {name} {fetched}" for name in FUNCTIONS))
    entries = [(name, held) for kind, name, held in seen if kind == 0]
    assert len(rows) == len(entries) > 15
    for row, (name, held) in zip(rows, entries, strict=True):
        assert row["probe"] == name
        values = {key: int(str(value), 0) for key, value in dict(row["values"]).items()}  # type: ignore[call-overload]
        apart = values["sp"] - held["sp"]  # of the environment
        for one in (*NAMES[: FUNCTIONS[name]], "lr", "sp"):
            assert values[one] - held[one] in (0, apart), (name, one)


@pytest.mark.parametrize("form", ["t32 O2", "a32 bare"])
def test_results_and_floats(form: str, tmp_path: Path) -> None:
    program = compiled_program(ARCH, tmp_path, *FORMS[form])
    rows = _reported(
        program,
        "p:half half of=%d0:f64 n=$arg1:s32 low=%s0:x32",
        "r:halved half v=%d0:f64",
        "r:fib fib v=$retval:s32",
        "r:many many v=$retval:s32",
        "p:ninth many last=+16($stack):s32 c=+0($arg4):s8 fifth=$arg5:x32",
    )
    values = [(row["probe"], dict(row["values"])) for row in rows]  # type: ignore[call-overload]
    assert ("half", {"of": 3.5, "n": 2, "low": "0x0"}) in values
    assert ("halved", {"v": 3.75}) in values
    assert ("ninth", {"last": 9, "c": 3, "fifth": "0x80000000"}) in values
    assert ("many", {"v": 1 - 2 + 3 + 3 - (1 << 31) + 6 - 7 + 8 + 9}) in values
    assert [held["v"] for name, held in values if name == "fib"][-1] == 5
    behind = _behind_calls(program)
    back = [(row["probe"], int(str(row["ret_ip"]), 16)) for row in rows if "ret_ip" in row]
    assert len(back) > 5 and all(at in behind[str(name)] for name, at in back if name in behind)


def _behind_calls(program: Path) -> dict[str, set[int]]:
    """What is behind the calls of fib() and many(), as objdump reads them."""
    command = ["arm-linux-gnueabihf-objdump", "-d", str(program)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    behind: dict[str, set[int]] = {"fib": set(), "many": set()}
    lines = [line for line in text.splitlines() if line.startswith("   ")]
    for line, after in pairwise(lines):
        for name, found in behind.items():
            if "\tbl" in line and line.endswith(f"<{name}>"):
                found.add(int(after.split(":")[0], 16))
    return behind


@pytest.mark.parametrize("form", ["t32 O2", "t32 bare", "a32 bare"])
def test_every_instruction_of_functions(form: str, tmp_path: Path) -> None:
    """Wherever a jump has room, the program does what it did."""
    program = compiled_program(ARCH, tmp_path, *FORMS[form])
    places = []
    for name in ("fib", "many", "half", "main"):
        text = subprocess.run(
            ["arm-linux-gnueabihf-objdump", "-d", f"--disassemble={name}", program],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        code = [line for line in text.splitlines() if line.startswith("   ")]
        places += [int(line.split(":")[0], 16) for line in code if ".word" not in line]
    hit = set[object]()
    for first in range(4):
        some = [f"p:at{at:x} {at:#x}" for at in places[first::4]]
        rows = _reported(program, *some, skipped=len(some) * 2 // 3)
        hit |= {row["probe"] for row in rows}
    assert len(hit) > len(places) // 3


@pytest.mark.parametrize("mode", ["-mthumb", "-marm"])
def test_imported_functions(mode: str, tmp_path: Path) -> None:
    """Their PLT entries, which a tail call of Thumb enters in front; of a stripped program."""
    source, program = tmp_path / "imports.c", tmp_path / "imports"
    source.write_text(IMPORTS)
    subprocess.run([ARCHES[ARCH].gcc, mode, "-O2", "-s", source, "-o", program], check=True)
    rows = _reported(program, "p:said puts@plt s=+0($arg1):string", "r:made malloc@plt p=$retval")
    said = [row["values"] for row in rows if row["probe"] == "said"]
    assert said == [{"s": "a"}] * 3 and len(rows) == 6


@pytest.mark.parametrize("link", ["-static", "-pie"])
@pytest.mark.parametrize("mode", ["-mthumb", "-marm"])
def test_what_leaves_probed_functions(mode: str, link: str, tmp_path: Path) -> None:
    """Exceptions, longjmp, and a thread that is cancelled: the tables of unwinders are followed."""
    source, program = tmp_path / "leaves.cpp", tmp_path / "leaves"
    source.write_text(LEAVES)
    words = [ARCHES[ARCH].gxx, mode, link, "-O1", "-g", "-pthread", str(source), "-o", str(program)]
    subprocess.run(words, check=True)
    probes = [f"r:{name} {name}" for name in ("thrower", "catcher", "jumper", "waits")]
    rows = _reported(program, *probes, "p:thrown thrower n=$arg1:s32", "p:some catcher n if n > 3")
    names = [row["probe"] for row in rows]
    assert names.count("catcher") == 20 and names.count("some") == sum(n % 7 > 3 for n in range(20))
    assert names.count("thrown") == sum(n % 7 + 1 for n in range(20))
    assert not {"thrower", "jumper", "waits"} & set(names)


def test_no_traps(tmp_path: Path) -> None:
    program = compiled_program(ARCH, tmp_path, "-fpatchable-function-entry=0")
    done = ftpatch("probe", program, "p fib", "--no-optimize", "-o", tmp_path / "out")
    assert done.code == 2 and "traps are not supported on arm" in done.err
