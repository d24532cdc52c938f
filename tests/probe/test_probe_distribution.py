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

from ftpatch.elf.headers import Segment
from ftpatch.image import open_image
from ftpatch.names.functions import read_functions
from tests.support.command import PATIENCE, Result, ftpatch
from tests.support.distribution import LINKER, PATH, libraries, program_of
from tests.support.sampling import PRODUCT, SEED
from tests.support.stripped_programs import I386, PROGRAMS, Job, lay_inputs
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
UNCOUNTED = (0x62, 0xC4, 0xC5)
"""First bytes of functions that uprobes cannot count: the prefix EVEX, which Linux 6.18's run as
something else (BusyBox's option letters come out wrong with one on its strchr()), and VEX, which
they do not take, without saying so (gdb's breakpoints count these as we do)."""
HANDLED = r"""
#include <signal.h>
static void handler(int number) { signal(number, SIG_DFL); }
__attribute__((constructor)) static void handle(void)
{
	signal(SIGBUS, handler);
	signal(SIGSEGV, handler);
}
"""
"""A library whose handlers stand where the runtime's do: a program that asks finds one (Python's
signal module), and goes on in another way."""
AGAIN = 3
"""How often it is counted again where numbers differ."""
ATEXIT = 8
"""Maximum number of functions that a call of atexit() takes."""
SIZE = "4G"
"""Of a trace, sparse: no call is lost."""
Watched = Callable[[Path, list[int]], AbstractContextManager[Callable[[], dict[int, int]]]]
BASIC = ("bzip2", "cut", "dash", "factor", "grep", "gzip", "mawk", "sed", "tr", "xz")
NAMES = list(PROGRAMS) if PRODUCT else [random.Random(f"{SEED} distribution").choice(BASIC)]
FOREIGN = list(I386) if PRODUCT else [random.Random(f"{SEED} i386").choice(("dash", "grep", "xz"))]
CASES = [*((name, "amd64") for name in NAMES), *((name, "i386") for name in FOREIGN)]


@dataclass(frozen=True)
class Outcome:
    """How a run ended, what it printed, and the files that it left."""

    status: int
    out: bytes
    err: bytes
    files: dict[str, bytes]


class Bench:
    """A place to run a program in, and what it is patched to, so that all runs look alike to it."""

    def __init__(self, name: str, arch: str, folder: Path) -> None:
        self.job: Job = PROGRAMS[name]
        self._arch = arch
        packages = self.job.packages if arch == "amd64" else I386[name]
        if arch == "i386" and not LINKER.exists():
            pytest.skip(f"no {LINKER}: install libc6-i386")
        found, self._root = program_of(self.job.path or name, packages, arch)
        self.original = folder / "original"
        shutil.copy(found, self.original)
        self._inputs, self._room = folder / "inputs", folder / "room"
        self._inputs.mkdir()
        lay_inputs(self._inputs, self.job)
        self.program = folder / "bin" / name  # its name is in messages
        self.program.parent.mkdir()
        (folder / "share").symlink_to((self._root or Path("/")) / "usr/share")  # as ../share
        self.traces = folder / "traces"
        self._handling = folder / "handling.so"
        (folder / "handling.c").write_text(HANDLED)
        gcc = "gcc" if arch == "amd64" else "i686-linux-gnu-gcc"
        words = ("-shared", "-fPIC", folder / "handling.c", "-o", self._handling)
        subprocess.run([gcc, *words], check=True)

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
            env={**self._environment(), "LD_PRELOAD": loaded or self.nothing[0]},
        )
        files = {
            str(one.relative_to(self._room)): one.read_bytes()
            for one in sorted(self._room.rglob("*"))
            if one.is_file() and not one.is_symlink()
        }
        out = re.sub(self.job.varies.encode(), b"", done.stdout) if self.job.varies else done.stdout
        return Outcome(done.returncode, out, done.stderr, files)

    @property
    def nothing(self) -> list[str]:
        """Libraries to load that do nothing, as far as its architecture has them."""
        if self._arch == "amd64":
            return NOTHING
        return [one for one in NOTHING if (LINKER.resolve().parent / one).exists()]

    @property
    def everything(self) -> str:
        """All of these, and one with signal handlers."""
        return " ".join([*self.nothing, str(self._handling)])

    def _environment(self) -> dict[str, str]:
        root = str(self._root)
        env = {name: text.replace("ROOT", root) for name, text in self.job.env.items()}
        if self._root:
            env["LD_LIBRARY_PATH"] = libraries(self._root, self._arch)
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
        """The hits of all places in the traces of the run, by address, and how many more there
        were: of a static program, or one whose malloc() libraries use, those before there is a
        thread pointer; and under load those of handlers that interrupted the runtime itself."""
        hits, missed = Counter[int](), 0
        done = ftpatch("report", self.traces / "trace", "--json")
        assert done.code == 0, done.err
        for line in done.out.splitlines():
            if '"hits"' in line:
                row = json.loads(line)
                hits[int(row["probe"][1:], 16)] += row["hits"] + row["missed"]
                missed += row["missed"]
        lost = re.search(r"(\d+) events? lost(?: before| in signal handlers|: )", done.err)
        untold = (int(lost[1]) if lost else 0) - missed
        assert untold >= 0, done.err
        return hits, untold


def _refused(done: Result) -> dict[int, str]:
    """What could not be probed, and why."""
    lines = [line.removeprefix("ftpatch: ") for line in done.err.splitlines()]
    found = [re.search(r"\be([0-9a-f]+): (.*)", line) for line in lines]
    assert all(found), done.err[-2000:]
    return {int(one[1], 16): one[2] for one in found if one}


@dataclass
class Comparison:
    """What probes and uprobes counted. ``untold`` hits are not in ours; in a static program, some
    functions are called once more: _start() hands the runtime's rdx to atexit(), while a static
    program's own is 0."""

    hits: Counter[int]
    untold: int
    static: bool

    def require(self, counts: Counter[int], places: Iterable[int]) -> None:
        """Assert that they are the same at ``places``."""
        other = {at: self.hits[at] - counts[at] for at in places if self.hits[at] != counts[at]}
        more = [at for at, number in other.items() if number > 0]
        if self.static and len(more) <= ATEXIT:
            other = {at: number for at, number in other.items() if number != 1}
        if not (max(other.values(), default=0) <= 0 and -sum(other.values()) <= self.untold):
            shown = {f"{at:#x}": (self.hits[at], counts[at]) for at in sorted(other)}
            raise AssertionError(f"(ours, uprobes'): {shown}")

    def others(self, counts: Counter[int], places: Iterable[int]) -> list[int]:
        """The places where they differ."""
        return [at for at in places if self.hits[at] != counts[at]]


def _settled(
    bench: Bench,
    probed: Path,
    expected: Outcome,
    both: Comparison,
    told: tuple[Watched, Counter[int], dict[int, int]],
    compared: list[int],
) -> list[int]:
    """Those of the places whose number does not vary from run to run: by inode numbers, addresses,
    or how much a pipe has at a time. ``told``: what the kernel counted, and at which offsets."""
    watched, counts, offsets = told
    for _ in range(AGAIN):
        if not both.others(counts, compared):
            break
        other = bench.counted(watched, offsets, expected)
        compared = [one for one in compared if counts[one] == other[one]]
        assert bench.run(probed) == expected
        ours = bench.recorded()[0]
        compared = [one for one in compared if both.hits[one] == ours[one]]
    return compared


@pytest.mark.parametrize(("name", "arch"), CASES)
def test_all_functions_are_probed(
    name: str, arch: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    bench = Bench(name, arch, tmp_path)
    image = open_image(bench.original)
    assert image.elf.section(".symtab") is None, "it is not stripped"
    functions = read_functions(image)
    every = functions.start.tolist()
    offsets = image.elf.offset_of(np.array(every, np.uint64)).tolist()
    expected = bench.run(bench.original)
    assert expected.status == bench.job.ends, expected.err.decode(errors="replace")
    at = dict(zip(every, offsets, strict=True))
    at = {where: offset for where, offset in at.items() if image.data[offset] not in UNCOUNTED}
    counts = bench.counted(entries, at, expected)
    again = bench.counted(entries, at, expected, loaded=bench.everything)
    steady = [one for one in at if counts[one] == again[one]]
    reached = sorted((at for at in steady if counts[at]), key=lambda at: counts[at])
    vary = len(at) - len(steady)
    assert len(reached) > max(9, 4 * vary)
    for way, (kind, options) in WAYS.items():
        asked = [one for one in every if kind == "p" or functions.is_called(one)]
        probes = [f"{kind}:e{at:x} {at:#x} $stack" for at in asked]
        probed, undone = tmp_path / way, tmp_path / f"{way}.undone"
        words: tuple[str | Path, ...] = (*probes, "--keep-going", "--json", *options, "-o", probed)
        done = ftpatch("probe", bench.original, *words)
        refused = _refused(done)
        assert done.code == bool(refused), done.err[-2000:]
        laid = {int(row["name"][1:], 16): row["way"] for row in done.json}
        assert {*laid, *refused} == {*asked}
        assert bench.run(probed) == expected, way
        hits, untold = bench.recorded()
        both = Comparison(hits, untold, image.elf.segment(Segment.PT_INTERP) is None)
        ways = Counter(laid.values())
        said = [f"{one} {ways[one]}" for one in ("pad", "jump", "pun", "trap")]
        said += [f"refused {len(refused)}", f"hits {sum(hits.values())}", f"vary {vary}"]
        if kind == "p":
            compared = [one for one in steady if one in laid]
            compared = _settled(bench, probed, expected, both, (entries, counts, at), compared)
            assert len(steady) - len(compared) <= len(laid) // 4 + len(refused)
            both.require(counts, compared)
        else:
            # The kernel follows 64 calls of a thread at a time: not those of all functions.
            mine = [one for one in reached if one in laid]
            drawn = random.Random(f"{SEED} {name}").sample(mine, min(DRAWN, len(mine)))
            chosen = {one: at[one] for one in [*drawn, *mine[-DRAWN:]]}
            # Where a call forks, it returns in the child too, whose trace has begun since.
            back_there = bench.counted(returns, chosen, expected)
            back_there = Counter({one: min(back_there[one], counts[one]) for one in chosen})
            told = (returns, back_there, chosen)
            compared = _settled(bench, probed, expected, both, told, list(chosen))
            assert len(chosen) - len(compared) <= len(chosen) // 4
            both.require(back_there, compared)
            back = sum(hits[one] for one in mine)
            # For good, by exit() or longjmp().
            said.append(f"left {sum(counts[one] for one in mine) - back}")
        assert ftpatch("undo", probed, "-o", undone).code == 0
        assert undone.read_bytes() == bench.original.read_bytes()
        record_property(
            "measured", f"{name} {arch} {way}: functions {len(asked)}, {', '.join(said)}"
        )
        for reason, times in Counter(
            re.sub("0x[0-9a-f]+", "N", t) for t in refused.values()
        ).items():
            record_property("measured", f"{name} {arch} {way}: refused {times}: {reason}")
