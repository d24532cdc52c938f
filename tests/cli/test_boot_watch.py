# SPDX-License-Identifier: MIT
"""``ftpatch boot --watch`` with a machine of a few lines in QEMU's place, which has a gdb stub."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.boot_machines import EVENTS, boot, machine_of
from tests.support.boot_small import BASE, DATA
from tests.support.images import symbols_at

OBJECT, ANOTHER = DATA + 4096, DATA + 4096 + 64
"""Variables of 4 and 64 bytes."""
INITIAL = 0x0101_0101
BEHIND = symbols_at(BASE)["vfs_write"] + 3
"""In the call at its entry: no access ends there."""
QEMU = f"""#!{sys.executable}
import os, re, socket, sys
words = sys.argv[1:]
path = next(w for w in words if w.startswith("file,id=events")).partition("path=")[2]
open(path, "wb").write(open(os.environ["SENT"], "rb").read())
said = open(os.environ["SAID"], "w")
print(*words, file=said, flush=True)
if os.environ["STUB"] == "none" or "-gdb" not in words:
    sys.exit(1)
fd = next(int(w.rpartition("fd=")[2]) for w in words if w.startswith("socket,id=gdb"))
link, held, stops, value = socket.socket(fileno=fd), b"", 0, 0
kinds = [b"awatch", b"rwatch", b"watch", b""]
def answer(packet):
    global stops, value
    if packet == b"g" and stops == 4 and os.environ["STUB"] == "dies":
        sys.exit(0)
    if packet == b"g":
        return (bytes(128) + ({BEHIND}).to_bytes(8, "little")).hex().encode()
    if packet[:1] == b"m":
        return value.to_bytes(4, "little").hex().encode() if value else b"E14"
    if packet[:1] in b"Zz":
        return b"" if os.environ["STUB"] == "refuses" else b"OK"
    if packet == b"c":
        stops += 1
        if stops > 4:
            return b"W00"
        value += stops % 2
        hit = b"%s:{OBJECT:x};" % kinds[stops % 4] if kinds[stops % 4] else b""
        return b"T05thread:02;" + hit
    return b"T05thread:01;"
while not held.endswith(b"W00"):
    more = link.recv(4096)
    if not more:
        break
    for packet in re.findall(rb"[$]([^#]*)#", more):
        print(packet.decode(), file=said, flush=True)
        held = answer(packet)
        link.sendall(b"+$%s#%02x" % (held, sum(held) % 256))
"""


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine that sends two events, and stops four times."""
    return machine_of(tmp_path, QEMU) | {"SAID": str(tmp_path / "said")}


def _boot(
    folder: Path, machine: dict[str, str], *words: str, stub: str = ""
) -> subprocess.CompletedProcess[str]:
    return boot(folder, machine | {"STUB": stub}, *words)


def test_accesses_are_reported(tmp_path: Path, machine: dict[str, str]) -> None:
    done = _boot(tmp_path, machine, "--watch", "an_object:rw-", "--json")
    *rows, total = map(json.loads, done.stdout.splitlines())
    assert total["watch"] == "an_object:rw-" and total["hits"] == 3
    said = [(row["access"], int(row["old"], 16), int(row["new"], 16)) for row in rows]
    assert said == [("rw", INITIAL, 1), ("w", 1, 1), ("w", 1, 2)]
    assert {(row["cpu"], row["time"]) for row in rows} == {(1, len(EVENTS))}
    assert {row["ip"] for row in rows} == {hex(BEHIND)}
    assert {row["function"].partition("+")[0] for row in rows} == {"an_alias"}
    told = (tmp_path / "said").read_text().splitlines()
    assert "-S" in told[0].split() and "nokaslr" in told[0].split()
    assert told[1:4] == ["?", f"Z3,{OBJECT:x},4", f"Z2,{OBJECT:x},4"]
    text = _boot(tmp_path, machine, "--watch", "an_object:rw-").stdout
    assert "kernel-0     [001] an_object+0x0/" in text and "0x1 -> 0x2" in text


@pytest.mark.parametrize(
    ("watch", "packets"),
    [
        ("an_object:-w-", [f"Z2,{OBJECT:x},4"]),
        ("an_object:r--", [f"Z3,{OBJECT:x},4"]),
        ("another+8:-w-", [f"Z2,{ANOTHER + 8:x},4"]),
        ("w@another:8", [f"Z2,{ANOTHER:x},8"]),
        (f"{OBJECT:#x}:-w-", [f"Z2,{OBJECT:x},4"]),
    ],
)
def test_watchpoints(
    tmp_path: Path, machine: dict[str, str], watch: str, packets: list[str]
) -> None:
    _boot(tmp_path, machine, "--watch", watch)
    told = (tmp_path / "said").read_text().splitlines()
    assert [word for word in told if word.startswith("Z")] == packets


@pytest.mark.parametrize(
    ("words", "clause"),
    [
        (("--watch", "an_objekt:rw-"), "an_objekt: no such symbol; did you mean an_object?"),
        (
            ("--watch", "vfs_write:rw-"),
            "vfs_write: a function, not a variable; use `ftpatch probe`",
        ),
        (("--watch", "an_object"), "no `:` in the request"),
        (("--watch", "an_object:---"), "nothing to clear"),
        (("--watch", "*:---"), "nothing to clear"),
        (("--watch", "w@another:3"), "invalid length"),
        (("--watch", "an_object+0x9999999:rw-"), "the offset is beyond the symbol"),
        (("--watch", "a.ko:an_object:rw-"), "a.ko is not in this image"),
        (
            ("--watch", "an_object:rw-", "--format", "folded"),
            "a boot's accesses have no stacks, and folded needs them",
        ),
        (("--watch", "an_object:rw-", "--", "-s"), "--watch uses QEMU's gdb stub, and so does -s"),
        (("--watch", "an_object:rw-", "--", "-gdb", "tcp::1"), "and so does -gdb; remove one"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, machine: dict[str, str], words: tuple[str, ...], clause: str
) -> None:
    done = _boot(tmp_path, machine, *words)
    assert done.returncode == 125 and clause in done.stderr
    assert not done.stdout and done.stderr.count("\n") == 1
    assert not (tmp_path / "said").exists()


@pytest.mark.parametrize(
    ("stub", "clause"),
    [
        ("none", "QEMU's gdb stub does not answer; --watch needs its -gdb"),
        ("refuses", "an_object:rw-: QEMU's gdb stub refuses it"),
    ],
)
def test_a_machine_without_watchpoints(
    tmp_path: Path, machine: dict[str, str], stub: str, clause: str
) -> None:
    done = _boot(tmp_path, machine, "--watch", "an_object:rw-", stub=stub)
    assert done.returncode == 125 and clause in done.stderr and not done.stdout


def test_a_machine_that_ends_in_the_middle_of_an_access(
    tmp_path: Path, machine: dict[str, str]
) -> None:
    """What could not be read of it any more is not told."""
    done = _boot(tmp_path, machine, "--watch", "an_object:rw-", "--json", stub="dies")
    *rows, total = map(json.loads, done.stdout.splitlines())
    assert [int(row["ip"], 16) for row in rows] == [BEHIND] * 2 and total["hits"] == 2
