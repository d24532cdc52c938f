# SPDX-License-Identifier: MIT
"""A kernel that traced its own boot goes on to user space, where ftrace has what was left to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from .cli import ftpatch
from .fetch import FetchError, find_kernel
from .guest import run_steps
from .independent import Vmlinux
from .qemu import raw_image
from .test_boot_tracer import WORDS
from .trees import Tree, ensure_tree

TRACED = ("-f", "*init*", "-f", "vfs_*")  # by the boot tracer
STEPS = {
    "known": """
        echo "vfs $(grep -c '^vfs_' /t/available_filter_functions)"
        echo "ksys $(grep -c '^ksys_' /t/available_filter_functions)"
        echo vfs_read > /t/set_ftrace_filter 2>/dev/null; echo "vfs_read $?"
    """,
    "function": """
        echo 'ksys_*' > /t/set_ftrace_filter; echo function > /t/current_tracer; echo "set $?"
        dd if=/init of=/dev/null bs=16 count=3 2>/dev/null
        echo 0 > /t/tracing_on
        sed -n 's/.*: \\([^ ]*\\) .*<-.*/traced \\1/p' /t/trace
        echo nop > /t/current_tracer; echo 1 > /t/tracing_on
    """,
    "graph": """
        echo function_graph > /t/current_tracer; echo "set $?"
        dd if=/init of=/dev/null bs=16 count=3 2>/dev/null
        echo 0 > /t/tracing_on
        sed -n 's/.*| *\\(ksys_[a-z_]*\\)().*/traced \\1/p' /t/trace
        echo nop > /t/current_tracer
    """,
}


@pytest.fixture
def installed(traceable: Vmlinux) -> Tree:
    """What a kernel with a boot tracer was packed with."""
    kernel = find_kernel(traceable.path)
    try:
        return ensure_tree(kernel)
    except FetchError as error:
        pytest.skip(str(error))


def test_user_space_traces_what_was_kept(image: Vmlinux, installed: Tree, tmp_path: Path) -> None:
    """The tracer of ftrace and that of the boot are at work in one kernel."""
    path, stream = tmp_path / "vmlinux.boot", tmp_path / "stream"
    ftpatch("enable", image.path, "--tracer", "boot", *TRACED, "-o", path)
    sink = [word.format(stream) for word in WORDS[image.arch]]
    with raw_image(path, image.arch, tmp_path) as raw:
        steps = run_steps(replace(installed, kernel=raw), tmp_path, {}, STEPS, machine=sink)
    for step in steps.values():
        assert not step.warnings
        assert step.ftrace_bug is None
    assert steps["known"].value("vfs") == "0"
    assert int(steps["known"].value("ksys")) > 0
    assert steps["known"].value("vfs_read") != "0", "its record is gone"
    for name in ("function", "graph"):
        assert steps[name].value("set") == "0"
        traced = steps[name].values("traced")
        assert traced.count("ksys_read") >= 3
        assert all(one.startswith("ksys_") for one in traced)
    rows = ftpatch("report", stream, "--image", path, "-f", "vfs_read").objects
    assert len([row for row in rows if row["event"] == "entry"]) > 3
    path.unlink()
