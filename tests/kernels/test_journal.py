# SPDX-License-Identifier: MIT
"""In place, and several times over: each journal takes back its own change."""

from __future__ import annotations

import filecmp
import shutil
from pathlib import Path

import numpy as np

from .cli import ftpatch
from .independent import Vmlinux
from .sitecode import drop_value, read_sites


def states_of(image: Vmlinux, path: Path, prefix: str) -> set[str]:
    """The states of the sites whose function's name begins so."""
    sites = image.sites[np.array([name.startswith(prefix) for name in image.names])]
    return set(read_sites(Vmlinux(path), sites)[0].tolist())


def test_in_place_twice_and_back(image: Vmlinux, copy: Path) -> None:
    first = ftpatch("enable", copy, "--in-place", "-f", "vfs_*").one
    assert first["output"] == str(copy)
    assert states_of(image, copy, "vfs_") == {"call"}
    once = copy.with_suffix(".once")
    shutil.copyfile(copy, once)
    try:
        second = ftpatch("disable", copy, "--in-place", "-f", "vfs_*").one
        assert second["changed"] == first["changed"] > 50
        assert states_of(image, copy, "vfs_") == {"nop"}
        # Their records were dropped by the first; the site's old code is the journal's word.
        skipped = np.array([name.startswith("vfs_") for name in image.names])
        slots = np.flatnonzero(image.records != 0)[skipped]
        records = Vmlinux(copy).records[slots]
        if not image.pads:  # a NOP is what ftrace_init expects there
            assert set(records[~image.uncompared[skipped]].tolist()) == {drop_value(image)}
        ftpatch("undo", copy)
        assert filecmp.cmp(copy, once, shallow=False)
    finally:
        once.unlink()
    ftpatch("undo", copy)
    assert filecmp.cmp(copy, image.path, shallow=False)


def test_undo_all(image: Vmlinux, copy: Path) -> None:
    for glob in ("vfs_*", "tcp_*", "sched_*", "kmem_*"):
        ftpatch("enable", copy, "--in-place", "-f", glob)
    assert states_of(image, copy, "tcp_") == {"call"}
    ftpatch("undo", copy, "--all")
    assert filecmp.cmp(copy, image.path, shallow=False)


def test_repeated_change_is_none(image: Vmlinux, copy: Path) -> None:
    """The second time there is nothing to do, and nothing to take back but the first."""
    ftpatch("enable", copy, "--in-place", "-f", "vfs_*")
    size = copy.stat().st_size
    again = ftpatch("enable", copy, "--in-place", "-f", "vfs_*").one
    assert (again["changed"], again["dropped"], again["failed"]) == (0, 0, [])
    assert copy.stat().st_size == size
    ftpatch("undo", copy)
    assert filecmp.cmp(copy, image.path, shallow=False)
