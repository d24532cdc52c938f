# SPDX-License-Identifier: MIT
"""What a booted kernel can and cannot do with a site whose record was dropped: the table of the
documentation, and what `enable`, `disable` and `check` say of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ftpatch.ftrace.dropped_records import Unrecorded

from .cli import ftpatch
from .fetch import FetchError, find_kernel
from .guest import Step, run_steps
from .independent import Vmlinux
from .qemu import PREFIX, need, raw_image
from .tracer import HERE
from .trees import ensure_tree

ENTRY, OTHER, IDLE, KEPT = "vfs_read", "vfs_fsync_range", "vfs_write", "vfs_open"
"""Calls ftrace_caller; calls ftrace_stub; is a NOP; is as it was."""
NOT_SUPPORTED, BUSY = "refused 524", "refused 16"
USE = "dd if=/init of=/tmp/y bs=16 count=3 conv=fsync 2>/dev/null; ls -l /init >/dev/null"
HELPERS = f"""
use() {{
    echo 1 > /t/tracing_on; {USE}; echo 0 > /t/tracing_on
    grep -E "[ |]({ENTRY}|{OTHER}|{IDLE}|{KEPT})[(; ]" /t/trace > /tmp/seen
    for f in {ENTRY} {OTHER} {IDLE} {KEPT}; do echo "$f $(grep -c "[ |]$f[(; ]" /tmp/seen)"; done
    echo nop > /t/current_tracer; echo > /t/set_ftrace_filter
}}
probe() {{
    echo "$1" > /t/kprobe_events && echo "laid 1" || echo "laid 0"
    echo > /t/kprobe_events
}}
"""
STEPS = {
    "known": f"for f in {ENTRY} {OTHER} {IDLE} {KEPT}; do "
    'echo "$f $(grep -cx $f /t/available_filter_functions)"; done; '
    "echo 0 > /t/tracing_on; echo 10000 > /t/buffer_size_kb",
    **{
        f"{tracer} {name}": f"echo {filter_} > /t/set_ftrace_filter; "
        f"echo {tracer} > /t/current_tracer; use"
        for tracer in ("function", "function_graph")
        for name, filter_ in (("of another", "__mmdrop"), ("of all", ""))
    },
    "two tracers": "mkdir /t/instances/b; echo __mmdrop > /t/set_ftrace_filter; "
    "echo schedule > /t/instances/b/set_ftrace_filter; echo function > /t/current_tracer; "
    "echo function > /t/instances/b/current_tracer; use; "
    "echo nop > /t/instances/b/current_tracer; rmdir /t/instances/b",
    **{
        f"{kind} {name}": f"probe '{kind[0]}:k {name}'"
        for kind in ("probe", "return")
        for name in (ENTRY, OTHER, IDLE, KEPT)
    },
    **{f"fentry {name}": f"/fentry {name}" for name in (ENTRY, OTHER, IDLE, KEPT)},
}


@dataclass
class Booted:
    """One kernel with all of it: what `enable` and `disable` said, `check`'s notes, the steps."""

    image: Vmlinux
    said: dict[str, str]
    notes: dict[str, list[str]]
    steps: dict[str, Step]

    def hits(self, step: str, name: str) -> int:
        return int(self.steps[step].value(name))

    @property
    def lost(self) -> list[str]:
        """The functions without a record."""
        return [ENTRY] if self.image.pads else [ENTRY, OTHER, IDLE]


def _said(verb: str, path: Path, *words: str | Path) -> str:
    """What a command says of dropped records."""
    command = [sys.executable, "-m", "ftpatch", verb, *map(str, (path, *words))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = (line for line in done.stdout.splitlines() if " record dropped: " in line)
    return line.partition(" record dropped: ")[2]


@pytest.fixture(scope="module")
def booted(image: Vmlinux, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    """x86's sites are calls as compiled, so there a NOP loses its record; where the compiler leaves
    NOPs, only calls do, and a callee is called with more than ftrace_stub can do."""
    if image.arch not in ("x86_64", "arm64"):
        pytest.skip(f"{image.arch}: the table is of x86_64 and arm64")
    need(f"{PREFIX[image.arch]}gcc")
    kernel = find_kernel(image.path)
    try:
        tree = ensure_tree(kernel)
    except FetchError as error:
        pytest.skip(str(error))
    scratch = tmp_path_factory.mktemp("dropped")
    path, program = scratch / "vmlinux", scratch / "fentry"
    said = {ENTRY: _said("enable", image.path, "-f", ENTRY, "-o", path)}
    if not image.pads:
        said[OTHER] = _said("enable", path, "-f", OTHER, "--to", "ftrace_stub", "--in-place")
        said[IDLE] = _said("disable", path, "-f", IDLE, "--in-place")
    rows = ftpatch("check", path).objects
    notes = {row["note"]: [site["symbol"] for site in row["sites"]] for row in rows}
    command = [f"{PREFIX[image.arch]}gcc", "-O1", "-static", str(HERE / "fentry.c")]
    subprocess.run([*command, "-o", str(program)], check=True)
    files = {"fentry": program.read_bytes()}
    with raw_image(path, image.arch, scratch) as raw:
        steps = run_steps(replace(tree, kernel=raw), scratch, files, STEPS, HELPERS)
    yield Booted(image, said, notes, steps)
    path.unlink()


def test_ftrace_does_not_list_them(booted: Booted) -> None:
    assert [name for name in booted.lost if booted.hits("known", name)] == []
    assert booted.hits("known", KEPT) == 1


@pytest.mark.parametrize("tracer", ["function", "function_graph"])
def test_calls_of_ftrace_caller_are_traced_unasked(booted: Booted, tracer: str) -> None:
    """By any filter, where nothing at the site says that nobody listens (CALL_OPS)."""
    call_ops = booted.image.call_ops
    for step in (f"{tracer} of another", f"{tracer} of all"):
        assert booted.hits(step, ENTRY) == (0 if call_ops else 3)
        for name in booted.lost[1:]:
            assert booted.hits(step, name) == 0
    assert booted.hits(f"{tracer} of another", KEPT) == 0
    assert booted.hits(f"{tracer} of all", KEPT) >= 3


def test_two_tracers_look_at_their_filters(booted: Booted) -> None:
    assert [booted.hits("two tracers", name) for name in (ENTRY, OTHER, IDLE, KEPT)] == [0] * 4


@pytest.mark.parametrize("kind", ["probe", "return"])
def test_kprobes_are_refused(booted: Booted, kind: str) -> None:
    for name in booted.lost:
        step = booted.steps[f"{kind} {name}"]
        assert step.value("laid") == "0"
        assert any(f"Could not probe notrace function {name}" in line for line in step.log)
    assert booted.steps[f"{kind} {KEPT}"].value("laid") == "1"


def test_fentry_attaches_to_nops_of_x86(booted: Booted) -> None:
    last = {name: booted.steps[f"fentry {name}"].said[0] for name in (*booted.lost, KEPT)}
    if not booted.image.pads:
        assert last == {ENTRY: BUSY, OTHER: BUSY, IDLE: "hits 1", KEPT: "hits 1"}
    elif booted.image.call_ops:
        assert last == {ENTRY: NOT_SUPPORTED, KEPT: "hits 1"}
    else:  # before v6.4 no function of arm64 has it
        assert last == {ENTRY: NOT_SUPPORTED, KEPT: NOT_SUPPORTED}


def test_that_is_what_users_are_told(booted: Booted) -> None:
    wanted = {ENTRY: Unrecorded.IGNORED if booted.image.call_ops else Unrecorded.TRACED}
    if not booted.image.pads:
        wanted |= {OTHER: Unrecorded.IGNORED, IDLE: Unrecorded.POKED}
    assert booted.said == {name: kind.value for name, kind in wanted.items()}
    notes: dict[str, list[str]] = {f"record dropped: {kind}": [] for kind in wanted.values()}
    for name, kind in wanted.items():
        notes[f"record dropped: {kind}"].append(name)
    named = {
        note: [at.rpartition("+")[0] for at in places] for note, places in booted.notes.items()
    }
    assert named == notes
