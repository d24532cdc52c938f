# SPDX-License-Identifier: MIT
"""A tracer laid into Debian's dummy.ko: what it records is what the kernel's own ftrace records of
the untouched module, function by function, in another boot in which the same is done."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from .cli import ftpatch
from .guest import Step, run_steps
from .qemu import PREFIX, need
from .trees import Tree

STUB = Path(__file__).parent / "module_stub.c"
LIMIT, LAST = 4, "dummy_dev_init"
FEW = ("dummy_init_module", "dummy_xmit")
APPEND = "ipv6.disable=1"  # it would send packets of its own
USE = """
use() {
    ip addr add 10.9.9.1/24 dev dummy0; ip link set dummy0 up
    ping -c 1 -W 1 10.9.9.2 >/dev/null; cat /sys/class/net/dummy0/statistics/tx_packets >/dev/null
    ip link set dummy0 down; ip link del dummy0
}
load() { insmod /m/$1.ko; echo "insmod $?"; use; }
gone() { rmmod dummy; echo "rmmod $?"; }
"""
FTRACE = """
echo ':mod:dummy' > /t/set_ftrace_filter; echo function > /t/current_tracer
load dummy
sed -n 's/.*: \\([^ ]*\\) .*<-.*/traced \\1/p' /t/trace
gone
"""
SINKS = {
    "x86_64": ("-chardev", "file,id=events,path={}", "-device", "isa-debugcon,chardev=events"),
    "arm64": (
        *("-chardev", "file,id=events,path={}", "-semihosting-config"),
        "enable=on,target=native,chardev=events",
    ),
    "ppc64le": (
        *("-chardev", "file,id=events,path={}"),
        *("-device", "spapr-vty,chardev=events,reg=0x710000f0"),
    ),
}
SINKS["riscv64"] = SINKS["arm64"]
OWN = ("x86_64", "arm64", "riscv64")
"""Whose modules can have a stub of one's own."""


@dataclass(frozen=True)
class Traced:
    """The functions that ftrace recorded of the untouched module, in order; what each of the
    changed ones came to; what they all sent, one after the other, and one to read it with."""

    functions: list[str]
    untouched: Step
    steps: dict[str, Step]
    stream: Path
    image: Path


@pytest.fixture(scope="module")
def traced(traceable_tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    tree, scratch = traceable_tree, tmp_path_factory.mktemp("traced")
    source = scratch / "dummy.ko"
    source.write_bytes(tree.module("dummy"))
    boot = ("--tracer", "boot")
    variants = {
        "all": boot,
        "few": (*boot, *(word for name in FEW for word in ("-f", name))),
        "limited": (*boot, "--max", str(LIMIT)),
        "until": (*boot, "--until", LAST),
    }
    if tree.arch in OWN:
        variants["own"] = ("--tracer", str(_stub(tree, scratch)))
    held = {"m/dummy.ko": source.read_bytes()}
    for name, words in variants.items():
        made = scratch / f"{name}.ko"
        ftpatch("enable", source, *words, "--strip-signature", "-o", made)
        held[f"m/{name}.ko"] = made.read_bytes()
    plain = run_steps(tree, scratch, held, {"ftrace": FTRACE}, USE, APPEND)["ftrace"]
    stream = scratch / "stream"
    machine = [word.format(stream) for word in SINKS[tree.arch]]
    steps = {name: f"load {name}; gone" for name in variants}
    told = run_steps(tree, scratch, held, steps, USE, APPEND, machine=machine)
    return Traced(plain.values("traced"), plain, told, stream, scratch / "all.ko")


def _stub(tree: Tree, scratch: Path) -> Path:
    gcc, out = f"{PREFIX[tree.arch]}gcc", scratch / "own.elf"
    need(gcc)
    words = ["-O2", "-shared", "-fPIC", "-nostdlib", "-ffreestanding"]
    words += ["-fno-stack-protector", "-Wl,-Bsymbolic"]
    words += ["-mgeneral-regs-only"] if tree.arch != "riscv64" else []
    words += ["-mno-red-zone", "-fcf-protection=none"] if tree.arch == "x86_64" else []
    subprocess.run([gcc, *words, STUB, "-o", out], check=True)
    return out


def test_they_load_and_nothing_is_said_of_them(traced: Traced) -> None:
    for name, step in (("untouched", traced.untouched), *traced.steps.items()):
        assert (step.value("insmod"), step.value("rmmod")) == ("0", "0"), (name, step)
        assert step.ftrace_bug is None, name
        assert step.warnings <= traced.untouched.warnings, name


def test_events_are_the_calls_that_ftrace_records(traced: Traced) -> None:
    """Of all functions, the one in .init.text among them; of few; up to a number, and a
    function."""
    functions = traced.functions
    assert {*FEW, LAST, "dummy_setup"} < set(functions)
    few = [name for name in functions if name in FEW]
    until = functions[: functions.index(LAST) + 1]
    rows = ftpatch("report", traced.stream, "--image", traced.image).objects
    entries = sorted((r for r in rows if r["event"] == "entry"), key=lambda row: row["time"])
    assert [row["function"] for row in entries] == [*functions, *few, *functions[:LIMIT], *until]


def test_a_stub_of_ones_own_gets_the_sites(traced: Traced) -> None:
    """It says its first argument for each call: one value for each function, in the same order."""
    if "own" not in traced.steps:
        pytest.skip("a stub in a module is not supported there")
    said = re.findall(rb"@([0-9a-f]{8})\n", traced.stream.read_bytes())
    assert len(said) == len(traced.functions)
    assert len(set(zip(said, traced.functions, strict=True))) == len(set(said))
    assert len(set(said)) == len(set(traced.functions))
