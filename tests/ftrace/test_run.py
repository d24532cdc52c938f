# SPDX-License-Identifier: MIT
"""Patched programs run, and count what the manifest says; their bytes by an independent reader."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.command import PATIENCE, ftpatch
from tests.support.samples import BUILT, SAMPLES, Sample, sample

RUNNABLE = [s for s in SAMPLES if s.run is not None and "calls" in s.run]
TWINS = {"pad-library": "libpad.so", "fentry-library": "libmfentry.so"}
"""Programs whose library has sites as well."""


MACHINES = {"arm64": "aarch64", "riscv64": "riscv64"}


def _runner(arch: str) -> list[str]:
    """What runs a program of the architecture here, with its libraries."""
    machine, own = platform.machine(), MACHINES.get(arch, "x86_64")
    if machine == own:
        return []
    if arch not in MACHINES:
        pytest.skip(f"a program of {arch} does not run on {machine}")
    emulator = f"qemu-{own}-static"
    if shutil.which(emulator) is None:
        pytest.skip(f"{emulator} is not installed (qemu-user-static)")
    return [emulator, "-L", f"/usr/{own}-linux-gnu"]


def _start(sample_: Sample, path: Path) -> subprocess.CompletedProcess[str]:
    runner = _runner(sample_.arch)
    if runner and b"/lib/ld-linux" in sample_.data and not Path(runner[-1], "lib").exists():
        pytest.skip(f"no libraries for {sample_.arch} (libc6-{sample_.arch}-cross)")
    try:
        return subprocess.run(
            [*runner, str(path)],
            env={**os.environ, "SHOW_CALLS": "1"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except OSError as error:
        pytest.skip(f"programs of {sample_.arch} do not run here: {error.strerror}")


def _folder(sample_: Sample, folder: Path) -> tuple[Path, list[Sample]]:
    """The program beside its libraries, and the files that are patched."""
    for name in (sample_.name, *(path.name for path in BUILT.glob("lib*.so"))):
        shutil.copy(BUILT / name, folder)
    files = [sample_, *(sample(TWINS[n]) for n in [sample_.name] if n in TWINS)]
    return folder / sample_.name, files


def _target(sample_: Sample) -> list[str]:
    """A stripped program has no name for ftrace_caller."""
    assert sample_.ftrace_caller is not None
    return ["--to", hex(sample_.ftrace_caller)]


def _wanted(sample_: Sample, *, enabled: bool) -> str:
    assert sample_.run is not None
    text = str(sample_.run["stdout"])
    if enabled:
        text = re.sub(r"^calls: 0$", f"calls: {sample_.run['calls']}", text, flags=re.M)
        libraries = sample_.run.get("library_calls", 0)
        text = re.sub(r"^library calls: 0$", f"library calls: {libraries}", text, flags=re.M)
    return text


@pytest.mark.parametrize("sample_", RUNNABLE, ids=lambda s: s.name)
def test_enabled_it_counts_and_disabled_it_does_not(sample_: Sample, tmp_path: Path) -> None:
    path, files = _folder(sample_, tmp_path)
    for file in files:
        result = ftpatch("enable", "--json", "--in-place", tmp_path / file.name, *_target(file))
        assert result.code == 0, result.err
        assert result.only["changed"] == file.expected["sites"]
        assert (result.only["dropped"], result.only["failed"]) == (0, [])
    done = _start(sample_, path)
    assert sample_.run is not None
    assert done.returncode == sample_.run["status"], done.stderr
    assert done.stdout == _wanted(sample_, enabled=True)
    for file in files:
        result = ftpatch("disable", "--json", "--in-place", tmp_path / file.name)
        assert result.code == 0 and result.only["changed"] == file.expected["sites"]
    done = _start(sample_, path)
    assert (done.returncode, done.stdout) == (
        sample_.run["status"],
        _wanted(sample_, enabled=False),
    )


def test_without_section_headers_it_counts_as_well(tmp_path: Path) -> None:
    """The manifest's reader finds no table there; its twin with headers says what is right."""
    twin = sample("pad")
    path = tmp_path / "pad"
    shutil.copy(BUILT / "pad-noheaders", path)
    assert ftpatch("enable", "--in-place", path, *_target(twin)).code == 0
    done = _start(twin, path)
    assert (done.returncode, done.stdout) == (0, _wanted(twin, enabled=True))


@pytest.mark.parametrize("nop", ["p6", "nop5", "jmp"])
@pytest.mark.parametrize("name", ["fentry", "fentry-pie", "fentry-pie-got", "i386-fentry"])
def test_every_nop_runs(name: str, nop: str, tmp_path: Path) -> None:
    path, _ = _folder(sample(name), tmp_path)
    assert ftpatch("disable", "--in-place", path, "--nop", nop).code == 0
    done = _start(sample(name), path)
    assert (done.returncode, done.stdout) == (0, _wanted(sample(name), enabled=False))


@pytest.mark.parametrize("sample_", RUNNABLE, ids=lambda s: s.name)
def test_a_few_enabled_sites_count_as_few(sample_: Sample, tmp_path: Path) -> None:
    """Every second function: more calls than none, fewer than all, and the work is the same."""
    path, _ = _folder(sample_, tmp_path)
    rows = ftpatch("list", "--json", path).json[::2]
    chosen = [option for row in rows for option in ("-f", row["ip"])]
    assert ftpatch("enable", "--in-place", path, *chosen, *_target(sample_)).code == 0
    done = _start(sample_, path)
    assert sample_.run is not None and done.returncode == 0
    (calls,) = re.findall(r"^calls: (\d+)$", done.stdout, re.M)
    assert 0 < int(calls) < sample_.run["calls"]
    assert done.stdout.splitlines()[0] == sample_.run["stdout"].splitlines()[0]


NO_VENEER = "vmlinux-arm64-far-full"
"""Its sites cannot reach ftrace_caller: that is a refusal, which other tests look at."""
ENABLED = [s for s in SAMPLES if s.ftrace_caller and s.expected["sites"] and s.name != NO_VENEER]
FEW = {"vmlinux-arm64-callops": ["-f", "vfs_*"]}


@pytest.mark.parametrize("sample_", ENABLED, ids=lambda s: s.name)
def test_patched_bytes_are_calls_to_another_reader(
    sample_: Sample, tmp_path: Path, reader: ModuleType
) -> None:
    output = tmp_path / "out"
    few = FEW.get(sample_.name, [])
    result = ftpatch("enable", "--json", sample_.path, "-o", output, *_target(sample_), *few)
    assert result.code == 0, result.err
    pad = reader.Pad(*sample_.pad)
    before, after = reader.Image(sample_.path, pad), reader.Image(output, pad)
    calls = 0
    spans = []
    for record in filter(None, before.records):
        was, now = before.site(record), after.site(record)
        if now.state != "call":
            assert few and was == now
            continue
        start, size, target = _called(after, now)
        if target != sample_.ftrace_caller:
            assert "far" in sample_.name or "room" in sample_.name, "these need a way there"
            target = _onward(after, target)
        assert target == sample_.ftrace_caller
        calls += 1
        spans.append((before.offset(start), before.offset(start) + size))
    assert calls == result.only["changed"] > 0
    if not sample_.kernel:
        _only_these_differ(sample_.data, output.read_bytes(), spans)


def _called(image: Any, site: Any) -> tuple[int, int, int]:  # noqa: ANN401 - of a script
    """Address and size of a patched site's code, and where it goes."""
    ops = image.address_of("ftrace_nop_ops") is not None
    start = site.ip - {"arm64": 4, "riscv64": 4 * ops}.get(image.arch, 0)
    size = 8 if image.arch in MACHINES else site.width
    *before, call = image.decoder.disasm(image.read(start, size), start)
    if image.arch != "riscv64":
        return start, size, int(call.op_str.lstrip("#"), 16)
    (auipc,) = before
    high, low = (int(insn.op_str.split(", ")[-1], 0) for insn in (auipc, call))
    return start, size, (start + (high << 12 ^ 1 << 31) - (1 << 31) + low) % 2**64


def _onward(image: Any, at: int) -> int:  # noqa: ANN401 - of a script
    """Where a veneer goes, or a stub that has the ops pointer and skips what would load it."""
    adrp, add, branch = image.decoder.disasm(image.read(at, 12), at)
    assert (adrp.mnemonic, add.mnemonic) == ("adrp", "add")
    page, low = (int(insn.op_str.split("#")[1], 16) for insn in (adrp, add))
    if branch.mnemonic == "br":
        return page + low
    assert branch.mnemonic == "b" and adrp.op_str.startswith("x11")
    assert page + low == image.address_of("ftrace_nop_ops")
    skipped = image.read(int(branch.op_str[1:], 16) - 12, 12)
    assert skipped == bytes.fromhex("5f2403d5 cbf37d92 6b015ff8")  # bti c; and x11; ldur x11
    return int(branch.op_str[1:], 16) - 12


def _only_these_differ(before: bytes, after: bytes, spans: list[tuple[int, int]]) -> None:
    """Nothing but the sites, and the journal behind the end."""
    kept, end = bytearray(after[: len(before)]), len(before)
    for start, stop in spans:
        kept[start:stop] = before[start:stop]
    assert bytes(kept) == before and after[end:] and b"\x7fftpatch" in after[end:]
