# SPDX-License-Identifier: MIT
"""A crash dump, or /proc/kcore, opened by drgn: memory of a kernel by virtual addresses.

drgn reads ELF and makedumpfile's formats and walks the kernel's page tables; no debugging
information is loaded.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import InputError
from ftpatch.kcore.vmcoreinfo import parse_vmcoreinfo, search_vmcoreinfo

__all__ = ["Core", "open_core"]

PAGE = 4096
"""Bytes that are tried apart where a larger piece cannot be read; every page size is a multiple."""
NOT_A_DUMP = "not a kernel's crash dump"
KINDS = "use a vmcore (ELF or makedumpfile's), or /proc/kcore"


@dataclass(frozen=True)
class Core:
    """Memory of a kernel; ``info``: its VMCOREINFO."""

    path: Path
    info: dict[str, str]
    _program: Any = field(repr=False)

    def read(self, address: int, size: int) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """Read ``size`` bytes at a virtual address: uint8[size], and which of them the core has,
        bool[size]; the others are zeros. A piece that fails is halved down to pages."""
        held = np.zeros(size, np.uint8)
        there = np.zeros(size, bool)
        pending = [(address, address + size)]
        while pending:
            start, end = pending.pop()
            data = self._try(start, end - start)
            part = slice(start - address, end - address)
            if data is not None:
                held[part] = np.frombuffer(data, np.uint8)
                there[part] = True
            elif (start + PAGE) & -PAGE < end:
                middle = max((start + (end - start) // 2) & -PAGE, (start + PAGE) & -PAGE)
                pending += [(start, middle), (middle, end)]
        return held, there

    def word(self, address: int, size: int = 8) -> int | None:
        """Read an integer of ``size`` bytes; None if the core does not have it."""
        data = self._try(address, size)
        return None if data is None else int.from_bytes(data, "little")

    def text(self, address: int, limit: int = 256) -> str:
        """Read a NUL-terminated name of at most ``limit`` bytes; empty if it is not there."""
        held, there = self.read(address, limit)
        data = held[: int(np.argmin(there)) if not there.all() else limit].tobytes()
        return data.partition(b"\0")[0].decode("utf-8", "backslashreplace")

    def _try(self, address: int, size: int) -> bytes | None:
        import drgn

        try:
            return bytes(self._program.read(address % (1 << 64), size))
        except (drgn.FaultError, OverflowError):
            return None
        except Exception:  # a page that is damaged: drgn has no class of its own for that
            return None


def open_core(path: Path) -> Core:
    """Open a dump. Raises InputError for what is none, cannot be read, or where drgn is missing."""
    try:
        import drgn
    except ImportError:
        raise InputError(
            path, "reading a core needs drgn", "install it: `pip install 'ftpatch[core]'`"
        ) from None
    _require_readable(path)
    program, problem = _opened(drgn.Program(), path)
    if program is None or not program.flags & drgn.ProgramFlags.IS_LINUX_KERNEL:
        text = search_vmcoreinfo(path) if path.is_file() else b""
        if text:  # QEMU's: without the note
            program, problem = _opened(drgn.Program(vmcoreinfo=text), path)
    if program is None:
        raise InputError(path, f"{NOT_A_DUMP}: {problem}", KINDS)
    if not program.flags & drgn.ProgramFlags.IS_LINUX_KERNEL:
        raise InputError(path, f"{NOT_A_DUMP}: it has no VMCOREINFO", KINDS)
    try:
        info = parse_vmcoreinfo(bytes(program["VMCOREINFO"].string_()))
    except Exception as error:
        raise InputError(path, f"its VMCOREINFO cannot be read: {_line(error)}") from None
    return Core(path, info, program)


def _require_readable(path: Path) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        hint = "run as root" if isinstance(error, PermissionError) else ""
        raise InputError(path, f"cannot read: {error.strerror}", hint) from None
    except ValueError:
        raise InputError(path, "cannot read: a NUL character in its name") from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise InputError(path, "not a regular file", KINDS)
    finally:
        os.close(fd)


def _opened(program: Any, path: Path) -> tuple[Any, str]:  # noqa: ANN401
    """The program with the dump, or None and why not."""
    try:
        program.set_core_dump(str(path))
    except Exception as error:  # drgn raises that itself for what is wrong with a file
        return None, _line(error)
    return program, ""


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
