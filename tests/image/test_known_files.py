# SPDX-License-Identifier: MIT
"""What is no image, or one of another kind, is called by its name, with what can be done."""

from __future__ import annotations

import gzip
import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.compiled import TARGETS
from tests.support.elf_writer import Image, Section
from tests.support.samples import sample


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _at(offset: int, magic: bytes, size: int = 1 << 17) -> bytes:
    data = bytearray(size)
    data[offset : offset + len(magic)] = magic
    return bytes(data)


def _pe(machine: int, subsystem: int, *sections: bytes) -> bytes:
    """A PE32+ file: DOS header, COFF header, optional header up to its subsystem, sections."""
    head = b"PE\0\0" + struct.pack("<HH12xHH", machine, len(sections), 112, 0)
    optional = struct.pack("<H66xH", 0x20B, subsystem).ljust(112, b"\0")
    table = b"".join(name.ljust(40, b"\0") for name in sections)
    return _at(0, b"MZ", 0x3C) + struct.pack("<I", 0x40) + head + optional + table + bytes(512)


def _mixed(magic: bytes, number: int) -> bytes:
    return magic + struct.pack(">I", number) + bytes(600)


FILES = {
    "script": (b"#!/usr/bin/env python3\nprint()\n", "a script for /usr/bin/env", "starts"),
    "zImage": (_at(0x24, struct.pack("<I", 0x016F2818)), "a zImage (32-bit ARM kernel)", ""),
    "zImage-be": (_at(0x24, struct.pack(">I", 0x016F2818)), "a big-endian zImage", ""),
    "uImage": (_at(0, struct.pack(">I", 0x27051956)), "a U-Boot image (uImage)", "dumpimage -p 0"),
    "fit": (_at(0, struct.pack(">I", 0xD00DFEED)), "U-Boot FIT image", "dumpimage"),
    "android": (_at(0, b"ANDROID!"), "an Android boot image", "unpack_bootimg"),
    "macho": (_at(0, struct.pack("<I", 0xFEEDFACF)), "a macOS (Mach-O) file", ""),
    "macho32": (_at(0, struct.pack("<I", 0xFEEDFACE)), "a 32-bit macOS (Mach-O) file", ""),
    "universal": (_mixed(b"\xca\xfe\xba\xbe", 2), "a universal macOS (Mach-O) file", ""),
    "java": (_mixed(b"\xca\xfe\xba\xbe", 61), "a Java class file", ""),
    "exe": (_pe(0x8664, 3, b".text"), "a Windows program (PE) of x86-64", ""),
    "efi": (_pe(0xAA64, 10, b".text"), "an EFI application of AArch64 (not a known kernel)", ""),
    "uki": (_pe(0x8664, 10, b".linux"), "a unified kernel image of x86-64", "objcopy"),
    "dos": (_at(0, b"MZ"), "a DOS program", ""),
    "deb": (b"!<arch>\ndebian-binary   ", "a Debian package", "dpkg-deb -x"),
    "library.a": (b"!<arch>\nfoo.o/          ", "an archive of objects", "link it"),
    "thin.a": (b"!<thin>\n", "a thin archive of objects", "link it"),
    "rpm": (_at(0, b"\xed\xab\xee\xdb"), "an RPM package", "rpm2cpio"),
    "initramfs": (b"070701" + bytes(100), "a cpio archive", "cpio"),
    "zip": (_at(0, b"PK\x03\x04"), "a ZIP archive", "unpack"),
    "tar": (_at(257, b"ustar"), "a tar archive", "tar -xf"),
    "bitcode": (_at(0, b"BC\xc0\xde"), "LLVM bitcode", ""),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("verb", ["status", "list", "check", "enable", "diff", "extract", "probe"])
def test_what_it_is_and_what_to_do(verb: str, name: str) -> None:
    data, words, advice = FILES[name]
    Path(name).write_bytes(data)
    more = ["p:x main"] if verb == "probe" else []
    result = ftpatch(verb, name, *more)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert words in result.err and advice in result.err
    assert "nothing to extract" not in result.err and "-fpatchable" not in result.err
    assert not Path(f"{name}.ftpatch").exists()


def test_what_it_unpacks_to() -> None:
    Path("initrd.gz").write_bytes(gzip.compress(FILES["initramfs"][0]))
    Path("files.tar.gz").write_bytes(gzip.compress(FILES["tar"][0]))
    for name, words in (("initrd.gz", "a cpio archive"), ("files.tar.gz", "a tar archive")):
        for verb in ("status", "extract"):
            assert f"{name}: unpacks to {words}" in ftpatch(verb, name).err


OTHERS = {
    21: "; of PowerPC64, 64-bit little-endian ones are supported (ppc64le)\n",
    22: "; of s390, 64-bit big-endian ones are supported (s390x)\n",
    40: "; of ARM, 32-bit little-endian ones are supported (arm)\n",
    62: "; of x86-64, 64-bit little-endian ones are supported (x86_64)\n",
    183: "; of AArch64, 64-bit little-endian ones are supported (arm64)\n",
    243: "; of RISC-V, 64-bit little-endian ones are supported (riscv64)\n",
    258: "; of LoongArch, 64-bit little-endian ones are supported (loongarch64)\n",
}


@pytest.mark.parametrize(
    ("machine", "bits", "big", "words"),
    [
        (8, 32, True, "a 32-bit big-endian MIPS"),
        (8, 64, False, "a 64-bit MIPS"),
        (20, 32, True, "a 32-bit big-endian PowerPC"),
        (21, 64, True, "a 64-bit big-endian PowerPC64"),
        (22, 32, True, "a 32-bit big-endian s390"),
        (22, 64, False, "a 64-bit little-endian s390"),
        (40, 32, True, "a 32-bit big-endian ARM"),
        (43, 64, True, "a 64-bit big-endian SPARC"),
        (62, 32, False, "a 32-bit x86-64"),
        (183, 64, True, "a 64-bit big-endian AArch64"),
        (243, 32, False, "a 32-bit RISC-V"),
        (247, 64, False, "a 64-bit BPF"),
        (258, 32, False, "a 32-bit LoongArch"),
        (4711, 64, False, "a 64-bit machine 4711"),
    ],
)
@pytest.mark.parametrize("verb", ["status", "check"])
def test_other_machines(verb: str, machine: int, bits: int, big: bool, words: str) -> None:
    image = Image(machine, bits, big=big, sections=[Section(".text", bytes(16))])
    image.type = 2
    Path("file").write_bytes(image.build())
    result = ftpatch(verb, "file")
    assert result.code == 2 and result.err.startswith(f"ftpatch: file: {words} ELF file")
    assert "is not supported" in result.err and result.err.count("\n") == 1
    assert OTHERS.get(machine, "; supported: ELF files of ") in result.err


def test_another_abi() -> None:
    image = Image(21, sections=[Section(".text", bytes(16))], header={"e_flags": 1})
    Path("file").write_bytes(image.build())
    words = "ftpatch: file: a 64-bit PowerPC64 ELF file of ELFv1, which is not supported\n"
    assert ftpatch("status", "file").err == words
    image.header["e_flags"] = 2
    Path("file").write_bytes(image.build())
    assert "__mcount_loc" in ftpatch("status", "file").err


def test_a_core_dump() -> None:
    data = bytearray(sample("pad").data)
    data[16] = 4
    Path("core").write_bytes(data)
    assert "a 64-bit x86-64 core dump" in ftpatch("status", "core").err


GO = ".go.buildinfo"


def _program(*sections: Section) -> bytes:
    image = Image(62, 64, sections=[Section(".text", b"\xc3" * 16, 0x401000, flags=6), *sections])
    image.type = 2
    return image.build()


@pytest.mark.parametrize(
    "section",
    [
        Section(GO, bytes(16)),
        Section(".note.go.buildid", bytes(16)),
        Section(".data", b"\xff Go buildinf:\x08\x02"),
    ],
    ids=lambda s: s.name,
)
def test_a_go_program_never_gets_the_flags_of_gcc(section: Section) -> None:
    Path("prog").write_bytes(_program(section))
    for verb in ("status", "enable"):
        result = ftpatch(verb, "prog")
        assert result.code == 2 and "a Go program" in result.err
        assert "compile with" not in result.err and "-fpatchable" not in result.err
    assert "Go program" in ftpatch("check", "prog").out


@pytest.mark.parametrize(
    "section",
    [
        Section(".comment", b"GCC: (Debian) 12.2.0\0rustc version 1.80.0\0"),
        Section(".rodata", b"x/rustc/" + b"0a" * 20 + b"/library/core/src/panic.rs"),
    ],
    ids=lambda s: s.name,
)
def test_a_rust_program_gets_rustc_s_flag(section: Section) -> None:
    Path("prog").write_bytes(_program(section))
    error = ftpatch("status", "prog").err
    assert "a Rust program: compile with rustc -Z patchable-function-entry=5" in error
    assert "-fpatchable" not in error


def test_a_c_program_gets_the_flag_of_its_machine() -> None:
    Path("prog").write_bytes(_program(Section(".comment", b"GCC: (Debian) 12.2.0\0")))
    said = "compile with -fpatchable-function-entry=5 or -pg -mfentry -mrecord-mcount\n"
    assert ftpatch("status", "prog").err.endswith(said)


def test_rustc_s_flag_is_what_gives_a_table() -> None:
    if shutil.which("rustc") is None:
        pytest.skip("rustc is not installed")
    Path("prog.rs").write_text('fn main() { println!("1"); }\n')
    command = ["rustc", "-Z", "patchable-function-entry=5", "prog.rs", "-o", "prog"]
    environment = {"RUSTC_BOOTSTRAP": "1", "PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    rustc = shutil.which("rustc")
    assert rustc is not None
    done = subprocess.run([rustc, *command[1:]], env=environment, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("this rustc cannot compile, or does not know the flag")
    assert ftpatch("status", "--json", "prog").only["sites"] > 0


@pytest.mark.parametrize(
    ("arch", "compiler", "nops", "right"),
    [
        ("x86_64", "gcc", 2, 5),
        ("x86_64", "gcc", 4, 5),
        ("x86_64", "clang", 2, 5),
        ("x86_64", "clang", 4, 5),
        ("arm64", "gcc", 1, 2),
        ("riscv64", "gcc", 2, 4),
        ("s390x", "gcc", 2, 3),
        ("arm", "gcc", 2, 3),
    ],
)
def test_pads_that_are_too_short(arch: str, compiler: str, nops: int, right: int) -> None:
    target = replace(TARGETS[arch], own=())
    Path("prog.c").write_text(
        "int one(int a) { return a * 3; }\nint main(void) { return one(2); }\n"
    )
    flags = ["-O2", "-fno-inline", f"-fpatchable-function-entry={nops}"]
    subprocess.run([*target.command(compiler), *flags, "prog.c", "-o", "prog"], check=True)
    flag = f"compile with -fpatchable-function-entry={right}"
    subprocess.run([*target.command(compiler), *flags, "-c", "prog.c"], check=True)
    for file in ("prog", "prog.o"):
        said = ftpatch("status", file).out
        assert flag in said and (arch != "arm" or "have 4 bytes, but a call takes 6;" in said)
    assert flag in ftpatch("check", "prog").out
    result = ftpatch("enable", "prog", "--to", "one", "-f", "main")
    assert result.code == 1 and flag in result.err
    assert not Path("prog.ftpatch").exists()
