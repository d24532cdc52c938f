# SPDX-License-Identifier: MIT
"""The shared libraries of a program, as its own dynamic linker finds them."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ftpatch.elf.headers import Segment
from ftpatch.errors import InputError, UsageError
from ftpatch.image import Image

__all__ = ["Needed", "Needs", "linker_of", "loaded_by", "matching"]

LINE = re.compile(rb"\t(?:(.+) => )?(/?.*/.+) \(0x[0-9a-f]+\)")
"""``libz.so.1 => /lib/libz.so.1 (0x7f...)``, or only a path."""
PATIENCE = 30
"""Time limit for a dynamic linker (seconds)."""


@dataclass(frozen=True)
class Needed:
    """A library: the name or path it is needed by, and the file that the linker uses."""

    name: str
    path: Path

    @property
    def names(self) -> set[str]:
        """All its names that a glob may match."""
        real = Path(os.path.realpath(self.path))
        return {self.name, Path(self.name).name, self.path.name, real.name}


class Needs:
    """Queries a program's dynamic linker, which must be runnable on this machine."""

    def __init__(self, image: Image) -> None:
        """Raises UsageError for a static program."""
        self._linker = linker_of(image)
        self._path = image.path

    def of(self, program: Path, environment: Mapping[str, str]) -> list[Needed]:
        """List the libraries of a program with this linker, except the linker itself. Raises
        InputError if it does not report them."""
        words = [self._linker, "--list", str(program.absolute())]
        try:
            done = subprocess.run(
                words,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE,
                check=False,
            )
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise InputError(
                self._path, f"cannot run its dynamic linker {self._linker}: {reason}"
            ) from None
        found = []
        for line in done.stdout.splitlines():
            match = LINE.fullmatch(line)
            if match is None:
                continue
            path = os.fsdecode(match[2])
            if os.path.realpath(path) != os.path.realpath(self._linker):
                found.append(Needed(os.fsdecode(match[1] or match[2]), Path(path)))
        if done.returncode and not found:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            reason = said[-1] if said else f"exit code {done.returncode}"
            raise InputError(self._path, f"cannot list its libraries: {reason}")
        return found


def loaded_by(image: Image) -> list[Needed]:
    """List the libraries that a program loads: what is preloaded now is none of them. Raises
    UsageError for a static program, and InputError if its linker does not report them."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return Needs(image).of(image.path, environment)


def linker_of(image: Image) -> str:
    """The path of a program's dynamic linker. Raises UsageError for a static program."""
    segment = image.elf.segment(Segment.PT_INTERP)
    if segment is None:
        raise UsageError(image.path, "no shared libraries", "remove --lib")
    held = image.elf.contents(segment.offset, segment.size, "interpreter").tobytes()
    return os.fsdecode(held.partition(b"\0")[0])


def matching(
    program: Path, needed: Sequence[Needed], globs: Sequence[str], *, more: bool = False
) -> dict[str, list[Needed]]:
    """Return the libraries that each glob matches. Raises UsageError for one that matches none,
    unless ``more`` may be opened later."""
    found = {}
    for glob in globs:
        matches = re.compile(fnmatch.translate(glob)).fullmatch
        found[glob] = [one for one in needed if any(map(matches, one.names))]
        if not found[glob] and not more:
            names = ", ".join(Path(one.name).name for one in needed) or "none"
            raise UsageError(program, f"no library matches --lib {glob!r}", f"it has {names}")
    return found
