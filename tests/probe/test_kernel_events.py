# SPDX-License-Identifier: MIT
"""Probes in the kernel's words: what is printed, and what a kernel cannot be told."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import ftpatch
from ftpatch.errors import UsageError
from tests.support.boot_kernels import EARLY, NAMES, STEP, Stripped
from tests.support.command import ftpatch as command

BUILT = Path(__file__).parents[2] / "samples/built"
KERNEL, ARM64 = BUILT / "vmlinux-x86_64", BUILT / "vmlinux-arm64"
LONG = "a" * 54


def nm(image: Path) -> dict[str, list[int]]:
    """Addresses by name, as nm prints them."""
    done = subprocess.run(["nm", image], capture_output=True, text=True, check=True)
    found: dict[str, list[int]] = {}
    for line in done.stdout.splitlines():
        at, _, name = line.split()
        found.setdefault(name, []).append(int(at, 16))
    return found


@pytest.mark.parametrize(
    ("probe", "line"),
    [
        ("p:open do_sys_open dfd=$arg1:s32", "p:kprobes/open do_sys_open dfd=$arg1:s32"),
        ("p do_sys_open", "p:kprobes/p_do_sys_open_0 do_sys_open"),
        ("p:probes/a do_sys_open", "p:probes/a do_sys_open"),
        ("r:mk do_sys_open $retval", "r:kprobes/mk do_sys_open arg1=$retval"),
        ("r0x10:mk do_sys_open", "r16:kprobes/mk do_sys_open"),
        ("p:a do_sys_open%return", "r:kprobes/a do_sys_open"),
        ("p:a do_sys_open %rdi %r8 %rip", "p:kprobes/a do_sys_open arg1=%di arg2=%r8 arg3=%ip"),
        ("p:a do_sys_open %ax %flags", "p:kprobes/a do_sys_open arg1=%ax arg2=%flags"),
        (
            "p:a do_sys_open n=+u8(+0($arg2)):ustring",
            "p:kprobes/a do_sys_open n=+u8(+0($arg2)):ustring",
        ),
        ("p:a do_sys_open n=-u4(%si):u8", "p:kprobes/a do_sys_open n=-u4(%si):u8"),
        ("p:a do_sys_open @files+8 $comm", "p:kprobes/a do_sys_open arg1=@files+8 arg2=$comm"),
        ("p:a do_sys_open n=@{files}:u8", "p:kprobes/a do_sys_open n=@files:u8"),
        ("p:a {do_sys_open}", "p:kprobes/a do_sys_open"),
        ("p:a {find_slot}", "p:kprobes/a _text+1728"),  # one of two
    ],
)
def test_lines(probe: str, line: str) -> None:
    words = {name: hex(at[0]) for name, at in nm(KERNEL).items()}
    assert ftpatch.open(KERNEL).kprobe_events(probe.format(**words)) == (line,)


def test_the_shared_name_is_where_nm_has_it() -> None:
    places = nm(KERNEL)
    assert len(places["find_slot"]) == 2
    assert places["find_slot"][0] - places["_text"][0] == 1728


def test_registers_of_arm64() -> None:
    lines = ftpatch.open(ARM64).kprobe_events("p:a do_sys_open %x0 %lr %sp %pc")
    assert lines == ("p:kprobes/a do_sys_open arg1=%x0 arg2=%lr arg3=%sp arg4=%pc",)


@pytest.mark.parametrize(
    ("probe", "lines"),
    [
        (
            "p:open do_sys_open dfd=$arg1:s32",
            ('open.probes = "do_sys_open dfd=$arg1:s32"', "open.enable"),
        ),
        (
            "r:mk do_sys_open ret=$retval",
            ('mk.probes = "do_sys_open%return ret=$retval"', "mk.enable"),
        ),
        (f"p:{LONG[1:]} fget", (f'{LONG[1:]}.probes = "fget"', f"{LONG[1:]}.enable")),
    ],
)
def test_bootconfig(probe: str, lines: tuple[str, ...]) -> None:
    found = ftpatch.open(KERNEL).kprobe_events(probe, bootconfig=True)
    assert found == tuple(f"ftrace.event.kprobes.{line}" for line in lines)


@pytest.mark.parametrize(
    ("probe", "clause"),
    [
        ("p:g/a fget", "a: a bootconfig has probes only in the group kprobes, not in g"),
        ("r5:a fget", "a: a bootconfig has no maxactive (5)"),
        ("p:enable fget", "an event of a bootconfig cannot be named enable"),
        (f"p:{LONG} fget", "its name has at most 53 characters there"),
        ("p:a fget " + " ".join(["+0(%di):string"] * 12), "characters, and a bootconfig's has 254"),
    ],
)
def test_what_a_bootconfig_cannot_say(probe: str, clause: str) -> None:
    image = ftpatch.open(KERNEL)
    assert len(image.kprobe_events(probe)) == 1
    with pytest.raises(UsageError, match=r".") as raised:
        image.kprobe_events(probe, bootconfig=True)
    assert clause in str(raised.value)


@pytest.mark.parametrize(
    ("probe", "clause"),
    [
        ("p nothere", "no such function 'nothere'"),
        ("p:a find_slot", "symbol 'find_slot' is ambiguous (2 definitions)"),
        ("p:a files", "'files' is not a function"),
        ("p:a 0xffffffff81005000", "a: 0xffffffff81005000 is in no function"),
        ("p:a 0x10", "a: 0x10 is in no function"),
        ("p:a fget+0x100", "is not in fget"),
        ("p:a fget+3", "is not at an instruction boundary"),
        ("r:a fget+5", "retprobe address must be a function entry"),
        ("p:a fget+5 $arg1", "$argN can be used only on function entry"),
        ("p:a fget @nothere", "@nothere: no such symbol"),
        ("p:a fget file->f_mode", "a kernel's probes take no names of the source: 'file->f_mode'"),
        ("p:a fs/file.c:900", "a kernel's probes take no lines of the source: 'fs/file.c:900'"),
        ("p:a ext4:fget", "a: ext4 is not in this image"),
        ("p:a fget %di:ustring", "ustring accepts only memory argument"),
        ("p:a fget n=" + "+1000000(" * 7 + "%di" + ")" * 7, "and a kernel takes 63"),
        (
            "p:a fget " + " ".join(f"n{n:02}={'+100000(' * 6}%di{')' * 6}:x8" for n in range(70)),
            "a kernel reads 4094",
        ),
    ],
)
def test_what_no_kernel_takes(probe: str, clause: str) -> None:
    with pytest.raises(UsageError) as raised:
        ftpatch.open(KERNEL).kprobe_events(probe)
    assert clause in str(raised.value)


def test_nothing_is_printed_if_one_is_refused() -> None:
    done = command("probe", KERNEL, "--print-events", "p fget", "p no", "p nor")
    assert done.code == 2 and not done.out
    assert "'no'" in done.err and "'nor'" in done.err
    done = command("probe", KERNEL, "--print-events", "--keep-going", "p:a fget", "p no")
    assert done.code == 1 and done.out == "p:kprobes/a fget\n" and "'no'" in done.err


@pytest.mark.parametrize(
    ("words", "clause"),
    [
        (("--print-events", "--print-bootconfig", "p fget"), "are mutually exclusive"),
        (("--print-events", "p fget", "-o", "x"), "--print-events and --output are mutually"),
        (("--print-bootconfig",), "no probes"),
        (("--pid", "1", "--print-events", "p fget"), "--print-events does not work with --pid"),
    ],
)
def test_options(words: tuple[str, ...], clause: str) -> None:
    program = () if "--pid" in words else (KERNEL,)
    done = command("probe", *program, *words)
    assert done.code == 2 and clause in done.err


def test_a_program_has_no_kprobes() -> None:
    done = command("probe", BUILT / "fentry", "--print-events", "p main")
    assert done.code == 2 and "has no kprobes; use a kernel or a module" in done.err


def test_a_stripped_kernel_says_the_same(tmp_path: Path) -> None:
    """Its kallsyms have no sizes: a function ends where the next symbol begins."""
    made = Stripped()
    stripped, twin = tmp_path / "stripped", tmp_path / "twin"
    stripped.write_bytes(made.build())
    twin.write_bytes(made.with_symbols())
    first, *_ = NAMES
    probes = [f"p:at{row} {name} n=$arg1" for row, name in enumerate((first, NAMES[7], EARLY[0]))]
    probes += [f"r:mk {NAMES[3]} ret=$retval:s32", f"p:in {first}+5 %di"]
    lines = ftpatch.open(twin).kprobe_events(probes)
    assert len(lines) == 5 and lines[0] == f"p:kprobes/at0 {first} n=$arg1"
    assert ftpatch.open(stripped).kprobe_events(probes) == lines
    for probe in (f"p:a {first}+{STEP}", f"p:a {first}+4", f"p:a {first}+0x100000"):
        with pytest.raises(UsageError):
            ftpatch.open(stripped).kprobe_events(probe)
