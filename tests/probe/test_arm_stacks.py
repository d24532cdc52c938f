# SPDX-License-Identifier: MIT
"""The calls that led to a probe's hits on arm64, ppc64le, riscv64 and s390x: gdb's backtrace is the
same at the same hit, in qemu."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.command import PATIENCE, ftpatch
from tests.support.stack_oracle import SOURCE, Calls, Oracle

GDB = "gdb-multiarch"
SCRIPT = Path(__file__).parent.parent / "support" / "stack_gdb_qemu.py"
SIGNAL = ("", 0)
SIGNED = "-mbranch-protection=standard"
HOOKED = ("r deep", "r sized", "r:again sized", "r compared", "r handled")
PLAIN = "-fomit-frame-pointer"


@dataclass(frozen=True)
class Machine:
    """``cpu``: qemu's; ``known``: one that gdb knows all of; ``insn``: bytes of the
    shortest instruction; ``rooted``: the first function of a thread says that it is that;
    ``framed``: libraries keep frame pointers; ``first``: the instructions behind this many are no
    entry; ``ended``: the stack of the first thread says where it ends; ``blind``: gdb does not see
    what a signal has interrupted."""

    prefix: str
    qemu: str
    loader: str
    cpu: str
    known: str
    insn: int = 4
    rooted: bool = True
    framed: bool = True
    first: int = 1
    ended: bool = True
    blind: bool = False

    @property
    def root(self) -> Path:
        """Where its libraries are."""
        return Path("/usr", self.prefix, "lib")

    def records_end(self, calls: Calls) -> int | None:
        """Count the calls that frame pointers lead to; None for all."""
        outside = [place for place, call in enumerate(calls) if call[0]]
        return outside[0] + 1 if outside and not self.framed else None


ARM64 = Machine(
    "aarch64-linux-gnu", "qemu-aarch64-static", "ld-linux-aarch64.so.1", "max", "cortex-a72"
)
RISCV64 = Machine(
    "riscv64-linux-gnu",
    "qemu-riscv64-static",
    "ld-linux-riscv64-lp64d.so.1",
    "rv64",
    "rv64",
    2,
    False,
    False,
)
PPC64LE = Machine(
    "powerpc64le-linux-gnu",
    "qemu-ppc64le-static",
    "ld64.so.2",
    "power9",
    "power9",
    rooted=False,
    first=3,
    ended=False,
    blind=True,
)
S390X = Machine("s390x-linux-gnu", "qemu-s390x-static", "ld64.so.1", "max", "max", 2)
gdb = pytest.mark.skipif(shutil.which(GDB) is None, reason="gdb-multiarch is not installed")


def _forms(name: str, machine: Machine, *flags: str) -> list[object]:
    return [pytest.param(machine, one, id=f"{name}-{one}") for one in flags]


def _built(folder: Path, flags: str, source: str = SOURCE, *, machine: Machine = ARM64) -> Path:
    if not all(map(shutil.which, (f"{machine.prefix}-gcc", machine.qemu))):
        pytest.skip(f"needs gcc and qemu of {machine.prefix}")
    program, root = folder / "prog", machine.root
    links = (f"-Wl,--dynamic-linker={root}/{machine.loader}", f"-Wl,-rpath,{root}")
    (folder / "prog.c").write_text(source)
    own = () if "-static" in flags else links
    command = [
        f"{machine.prefix}-gcc",
        "-fasynchronous-unwind-tables",  # which C has not on each architecture
        *flags.split(),
        "-pthread",
        "-w",
        str(folder / "prog.c"),
        *own,
    ]
    subprocess.run([*command, "-o", str(program)], check=True)
    return program


def _run(program: Path, *words: str, machine: Machine = ARM64, **more: str) -> str:
    env = os.environ | {"QEMU_CPU": machine.cpu} | more
    done = subprocess.run(
        [machine.qemu, program, *words],
        env=env,
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return done.stdout


def _text(library: Path) -> int:
    done = subprocess.run(["readelf", "-SW", library], capture_output=True, text=True, check=True)
    found = re.search(r" \.text +PROGBITS +(\w+)", done.stdout)
    assert found
    return int(found[1], 16)


def _gdb(program: Path, places: list[int], leaf: int, machine: Machine) -> dict[int, list[Calls]]:
    """The backtraces at each place, innermost first, hit by hit. The processor is one that does not
    sign: gdb cannot ask this qemu which bits are a signature, nor read its frames with SVE."""
    folder = program.parent
    socket, out = folder / "socket", folder / "backtraces"
    texts = {
        str(one): _text(one)
        for one in machine.root.glob("*.so.*")
        if one.name.startswith(("ld-", "libc."))
    }
    plan = {"at": places, "socket": str(socket), "leaf": leaf, "texts": texts, "out": str(out)}
    plan["blind"] = machine.blind
    (folder / "plan").write_text(json.dumps(plan))
    env = os.environ | {
        "PLAN": str(folder / "plan"),
        "QEMU_CPU": machine.known,
        "DEBUGINFOD_URLS": "",
    }
    with subprocess.Popen(
        [machine.qemu, "-g", socket, program],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as child:
        end = time.monotonic() + PATIENCE
        while not socket.exists():
            assert child.poll() is None and time.monotonic() < end
            time.sleep(0.02)
        try:
            subprocess.run(
                [GDB, "-nx", "-batch", "-x", SCRIPT, program],
                env=env,
                capture_output=True,
                check=True,
                timeout=PATIENCE,
            )
        finally:
            child.kill()
    found: dict[int, list[Calls]] = {}
    for at, calls in json.loads(out.read_text()):
        found.setdefault(at, []).append([(Path(path).name, link) for path, link in calls])
    return found


def _recorded(
    program: Path, probes: list[str], *words: str, machine: Machine = ARM64
) -> dict[str, list[dict[str, Any]]]:
    """The events of each probe; the program prints what it prints without."""
    probed, trace = program.with_suffix(".probed"), program.with_name("trace")
    done = ftpatch("probe", program, *probes, "-o", probed, "--force")
    assert done.code == 0, done.err
    trace.unlink(missing_ok=True)
    plain = _run(program, *words, machine=machine)
    assert _run(probed, *words, machine=machine, FTPATCH_TRACE=str(trace)) == plain
    done = ftpatch("report", trace, "--json")
    assert done.code == 0, done.err
    found: dict[str, list[dict[str, Any]]] = {}
    for row in done.json:
        if "time" in row:
            found.setdefault(row["probe"], []).append(row)
    return found


def _require_same(oracle: Oracle, texts: list[str], calls: Calls) -> None:
    """Fail unless all of the calls are the same; what a signal's handler returns to is in no
    file."""
    if calls[-1:] == [SIGNAL]:
        assert "main+" in "".join(texts[len(calls) :]), texts
        texts = texts[: len(calls)]
    assert len(texts) == len(calls), (texts, calls)
    pairs = [(text, call) for text, call in zip(texts, calls, strict=True) if call != SIGNAL]
    assert all(
        re.fullmatch("0x[0-9a-f]+", text)
        for text, call in zip(texts, calls, strict=True)
        if call == SIGNAL
    ), texts
    oracle.require_same([text for text, _ in pairs], [call for _, call in pairs])


def _places(program: Path, name: str, machine: Machine) -> list[int]:
    """The addresses of a function's instructions."""
    words = [f"{machine.prefix}-objdump", "-d", f"--disassemble={name}", str(program)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return [int(at, 16) for at in re.findall(r"^ *([0-9a-f]+):", done.stdout, re.MULTILINE)]


def _local_entry(program: Path, at: int) -> int:
    """Where calls from the same file enter the function at an address, by its st_other."""
    with program.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".symtab").iter_symbols()
        local = max(one["st_other"]["local"] for one in symbols if one["st_value"] == at)
    return at + (1 << local if local > 1 else 0)


def _taken(program: Path, places: list[int], machine: Machine) -> list[int]:
    """The instructions of functions that can have a probe each, beside one at the place before; of
    short ones a jump takes several."""
    out: list[int] = []
    for at in places[:: 4 // machine.insn]:
        beside = [at - 4] if machine.insn == 4 else out[-1:]
        probes = [f"p:a{place:x} {place:#x}" for place in (*beside, at)]
        probes += HOOKED * (machine.insn < 4)
        done = ftpatch("probe", program, *probes, "-o", program.with_name("one"), "--force")
        out += [at] * (done.code == 0)
    assert len(out) > len(places) // (2 if machine.insn == 4 else 10)
    return out


@gdb
@pytest.mark.parametrize(("machine", "flags"), [
    *_forms("arm64", ARM64, "-O0", "-O2", f"-O2 {PLAIN}", f"-O2 {SIGNED}",
            f"-O0 {SIGNED} -no-pie -fno-pie", f"-O2 -static {PLAIN}", f"-O2 -static-pie {SIGNED}"),
    *_forms("riscv64", RISCV64, "-O0", "-O2", "-O1 -msave-restore",
            "-O2 -no-pie -fno-pie -march=rv64g -fno-omit-frame-pointer"),
    *_forms("ppc64le", PPC64LE, "-O1", "-O2", "-O2 -static", "-Os"),
    *_forms("s390x", S390X, "-O0", "-O2", "-O1 -static", "-Os -no-pie -fno-pie -mbackchain",
            "-O2 -march=zEC12"),
])  # fmt: skip
def test_calls_are_those_of_gdb(tmp_path: Path, machine: Machine, flags: str) -> None:
    """At a function's entry, at each of its instructions and where it returns; also where return
    addresses are replaced, which functions have signed."""
    program = _built(tmp_path, flags, machine=machine)
    oracle = Oracle(program, machine.root)
    (start,) = oracle.own["leaf"]
    leaf = _local_entry(program, start)
    inside = [
        at for one in ("sized", "handled") for at in _places(program, one, machine)[machine.first :]
    ]
    expected = _gdb(program, [leaf, *inside], start, machine)
    expected[leaf] = [[("", start), *one[1:]] for one in expected[leaf]]
    taken = _taken(program, inside, machine)
    probes = ["p:entry leaf stack", "r:back leaf stack", "p:few leaf stack(2)"]
    probes += [*HOOKED, *(f"p:at_{at:x} {at:#x} stack" for at in taken)]
    events = _recorded(program, probes, machine=machine)
    assert len(events["entry"]) == len(expected[leaf])
    assert any(SIGNAL in calls for calls in expected[leaf])
    for name, few in (("entry", None), ("few", 2)):
        for event, one in zip(events[name], expected[leaf], strict=True):
            _require_same(oracle, event["stack"], one[:few])
            if machine.ended if event["tid"] == event["pid"] else machine.rooted:
                assert event.get("stack_cut", False) == (few is not None)
    for event, one in zip(events["back"], expected[leaf], strict=True):
        _require_same(oracle, event["stack"], one[1:])
    for at in taken:
        for event, one in zip(events.get(f"at_{at:x}", []), expected.get(at, []), strict=True):
            _require_same(oracle, event["stack"], one)


@gdb
@pytest.mark.parametrize(("machine", "flags"), [
    *_forms("arm64", ARM64, "-O0", f"-O2 {SIGNED}", f"-O1 -static {SIGNED}"),
    *_forms("riscv64", RISCV64, "-O0", "-O2"),
    *_forms("ppc64le", PPC64LE, "-O0", "-O2"),
])  # fmt: skip
def test_frame_records(tmp_path: Path, machine: Machine, flags: str) -> None:
    """They lead to what gdb finds, from each instruction; but of what a signal interrupted, the
    kernel's record has the link register."""
    program = _built(tmp_path, f"{flags} -fno-omit-frame-pointer", machine=machine)
    oracle = Oracle(program, machine.root)
    (start,) = oracle.own["leaf"]
    leaf = _local_entry(program, start)
    inside = [
        at for one in ("sized", "deep") for at in _places(program, one, machine)[machine.first :]
    ]
    expected = _gdb(program, [leaf, *inside], start, machine)
    expected[leaf] = [[("", start), *one[1:]] for one in expected[leaf]]
    taken = _taken(program, inside, machine)
    probes = ["p:entry leaf stack:fp", "r:back leaf stack:fp", "p:few leaf stack(2):fp", *HOOKED]
    events = _recorded(
        program, [*probes, *(f"p:at_{at:x} {at:#x} stack:fp" for at in taken)], machine=machine
    )
    for name, first, most in (("entry", 0, None), ("few", 0, 2), ("back", 1, None)):
        for event, calls in zip(events[name], expected[leaf], strict=True):
            few = most or (calls.index(SIGNAL) if SIGNAL in calls else None)
            few = few or machine.records_end(calls)
            wanted = calls[first:few]
            _require_same(oracle, event["stack"][: len(wanted)], wanted)
            assert few or len(event["stack"]) == len(wanted)
    for at in taken:
        for event, calls in zip(events.get(f"at_{at:x}", []), expected.get(at, []), strict=True):
            most = machine.records_end(calls)
            _require_same(oracle, event["stack"][:most], calls[:most])


def test_entries_of_a_plt(tmp_path: Path) -> None:
    """They have no unwind information, and leave everything as their callers do."""
    program = _built(tmp_path, "-O2")
    events = _recorded(program, ["p:copied qsort@plt stack", "p:walked qsort@plt stack:fp"])
    calls = [["qsort@plt", "main", "libc.so.6", "__libc_start_main", "_start"]]
    for rows in events.values():
        assert [[text.partition("+")[0] for text in row["stack"]] for row in rows] == calls
        assert not rows[0].get("stack_cut")


@pytest.mark.parametrize(("machine", "flags"), [
    *_forms("arm64", ARM64, "-O2", f"-O2 {PLAIN} {SIGNED}"),
    *_forms("s390x", S390X, "-O2"),
])  # fmt: skip
def test_a_deep_stack_is_cut(tmp_path: Path, machine: Machine, flags: str) -> None:
    """What is there are the innermost calls, and that there are more is said."""
    program = _built(tmp_path, flags, machine=machine)
    probes, depth = ["p:l leaf stack", "r deep", "p:few leaf stack(9)"], "3000"
    first = _recorded(program, probes, depth, machine=machine)
    for name, least in (("l", 100 if machine is ARM64 else 30), ("few", 9)):  # stmg stores many
        stack = first[name][0]["stack"]
        assert first[name][0]["stack_cut"] and least <= len(stack) <= 127
        assert len(set(stack[2:])) == 1 and stack[2].startswith("deep+"), stack


@pytest.mark.parametrize("byte", [0x00, 0x2D, 0x80, 0xFF])
def test_damaged_unwind_information(tmp_path: Path, byte: int) -> None:
    """Stacks end where it does, and everything else is reported."""
    program = _built(tmp_path, "-O2 -static" if byte == 0x80 else "-O2")
    _recorded(program, ["p:l deep stack", "p:mid deep+8 stack"])
    probed = program.with_suffix(".probed")
    raw = bytearray(probed.read_bytes())
    words = ["readelf", "-SW", str(probed)]
    sections = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    found = re.search(r"\.eh_frame +PROGBITS +\S+ (\S+) (\S+)", sections)
    assert found, sections
    at, size = (int(text, 16) for text in found.groups())
    raw[at : at + size] = bytes([byte]) * size
    (tmp_path / "damaged").write_bytes(raw)
    trace = tmp_path / "trace"
    done = ftpatch("report", trace, "--image", tmp_path / "damaged", "--force", "--json")
    assert done.code == 0 and "internal" not in done.err, done.err
    rows = [row for row in done.json if "stack" in row]
    assert rows and all(row["stack_cut"] and len(row["stack"]) < 3 for row in rows), rows


def test_a_stack_of_its_own(tmp_path: Path) -> None:
    """What a signal on an alternate stack has interrupted is not copied, and the stack says so."""
    source = SOURCE.replace(
        "sigaction(SIGUSR1",
        "static char room[1 << 16]; stack_t other = {.ss_sp = room, .ss_size = sizeof(room)};"
        "sigaltstack(&other, 0); action.sa_flags = SA_ONSTACK; sigaction(SIGUSR1",
    )
    program = _built(tmp_path, "-O2", source)
    rows = _recorded(program, ["p:l leaf stack"])["l"]
    (row,) = [row for row in rows if "handled" in str(row["stack"])]
    stack = row["stack"]
    assert [text.partition("+")[0] for text in stack[:2]] == ["leaf", "handled"]
    assert "main" not in str(stack) and row["stack_cut"]
