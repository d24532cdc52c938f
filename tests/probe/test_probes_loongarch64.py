# SPDX-License-Identifier: MIT
"""Probes in loongarch64 programs under qemu. No gdb here knows the architecture: registers have
what a program puts there, which tells by itself what is left of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.cross_root import use_cross_root
from tests.support.tracer_programs import SOURCES, run
from tests.support.user_stubs import compiled_program, functions_of

ARCH = "loongarch64"
GENERAL = [n for n in range(1, 32) if n not in (2, 3, 21)]
"""Registers that a program may change: not tp, sp, r21."""
CALLS = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unwind.h>
static _Unwind_Reason_Code one(struct _Unwind_Context *context, void *n)
{
	printf("%lx ", (unsigned long)_Unwind_GetIP(context));
	return _URC_NO_REASON;
}
__attribute__((noipa)) void leaf(void) { puts(""); }
__attribute__((noipa)) void unwound(void)
{
	if (getenv("UNWIND"))
		_Unwind_Backtrace(one, 0);
	leaf();
	__asm__ volatile("");
}
__attribute__((noipa)) int compared(const void *a, const void *b)
{
	unwound();
	return *(const int *)a - *(const int *)b;
}
__attribute__((noipa)) int deep(int n)
{
	volatile char room[100 + n];

	if (n)
		room[n] = (char)deep(n - 1);
	else
		unwound();
	return room[n] + 1;
}
int main(void)
{
	int numbers[] = {2, 1};

	unwound();
	deep(3);
	qsort(numbers, 2, sizeof(int), compared);
	return 0;
}
"""
"""What libgcc's unwinder finds, and then a call to be probed, in the same frames."""
FORMS = {
    "O0": ("-O0",),
    "O2": ("-O2",),
    "bare": ("-O1", "-fpatchable-function-entry=0"),
}


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    use_cross_root(ARCH)


def _reported(program: Path, *probes: str) -> list[dict[str, object]]:
    out, trace = program.with_name("out"), program.with_name("trace")
    done = ftpatch("probe", program, *probes, "-o", out, "--force")
    assert done.code == 0, done.err
    plain = run(program, cwd=program.parent, arch=ARCH)
    ran = run(out, cwd=program.parent, arch=ARCH, env={"FTPATCH_TRACE": str(trace)})
    assert (ran.status, ran.out) == (plain.status, plain.out) and ran.status == 0, str(ran)
    return [row for row in ftpatch("report", trace, "--json").json if "time" in row]


def test_every_register_has_what_the_program_puts_there(tmp_path: Path) -> None:
    """At a probe and at a return; afterwards they have it still."""
    filled = [n for n in GENERAL if n != 1]
    text = (SOURCES / "filled_loongarch64.c").read_text()
    program = compiled_program(ARCH, tmp_path, "-fpatchable-function-entry=0", text=text)
    general = " ".join(f"r{n}=%r{n}" for n in GENERAL)
    names = [*(f"fa{n}" for n in range(8)), *(f"ft{n}" for n in range(16))]
    names += [f"fs{n}" for n in range(8)]
    floats = " ".join(f"f{n}=%{name}:x64" for n, name in enumerate(names))
    at = functions_of(program)
    rows = _reported(
        program,
        f"p:one probed {general}",
        f"p:two probed {floats}",
        f"p:three probed+8 {general} sp=%sp",
        f"r:four probed {general}",
        f"r:five probed {floats} sp=$stack",
    )
    assert sorted(str(row["probe"]) for row in rows) == ["five", "four", "one", "three", "two"]
    back = 0
    for row in rows:
        held = {key: int(str(value), 0) for key, value in dict(row["values"]).items()}  # type: ignore[call-overload]
        for n in range(32):
            if f"f{n}" in held:
                assert held[f"f{n}"] == 0x3FF0000000000000 + (n << 44), (row["probe"], n)
            if f"r{n}" in held and n != 1:
                assert held[f"r{n}"] == 0x1234000000000000 + n * 0x10001, (row["probe"], n)
        if row["probe"] == "one":
            back = held["r1"]
    assert back == at["filled"] + _called(program)
    said = [int(word, 16) for word in run(program, cwd=tmp_path, arch=ARCH).out.split()]
    assert [said[n] for n in filled] == [0x1234000000000000 + n * 0x10001 for n in filled]
    assert said[32:] == [0x3FF0000000000000 + (n << 44) for n in range(32)]


def _called(program: Path) -> int:
    """The distance behind the call in filled()."""
    command = ["loongarch64-linux-gnu-objdump", "-d", "--disassemble=filled", str(program)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    (call,) = re.findall(r"^ *([0-9a-f]+):.*\tbl .*<probed>$", text, re.MULTILINE)
    return int(call, 16) + 4 - functions_of(program)["filled"]


@pytest.mark.parametrize("form", FORMS)
def test_arguments_results_and_floats(form: str, tmp_path: Path) -> None:
    program = compiled_program(ARCH, tmp_path, *FORMS[form])
    rows = _reported(
        program,
        "p:half half of=%fa0:f64 n=$arg1:s32",
        "r:halved half v=%fa0:f64",
        "r:fib fib v=$retval:s32",
        "r:many many v=$retval:s64",
        "p:ninth many last=+0($stack):s64 c=+0($arg4):s8",
    )
    values = [(row["probe"], dict(row["values"])) for row in rows]  # type: ignore[call-overload]
    assert ("half", {"of": 3.5, "n": 2}) in values and ("halved", {"v": 3.75}) in values
    assert ("ninth", {"last": 9, "c": 3}) in values
    assert ("many", {"v": 1 - 2 + 3 + 3 + (1 << 31) + 6 - 7 + 8 + 9}) in values
    assert [held["v"] for name, held in values if name == "fib"][-1] == 5


@pytest.mark.parametrize("link", ["static", "pie"])
def test_every_instruction_of_some_functions(link: str, tmp_path: Path) -> None:
    """Each has room for a jump; those of a function are probed at once, and the program does what
    it did."""
    program = compiled_program(ARCH, tmp_path, "-O2", link=link)
    for name in ("fib", "less", "main"):
        places = _places(program, name)
        rows = _reported(program, *(f"p:p{at} {name}+{at}" for at in places))
        hit = {str(row["probe"]) for row in rows}
        assert len(hit) > len(places) // 2 and "p0" in hit


def _places(program: Path, name: str) -> list[int]:
    """Offsets of a function's instructions."""
    start = functions_of(program)[name]
    command = ["loongarch64-linux-gnu-objdump", "-d", f"--disassemble={name}", str(program)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = re.findall(r"^ *([0-9a-f]+):\t([0-9a-f]{8})", text, re.MULTILINE)
    assert int(lines[0][0], 16) == start
    return [int(at, 16) - start for at, _ in lines]


@pytest.mark.parametrize("flags", ["-O0", "-O2", "-O2 -fno-omit-frame-pointer"])
def test_calls_are_those_that_libgcc_finds(flags: str, tmp_path: Path) -> None:
    """At an entry and a return, also where return addresses are replaced."""
    program = compiled_program(ARCH, tmp_path, *flags.split(), text=CALLS)
    places = functions_of(program)
    said = run(program, cwd=tmp_path, arch=ARCH, env={"UNWIND": "1"}).out.decode()
    wanted = [[int(word, 16) for word in line.split()] for line in said.splitlines()]
    assert len(wanted) == 3 and max(map(len, wanted)) > 8
    hooked = ("r leaf", "r:again leaf", "r deep", "r:more deep", "r unwound")
    probes = (
        "p:entry leaf stack",
        "r:back leaf stack",
        "p:few leaf stack(2)",
        "p:fp leaf stack:fp",
    )
    rows = _reported(program, *probes, *hooked)
    found: dict[str, list[list[int]]] = {}
    for row in rows:
        if "stack" in row:
            at = [_address(places, str(one)) for one in row["stack"]]  # type: ignore[attr-defined]
            found.setdefault(str(row["probe"]), []).append(at)
    assert set(found) == {"entry", "back", "few", "fp"}
    for n, calls in enumerate(wanted):
        assert found["entry"][n][0] == places["leaf"]
        assert found["entry"][n][2:] == calls[1:]
        assert found["back"][n][1:] == calls[1:]
        assert found["few"][n] == found["entry"][n][:2]
        if "omit" in flags:  # libc keeps no frame pointers
            own = calls[1 : 3 if n == 2 else -3]
            assert len(own) == (1, 5, 2)[n]
            assert found["fp"][n][2 : 2 + len(own)] == own


def _address(places: dict[str, int], text: str) -> int:
    """Of ``name+offset/size``, or of an address without a name."""
    name, _, offset = text.partition("/")[0].partition("+")
    return places[name] + int(offset, 16) if offset else int(name, 16)


def test_entries_of_a_plt(tmp_path: Path) -> None:
    """By their names, with their arguments, and where they return to."""
    program = compiled_program(ARCH, tmp_path, "-O2", link="pie")
    rows = _reported(program, "p:out qsort n=$arg2 size=$arg3", "r:back qsort", "p:at printf stack")
    values = {str(row["probe"]): row for row in rows}
    assert values["out"]["values"] == {"n": "0x4", "size": "0x4"}
    assert str(values["out"]["function"]) == "qsort"
    assert str(values["back"]["caller"]).startswith("main+")
    assert str(values["at"]["stack"][1]).startswith("main+")  # type: ignore[index]


SIGNALLED = r"""
#include <signal.h>
#include <stdio.h>
__attribute__((noipa)) void leaf(int n) { printf("%d\n", n); }
__attribute__((noipa)) void handled(int n) { leaf(n); __asm__ volatile(""); }
__attribute__((noipa)) void raises(void) { raise(SIGUSR1); leaf(0); __asm__ volatile(""); }
int main(void)
{
	signal(SIGUSR1, handled);
	raises();
	return 0;
}
"""


def test_calls_around_a_signal(tmp_path: Path) -> None:
    """From its handler to what it has interrupted; also where a return address is replaced."""
    program = compiled_program(ARCH, tmp_path, "-O1", text=SIGNALLED)
    rows = _reported(program, "p:one leaf stack", "r handled", "r raises", "r leaf")
    own = ("leaf", "handled", "raises", "main")
    shown = [str(row["stack"]) for row in rows if "stack" in row]
    stacks = [re.findall(r"'([^'+]+)(?:\+[^']*)?'", one) for one in shown]
    found = [[name for name in stack if name in own] for stack in stacks]
    assert found == [[*own], ["leaf", "raises", "main"]]
    assert all(stack[-1] == "_start" for stack in stacks)
