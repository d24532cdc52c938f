# SPDX-License-Identifier: MIT
"""Kernels in crash dumps: is a clean one without a finding, is all that was enabled told, and is
every planted byte found? The guest says what it enabled, the tests what they planted."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .apt import FetchError
from .built_modules import build_modules
from .cli import Answer, ftpatch
from .dumped import Dumped, Gdb, dump_steps, with_note
from .fetch import Kernel, ensure, kernels
from .qemu import PREFIX, need
from .tracer import HERE
from .trees import ensure_tree

pytest.importorskip("drgn")
FULL = bool(os.environ.get("FTPATCH_FULL"))
NAMES = ("6.1-amd64", "6.12-amd64", "6.1-arm64", "6.12-arm64")
FEW = ("6.1-amd64", "6.12-arm64")
"""Unless all tests run."""
WITH_FENTRY = ("6.1-amd64", "6.12-amd64")
"""arm64 has direct calls, which BPF needs, since v6.4."""
WITH_MODULES = "6.1-amd64"
"""Live patches are x86's, and one kernel's headers will do."""
HOOKED = "version_proc_show"
INSIDE = {"x86_64": "do_sys_openat2+5", "arm64": "do_sys_openat2+0x10"}
ENTRY = ("ksys_write", "vfs_open")
FENTRY = "vfs_fsync_range"
ATTACHED = f"""
mkfifo /hits; /fentry {FENTRY} stay >/hits & exec 5</hits; read hits <&5; echo $hits
sed 's/^/enabled /' /t/enabled_functions
"""
TRACED = """
kill $! 2>/dev/null
cd /t
echo 'vfs_*' > set_ftrace_filter; echo function > current_tracer
{probes}
echo 1 > events/kprobes/enable
mount -t debugfs d /sys/kernel/debug
cat enabled_functions | sed 's/^/enabled /'
sed 's/^/probe /' /sys/kernel/debug/kprobes/list
grep ' {hooked}$' /proc/kallsyms
"""
PATCHED = """
echo 0 > events/kprobes/enable; echo > kprobe_events; echo nop > current_tracer
insmod /livepatch.ko; cat /proc/cmdline; insmod /hook.ko at=5
cat enabled_functions | sed 's/^/enabled /'
lsmod | sed 's/^/module /'
grep -E ' (vfs_rmdir|panic)$' /proc/kallsyms
"""


@dataclass(frozen=True)
class Seen:
    """A kernel's dumps, and what was planted in them."""

    vmlinux: Path
    arch: str
    dumps: dict[str, Dumped]
    planted: dict[str, tuple[int, bytes]]

    def ask(self, verb: str, step: str, *words: str, expect: int | None = 0) -> Answer:
        return ftpatch(verb, self.vmlinux, "--core", self.dumps[step].path, *words, expect=expect)


def _chosen() -> list[Kernel]:
    names = NAMES if FULL else FEW
    return [one for one in kernels() if one.name in names]


@pytest.fixture(scope="module", params=_chosen(), ids=lambda kernel: kernel.name)
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Seen]:
    kernel: Kernel = request.param
    scratch = tmp_path_factory.mktemp("cores")
    files: dict[str, bytes] = {}
    try:
        vmlinux, tree = ensure(kernel), ensure_tree(kernel)
        if kernel.name == WITH_MODULES:
            files = build_modules(kernel, "livepatch.c", "hook.c", scratch=scratch)
    except FetchError as error:
        pytest.skip(str(error))
    planted: dict[str, tuple[int, bytes]] = {}

    def plant(gdb: Gdb, said: str) -> None:
        """One byte in the midst of a function: damage, not a hook."""
        (line,) = [one for one in said.splitlines() if one.endswith(f" {HOOKED}")]
        at = int(line.split()[0], 16) + 0x10
        (first,) = gdb.read(at, 1)
        gdb.write(at, bytes([first ^ 0xFF]))
        planted["traced"] = at, bytes([first ^ 0xFF])

    def call(gdb: Gdb, said: str) -> None:
        """A call over a function's entry, of what nobody has registered."""
        place = {line.split()[-1]: int(line.split()[0], 16) for line in said.splitlines()[-3:-1]}
        at = place["vfs_rmdir"]
        code = b"\xe8" + (place["panic"] - at - 5).to_bytes(4, "little", signed=True)
        gdb.write(at, code)
        planted["patched"] = at, code

    where = (*ENTRY, INSIDE[tree.arch])
    probes = "\n".join(
        f"echo 'p:p{number} {name}' >> kprobe_events" for number, name in enumerate(where)
    )
    steps = {"clean": "wc -l < /t/available_filter_functions | sed 's/^/available /'"}
    if kernel.name in WITH_FENTRY:
        files |= {"fentry": _fentry(tree.arch, scratch)}
        steps |= {"fentry": ATTACHED}
    steps |= {"traced": TRACED.format(probes=probes, hooked=HOOKED)}
    if kernel.name == WITH_MODULES:
        steps |= {"patched": PATCHED}
    dumps = dump_steps(tree, scratch, steps, files, {"traced": plant, "patched": call})
    yield Seen(vmlinux, tree.arch, dumps, planted)
    shutil.rmtree(scratch)


def _fentry(arch: str, scratch: Path) -> bytes:
    """A program that attaches a BPF program to a function."""
    compiler, program = f"{PREFIX[arch]}gcc", scratch / "fentry"
    need(compiler)
    command = [compiler, "-O1", "-static", str(HERE / "fentry.c"), "-o", str(program)]
    subprocess.run(command, check=True)
    return program.read_bytes()


def test_a_clean_kernel(seen: Seen) -> None:
    """No finding; every function that the kernel offers for tracing is a site, none enabled."""
    assert seen.ask("check", "clean").objects == []
    status = seen.ask("status", "clean").one
    (available,) = map(int, seen.dumps["clean"].words(r"^available (\d+)"))
    assert status["sites"] == available
    assert status["states"] == {"nop": available, "call": 0, "unexpected": 0}
    assert status["missing"] == 0
    assert seen.ask("diff", "clean").objects == []


def test_enabled_sites_are_those_that_the_kernel_says(seen: Seen) -> None:
    dump = seen.dumps["traced"]
    told = dict.fromkeys(dump.words(r"^enabled (\S+) "), "")
    told |= dict(re.findall(r"^enabled (\S+) .*->(\w+)\+0x0", dump.said, re.MULTILINE))
    assert len(told) > 50
    calls = {
        row["symbol"]: row["ops"]
        for row in seen.ask("list", "traced").objects
        if row["state"] == "call"
    }
    if seen.arch == "arm64":  # a probe's brk hides that site, see the documents
        told.pop("vfs_open")
    assert calls.keys() == told.keys()
    for name, handler in told.items():
        assert calls[name], name
        if handler and handler != "arch_ftrace_ops_list_func":  # which stands for several
            assert handler in calls[name]
    handlers = {name for ops in calls.values() for name in ops}
    assert "function_trace_call" in handlers
    assert set(seen.ask("status", "traced").one["ops"]) == handlers


def test_a_bpf_program_is_named_and_nothing_else(seen: Seen) -> None:
    """Its trampoline, by the name that the kernel gives it; the site is no finding."""
    if "fentry" not in seen.dumps:
        pytest.skip("attached on x86 only")
    dump = seen.dumps["fentry"]
    assert dump.words(r"^hits (\d+)") == ["1"]
    assert dump.words(r"^enabled (\S+) ") == [FENTRY]
    (call,) = [row for row in seen.ask("list", "fentry").objects if row["state"] == "call"]
    assert call["symbol"] == FENTRY
    names = [call["target"], *call["ops"]]
    assert any(re.search(r"\bbpf_trampoline_\d+", name) for name in names), call
    status = seen.ask("status", "fentry").one
    assert status["states"] == {"nop": status["sites"] - 1, "call": 1, "unexpected": 0}
    assert seen.ask("check", "fentry").objects == []


def test_probes_and_a_damaged_byte(seen: Seen) -> None:
    """The kernel's own list of probes, and one byte that is none."""
    rows = seen.ask("check", "traced", expect=1).objects
    notes = {int(site["ip"], 16) for row in rows for site in row.get("sites", ())}
    probes = {int(at, 16) for at in seen.dumps["traced"].words(r"^probe ([0-9a-f]+) ")}
    ftrace = {int(at, 16) for at in seen.dumps["traced"].words(r"^probe ([0-9a-f]+) .*FTRACE")}
    assert notes == probes and probes - ftrace
    (finding,) = [row for row in rows if row["invariant"]]
    at, code = seen.planted["traced"]
    assert finding["invariant"] == "text-explained"
    assert int(finding["ip"], 16) == at
    assert f" actual:   {code.hex()}\n" in finding["bug"]
    assert finding["symbol"] == f"{HOOKED}+0x10"
    kinds = [row["kind"] for row in seen.ask("diff", "traced", expect=1).objects]
    assert kinds.count("code") == 1
    assert kinds.count("kprobe") == len(probes - ftrace)


def test_a_live_patch_and_hooks(seen: Seen) -> None:
    if "patched" not in seen.dumps:
        pytest.skip("built for one kernel only")
    assert "patched\n" in seen.dumps["patched"].said  # it is in force
    calls = {
        row["symbol"]: (row["target"], row["ops"])
        for row in seen.ask("list", "patched").objects
        if row["state"] == "call"
    }
    name = "live patch [livepatch]"
    at, code = seen.planted["patched"]
    assert calls.keys() == {"cmdline_proc_show", "vfs_rmdir"}
    assert calls["cmdline_proc_show"] == (f"trampoline ({name})", [name])
    rows = [row for row in seen.ask("check", "patched", expect=1).objects if row["invariant"]]
    by_place = {row["symbol"]: row for row in rows}
    # The damaged byte lies where one stretch with the hook ends.
    assert by_place.keys() == {"vfs_rmdir+0x0", f"{HOOKED}+0x5"}
    called = by_place["vfs_rmdir+0x0"]
    assert called["invariant"] == "callee-known" and "calls panic" in called["message"]
    assert int(called["ip"], 16) == at and code.hex(":") in called["bug"]
    jump = by_place[f"{HOOKED}+0x5"]
    assert jump["invariant"] == "text-explained"
    assert jump["message"].endswith(" [hook]") and "a jump to 0x" in jump["message"]


def test_makedumpfiles_formats(seen: Seen, tmp_path: Path) -> None:
    """Filtered and compressed, as kdump stores it: the same is found."""
    maker = shutil.which("makedumpfile")
    if maker is None or seen.arch != os.uname().machine:
        pytest.skip("needs makedumpfile, which reads dumps of its own architecture")
    last = list(seen.dumps)[-1]
    whole = tmp_path / "whole.core"
    with_note(seen.dumps[last].path, whole)
    expected = seen.ask("check", last, expect=1).objects
    assert expected
    for form in ("-c", "-l", "-E"):  # zlib, LZO, ELF
        made = tmp_path / f"made{form}"
        words = [maker, form, "-d", "31", whole, made]  # without pages of programs, and free ones
        done = subprocess.run(words, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert made.stat().st_size < whole.stat().st_size / 2
        found = ftpatch("check", seen.vmlinux, "--core", made, expect=1).objects
        for row in (*expected, *found):
            row.pop("core", None)
        assert found == expected
        made.unlink()


def test_a_dump_without_some_pages(seen: Seen, tmp_path: Path) -> None:
    """A dump that was cut off has no finding for what it does not have, and says so; one without
    the kernel's text is refused, in one line."""
    whole = seen.dumps["clean"].path
    size = whole.stat().st_size
    states = set()
    for part in (1, 3, 5, 7) if FULL else (1, 5):
        cut = tmp_path / "cut.core"
        with whole.open("rb") as source, cut.open("wb") as out:
            out.write(source.read(size * part // 8))
        for verb in ("status", "list", "check", "diff"):
            answer = ftpatch(verb, seen.vmlinux, "--core", cut, expect=None)
            states.add(answer.status)
            assert "Traceback" not in answer.complaint
            if answer.status == 2:
                assert len(answer.complaint.splitlines()) == 1
            if verb == "check":
                assert not [row for row in answer.objects if row["invariant"]]
    assert 2 in states


def test_a_dump_of_another_kernel(seen: Seen) -> None:
    others = (k for k in kernels() if k.name in NAMES and ensure(k) != seen.vmlinux)
    other = next(others, None)
    if other is None:
        pytest.skip("no other kernel in this set")
    dump = seen.dumps["clean"].path
    for verb in ("status", "list", "check", "diff"):
        answer = ftpatch(verb, ensure(other), "--core", dump, expect=2)
        (line,) = answer.complaint.splitlines()
        assert "build-id" in line and "use the vmlinux of that build" in line
