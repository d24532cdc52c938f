# SPDX-License-Identifier: MIT
"""Runs every verb on broken kernel modules, in a process of its own.

    python -m tests.support.fuzz_modules SEED COUNT FOLDER [NAME...]

Announced and judged as by fuzz.py. What a command writes must be readable besides, with as many
sites as before.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ftpatch.image.compression import pack
from tests.support.command import ftpatch
from tests.support.cross_images import CROSS_FORMS
from tests.support.fuzz import commands, judge, set_alarms
from tests.support.loose_forms import FORMS
from tests.support.loose_images import FUNCTIONS, module, signed
from tests.support.mutate import Region, forged, mutated, regions

__all__ = ["NAMES", "broken", "main"]

MEMORY = 1_500_000
"""kB that the whole process may take at most."""
KINDS = {"+gz": "gzip", "+xz": "xz", "+zst": "zstd"}
STATES = ("", "+journal", "+signed", *KINDS)
NAMES = tuple(form + state for form in FORMS for state in STATES)
NAMES += tuple(form + state for form in CROSS_FORMS for state in ("", "+journal", "+xz"))
"""Each form as it is compiled, patched twice, signed, and packed."""
STRIP = "--strip-signature"
AIMS = (".symtab", ".strtab", "section headers", "__mcount_loc", "__patchable_function_entries")


@cache
def _good(form: str, state: str) -> bytes:
    """The module, unpacked."""
    order = [3, 0, 5, 1, 4, 2]
    data = module((FORMS | CROSS_FORMS)[form], [*FUNCTIONS], order=order, by="label").build()
    if state == "+signed":
        return signed(data)
    if state != "+journal":
        return data
    one, two = ("read_it", "close_it") if form in CROSS_FORMS else ("new_one", "printk")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "base")
        path.write_bytes(data)
        for command in (["--to", one, "-f", "*_it"], ["--to", two, "-f", "o*"]):
            assert ftpatch("enable", *command, "--in-place", path).code == 0
        return path.read_bytes()


def _aimed(data: bytes) -> list[Region]:
    """The parts of a module, and more often what only modules have."""
    found = regions(data)
    wanted = [r for r in found if r.name.startswith((".rel", "section headers")) or r.name in AIMS]
    tail = [Region("end", max(len(data) - 60, 0), len(data))]
    return found + wanted * 2 + tail


def broken(name: str, rng: random.Random) -> tuple[bytes, str]:
    """A broken file, and what was done to it."""
    form, _, state = name.partition("+")
    state = state and "+" + state
    good = _good(form, state)
    if state in KINDS and rng.random() < 0.4:
        packed = pack(KINDS[state], good)
        data, said = mutated(packed, good, rng, [Region("stream", 0, len(packed))])
        return data, f"around: {said}"
    if state == "" and rng.random() < 0.3:
        return forged(good, rng)
    other = _good(rng.choice(list(FORMS)), "+journal")
    data, said = mutated(good, other, rng, _aimed(good))
    return (pack(KINDS[state], data) if state in KINDS else data), said


def _commands(path: Path, original: Path, rng: random.Random) -> Iterator[list[str | Path]]:
    yield from commands(path, original, rng)
    yield ["enable", path, "--to", "new_one", STRIP, *rng.choice(([], ["--keep-records"]))]
    yield ["enable", path, "--to", rng.choice(("printk", "open_it", "__fentry__")), STRIP]
    yield ["disable", path, STRIP, "-f", "*:mod:*", "--json"]


def _written(path: Path, arguments: list[str | Path]) -> str:
    """What is wrong with what a command writes: whatever it reads it must write readably."""
    before = ftpatch("status", "--json", path)
    output = path.with_name("written")
    result = ftpatch(*arguments, "-o", output)
    if not output.exists():
        return ""
    after = ftpatch("status", "--json", output)
    output.unlink()
    if result.code or before.code or after.code:
        return f"wrote what cannot be read: {before.err} {after.err}"
    if before.only["sites"] != after.only["sites"]:
        return f"{before.only['sites']} sites become {after.only['sites']}"
    return ""


def main() -> None:
    """Run COUNT cases of each name."""
    seed, count, folder, *names = sys.argv[1:]
    set_alarms()
    path, original = Path(folder, "image"), Path(folder, "original")
    for name in names or NAMES:
        form, _, _ = name.partition("+")
        original.write_bytes(_good(form, ""))
        for case in range(int(count)):
            rng = random.Random(f"{seed} {name} {case}")
            data, what = broken(name, rng)
            path.write_bytes(data)
            for arguments in _commands(path, original, rng):
                if "around" in what and arguments[0] in ("enable", "disable"):
                    arguments.append("--dry-run")  # undo gives back what is inside
                shown = " ".join(getattr(a, "name", str(a)) for a in arguments)
                print(f"case: {seed} {name} {case}: {what}: {shown}", flush=True)
                complaint = judge(path, data, arguments)
                update = arguments[0] in ("enable", "disable")
                # Of a forged journal, what the file was before need not be readable.
                if update and not complaint and "forged" not in what:
                    complaint = _written(path, arguments)
                if complaint:
                    text = complaint.replace("\n", "\n    ")
                    print(f"wrong: {name} {case} ({what}): {shown}: {text}", flush=True)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if peak > MEMORY:
                print(f"wrong: {name} {case} ({what}): {peak} kB of memory", flush=True)
                return
    print("done", flush=True)


if __name__ == "__main__":
    main()
