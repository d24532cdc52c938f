# SPDX-License-Identifier: MIT
"""The journal of a process, a file: a later `ftpatch undo` finds there what was changed, whatever
became of the command that changed it.

A file is named PID.STARTED, and is written before the memory is changed: what it tells of may not
have been done yet.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import stat
import struct
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ftpatch.core.changes import Changes, Space
from ftpatch.errors import InputError
from ftpatch.io.cleanup import CLEANUP
from ftpatch.process.memory import require_readable
from ftpatch.process.planned import Exported
from ftpatch.process.process import Process, find_process

__all__ = ["Entry", "forget", "holding", "keep", "locked", "name_of", "recall"]

VERSION = 2
COLUMNS = ("offset", "width", "old", "new", "kind", "owner")
NUMBERS = (
    *("runtime", "returns", "words", "code", "code_end", "header", "asked"),
    *("signals", "release"),
)
MAX_SIZE = 1 << 28
"""Bytes of a file to read, and of what is in it."""
TOP = 1 << 64
"""Addresses are below it."""
PATIENCE = 30.0
"""Seconds to wait for another ftpatch."""
DAMAGE = (
    *(ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, MemoryError),
    *(OSError, EOFError, SyntaxError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)
"""Exceptions of reading a damaged file."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The record of what was done to a process. ``arch``: its architecture; ``tracer``: what its
    sites call; ``trace``: the file that it writes, if any, which is mapped at ``header``;
    ``changes`` to its code; ``origin``: the process that it was done to, whose children inherit it;
    ``lent``: (address, old bytes, first bytes of the call) of the padding that holds an injected
    call, if any; ``areas``: (start, bytes, start and end of the code) of each, which begins with
    ``token``; ``runtime`` and ``returns``: addresses of struct process and return_to_handler, 0 for
    none; ``words``: of memory to write to; ``code``: where the next injected call may be written,
    up to ``code_end``; ``callees``: path and load address of each image, and what its sites
    call; ``slots``: (address, old, new) of the words by which unwinders come to ask the tracer, and
    the address of the one that tells that they have (``asked``); ``exports``: those by which later
    ones come; ``probes``: the address that was changed for each, and its definition; ``led``: the
    addresses of those ``changes`` that lead system calls to the runtime; ``signals`` and
    ``release``: addresses of its struct signals, and of the function that gives the signal back, 0
    for none."""

    arch: str
    tracer: str
    changes: Changes
    trace: str = ""
    origin: str = ""
    lent: tuple[int, bytes, bytes] | None = None
    areas: tuple[tuple[int, int, int, int], ...] = ()
    runtime: int = 0
    returns: int = 0
    words: int = 0
    code: int = 0
    code_end: int = 0
    token: bytes = b""
    header: int = 0
    callees: tuple[tuple[str, int, int], ...] = ()
    slots: tuple[tuple[int, int, int], ...] = ()
    asked: int = 0
    exports: tuple[Exported, ...] = ()
    probes: tuple[tuple[int, str], ...] = ()
    led: tuple[int, ...] = ()
    signals: int = 0
    release: int = 0


def keep(process: Process, entry: Entry) -> None:
    """Write a process's entry, in place of an earlier one. Raises InputError."""
    told = {key: value for key, value in asdict(entry).items() if key != "changes"}
    told["token"] = entry.token.hex()
    if entry.lent is not None:
        told["lent"] = [entry.lent[0], entry.lent[1].hex(), entry.lent[2].hex()]
    told["version"], told["boot"] = VERSION, _boot()
    held = io.BytesIO()
    columns = {name: getattr(entry.changes, name) for name in COLUMNS}
    text = np.frombuffer(json.dumps(told).encode(), np.uint8)
    np.savez_compressed(held, told=text, **columns)
    folder = _folder(make=True)
    _sweep(folder)
    path = folder / name_of(process)
    try:
        for torn in folder.glob(f".{path.name}.*"):  # whoever wrote it was killed
            torn.unlink()
        fd, new = tempfile.mkstemp(prefix=f".{path.name}.", dir=folder)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(held.getvalue())
                file.flush()
                os.fsync(fd)
            Path(new).replace(path)
        except OSError:
            Path(new).unlink()
            raise
    except OSError as error:
        raise InputError(path, f"cannot write: {error.strerror}") from None
    CLEANUP.entered.add(process.pid)


def recall(process: Process) -> Entry | None:
    """Read a process's entry, or that of a parent whose tracer it has inherited; None if there is
    none. Raises InputError for a damaged one, and where there is none of a process whose memory may
    not be read, such as another user's, who has a folder of his own."""
    folder = _folder(make=False)
    entry = _read(folder / name_of(process))
    if entry is not None:
        return entry
    for path in _listed(folder):
        with contextlib.suppress(InputError):
            found = _read(path)
            if found is not None and holds(process.pid, found.areas, found.token):
                return found
    require_readable(process)
    return None


def _read(path: Path) -> Entry | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            held = file.read(MAX_SIZE)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(path, f"cannot read: {error.strerror}") from None
    try:
        with zipfile.ZipFile(io.BytesIO(held)) as packed:
            if sum(one.file_size for one in packed.infolist()) > MAX_SIZE:
                raise ValueError("too large")
        with np.load(io.BytesIO(held), allow_pickle=False) as parts:
            told: dict[str, Any] = json.loads(parts["told"].tobytes())
            columns = {name: parts[name] for name in COLUMNS}
        if told["boot"] != _boot():  # another process, of an earlier boot
            return None
        if told["version"] != VERSION:
            raise InputError(path, "from another version of ftpatch", "use that to undo it")
        return _entry(told, columns)
    except DAMAGE:
        raise InputError(path, "damaged", "remove it when its process has ended") from None


def _entry(told: dict[str, Any], columns: dict[str, NDArray[Any]]) -> Entry:
    """An entry, of values that may be any. Raises what is in DAMAGE."""
    texts = {name: told[name] for name in ("arch", "tracer", "trace", "origin")}
    numbers = {name: told.get(name, 0) for name in NUMBERS}
    areas = tuple((start, size, low, high) for start, size, low, high in told["areas"])
    callees = tuple((path, bias, to) for path, bias, to in told["callees"])
    slots = tuple((address, old, new) for address, old, new in told["slots"])
    exports = tuple(Exported(**one) for one in told.get("exports", ()))
    probes = tuple((at, text) for at, text in told["probes"])
    led = tuple(told.get("led", ()))
    texts |= {f"path {row}": path for row, (path, _, _) in enumerate(callees)}
    texts |= {f"probe {row}": text for row, (_, text) in enumerate(probes)}
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("not a text")
    lent = None
    if told["lent"] is not None:
        at, old, code = told["lent"]
        lent = (at, bytes.fromhex(old), bytes.fromhex(code))
        numbers["lent"] = at
    words = [*numbers.values(), *(one for area in areas for one in area)]
    words += [one for _, bias, to in callees for one in (bias, to)]
    words += [one for slot in slots for one in slot]
    words += [one for export in exports for one in asdict(export).values()]
    words += [at for at, _ in probes]
    words += led
    if not all(type(one) is int and -TOP < one < TOP for one in words):
        raise ValueError("not an address")
    if not areas or any(
        not start <= low <= high <= start + size for start, size, low, high in areas
    ):
        raise ValueError("an area that is not one")
    if not bytes.fromhex(told["token"]):
        raise ValueError("no token")
    changes = Changes(**columns, space=Space.MEMORY)
    rows, wide = changes.old.shape
    if changes.new.shape != (rows, wide) or {changes.old.dtype, changes.new.dtype} != {
        np.dtype(np.uint8)
    }:
        raise ValueError("changes of another form")
    if any(
        getattr(changes, name).shape != (rows,) for name in ("offset", "width", "kind", "owner")
    ):
        raise ValueError("changes of another form")
    if changes.offset.dtype != np.int64 or (rows and not (changes.width <= wide).all()):
        raise ValueError("changes of another form")
    return Entry(
        arch=told["arch"],
        tracer=told["tracer"],
        trace=told["trace"],
        origin=told["origin"],
        changes=changes,
        lent=lent,
        areas=areas,
        **{name: told[name] for name in NUMBERS},
        token=bytes.fromhex(told["token"]),
        callees=callees,
        slots=slots,
        exports=exports,
        probes=probes,
        led=led,
    )


def forget(process: Process) -> None:
    """Remove a process's entry: nothing of ours is left in it."""
    with contextlib.suppress(OSError):
        (_folder(make=False) / name_of(process)).unlink()
    CLEANUP.entered.discard(process.pid)


def holds(pid: int, areas: Sequence[tuple[int, int, int, int]], token: bytes) -> bool:
    """Test whether the memory of a process has the areas that begin with a token."""
    if not areas or not token:
        return False
    try:
        fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.pread(fd, len(token), areas[0][0]) == token
    except (OSError, OverflowError):
        return False
    finally:
        os.close(fd)


def holding(entry: Entry) -> list[Process]:
    """List the processes whose memory holds what ``entry`` tells of, oldest first: inherited by
    fork()."""
    out = []
    for place in Path("/proc").glob("[0-9]*"):
        if holds(int(place.name), entry.areas, entry.token):
            with contextlib.suppress(InputError):
                out.append(find_process(int(place.name)))
    return sorted(out, key=lambda one: (one.started, one.pid))


@contextlib.contextmanager
def locked(process: Process) -> Iterator[None]:
    """Keep every other ftpatch from changing a process meanwhile. Raises InputError if one does for
    too long."""
    until = time.monotonic() + PATIENCE
    try:
        fd = os.open(process.place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        raise InputError(None, f"{process}: the process has ended") from None
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    reason = f"{process}: another ftpatch is changing it"
                    raise InputError(None, reason, "try again later") from None
                time.sleep(0.01)
        yield
    finally:
        os.close(fd)


def _listed(folder: Path) -> list[Path]:
    return sorted(folder.glob("[0-9]*.[0-9]*"))


def _sweep(folder: Path) -> None:
    """Remove the entries of processes that have ended, and that no child has inherited."""
    for path in _listed(folder):
        pid, started = path.name.split(".", 1)
        with contextlib.suppress(OSError, ValueError):
            try:
                ended = str(find_process(int(pid)).started) != started
            except InputError:
                ended = not Path(f"/proc/{pid}").exists()
            if not ended:
                continue
            with contextlib.suppress(InputError):
                entry = _read(path)
                if entry is None or not holding(entry):
                    path.unlink()


def _boot() -> str:
    """The boot that a process's start is counted from."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def name_of(process: Process) -> str:
    """The name by which a process is known, also when another one has its number."""
    return f"{process.pid}.{process.started}"


def _folder(*, make: bool) -> Path:
    """The folder of the entries, which is ours alone. Raises InputError if it is not."""
    if os.geteuid() == 0:
        path = Path("/run/ftpatch")
    elif runtime := os.environ.get("XDG_RUNTIME_DIR"):
        path = Path(runtime, "ftpatch")
    else:
        path = Path(tempfile.gettempdir(), f"ftpatch-{os.geteuid()}")
    try:
        if make:
            path.mkdir(mode=0o700, exist_ok=True, parents=True)
        held = path.lstat()
    except FileNotFoundError:
        return path
    except OSError as error:
        raise InputError(path, f"cannot make: {error.strerror}") from None
    if not stat.S_ISDIR(held.st_mode) or held.st_uid != os.geteuid() or held.st_mode & 0o022:
        raise InputError(path, "not a directory that only you can write to", "remove it")
    return path
