# SPDX-License-Identifier: MIT
"""The code of a recorded process: its program and the libraries that its header lists, to unwind
stacks by, and to name what is on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePath

import numpy as np
from numpy.typing import NDArray

from ftpatch.arch.frame_registers import FrameRegisters
from ftpatch.elf.unwind_rules import Rules, UnwindRules
from ftpatch.errors import InputError, UsageError
from ftpatch.image import Image, open_image
from ftpatch.trace.call_frames import Frame
from ftpatch.trace.moved import moved_along
from ftpatch.trace.source import Recording
from ftpatch.trace.symbolize import Program
from ftpatch.trace.unwind import EXACT, Code

__all__ = ["ProcessCode"]

TOP = 1 << 64
MAX_ADDRESS = 1 << 32
"""Upper bound of the link addresses of a program without an image."""


@dataclass(frozen=True)
class _Mapped:
    """One file of a process, from ``low`` to ``high`` in memory."""

    low: int
    high: int
    bias: int
    open: Callable[[], Program]
    file: str
    library: str

    @cached_property
    def program(self) -> Program:
        """It, read when it is asked for."""
        return self.open()

    @cached_property
    def rules(self) -> UnwindRules | None:
        """Its unwind information."""
        return UnwindRules(self.program.image.elf) if self.program.image else None

    def code(self, address: int, size: int) -> bytes:
        """The bytes at an address in memory, as the file has them."""
        if self.program.image is None:
            return b""
        elf = self.program.image.elf
        at = np.array([(address - self.bias) % TOP], np.uint64)
        offset = int(elf.offset_of(at, executable=True)[0])
        return elf.data[offset : offset + size].tobytes() if offset >= 0 else b""


class ProcessCode:
    """The code of the process of a ``header``, by its number, with the registers that are ``known``
    where it is unwound. ``missing`` names the files that cannot be read."""

    def __init__(self, recording: Recording, header: int, known: FrameRegisters | None) -> None:
        self._program = recording.program_of(header)
        self._restorer = known.restorer if known else b""
        self._vdso = known is not None and known.vdso
        self._origin = recording.headers[header]
        self.objects = self._origin.objects
        self.missing: list[str] = []
        self._known: dict[int, Frame] = {}
        self.unwound = Code(self._rules, self._restores, self._is_kernel, self._begins, self._has)

    @cached_property
    def _mapped(self) -> list[_Mapped]:
        found = list[_Mapped]()
        for one in self.objects:
            low = (one.bias + one.base) % TOP
            path = self._now(Path(one.path))
            read = partial(self._library, path)
            found.append(_Mapped(low, low + one.size, one.bias, read, path.name, path.name))
        return found

    def _now(self, library: Path) -> Path:
        image = self._program.image
        return (
            library if image is None else moved_along(library, Path(self._origin.image), image.path)
        )

    def _library(self, path: Path) -> Program:
        image: Image | None = None
        try:
            image = open_image(path) if path.is_absolute() else None  # the vDSO is no file
        except (InputError, UsageError, ValueError) as error:
            self.missing.append(str(error))
        return Program(image, 0, self._program.plain, name=str(path))

    @cached_property
    def _own(self) -> _Mapped:
        bias, image = self._origin.bias, self._program.image
        low, high = bias, bias + MAX_ADDRESS
        if image is not None:
            loads = image.elf.loads
            ends = loads[:, 0] + loads[:, 1]
            low, high = (bias + int(at) for at in (loads[:, 0].min(), ends.max()))
        file = PurePath(self._origin.image).name
        return _Mapped(low, high, bias, lambda: self._program, file, "")

    def _at(self, address: int) -> _Mapped | None:
        """The file at an address in memory."""
        own = self._own
        if own.program.image is not None and own.low <= address < own.high:
            return own
        found = next((one for one in self._mapped if one.low <= address < one.high), None)
        return found or (own if own.low <= address < own.high else None)

    def _rules(self, address: int) -> Rules | None:
        one = self._at(address)
        if one is None or one.rules is None:
            return None
        return one.rules.at((address - one.bias) % TOP)

    def _restores(self, address: int) -> bool:
        one = self._at(address)
        return one is not None and one.code(address, len(self._restorer)) == self._restorer

    def _is_kernel(self, address: int) -> bool:
        one = self._at(address) if self._vdso else None
        return self._vdso and (one is None or one.program.image is None)

    def _has(self, address: int) -> bool:
        return self._at(address) is not None

    def _begins(self, address: int) -> bool:
        frame = self._frame(address | EXACT)
        return frame.known and (not frame.offset or frame.name.endswith("@plt"))

    def frames(self, addresses: NDArray[np.uint64]) -> list[Frame]:
        """Name the calls that return to some addresses in memory, or that are there (EXACT)."""
        return [self._frame(at) for at in addresses.tolist()]

    def _frame(self, marked: int) -> Frame:
        if marked not in self._known:
            self._known[marked] = self._named(marked & ~EXACT, exact=bool(marked & EXACT))
        return self._known[marked]

    def _named(self, address: int, *, exact: bool) -> Frame:
        one = self._at(address if exact else address - 1)
        if one is None:
            return Frame(self._program, "", 0, address, 0, known=False)
        link = (address - one.bias) % TOP
        looked = np.array([link if exact else (link - 1) % TOP], np.uint64)
        (name,), starts, known = one.program.lookup(looked)
        start = int(starts[0])
        if not known[0]:
            return Frame(one.program, one.file, 0, link, 0, one.library, known=False)
        size = one.program.size(start)
        return Frame(one.program, name, start, link - start, size, one.library)
