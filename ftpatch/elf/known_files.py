# SPDX-License-Identifier: MIT
"""Names of files that are no images, and advice for each: one table of magics.

    (what it is, what to do, where the magic stands, the magic)

What is to do is empty where nothing helps but another architecture. The first that fits counts, so
what stands deeper in a file comes first. Sources: file formats' own specifications, and for kernels
arch/arm/boot/compressed/head.S (0x016f2818), s390's asm/setup.h (EP_OFFSET, EP_STRING),
include/linux/pe.h, and U-Boot's include/image.h.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ftpatch.arch import arch_named, architectures, name_of_machine

__all__ = ["Known", "elf_words", "supported", "what_is"]

LINUX = "use a kernel, a module, a program or a library"


class Known(NamedTuple):
    """``name`` with an article; ``advice`` is a clause."""

    name: str
    advice: str


MAGICS: tuple[tuple[str, str, int, bytes], ...] = (
    ("an ISO 9660 image", "use a file from it", 0x8001, b"CD001"),
    ("a tar archive", "unpack it: `tar -xf FILE`", 257, b"ustar"),
    ("a zImage (32-bit ARM kernel)", "", 0x24, b"\x18\x28\x6f\x01"),
    ("a big-endian zImage (32-bit ARM kernel)", "", 0x24, b"\x01\x6f\x28\x18"),
    (
        "a U-Boot image (uImage)",
        "extract the kernel: `dumpimage -p 0 -o KERNEL FILE`",
        0,
        b"\x27\x05\x19\x56",
    ),
    (
        "a flattened device tree, or a U-Boot FIT image",
        "extract a FIT image's kernel: `dumpimage -T flat_dt -p 0 -o KERNEL FILE`",
        0,
        b"\xd0\x0d\xfe\xed",
    ),
    (
        "an Android boot image",
        "extract the kernel: `unpack_bootimg --boot_img FILE --out DIR`",
        0,
        b"ANDROID!",
    ),
    (
        "an Android vendor boot image",
        "the kernel is in the boot image, which unpack_bootimg unpacks",
        0,
        b"VNDRBOOT",
    ),
    ("a Debian package", "unpack it: `dpkg-deb -x FILE DIR`", 0, b"!<arch>\ndebian-binary"),
    ("an archive of objects", "link it into a program and use that", 0, b"!<arch>\n"),
    ("a thin archive of objects", "link it into a program and use that", 0, b"!<thin>\n"),
    (
        "an RPM package",
        "unpack it: `rpm2cpio FILE | cpio -id`",
        0,
        b"\xed\xab\xee\xdb",
    ),
    ("a cpio archive (such as an initramfs)", "unpack it: `cpio -id <FILE`", 0, b"07070"),
    ("a ZIP archive (or APK, JAR, wheel)", "unpack it and use a file from it", 0, b"PK\3\4"),
    ("a squashfs image", "unpack it: `unsquashfs FILE`", 0, b"hsqs"),
    ("a QEMU disk image (qcow2)", "use a file from it", 0, b"QFI\xfb"),
    ("LLVM bitcode", "compile it and use the program", 0, b"BC\xc0\xde"),
    ("a WebAssembly module", LINUX, 0, b"\0asm"),
    ("a macOS (Mach-O) file", LINUX, 0, b"\xcf\xfa\xed\xfe"),
    ("a macOS (Mach-O) file", LINUX, 0, b"\xfe\xed\xfa\xcf"),
    ("a 32-bit macOS (Mach-O) file", LINUX, 0, b"\xce\xfa\xed\xfe"),
    ("a 32-bit macOS (Mach-O) file", LINUX, 0, b"\xfe\xed\xfa\xce"),
)
CAFE = b"\xca\xfe\xba\xbe"
JAVA = 43
"""Java class files start at version 45; a smaller number counts the parts of a universal Mach-O."""
EFI = {10: "an EFI application", 11: "an EFI driver", 12: "an EFI driver", 13: "an EFI ROM image"}
"""IMAGE_SUBSYSTEM_*."""
COFF = {
    0x14C: "Intel 80386",
    0x1C0: "ARM",
    0x1C4: "ARM",
    0x5064: "RISC-V",
    0x6264: "LoongArch",
    0x8664: "x86-64",
    0xAA64: "AArch64",
}
"""IMAGE_FILE_MACHINE_*."""
MACHINES = {
    2: "SPARC",
    3: "Intel 80386",
    4: "m68k",
    8: "MIPS",
    15: "PA-RISC",
    18: "SPARC",
    20: "PowerPC",
    21: "PowerPC64",
    22: "s390",
    40: "ARM",
    41: "Alpha",
    42: "SuperH",
    43: "SPARC",
    50: "Itanium",
    62: "x86-64",
    83: "AVR",
    92: "OpenRISC",
    93: "ARC",
    94: "Xtensa",
    113: "Nios II",
    164: "Hexagon",
    183: "AArch64",
    189: "MicroBlaze",
    190: "CUDA",
    195: "ARC",
    224: "AMD GPU",
    243: "RISC-V",
    247: "BPF",
    252: "C-SKY",
    258: "LoongArch",
    0x9026: "Alpha",
}
"""e_machine (System V ABI, and binutils' include/elf/common.h)."""
ELF = b"\x7fELF"


def what_is(data: memoryview) -> Known | None:
    """Identify a file that is no image by its first bytes; None if unknown."""
    if data[:2].tobytes() == b"#!":
        return _script(data[:256].tobytes())
    for name, advice, at, magic in MAGICS:
        if data[at : at + len(magic)].tobytes() == magic:
            return Known(name, advice or supported())
    if data[:4].tobytes() == CAFE:
        if int.from_bytes(data[4:8], "big") < JAVA:
            return Known("a universal macOS (Mach-O) file", LINUX)
        return Known("a Java class file", LINUX)
    if data[:2].tobytes() == b"MZ":
        return _windows(data)
    if data[:4].tobytes() == ELF and len(data) >= 20:
        return Known(elf_words(data), supported(data))
    return None


def supported(data: memoryview | None = None) -> str:
    """Advice for a file of an unsupported architecture. For an ELF file that differs from what is
    supported in its word size or byte order alone: in which they are."""
    if data is not None and data[:4].tobytes() == ELF:
        number = _numbers(data)[1]
        if name := name_of_machine(number):
            big = arch_named(name).order.big
            words = _sort(arch_named(name).elf_class, big=big, little=not big)
            return f"of {MACHINES.get(number, name)}, {words} ones are supported ({name})"
    *first, last = sorted(arch.name for arch in architectures().values())
    return f"supported: ELF files of {', '.join(first)} and {last}"


def elf_words(data: memoryview) -> str:
    """``a 64-bit big-endian PowerPC64 ELF file``; needs at least its first 20 bytes."""
    kind, number = _numbers(data)
    bits = {1: 32, 2: 64}.get(data[4], 0)
    machine = MACHINES.get(number, f"machine {number}")
    what = {1: "object", 4: "core dump"}.get(kind, "ELF file")
    name = name_of_machine(number)
    little = bool(name) and data[5] == 1 and arch_named(name).order.big  # else it goes without
    sort = _sort(bits, big=data[5] == 2, little=little)
    return f"a {sort} {machine} {what}" if sort else f"a {machine} {what}"


def _sort(bits: int, *, big: bool, little: bool = False) -> str:
    """``32-bit big-endian``, as far as it is known; ``little`` says so."""
    order = "big-endian" if big else "little-endian" * little
    return " ".join(filter(None, (f"{bits}-bit" if bits else "", order)))


def _numbers(data: memoryview) -> tuple[int, int]:
    """e_type and e_machine."""
    order: Literal["big", "little"] = "big" if data[5] == 2 else "little"
    kind, machine = (int.from_bytes(data[at : at + 2], order) for at in (16, 18))
    return kind, machine


def _script(head: bytes) -> Known:
    line = head[2:].split(b"\n")[0].decode("utf-8", "backslashreplace").strip()
    return Known(
        f"a script for {line.split(' ')[0] or 'a shell'}", "use the program that it starts"
    )


def _windows(data: memoryview) -> Known:
    """Identify a file that begins with MZ: PE names its machine and subsystem."""
    at = int.from_bytes(data[0x3C:0x40], "little")
    header = data[at : at + 96].tobytes()
    if header[:4] != b"PE\0\0" or len(header) < 96:
        return Known("a DOS program", LINUX)
    number = int.from_bytes(header[4:6], "little")
    machine = COFF.get(number, f"machine {number:#x}")
    subsystem = int.from_bytes(header[92:94], "little")
    count, optional = (int.from_bytes(header[i : i + 2], "little") for i in (6, 20))
    table = data[at + 24 + optional :][: 40 * count].tobytes()
    names = [table[i : i + 8].rstrip(b"\0") for i in range(0, len(table), 40)]
    if b".linux" in names:
        take = "extract the kernel: `objcopy --dump-section .linux=KERNEL FILE /dev/null`"
        return Known(f"a unified kernel image of {machine}", take)
    if subsystem in EFI:
        return Known(f"{EFI[subsystem]} of {machine} (not a known kernel)", LINUX)
    return Known(f"a Windows program (PE) of {machine}", LINUX)
