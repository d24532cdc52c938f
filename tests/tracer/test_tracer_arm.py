# SPDX-License-Identifier: MIT
"""Tracers on 32-bit ARM: the index that unwinders search, as pyelftools reads it; a user's stub in
either instruction set."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from elftools.ehabi.ehabiinfo import EHABIInfo
from elftools.elf.elffile import ELFFile

from tests.support.tracer_ports import Form, build, run
from tests.support.tracer_programs import traced

STUB = r"""
static volatile unsigned long calls, returns;
static void say(const char *text)
{
	register long number __asm__("r7") = 4, file __asm__("r0") = 1, size __asm__("r2") = 1;
	register const char *from __asm__("r1") = text;
	__asm__ volatile("svc #0" : "+r"(file) : "r"(number), "r"(from), "r"(size) : "memory");
}
__attribute__((visibility("default"))) void ftrace_caller(unsigned long ip, unsigned long parent)
{
	if (++calls == 5 && ip % 2 == 0)
		say("5");
}
__attribute__((visibility("default"))) void ftrace_return(unsigned long ip, unsigned long parent)
{
	if (++returns == 3)
		say("3");
}
"""
FLAGS = "-O2 -w -shared -fPIC -nostdlib -ffreestanding -mgeneral-regs-only -fomit-frame-pointer"
Row = tuple[int, int | None, tuple[int, ...], bool]


def _index(path: Path) -> list[Row]:
    """Rows of what PT_ARM_EXIDX leads to: a function, its personality routine, how to unwind it,
    and whether it can be."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        (segment,) = (s for s in elf.iter_segments() if s["p_type"] == "PT_ARM_EXIDX")
        place = {"sh_offset": segment["p_offset"], "sh_size": segment["p_filesz"]}

        class Section(SimpleNamespace):
            def __getitem__(self, name: str) -> int:
                return int(place[name])

        info = EHABIInfo(Section(stream=elf.stream, header=place), little_endian=True)
        rows = [info.get_entry(n) for n in range(info.num_entry())]
    return [
        (row.function_offset, row.personality, tuple(row.bytecode_array or ()), row.unwindable)
        for row in rows
        if not row.corrupt
    ]


@pytest.mark.parametrize("more", [(), ("-marm",)], ids=["thumb", "arm"])
def test_unwinders_find_the_functions_of_both(more: tuple[str, ...], tmp_path: Path) -> None:
    """All rows of the program, and behind them the stub's, in order."""
    program = build(Form("arm", "pie", "-O2", more), "ports.cpp", tmp_path)
    before, after = _index(program), _index(traced(program, "function_graph"))
    assert after[: len(before)] == before
    assert len(after) > len(before) + 50
    starts = [start for start, *_ in after]
    assert starts == sorted(starts)


@pytest.mark.parametrize("mode", ["-marm", "-mthumb"])
def test_a_stub_in_either_set(mode: str, tmp_path: Path) -> None:
    gcc = "arm-linux-gnueabihf-gcc"
    if shutil.which(gcc) is None:
        pytest.skip(f"{gcc} is not installed")
    (tmp_path / "stub.c").write_text(STUB)
    words = [gcc, mode, *FLAGS.split(), "-fvisibility=hidden", "-Wl,-Bsymbolic"]
    subprocess.run([*words, tmp_path / "stub.c", "-o", tmp_path / "stub.elf"], check=True)
    form = Form("arm", "static", "-O2")
    program = build(form, "unwind.c", tmp_path)
    said, status = run(form, program)
    out, ended = run(form, traced(program, str(tmp_path / "stub.elf")))
    assert ended == status and sorted(out) == sorted(said + "53")
