# SPDX-License-Identifier: MIT
"""Words of ftrace_bug that kernels print differently: signed bytes, the NOP of the processor, and
addresses that no symbol has. 5.10 is no more in Debian's archive; gcc compiles its function."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.broken import check, put_code, put_words, words_of
from tests.support.elf_writer import Image, Symbol
from tests.support.images import fentry_kernel, symbols_at

X86 = 0xFFFF_FFFF_8100_0000
P6 = bytes.fromhex("0f1f440000")
SOURCE = """
int printk(const char *fmt, ...);
long copy_from_kernel_nofault(void *to, const void *from, unsigned long size);
{inline} void print_ip_ins(const char *fmt, const unsigned char *p)
{{
    {sign} char ins[5];
    if (copy_from_kernel_nofault(ins, p, 5)) {{
        printk("\\001c%s[FAULT] %px\\n", fmt, p);
        return;
    }}
    printk("\\001c%s", fmt);
    for (int i = 0; i < 5; i++)
        printk("\\001c%s%02x", i ? ":" : "", {what}[i]);
}}
void ftrace_bug(int failed, const unsigned char *ip)
{{
    if (failed)
        print_ip_ins(" actual:   ", ip);
}}
"""
"""print_ip_ins of kernel/trace/ftrace.c as it may be compiled; up to v5.13 it read ``p``."""
INLINED, APART = "static inline __attribute__((always_inline))", "__attribute__((noinline))"
FORMS = [("signed", "ins", True), ("unsigned", "ins", False), ("signed", "p", False)]


def _compiled(folder: Path, machine: str, **words: str) -> dict[str, bytes]:
    """The functions' code, by name."""
    compiler = shutil.which("gcc") if machine == "-m64" else shutil.which("i686-linux-gnu-gcc")
    if compiler is None:
        pytest.skip(f"no gcc for {machine}")
    (folder / "printed.c").write_text(SOURCE.format(**words))
    command = [compiler, machine, "-O2", "-fno-pic", "-fno-stack-protector", "-fcf-protection=none"]
    command += ["-fno-asynchronous-unwind-tables", "-ffunction-sections", "-c", "printed.c"]
    subprocess.run(command, cwd=folder, check=True)
    with (folder / "printed.o").open("rb") as file:
        elf = ELFFile(file)
        rows = [s for s in elf.get_section_by_name(".symtab").iter_symbols() if s["st_size"]]
        return {s.name: elf.get_section(s["st_shndx"]).data() for s in rows}


def _bug(image: Image, folder: Path) -> list[str]:
    (row,) = (r for r in check(image, folder).json if r["invariant"] == "ftrace_init")
    bug: list[str] = row["bug"].splitlines()
    return bug


def _with(codes: dict[str, bytes]) -> Image:
    """A kernel with these functions in its text, of which one site is a NOP."""
    image = fentry_kernel(step=512)
    at = symbols_at(X86, step=512)
    for name, code in codes.items():
        place = at["schedule"] + 64 if name == "ftrace_bug" else at["do_exit"] + 64
        put_code(image, place, code)
        image.symbols.append(Symbol(name, place, len(code)))
    return put_code(image, at["vfs_read"], P6)


@pytest.mark.parametrize("inline", [INLINED, APART])
@pytest.mark.parametrize(("sign", "what", "extends"), FORMS)
def test_signed_bytes_are_read_off_the_code(
    inline: str, sign: str, what: str, extends: bool, tmp_path: Path
) -> None:
    codes = _compiled(tmp_path, "-m64", inline=inline, sign=sign, what=what)
    assert ("print_ip_ins" in codes) == (inline == APART)
    wide = "ffffff" if extends else ""
    assert _bug(_with(codes), tmp_path)[3:5] == [
        " actual:   0f:1f:44:00:00",
        f" expected: {wide}e8:{wide}c3:{wide}ff:{wide}ff:{wide}ff",
    ]


def test_a_part_of_it_counts(tmp_path: Path) -> None:
    codes = _compiled(tmp_path, "-m64", inline=APART, sign="signed", what="ins")
    codes["print_ip_ins.part.0"] = codes.pop("print_ip_ins")
    assert " expected: ffffffe8:" in _bug(_with(codes), tmp_path)[4]


def test_both_are_said_where_it_cannot_be_told(tmp_path: Path) -> None:
    """No function tells, as in a module for an old kernel."""
    assert _bug(_with({}), tmp_path)[4].startswith(" expected: e8:")
    row = check(_with({}), tmp_path).json[-1]
    assert row["message"].endswith(
        "(a kernel before 6.1 may print the bytes from 80 on as ffffff80)"
    )
    codes = _compiled(tmp_path, "-m64", inline=APART, sign="unsigned", what="ins")
    assert "ffffff80" not in check(_with(codes), tmp_path).json[-1]["message"]


def test_the_nop_is_the_processors(tmp_path: Path) -> None:
    """The second record of a site meets what ftrace_init made of the first."""
    image = fentry_kernel()
    words = words_of(image)
    put_words(image, [words[0], words[1], words[1], *words[3:]])
    assert _bug(image, tmp_path)[3] == " actual:   0f:1f:44:00:00"
    image.symbols.append(Symbol("ideal_nops", X86 + 0x10000, 8, type=1, section=".init.data"))
    assert _bug(image, tmp_path)[3] == " actual:   0f:1f:44:00:00 or 66:66:66:66:90"


def test_either_nop_is_known(tmp_path: Path) -> None:
    image = fentry_kernel()
    image.symbols.append(Symbol("ideal_nops", X86 + 0x10000, 8, type=1, section=".init.data"))
    for nop in ("0f1f440000", "6666666690"):
        put_code(image, symbols_at(X86)["vfs_read"], bytes.fromhex(nop))
        assert {r["invariant"] for r in check(image, tmp_path).json} == {"ftrace_init"}
        assert _bug(image, tmp_path)[3] == f" actual:   {bytes.fromhex(nop).hex(':')}"


@pytest.mark.parametrize("address", [0x1000, 0xFFFF_FFFF_FFFF_0000])
def test_what_is_outside_has_no_symbol(address: int, tmp_path: Path) -> None:
    """Not even that of a per-CPU variable, whose address is an offset."""
    image = fentry_kernel()
    image.symbols.append(Symbol("fixed_percpu_data", 0, 4096, type=1))
    words = sorted([*words_of(image)[1:], address])
    bug = _bug(put_words(image, words), tmp_path)
    assert bug[1:3] == ["ftrace faulted on modifying", f"[<{address:016x}>] {address:#x}"]


def test_i386(tmp_path: Path) -> None:
    from ftpatch.arch.i386.ftrace import I386

    for sign, what, extends in FORMS:
        codes = _compiled(tmp_path, "-m32", inline=APART, sign=sign, what=what)
        assert I386.extends_bytes(codes["print_ip_ins"], 0) == extends
