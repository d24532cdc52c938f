# SPDX-License-Identifier: MIT
"""Probes in copies of the libraries of a program on other architectures, under qemu."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.support.command import Result, ftpatch
from tests.support.gnu import runner
from tests.support.tracer_programs import ARCHES
from tests.support.whole_library import built, command, told

LOADERS = {
    "arm": "ld-linux-armhf.so.3",
    "arm64": "ld-linux-aarch64.so.1",
    "loongarch64": "ld-linux-loongarch-lp64d.so.1",
    "ppc64le": "ld64.so.2",
    "riscv64": "ld-linux-riscv64-lp64d.so.1",
    "s390x": "ld64.so.1",
}
PROBES = (
    "p again",
    "p:deep libwhole.so.1:whole_deep n=$arg1:s32",
    "r:back libwhole.so.1:whole_back ret=$retval:s32",
    "p:leaf libwhole.so.1:whole_leaf n=$arg1:s32 if n > 1",
    "p:calls libwhole.so.1:whole_calls",
    "p:said libc.so.6:printf",
    "p:inside libwhole.so.1:whole_back+4",
)
TIGHT = ("p again", "p:inside libwhole.so.1:whole_back+4")
"""Where a jump has no room among instructions of two bytes, or of six; the first in Thumb, too."""
ROOMY = ("arm", "arm64", "loongarch64", "ppc64le")

FLAGGED = r"""
#include <stdexcept>
extern "C" {
__attribute__((noinline)) int flags_thrown(int n)
{
        if (n > 2)
                throw std::runtime_error("more");
        return n + 1;
}
__attribute__((noinline)) int flags_called(int (*to)(int), int n) { return to(n) + 1; }
__attribute__((noinline)) unsigned flags_of(unsigned a, unsigned b)
{
        unsigned out;

        __asm__ volatile("cmp %1, %2\n\t.type flags_mid, %%function\n\t.globl flags_mid\n"
                         "flags_mid:\n\tmov r8, #0\n\tadc r8, r8, #1\n\tadc r8, r8, r8\n\t"
                         "it hi\n\taddhi r8, r8, #100\n\tmov %0, r8"
                         : "=r"(out) : "r"(a), "r"(b) : "cc", "r8");
        return out;
}
}
"""
CATCHING = r"""
#include <cstdio>
#include <stdexcept>
extern "C" {
int flags_thrown(int), flags_called(int (*)(int), int);
unsigned flags_of(unsigned, unsigned);
}
int main()
{
        for (int n = 0; n < 8; n++) {
                try {
                        std::printf("%d\n", flags_called(flags_thrown, n));
                } catch (const std::exception &error) {
                        std::printf("%s\n", error.what());
                }
                std::printf("%u %u\n", flags_of(n, 3), flags_of(3, n));
        }
}
"""


def _linker(arch: str, folder: Path) -> Path:
    """What runs an architecture's glibc's dynamic linker here."""
    place, root = folder / f"{LOADERS[arch]}.sh", ARCHES[arch].root
    words = [*runner(arch), "-L", root, *(["-cpu", "max"] if arch == "arm64" else [])]
    place.write_text(
        f"#!/bin/sh\nexec {' '.join(words)} {root}/lib/{LOADERS[arch]} "
        f'--library-path {root}/lib "$@"\n'
    )
    place.chmod(0o755)
    return place


def _probed(linker: Path, program: Path, *probes: str) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        for module in ("image.needed", "probe.library_copies"):
            patch.setattr(f"ftpatch.{module}.linker_of", lambda _: str(linker))
        return ftpatch("probe", program, *probes, "-o", program.with_name("probed"))


@pytest.mark.parametrize(
    ("arch", "flags"),
    [*((arch, level) for arch in LOADERS for level in ("-O1", "-O2")), ("arm", "-O2 -marm")],
)
def test_it_counts_as_the_program_does(arch: str, flags: str, tmp_path: Path) -> None:
    """Program, library and libc record into one trace, in the middle of functions too."""
    words = flags.split()
    _, program = built(tmp_path, *words, compiler=ARCHES[arch].gcc, pad="-g", main=words[1:])
    plain = told(command(arch, program), tmp_path)
    original = program.read_bytes()
    tight = TIGHT if arch not in ROOMY else TIGHT[: arch == "arm" and not words[1:]]
    probes = [one for one in PROBES if one not in tight]
    probes += ["p:walked libwhole.so.1:whole_calls stack"] * (arch != "arm")
    done = _probed(_linker(arch, tmp_path), program, *probes)
    assert done.code == 0, done.err
    ran = told(command(arch, tmp_path / "probed"), tmp_path)
    assert (ran.code, ran.out) == (plain.code, plain.out), ran.err
    (line,) = (one for one in ran.out.splitlines() if one.startswith("parent"))
    _, deep, back = map(int, line.split()[1:4])
    report = ftpatch("report", ran.traces[0], "--json", "--no-children")
    rows = [row for row in report.json if "probe" in row and "time" in row]
    hits = Counter(row["probe"] for row in rows)
    for calls in (row["stack"] for row in rows if row["probe"] == "walked"):
        assert calls[0].startswith("whole_calls+0x0/")
        assert arch == "riscv64" or any(text.startswith("main+") for text in calls), calls
    leaves = [row["values"]["n"] for row in rows if row["probe"] == "leaf"]
    assert min(leaves) == 2 and len(leaves) == 4 * (50 + 48)
    assert {name: hits[name] for name in ("deep", "back", "calls", "said", "inside")} == {
        "deep": deep,
        "back": back,
        "calls": 1,
        "said": 3,  # the child's is its own
        "inside": back if arch in ROOMY else 0,
    }
    assert ftpatch("undo", tmp_path / "probed").code == 0
    assert (tmp_path / "probed").read_bytes() == original


@pytest.mark.parametrize("flags", ["-O1 -marm", "-O2 -marm", "-O2 -mthumb", "-O0 -mthumb"])
def test_flags_and_exceptions(flags: str, tmp_path: Path) -> None:
    """Of 32-bit ARM, whose unwinders read .ARM.exidx: what a library's probed function throws is
    caught, and flags are kept between an instruction that sets them and those that ask."""
    gcc = ARCHES["arm"].gcc
    if shutil.which(gcc) is None:
        pytest.skip(f"{gcc} is not installed")
    for name, text in (("lib.cc", FLAGGED), ("main.cc", CATCHING)):
        (tmp_path / name).write_text(text)
    words: list[str | Path] = [gcc.replace("gcc", "g++"), *flags.split(), "-w"]
    library, program = tmp_path / "libflags.so.1", tmp_path / "prog"
    shared = ["-shared", "-fPIC", "-Wl,-soname,libflags.so.1"]
    subprocess.run([*words, *shared, tmp_path / "lib.cc", "-o", library], check=True)
    source = tmp_path / "main.cc"
    subprocess.run([*words, source, library, "-Wl,-rpath,$ORIGIN", "-o", program], check=True)
    probes = ("flags_mid", "flags_mid+4", "flags_thrown", "flags_called")
    texts = [f"p libflags.so.1:{one}" for one in probes]
    texts += [f"r libflags.so.1:{one} ret=$retval:s32" for one in probes[2:]]
    done = _probed(_linker("arm", tmp_path), program, *texts)
    assert done.code == 0, done.err
    plain = told(command("arm", program), tmp_path)
    ran = told(command("arm", tmp_path / "probed"), tmp_path)
    assert plain.code == 0 and (ran.code, ran.out) == (plain.code, plain.out), ran.err
    rows = [row for row in ftpatch("report", ran.traces[0], "--json").json if "time" in row]
    hits = Counter(row["probe"] for row in rows)
    assert {name: hits[f"p_{name}"] for name in ("flags_mid_0", "flags_mid_4")} == {
        "flags_mid_0": 16,
        "flags_mid_4": 16,
    }
    assert hits["p_flags_thrown_0"] == 8 and hits["r_flags_thrown_0"] == 8 - 5
    assert [row["values"]["ret"] for row in rows if row["probe"] == "r_flags_called_0"] == [2, 3, 4]


def test_signed_functions_are_refused(tmp_path: Path) -> None:
    flags = "-mbranch-protection=standard"
    _, program = built(tmp_path, flags, compiler=ARCHES["arm64"].gcc, pad="-g")
    done = _probed(_linker("arm64", tmp_path), program, "p libwhole.so.1:whole_deep")
    assert done.code == 2 and "no room for a jump" in done.err and "probe -c" in done.err
    assert not (tmp_path / "probed").exists() and not (tmp_path / "probed.libs").exists()
