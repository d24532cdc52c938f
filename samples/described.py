# SPDX-License-Identifier: MIT
"""What each sample shows, and what one must know to read it."""

from __future__ import annotations

from dataclasses import dataclass

from reader import Pad

__all__ = ["SAMPLES", "Sample"]

CALLS = Pad(0, 0)


@dataclass(frozen=True)
class Sample:
    """One file: its pad, what it shows, and which neighbours it needs to be understood."""

    shows: str
    pad: Pad = CALLS
    twin: str | None = None
    library: str | None = None


SAMPLES = {
    "vmlinux-x86_64": Sample(
        "A linked x86-64 kernel: calls of __fentry__, endbr64 before some, call padding with"
        " __pfx_ symbols, a sorted table with the null records of overridden weak functions."
    ),
    "vmlinux-x86_64-clang": Sample(
        "The same by clang and lld; the table is not sorted, and two of its records lie in"
        " overridden weak functions that no symbol names."
    ),
    "vmlinux-i386": Sample(
        "A linked i386 kernel: its own NOP5 (3e 8d 74 26 00) in x86_nops, ftrace_graph_call."
    ),
    "vmlinux-arm64": Sample(
        "arm64 as of 6.1: the table's bytes are zero, its values are RELATIVE addends, it is not"
        " sorted; some sites after a BTI, some before paciasp; no null records.",
        Pad(2, 0),
    ),
    "vmlinux-arm64-callops": Sample(
        "arm64 as of 6.12: CALL_OPS (4,2), values in place, .relr.dyn, unused R_AARCH64_NONE in"
        " .rela.dyn, null records whose RELR bit is still set, ftrace_nop_ops.",
        Pad(4, 2),
    ),
    "vmlinux-arm64-callops-room": Sample(
        "The same with 256 bytes of .text that belong to no symbol: room for a stub that has the"
        " ops pointer, where .rela.dyn has too few entries for all literals.",
        Pad(4, 2),
    ),
    "vmlinux-arm64-far": Sample(
        "arm64 as of 5.10 whose ftrace_caller is 256 MB away, out of a BL's reach, with room for"
        " veneers in .text; ftrace_graph_call.",
        Pad(2, 0),
    ),
    "vmlinux-arm64-far-full": Sample(
        "The same without twelve bytes of .text that belong to no symbol.", Pad(2, 0)
    ),
    "vmlinux-riscv64": Sample(
        "riscv64 as of 6.12: four c.nop, no relocations, no null records, ftrace_call.", Pad(4, 0)
    ),
    "vmlinux-riscv64-callops": Sample(
        "riscv64 as of 7.2: CALL_OPS (8,4) without relocations, null records, ftrace_nop_ops.",
        Pad(8, 4),
    ),
    "pad": Sample("gcc's pad, five 0x90, in a PIE.", Pad(5, 0)),
    "pad-nonpie": Sample("gcc's pad in a program at a fixed address.", Pad(5, 0)),
    "pad-cet": Sample("gcc's pad after endbr64.", Pad(5, 0)),
    "pad-5-5": Sample("N == M: all NOPs before the function, hence no site.", Pad(5, 5)),
    "pad-7-2": Sample("Two NOPs before the function, five in it.", Pad(7, 2)),
    "pad-clang": Sample("clang's pad: one NOP5, 0f 1f 44 00 08.", Pad(5, 0)),
    "pad-clang-cet": Sample("clang's pad after endbr64.", Pad(5, 0)),
    "pad-static": Sample("A static program with its own start file, no libc.", Pad(5, 0)),
    "pad-static-pie": Sample("A static-PIE that relocates itself, no libc.", Pad(5, 0)),
    "pad-glibc-static": Sample(
        "A stripped static program with glibc inside: IRELATIVE, TLS, much code without sites.",
        Pad(5, 0),
        twin="../build/pad-glibc-static/symbols",
    ),
    "pad-stripped": Sample("pad without symbols.", Pad(5, 0), twin="pad"),
    "pad-noheaders": Sample("pad without section headers: it runs, but has no table.", Pad(5, 0)),
    "fentry": Sample("Calls of the program's own __fentry__, e8 rel32, at fixed addresses."),
    "fentry-cet": Sample("The same after endbr64."),
    "fentry-nop": Sample("-mnop-mcount: NOP5 (0f 1f 44 00 00) where the call would be."),
    "fentry-pie": Sample(
        "A PIE whose calls through the GOT the linker made direct: 67 e8 rel32; the table is in a"
        " read-only section, hence DT_TEXTREL."
    ),
    "fentry-pie-got": Sample("A PIE that calls through the GOT: ff 15 disp32."),
    "fentry-static": Sample("-mfentry in a static program with its own start file, no libc."),
    "fentry-plt": Sample("Calls of libfentry.so's __fentry__ through the PLT."),
    "fentry-library": Sample(
        "A PIE that gets work and __fentry__ from libmfentry.so.", library="libmfentry.so"
    ),
    "pad-library": Sample("A PIE that gets work from libpad.so.", Pad(5, 0), library="libpad.so"),
    "libfentry.so": Sample("A shared library with __fentry__ and nothing else: no table."),
    "libpad.so": Sample("A shared library with gcc's pad.", Pad(5, 0)),
    "libmfentry.so": Sample(
        "A shared library that calls __fentry__ through the GOT (GLOB_DAT): ff 15 disp32."
    ),
    "i386-pad": Sample("gcc's pad on i386, static, no libc.", Pad(5, 0)),
    "i386-pad-pie": Sample("gcc's pad in an i386 static-PIE: REL relocations.", Pad(5, 0)),
    "i386-fentry": Sample("-mfentry on i386: e8 rel32 at the entry."),
    "i386-mcount": Sample("-pg on i386: a call of mcount after the prologue."),
    "i386-mcount-pie": Sample(
        "-pg in an i386 static-PIE, a call through the GOT that the linker made direct: 67 e8."
    ),
    "i386-mcount-pie-got": Sample("The same through the GOT: ff 93 disp32, from ebx."),
    "arm64-pad": Sample("gcc's two NOPs on arm64, in a PIE.", Pad(2, 0)),
    "arm64-pad-bti": Sample("The same after BTI, and before paciasp.", Pad(2, 0)),
    "arm64-pad-static": Sample("Static arm64 program, no libc.", Pad(2, 0)),
    "arm64-pad-static-bti": Sample("The same with BTI and pointer authentication.", Pad(2, 0)),
    "arm64-pad-4-2": Sample("Two NOPs before the function, as CALL_OPS has.", Pad(4, 2)),
    "arm64-pad-clang-bti": Sample("clang and lld on arm64, BTI and paciasp.", Pad(2, 0)),
    "riscv64-pad": Sample("gcc's four c.nop on riscv64, in a PIE.", Pad(4, 0)),
    "riscv64-pad-static": Sample("Static riscv64 program, no libc.", Pad(4, 0)),
    "riscv64-pad-static-pie": Sample("A riscv64 static-PIE, no libc.", Pad(4, 0)),
    "riscv64-pad-8": Sample("Sixteen bytes of NOPs, of which a call takes eight.", Pad(8, 0)),
    "riscv64-pad-8-4": Sample("Eight bytes of NOPs before the function.", Pad(8, 4)),
    "riscv64-pad-noc": Sample("Without the C extension: two NOPs of four bytes.", Pad(2, 0)),
    "riscv64-pad-clang": Sample("clang and lld on riscv64.", Pad(4, 0)),
    "riscv64-mcount": Sample("-pg on riscv64: auipc ra, jalr ra to _mcount after the prologue."),
}
