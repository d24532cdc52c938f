# SPDX-License-Identifier: MIT
"""Shared libraries that record their own calls, in programs that nobody patched: what the programs
count, and that they do the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.kernels.apt import FetchError, folder, lock
from tests.support.command import ftpatch
from tests.support.library_programs import PAD, build, compiled
from tests.support.sources import source
from tests.support.tracer_programs import ARCHES
from tests.support.uprobes import entries
from tests.support.whole_library import COUNTED, Ran, built, command, counts, enabled, told

TRACERS = ("function_graph", "function", "function_profile")
DF_1_NODELETE = 8
NOBODY = 65534
PYTHON = "/usr/bin/python3"


def _counted(ran: Ran, who: str) -> dict[str, int]:
    """The numbers that a process printed, by function."""
    (line,) = (one for one in ran.out.splitlines() if one.startswith(who))
    return dict(zip((f"whole_{name}" for name in COUNTED), map(int, line.split()[1:]), strict=True))


def _agree(plain: Ran, ran: Ran) -> None:
    """Test whether a traced run did as a plain one, and its traces as the processes count."""
    assert (ran.code, ran.out) == (plain.code, plain.out), ran.err
    assert not plain.traces
    parent, child = ran.traces
    first, second = counts(parent), counts(child)
    before = _counted(ran, "parent")
    after = _counted(ran, "child")
    shown = {f"whole_{name}".replace("whole_chosen", "chosen"): name for name in COUNTED}
    assert {name: first[name] for name in shown} == {
        name: before[f"whole_{shown[name]}"] for name in shown
    }
    assert {name: second[name] for name in shown} == {
        name: after[f"whole_{shown[name]}"] - before[f"whole_{shown[name]}"] for name in shown
    }
    assert first["whole_end"] == second["whole_end"] == 1
    assert first["early"] >= first["chosen"]
    notes = ftpatch("report", parent, child).err
    assert "did not end" not in notes, notes


@pytest.mark.parametrize("tracer", TRACERS)
@pytest.mark.parametrize("opens", [False, True], ids=["linked", "opened"])
def test_it_counts_as_the_program_does(opens: bool, tracer: str, tmp_path: Path) -> None:
    library, program = built(tmp_path, opens=opens)
    words: list[str | Path] = [program, library] if opens else [program, "args"]
    plain = told(words, tmp_path)
    before = enabled(library, tracer)
    _agree(plain, told(words, tmp_path))
    assert ftpatch("check", library).code == 0
    done = ftpatch("undo", library, "--in-place")
    assert done.code == 0 and library.read_bytes() == before
    assert told(words, tmp_path) == plain


@pytest.mark.parametrize("linker", ["bfd", "lld", "mold", "gold"])
@pytest.mark.parametrize("more", [(), ("-nostartfiles", "-Wl,-z,now")], ids=["usual", "bare"])
def test_linkers(linker: str, more: tuple[str, ...], tmp_path: Path) -> None:
    """With DT_INIT or without, and with room for further entries or without."""
    if shutil.which(f"ld.{linker}") is None and shutil.which(linker) is None:
        pytest.skip(f"no {linker}")
    library, program = built(tmp_path, f"-fuse-ld={linker}", *more, opens=True)
    plain = told([program, library], tmp_path)
    before = enabled(library, "function_graph")
    with library.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".dynamic")
        own = next(s for s in ELFFile(file).iter_segments() if s.header.p_type == "PT_DYNAMIC")
        tags = {tag.entry.d_tag: tag.entry.d_val for tag in own.iter_tags()}
    assert tags["DT_FLAGS_1"] & DF_1_NODELETE
    assert tags["DT_INIT"] and tags["DT_FINI"]
    if more and linker == "lld":
        assert own.header.p_offset != table.header.sh_offset, "there was no room"
    _agree(plain, told([program, library], tmp_path))
    ftpatch("undo", library, "--in-place")
    assert library.read_bytes() == before


def test_exceptions(tmp_path: Path) -> None:
    """They pass the library's frames, and those of callbacks."""
    program = build(tmp_path, suffix="cpp", sites=("", PAD))
    library = tmp_path / "libshared.so.1"
    plain = told([program], tmp_path)
    for tracer in (*TRACERS, "nop"):
        before = enabled(library, tracer)
        ran = told([program], tmp_path)
        assert (ran.code, ran.out) == (plain.code, plain.out), (tracer, ran.err)
        assert bool(ran.traces) == (tracer != "nop")
        if tracer == "function_graph":
            assert counts(ran.traces[0])["thrower"] > 1
        library.write_bytes(before)


def test_jumps(tmp_path: Path) -> None:
    """A longjmp() out of the library, and tail calls through it."""
    program = build(tmp_path, sites=("", PAD))
    plain = told([program], tmp_path)
    for tracer in TRACERS:
        before = enabled(tmp_path / "libshared.so.1", tracer)
        ran = told([program], tmp_path)
        assert (ran.code, ran.out) == (plain.code, plain.out), (tracer, ran.err)
        assert counts(ran.traces[0])["leap"] == 2
        (tmp_path / "libshared.so.1").write_bytes(before)


@pytest.mark.parametrize("strip", ["--strip-debug", "--strip-all"])
def test_it_may_have_been_stripped(strip: str, tmp_path: Path) -> None:
    library, program = built(tmp_path)
    subprocess.run(["strip", strip, str(library)], check=True)
    plain = told([program], tmp_path)
    enabled(library, "function_graph")
    ran = told([program], tmp_path)
    assert (ran.code, ran.out) == (plain.code, plain.out), ran.err
    got = counts(ran.traces[0])
    assert {got[f"whole_{name}"] for name in ("leaf", "deep", "back")} == {
        _counted(ran, "parent")[f"whole_{name}"] for name in ("leaf", "deep", "back")
    }


@pytest.mark.skipif(not Path(PYTHON).exists(), reason="no Python of the system")
def test_python_loads_it(tmp_path: Path) -> None:
    """It is opened late, with an environment that the process has changed by then."""
    library, _ = built(tmp_path)
    enabled(library, "function_graph", "-f", "whole_*")
    script = (
        "import ctypes, os, threading\n"
        f"os.environ['FTPATCH_TRACE'] = {str(tmp_path / 'own.trace')!r}\n"
        f"whole = ctypes.CDLL({str(library)!r})\n"
        "one = threading.Thread(target=lambda: whole.whole_deep(3))\n"
        "one.start(), one.join()\n"
        "print(whole.whole_leaf(1))\n"
    )
    ran = told([PYTHON, "-c", script], tmp_path)
    assert (ran.code, ran.out, ran.err) == (0, "2\n", "")
    assert not ran.traces
    assert counts(tmp_path / "own.trace") == {
        "whole_deep": 4,
        "whole_leaf": 5,
        "whole_begin": 1,
        "whole_end": 1,
    }


def test_several_in_one_process(tmp_path: Path) -> None:
    """The program has a tracer, too, and so has another library: three traces, one report."""
    library, program = built(tmp_path, main=(PAD,))
    enabled(program, "function_graph", "-f", "main", "-f", "again")
    enabled(library, "function_graph")
    other = compiled(tmp_path, "shared.c", "libother.so", "-shared", "-fPIC", PAD)
    enabled(other, "function")
    ran = told([program], tmp_path, LD_PRELOAD=str(other))
    assert ran.code == 7
    parts = [counts(trace) for trace in ran.traces]
    assert sum("main" in one for one in parts) == 1
    assert sum("whole_begin" in one for one in parts) == 1
    assert sum("begin" in one for one in parts) == 1
    result = ftpatch("report", *ran.traces)  # each knows its image
    assert result.code == 0 and "libwhole.so.1 in prog-" in result.out
    assert "libother.so in prog-" in result.out


def test_a_privileged_program_records_nothing() -> None:
    """Its user has no say in what files it makes; the library alone is not what decides."""
    if os.geteuid():
        pytest.skip("takes root")
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        library, program = built(place, opens=True)
        enabled(library, "function_graph")
        library.chmod(0o755)
        room = place / "room"
        room.mkdir()
        room.chmod(0o777)
        for mode, files in ((0o4755, 0), (0o755, 2)):
            program.chmod(mode)
            done = subprocess.run(
                [program, library],
                cwd=room,
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 7 and "parent 800 600" in done.stdout
            assert len(list(room.iterdir())) == files


def test_musl(tmp_path: Path) -> None:
    """Its initializers have no arguments; it unloads nothing."""
    library, program = built(tmp_path, compiler="musl-gcc", opens=True)
    plain = told([program, library], tmp_path)
    if plain.code != 7:
        pytest.skip(f"no program of musl runs: {plain.out}{plain.err}")
    enabled(library, "function_graph")
    _agree(plain, told([program, library], tmp_path))


@pytest.mark.parametrize("tracer", TRACERS)
@pytest.mark.parametrize("opens", [False, True], ids=["linked", "opened"])
@pytest.mark.parametrize("arch", ["arm", "arm64", "i386"])
def test_other_architectures(arch: str, opens: bool, tracer: str, tmp_path: Path) -> None:
    one = ARCHES[arch]
    guarded = ["-mbranch-protection=standard"] if arch == "arm64" else []
    library, program = built(tmp_path, *guarded, compiler=one.gcc, pad=one.pad, opens=opens)
    words = command(arch, program, *([library] if opens else []))
    plain = told(words, tmp_path)
    before = enabled(library, tracer)
    _agree(plain, told(words, tmp_path))
    ftpatch("undo", library, "--in-place")
    assert library.read_bytes() == before


def test_nothing_is_recorded_where_nothing_is_wanted(tmp_path: Path) -> None:
    library, program = built(tmp_path)
    plain = told([program], tmp_path)
    enabled(library, "function_graph")
    for place in ("", "/dev/null"):
        assert told([program], tmp_path, FTPATCH_TRACE=place) == plain
    ran = told([program], tmp_path, FTPATCH_TRACE=str(tmp_path / "no" / "folder"))
    assert (ran.code, ran.out) == (plain.code, plain.out)
    assert "cannot create the trace file" in ran.err


def test_refusals(tmp_path: Path) -> None:
    library, _ = built(tmp_path)
    ran = ftpatch("trace", library)
    assert ran.code == 125 and ": a shared-object, not a program" in ran.err
    enabled(library, "nop")
    again = ftpatch("enable", library, "--tracer", "function", "-o", tmp_path / "out")
    assert again.code == 2 and "already has a tracer" in again.err
    for name in ("libc.so.6", "ld-linux-x86-64.so.2", "libpthread.so.0", "libc.musl-x86_64.so.1"):
        libc = compiled(
            tmp_path, "shared.c", "any.so", "-shared", "-fPIC", PAD, f"-Wl,-soname,{name}"
        )
        refused = ftpatch("enable", libc, "--tracer", "function", "-o", tmp_path / "out")
        assert refused.code == 2 and f"{name} runs before" in refused.err
    assert not (tmp_path / "out").exists()


def test_a_real_one_in_a_real_program(tmp_path: Path) -> None:
    """Debian's bzip2 library, built with pads, in Debian's Python: uprobes count the same."""
    module = "import _bz2; print(_bz2.__file__)"
    done = subprocess.run([PYTHON, "-c", module], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("Python of the system has no _bz2")
    library = tmp_path / "libbz2.so.1.0"
    _bzip2(library)
    plain = tmp_path / "plain.so"
    shutil.copy2(library, plain)
    enabled(library, "function_profile", "--size", "4M")
    script = (
        "import bz2, threading\n"
        "def work(n):\n"
        "    text = bytes(range(256)) * n\n"
        "    assert bz2.decompress(bz2.compress(text)) == text\n"
        "all = [threading.Thread(target=work, args=(n,)) for n in (1, 40, 900)]\n"
        "[one.start() for one in all], [one.join() for one in all]\n"
    )
    with plain.open("rb") as file:
        elf = ELFFile(file)
        text = elf.get_section_by_name(".text")
        move = text["sh_addr"] - text["sh_offset"]
        places = {
            symbol["st_value"] - move: symbol.name
            for symbol in elf.get_section_by_name(".symtab").iter_symbols()
            if symbol["st_info"]["type"] == "STT_FUNC"
            and text["sh_addr"] <= symbol["st_value"] < text["sh_addr"] + text["sh_size"]
            and (symbol.name.startswith(("BZ2_", "bz", "fallback", "main", "unRLE", "add_")))
        }
    # The patched library's functions begin where they did.
    with entries(library, sorted(places)) as ask:
        ran = told([PYTHON, "-c", script], tmp_path, LD_LIBRARY_PATH=str(tmp_path))
        reached = {places[at]: number for at, number in ask().items() if number}
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    (trace,) = ran.traces
    got = {name: number for name, number in counts(trace).items() if name in reached}
    assert got == reached and reached["BZ2_bzCompress"] >= 3


def _bzip2(library: Path) -> None:
    """Build the library from its source; skips where that is not to be had."""
    home = folder().parent / "sources" / "trees" / "bzip2"
    with lock("trees"):
        home.parent.mkdir(parents=True, exist_ok=True)
        try:
            tree = home if home.is_dir() else source("bzip2", home)
        except FetchError as error:
            pytest.skip(str(error))
    names = ("blocksort", "huffman", "crctable", "randtable", "compress", "decompress", "bzlib")
    files = [str(tree / f"{name}.c") for name in names]
    soname = f"-Wl,-soname,{library.name}"
    words = ["gcc", "-O2", "-w", "-shared", "-fPIC", soname, PAD, *files, "-o", str(library)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
