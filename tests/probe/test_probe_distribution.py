# SPDX-License-Identifier: MIT
"""Programs of Debian that have no symbols, at work with a probe on each of their functions: they do
what they did, the probes count what the kernel's uprobes count, and undo gives the programs back.

One that every Debian has, another one each day; in the whole product all of them.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ftpatch.image import open_image
from ftpatch.names.functions import read_functions
from tests.support.command import PATIENCE, Result, ftpatch
from tests.support.distribution import LIBRARIES, PATH, program_of
from tests.support.sampling import PRODUCT, SEED
from tests.support.stripped_programs import PROGRAMS, Job, lay_inputs
from tests.support.uprobes import entries, returns

WAYS = {"entries": ("p", ()), "returns": ("r", ()), "traps": ("p", ("--no-optimize",))}
DRAWN = 12
"""Functions whose returns are counted by uretprobes, the busiest and as many others: the kernel
follows 64 calls of a thread at a time, and all functions would be more."""
NOTHING = [
    *("libanl.so.1", "libutil.so.1", "libBrokenLocale.so.1", "libnss_compat.so.2", "librt.so.1"),
    *("libnss_hesiod.so.2", "libthread_db.so.1", "libdl.so.2", "libpthread.so.0", "libm.so.6"),
    *("libresolv.so.2", "libmvec.so.1", "libgcc_s.so.1", "libnss_files.so.2", "libcrypt.so.1"),
]
"""Libraries that do nothing for a program that does not know them. With all of them instead of one
its addresses are others, and its memory map is longer: how often functions are called that
depend on these (hash tables; a look at /proc/self/maps), that tells."""
SIZE = "4G"
"""Of a trace, sparse: no call is lost."""
Watched = Callable[[Path, list[int]], AbstractContextManager[Callable[[], dict[int, int]]]]
BASIC = ("bzip2", "cut", "dash", "factor", "grep", "gzip", "mawk", "sed", "tr", "xz")
NAMES = list(PROGRAMS) if PRODUCT else [random.Random(f"{SEED} distribution").choice(BASIC)]


@dataclass(frozen=True)
class Outcome:
    """How a run ended, what it printed, and the files that it left."""

    status: int
    out: bytes
    err: bytes
    files: dict[str, bytes]


class Bench:
    """A place to run a program in, and what it is patched to, so that all runs look alike to it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.job: Job = PROGRAMS[name]
        found, self._root = program_of(self.job.path or name, self.job.packages)
        self.original = folder / "original"
        shutil.copy(found, self.original)
        self._inputs, self._room = folder / "inputs", folder / "room"
        self._inputs.mkdir()
        lay_inputs(self._inputs, self.job)
        self.program = folder / "bin" / name  # its name is in messages
        self.program.parent.mkdir()
        self.traces = folder / "traces"

    def run(self, program: Path, loaded: str = "") -> Outcome:
        """Run what is to be called as the original."""
        for place in (self._room, self.traces):
            shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self._inputs, self._room)
        self.traces.mkdir()
        self.program.unlink(missing_ok=True)
        self.program.hardlink_to(program)
        text = self.job.text
        told = (self._inputs / text[1:]).read_bytes() if text[:1] == "@" else text.encode()
        done = subprocess.run(
            [self.program, *self.job.arguments],
            cwd=self._room,
            input=told,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
            env={**self._environment(), "LD_PRELOAD": loaded or NOTHING[0]},
        )
        files = {
            str(one.relative_to(self._room)): one.read_bytes()
            for one in sorted(self._room.rglob("*"))
            if one.is_file() and not one.is_symlink()
        }
        return Outcome(done.returncode, done.stdout, done.stderr, files)

    def _environment(self) -> dict[str, str]:
        root = str(self._root)
        env = {name: text.replace("ROOT", root) for name, text in self.job.env.items()}
        if self._root:
            env["LD_LIBRARY_PATH"] = f"{self._root / LIBRARIES}"
        trace = {"FTPATCH_TRACE": str(self.traces / "trace"), "FTPATCH_TRACE_SIZE": SIZE}
        return {"PATH": PATH, "LC_ALL": "C.UTF-8", "TZ": "UTC", **trace, **env}

    def counted(
        self, watched: Watched, offsets: dict[int, int], expected: Outcome, loaded: str = ""
    ) -> Counter[int]:
        """How often uprobes or uretprobes at places of the original are hit while it runs, by
        address, like their file offsets; ``loaded``: libraries of which it knows nothing."""
        with watched(self.original, list(offsets.values())) as told:
            assert self.run(self.original, loaded) == expected
            found = told()
        return Counter({at: found[offset] for at, offset in offsets.items()})

    def recorded(self) -> tuple[Counter[int], int]:
        """The hits of all places in the traces of the run, by address, and those missed."""
        hits, missed = Counter[int](), 0
        done = ftpatch("report", self.traces / "trace", "--json")
        assert done.code == 0, done.err
        for line in done.out.splitlines():
            if '"hits"' in line:
                row = json.loads(line)
                hits[int(row["probe"][1:], 16)] += row["hits"]
                missed += row["missed"]
        return hits, missed


def _refused(done: Result) -> dict[int, str]:
    """What could not be probed, and why."""
    lines = [line.removeprefix("ftpatch: ") for line in done.err.splitlines()]
    found = [re.search(r"\be([0-9a-f]+): (.*)", line) for line in lines]
    assert all(found), done.err[-2000:]
    return {int(one[1], 16): one[2] for one in found if one}


def _shown(what: Counter[int], places: Iterable[int]) -> dict[str, int]:
    return {f"{at:#x}": what[at] for at in sorted(places)}


@pytest.mark.parametrize("name", NAMES)
def test_all_functions_are_probed(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    bench = Bench(name, tmp_path)
    image = open_image(bench.original)
    assert image.elf.section(".symtab") is None, "it is not stripped"
    functions = read_functions(image)
    every = functions.start.tolist()
    offsets = image.elf.offset_of(np.array(every, np.uint64)).tolist()
    expected = bench.run(bench.original)
    assert expected.status == bench.job.ends, expected.err.decode(errors="replace")
    at = dict(zip(every, offsets, strict=True))
    counts = bench.counted(entries, at, expected)
    again = bench.counted(entries, at, expected, loaded=" ".join(NOTHING))
    steady = [at for at in every if counts[at] == again[at]]
    reached = sorted((at for at in steady if counts[at]), key=lambda at: counts[at])
    vary = len(every) - len(steady)
    assert len(reached) > max(9, 4 * vary)
    for way, (kind, options) in WAYS.items():
        asked = [at for at in every if kind == "p" or functions.is_called(at)]
        probes = [f"{kind}:e{at:x} {at:#x} $stack" for at in asked]
        probed, undone = tmp_path / way, tmp_path / f"{way}.undone"
        words: tuple[str | Path, ...] = (*probes, "--keep-going", "--json", *options, "-o", probed)
        done = ftpatch("probe", bench.original, *words)
        refused = _refused(done)
        assert done.code == bool(refused), done.err[-2000:]
        laid = {int(row["name"][1:], 16): row["way"] for row in done.json}
        assert {*laid, *refused} == {*asked}
        assert bench.run(probed) == expected, way
        hits, missed = bench.recorded()
        assert not missed
        ways = Counter(laid.values())
        said = [f"{one} {ways[one]}" for one in ("pad", "jump", "pun", "trap")]
        said += [f"refused {len(refused)}", f"hits {sum(hits.values())}", f"vary {vary}"]
        if kind == "p":
            compared = [at for at in steady if at in laid]
            assert _shown(hits, compared) == _shown(counts, compared), way
        else:
            # The kernel follows 64 calls of a thread at a time: not those of all functions.
            mine = [at for at in reached if at in laid]
            drawn = random.Random(f"{SEED} {name}").sample(mine, min(DRAWN, len(mine)))
            chosen = {one: at[one] for one in [*drawn, *mine[-DRAWN:]]}
            back = bench.counted(returns, chosen, expected)
            assert _shown(hits, chosen) == _shown(back, chosen), way
            assert all(hits[at] <= counts[at] for at in mine)
            # For good, by exit() or longjmp().
            said.append(f"left {sum(counts[at] - hits[at] for at in mine)}")
        assert ftpatch("undo", probed, "-o", undone).code == 0
        assert undone.read_bytes() == bench.original.read_bytes()
        record_property("measured", f"{name} {way}: functions {len(asked)}, {', '.join(said)}")
        for reason, times in Counter(
            re.sub("0x[0-9a-f]+", "N", t) for t in refused.values()
        ).items():
            record_property("measured", f"{name} {way}: refused {times}: {reason}")
