# SPDX-License-Identifier: MIT
"""Runs every verb on broken kernels as they are installed, in a process of its own.

    python -m tests.support.fuzz_boxes SEED COUNT FOLDER [NAME...]

Broken is what stands around a kernel, or the kernel itself before it is packed. Announced and
judged as by fuzz.py; each command's payload is begun ahead, as the real command line begins it.
"""

from __future__ import annotations

import random
import resource
import sys
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ftpatch.image import prefetch as ahead
from ftpatch.image.compression import pack
from tests.support.boot_kernels import Stripped
from tests.support.boxes import ELF_BOXES, IMAGE_BOXES
from tests.support.cross_images import CROSS_BOXES, cross_box
from tests.support.fuzz import commands, judge, set_alarms
from tests.support.loose_forms import FORMS as LOOSE
from tests.support.loose_images import module
from tests.support.mutate import Region, mutated
from tests.support.raw_images import RELOCATIONS, STRINGS, TABLES, TEXT
from tests.support.raw_kernels import FORMS, TABLE, raw_kernel

__all__ = ["NAMES", "main"]

MEMORY = 2_000_000
"""kB that the whole process may take at most."""
EDGE = 96
"""Bytes of a stream's header, and of its end."""
PLAIN = ("stripped", "stripped-nameless", *FORMS)
MODULES = {f"module.ko.{suffix}": kind for suffix, kind in (("xz", "xz"), ("zst", "zstd"))}
NAMES = (*ELF_BOXES, *IMAGE_BOXES, *CROSS_BOXES, *PLAIN, *MODULES)


@cache
def _payload(name: str) -> bytes:
    if name in ELF_BOXES or name.startswith("stripped"):
        return Stripped(None).build() if name.endswith("nameless") else Stripped().build()
    if name in CROSS_BOXES:
        return cross_box(name)
    if name in MODULES:
        return module(LOOSE["x86_64"]).build()
    return bytes(raw_kernel(name if name in FORMS else "arm64-relr").data)


def _packed(name: str, data: bytes) -> bytes:
    if name in MODULES:
        return pack(MODULES[name], data)  # what undo gives back
    boxes = ELF_BOXES | IMAGE_BOXES
    return boxes[name].pack(data) if name in boxes else data


def _around(data: bytes) -> list[Region]:
    """What is worth breaking outside of a payload."""
    found = [Region("header", 0, 0x260), Region("edge", 0, EDGE), Region("whole", 0, len(data))]
    if data[0x202:0x206] == b"HdrS":
        found += [Region("payload's place", 0x248, 0x250)] * 2
        found += [Region("stream", 2660, 2660 + EDGE), Region("end", len(data) - 300, len(data))]
    if data[4:8] == b"zimg":
        found += [Region("payload's place", 8, 16)] * 2
        found += [Region("stream", 0x1000, 0x1000 + EDGE)]
    if data[0x34:0x38] == b"EEEE":
        found += [Region("payload's place", 0x100, 0x114), Region("end", len(data) - 24, len(data))]
        found += [Region("stream", 0x1000, 0x1000 + EDGE)]
    if data[0x10008:0x1000E] == b"S390EP":
        found += [Region("payload's place", 0x10F00, 0x10F20)] * 2
        found += [
            Region("relocations", 0x11000, 0x11960),
            Region("stream", 0x11960, 0x11960 + EDGE),
        ]
        found += [Region("end", len(data) - 4096, len(data))]
    return found


def _inside(data: bytes) -> list[Region]:
    """The same of an Image."""
    return [
        Region("header", 0, 0x40),
        Region("text", TEXT, STRINGS),
        Region("kallsyms", TABLES, TABLES + 0x4000),
        Region("tokens", TABLES, TABLES + 0x3000),
        Region("table", TABLE, TABLE + 0xA00),
        Region("relocations", RELOCATIONS, len(data)),
        Region("whole", 0, len(data)),
    ]


def broken(name: str, rng: random.Random) -> tuple[bytes, str]:
    """A broken file, and what was done to it."""
    inner = _payload(name)
    other = _payload(rng.choice(NAMES))
    if name in PLAIN or (name not in CROSS_BOXES and rng.random() < 0.5):
        where = _inside(inner) if inner[:4] != b"\x7fELF" else None
        data, said = mutated(inner, other, rng, where)
        return _packed(name, data), f"inside: {said}"
    whole = _packed(name, inner)
    data, said = mutated(whole, other, rng, _around(whole))
    return data, f"around: {said}"


def _all(path: Path, original: Path, rng: random.Random) -> Iterator[list[str | Path]]:
    yield from commands(path, original, rng)
    yield ["extract", path, "-o", path.with_name("undone"), *rng.choice(([], ["--json"]))]
    yield ["enable", path, "--to", "0xffffffff81000010", "--dry-run"]


def main() -> None:
    """Run COUNT cases of each name."""
    seed, count, folder, *names = sys.argv[1:]
    set_alarms()
    threading.excepthook = lambda failed: print(f"wrong: in a thread: {failed}", flush=True)
    path, original = Path(folder, "image"), Path(folder, "original")
    for name in names or NAMES:
        original.write_bytes(_packed(name, _payload(name)))
        for case in range(int(count)):
            rng = random.Random(f"{seed} {name} {case}")
            data, what = broken(name, rng)
            path.write_bytes(data)
            for arguments in _all(path, original, rng):
                shown = " ".join(getattr(a, "name", str(a)) for a in arguments)
                print(f"case: {seed} {name} {case}: {what}: {shown}", flush=True)
                if rng.random() < 0.5:
                    ahead.begin([str(word) for word in arguments[1:]])
                if complaint := judge(path, data, arguments):
                    text = complaint.replace("\n", "\n    ")
                    print(f"wrong: {name} {case} ({what}): {shown}: {text}", flush=True)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if peak > MEMORY:
                print(f"wrong: {name} {case} ({what}): {peak} kB of memory", flush=True)
                return
    print("done", flush=True)


if __name__ == "__main__":
    main()
