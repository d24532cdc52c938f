# SPDX-License-Identifier: MIT
"""A kernel signed anew by a command of the user's, such as sbsign.

The command signs a copy, whose name it is given in place of each {}, or behind its words where
there is none. What it leaves there must be the kernel as it was, with certificates behind it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from ftpatch.errors import InputError, UsageError
from ftpatch.image.pe import read_pe
from ftpatch.write.target import write_all

__all__ = ["Signer"]


class Signer:
    """Signs a complete file with ``command``, words as a shell splits them. Raises UsageError for
    no words, or quotes that do not end."""

    def __init__(self, command: str) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise UsageError(None, f"--sign {command!r}: {error}", "quote it") from None
        if not self._words:
            raise UsageError(None, "--sign without a command", "use one such as sbsign") from None

    def __call__(self, fd: int, name: Path) -> None:
        """Sign the file at a descriptor; ``name`` is what it will be called. Raises UsageError for
        a file that has no place for certificates, InputError where the command fails, or changes
        anything else, and OSError."""
        size = os.fstat(fd).st_size
        data = b""
        while part := os.pread(fd, size - len(data), len(data)):
            data += part
        if read_pe(memoryview(data)) is None:
            raise UsageError(name, "no PE header: it cannot be signed for UEFI", "remove --sign")
        with tempfile.TemporaryDirectory(prefix="ftpatch-") as folder:
            file = Path(folder) / (name.name or "kernel")
            file.write_bytes(data)
            self._run(file, name)
            signed = file.read_bytes()
        _require_same(name, data, signed)
        os.ftruncate(fd, 0)
        write_all(fd, signed, 0)

    def _run(self, file: Path, name: Path) -> None:
        words = [word.replace("{}", str(file)) for word in self._words]
        words = words if words != self._words else [*words, str(file)]
        try:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
            )
        except OSError as error:
            raise InputError(name, f"cannot sign: {words[0]}: {error.strerror}") from None
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()
            last = ascii(said[-1])[1:-1] if said else f"exit status {done.returncode}"
            raise InputError(name, f"cannot sign: {words[0]}: {last}", "nothing was written")


def _require_same(name: Path, data: bytes, signed: bytes) -> None:
    """Raise InputError unless ``signed`` is ``data`` with certificates: up to seven zeros before
    them, and two fields of the header, may differ."""
    pe = read_pe(memoryview(signed))
    if pe is None or not pe.size:
        raise InputError(
            name, "cannot sign: the command left no signature in the file it was given"
        )
    body, was = bytearray(signed[: pe.start]), bytearray(data)
    was += bytes(-len(was) % 8)
    for one in (body, was):
        for at, size in pe.filled:
            one[at : at + size] = bytes(size)
    if body != was:
        raise InputError(name, "cannot sign: the command changed more than the signature")
