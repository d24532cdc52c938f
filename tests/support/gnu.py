# SPDX-License-Identifier: MIT
"""GNU as and ld as the oracle of encodings."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.cross_root import CROSS, use_cross_root

__all__ = ["PREFIXES", "i386_libraries", "link_at", "link_sections", "program", "runner"]

PREFIXES = {
    "x86_64": ("x86_64-linux-gnu-",),
    "i386": ("i686-linux-gnu-", "x86_64-linux-gnu-"),
    "arm64": ("aarch64-linux-gnu-",),
    "riscv64": ("riscv64-linux-gnu-",),
    "s390x": ("s390x-linux-gnu-",),
    "ppc64le": ("powerpc64le-linux-gnu-",),
    "arm": ("arm-linux-gnueabihf-",),
    "thumb": ("arm-linux-gnueabihf-",),
    "loongarch64": ("loongarch64-linux-gnu-",),  # see cross_root.py
}
AS_MODE = {
    "x86_64": ["--64"],
    "i386": ["--32"],
    "ppc64le": ["-mpower10"],
    "riscv64": ["-march=rv64gc"],
    "arm": ["-march=armv7-a", "-mfpu=neon"],
    "thumb": ["-march=armv7-a", "-mfpu=neon", "-mthumb"],
}
LD_MODE = {
    "x86_64": ["-m", "elf_x86_64"],
    "i386": ["-m", "elf_i386"],
    "riscv64": ["--no-relax"],
    "arm": [],
    "thumb": [],
    "loongarch64": ["--no-relax"],
}
EMULATORS = {
    "x86_64": "qemu-x86_64-static",
    "i386": "qemu-i386-static",
    "arm64": "qemu-aarch64-static",
    "riscv64": "qemu-riscv64-static",
    "s390x": "qemu-s390x-static",
    "ppc64le": "qemu-ppc64le-static",
    "arm": "qemu-arm-static",
    "loongarch64": "qemu-loongarch64",  # since 8.1, for libc's vector instructions
}


def _tool(arch: str, name: str) -> str:
    if arch in CROSS:
        use_cross_root(arch)
    for prefix in PREFIXES[arch]:
        if found := shutil.which(prefix + name):
            return found
    pytest.skip(f"no GNU {name} for {arch}: install binutils-{PREFIXES[arch][0].rstrip('-')}")


def _object(arch: str, source: str, folder: str) -> Path:
    target = Path(folder, "code.o")
    command = [_tool(arch, "as"), *AS_MODE.get(arch, []), "-o", str(target), "-"]
    subprocess.run(command, input=source, text=True, check=True, capture_output=True)
    return target


def link_at(arch: str, pieces: Sequence[tuple[int, str, int]]) -> list[bytes]:
    """Assemble and link each (address, text, value of the symbol ``target`` in it)."""
    source, script = "", ""
    for i, (at, text, target) in enumerate(pieces):
        source += f'.section .p{i},"ax",%progbits\n{text.replace("target", f"target{i}")}\n'
        script += f".p{i} {at:#x} : SUBALIGN(1) {{ *(.p{i}) }}\ntarget{i} = {target:#x};\n"
    with tempfile.TemporaryDirectory() as folder:
        code = _object(arch, source, folder)
        layout, linked = Path(folder, "layout.ld"), Path(folder, "linked")
        layout.write_text(f"SECTIONS {{ {script} /DISCARD/ : {{ *(*) }} }}\n")
        # The pieces are far from each other and in no order.
        options = ["--no-check-sections", "-z", "max-page-size=0x1000", "-e", "0", "-T"]
        command = [_tool(arch, "ld"), *LD_MODE.get(arch, []), *options, str(layout), str(code)]
        done = subprocess.run(
            [*command, "-o", str(linked)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        with linked.open("rb") as file:
            elf = ELFFile(file)
            return [elf.get_section_by_name(f".p{i}").data() for i in range(len(pieces))]


def link_sections(
    arch: str, file: Path, starts: Mapping[str, int], symbols: Mapping[str, int], target: Path
) -> None:
    """Place these sections of a relocatable file at these addresses, and relocate them; undefined
    ``symbols`` have these values."""
    script = "".join(f"{name} {at:#x} : {{ *({name}) }}\n" for name, at in starts.items())
    script += "".join(f"{name} = {at:#x};\n" for name, at in symbols.items())
    layout = target.with_suffix(".ld")
    layout.write_text(f"SECTIONS {{ {script} /DISCARD/ : {{ *(*) }} }}\n")
    options = ["-z", "max-page-size=0x1000", "-e", "0", "-T", str(layout), "-o", str(target)]
    command = [_tool(arch, "ld"), *LD_MODE.get(arch, []), *options, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def program(arch: str, source: str, target: Path) -> None:
    """Assemble and link a program without libc that starts at ``_start``."""
    with tempfile.TemporaryDirectory() as folder:
        code = _object(arch, source, folder)
        command = [_tool(arch, "ld"), *LD_MODE.get(arch, []), "-o", str(target), str(code)]
        subprocess.run(command, check=True, capture_output=True)


def runner(arch: str) -> list[str]:
    """What runs programs of an architecture here; skips where nothing does."""
    import platform

    machine = platform.machine()
    if machine == "x86_64" and arch in ("x86_64", "i386"):
        return []
    if machine == "aarch64" and arch == "arm64":
        return []
    if arch in CROSS:
        use_cross_root(arch)
    emulator = EMULATORS[arch]
    if shutil.which(emulator) is None:
        pytest.skip(f"{emulator} is not installed (qemu-user-static)")
    return [emulator]


def i386_libraries(*, plus: bool) -> list[str]:
    """Flags that have a program name the libraries that its own ones need (``plus``: of C++). A
    RUNPATH is not searched for those, and the loader does not look among cross libraries."""
    names = [*["libstdc++.so.6"] * plus, "libm.so.6", "libgcc_s.so.1"]  # g++ has a way with -lm
    return ["-Wl,--no-as-needed", *(f"-l:{name}" for name in names), "-Wl,--as-needed"]
