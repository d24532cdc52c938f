# SPDX-License-Identifier: MIT
"""Probes in shared libraries by themselves: in programs that nobody patched."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.command import ftpatch
from tests.support.library_programs import build
from tests.support.tracer_programs import ARCHES
from tests.support.uprobes import entries
from tests.support.whole_library import Ran, built, command, told

PYTHON = "/usr/bin/python3"
ZLIB = Path("/lib/x86_64-linux-gnu/libz.so.1")
SCRIPT = (
    "import zlib, threading\n"
    "def work(n):\n"
    "    text = bytes(range(256)) * n\n"
    "    assert zlib.decompress(zlib.compress(text)) == text\n"
    "    zlib.crc32(text)\n"
    "all = [threading.Thread(target=work, args=(n,)) for n in (1, 40, 900)]\n"
    "[one.start() for one in all], [one.join() for one in all]\n"
)


def _probed(library: Path, *words: str) -> bytes:
    """Probe a library, in its place; return what it was before."""
    before = library.read_bytes()
    done = ftpatch("probe", library, *words, "--in-place")
    assert done.code == 0, done.err
    return before


def _hits(ran: Ran, *words: str) -> Counter[str]:
    """Count the hits of each probe in a run's first trace."""
    done = ftpatch("report", ran.traces[0], "--json", "--no-children", *words)
    assert done.code == 0, done.err
    return Counter(row["probe"] for row in done.json if "time" in row)


def test_a_library_of_the_system_in_a_program_of_it(tmp_path: Path) -> None:
    """zlib as Debian built it, in Debian's Python: uprobes count the same."""
    if not ZLIB.exists() or not Path(PYTHON).exists():
        pytest.skip("no zlib, or no Python of the system")
    library = tmp_path / ZLIB.name
    shutil.copy2(ZLIB, library)
    names = ("deflate", "inflate", "crc32", "adler32", "deflateInit2_", "inflateEnd")
    with library.open("rb") as file:
        elf = ELFFile(file)
        text = elf.get_section_by_name(".text")
        move = text["sh_addr"] - text["sh_offset"]
        symbols = elf.get_section_by_name(".dynsym")
        places = {symbols.get_symbol_by_name(one)[0]["st_value"] - move: one for one in names}
    with entries(library, sorted(places)) as ask:
        plain = told([PYTHON, "-c", SCRIPT], tmp_path, LD_LIBRARY_PATH=str(tmp_path))
        reached = {f"p_{places[at].replace('_', '__')}": number for at, number in ask().items()}
    assert plain.code == 0 and not plain.traces, plain.err
    plain_counts = {name.removeprefix("p_").replace("__", "_"): n for name, n in reached.items()}
    probed = tmp_path / "probed"
    probed.mkdir()
    copy = probed / library.name
    shutil.copy2(library, copy)
    words = [f"p:{one} {one}" for one in names] + ["r:back inflate ret=$retval:s32"]
    before = _probed(copy, *words)
    ran = told([PYTHON, "-c", SCRIPT], probed, LD_LIBRARY_PATH=str(probed))
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    got = _hits(ran)
    assert {one: got[one] for one in names} == {one: plain_counts[one] for one in names}
    assert got["back"] == got["inflate"] > 0
    assert ftpatch("probe", copy).code == 0  # lists them
    assert ftpatch("undo", copy, "--in-place").code == 0
    assert copy.read_bytes() == before


@pytest.mark.parametrize("opens", [False, True], ids=["linked", "opened"])
@pytest.mark.parametrize("arch", ["x86_64", "i386", "arm64"])
def test_it_counts_as_the_program_does(arch: str, opens: bool, tmp_path: Path) -> None:
    library, program = built(tmp_path, compiler=ARCHES[arch].gcc, pad="-g", opens=opens)
    words = command(arch, program, *([library] if opens else []))
    plain = told(words, tmp_path)
    named = "n=$arg1:s32" if arch == "i386" else "n"  # names of the source are not fetched there
    probes = (f"p:deep whole_deep {named}", "r:back whole_back $retval:s32", "p:leaf whole_leaf")
    # qemu-user does not wipe memory for children: they are known by a thread that had hits before.
    _probed(library, *probes, "p:calls whole_calls")
    ran = told(words, tmp_path)
    assert (ran.code, ran.out) == (plain.code, plain.out), ran.err
    (line,) = (one for one in ran.out.splitlines() if one.startswith("parent"))
    leaf, deep, back = map(int, line.split()[1:4])
    assert _hits(ran) == {"leaf": leaf, "deep": deep, "back": back, "calls": 1}


def test_exceptions(tmp_path: Path) -> None:
    program = build(tmp_path, suffix="cpp", sites=("", ""))
    plain = told([program], tmp_path)
    _probed(tmp_path / "libshared.so.1", "r thrower", "r through", "p leaf")
    ran = told([program], tmp_path)
    assert (ran.code, ran.out) == (plain.code, plain.out), ran.err
    assert _hits(ran)["p_leaf_0"] > 1


def test_refusals(tmp_path: Path) -> None:
    library, _ = built(tmp_path, "-g", pad="-O2")
    for words, reason in (
        (["p libc.so.6:malloc"], "not a function of this library"),
        (["p resolved"], "it only chooses the function's implementation"),
    ):
        done = ftpatch("probe", library, *words, "-o", tmp_path / "out")
        assert done.code == 2 and reason in done.err, done.err
    _probed(library, "p whole_leaf")
    again = ftpatch("enable", library, "--tracer", "function", "-o", tmp_path / "out")
    assert again.code == 2, again.err
    source = tmp_path / "short.c"
    source.write_text('__asm__(".globl short_one; .type short_one, @function; short_one: ret;'
                      '.size short_one, 1; .globl next; .type next, @function; next: ret;'
                      '.size next, 1");\n')  # fmt: skip
    short = tmp_path / "short.so"
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(short)], check=True)
    done = ftpatch("probe", short, "p short_one", "-o", tmp_path / "out")
    assert done.code == 2 and "no room for a jump" in done.err, done.err
    assert not (tmp_path / "out").exists()
