# SPDX-License-Identifier: MIT
"""Every changed site, record and literal of a patched kernel, and every byte that must stay.

The last test of a case undoes it, and takes its file away.
"""

from __future__ import annotations

import filecmp
from collections import Counter
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .cases import Patched, entry_sites
from .cli import ftpatch
from .compare import different_bytes, other_relocations, spread
from .independent import Vmlinux
from .opsstub import STUB_SIZE, needs_stub, reads_as_stub, was_padding
from .qemu import Console, boot, kaslr_choices
from .sitecode import announced, drop_value, read_sites
from .veneer import VENEER_SIZE, out_of_reach, reads_as_veneer


def test_report(patched: Patched) -> None:
    changed = int(patched.changed.sum())
    assert patched.report["changed"] == changed
    assert patched.report["dropped"] == int(patched.dropped.sum())
    assert patched.report["failed"] == []
    assert patched.report["output"] == str(patched.path)


def test_case_reaches_sites(patched: Patched) -> None:
    """Guards the other tests: a filter that reaches nothing, or all, would let them pass."""
    reached = int(patched.case.reach(patched.original).sum())
    everything = len(patched.original.sites)
    assert reached == everything if patched.case.select == "all" else 50 < reached < everything / 2
    assert entry_sites(patched.original).mean() > 0.95


def stub_of(patched: Patched, targets: NDArray[np.uint64] | None = None) -> int:
    """Address of the stub that all changed sites call, if this kernel needs one; else 0."""
    calls = int(patched.changed.sum()) if patched.state == "call" else 0
    if not needs_stub(patched.original, calls):
        return 0
    if targets is None:
        _, targets = read_sites(patched.image, patched.original.sites)
    (stub,) = set(targets[patched.changed].tolist())
    assert reads_as_stub(patched.original, patched.image, stub)
    assert was_padding(patched.original, stub)
    return int(stub)


def veneers_of(patched: Patched, targets: NDArray[np.uint64] | None = None) -> list[int]:
    """Addresses of the branches that changed sites call which do not reach ftrace_caller."""
    if patched.state != "call":
        return []
    if targets is None:
        _, targets = read_sites(patched.image, patched.original.sites)
    far = patched.changed & out_of_reach(patched.original, patched.original.sites)
    veneers: list[int] = np.unique(targets[far]).tolist()
    assert all(reads_as_veneer(patched.original, patched.image, at) for at in veneers)
    return veneers


def test_sites_read_back(patched: Patched) -> None:
    """Capstone reads the wanted code at every changed site, and the old at every other."""
    before, from_ = read_sites(patched.original, patched.original.sites)
    after, to = read_sites(patched.image, patched.original.sites)
    changed = patched.changed
    assert Counter(after[changed].tolist()) == (
        {patched.state: int(changed.sum())} if changed.any() else {}
    )
    stub, veneers = stub_of(patched, to), veneers_of(patched, to)
    target = patched.original.address("ftrace_caller") if patched.state == "call" else 0
    far = out_of_reach(patched.original, patched.original.sites) & bool(veneers)
    assert set(to[changed & ~far].tolist()) <= {stub or target}
    assert (after[~changed] == before[~changed]).all()
    assert (to[~changed] == from_[~changed]).all()


def test_records_of_changed_sites_are_dropped(patched: Patched) -> None:
    before, after = patched.original.records, patched.image.records
    dropped = patched.slots[patched.dropped]
    expected = before.copy()
    expected[dropped] = drop_value(patched.original)
    wrong = np.flatnonzero(after != expected)
    sample = [(int(i), hex(after[i]), hex(expected[i])) for i in wrong[:5]]
    assert not len(wrong), f"{len(wrong)} records: {sample}"


def test_relocations(patched: Patched) -> None:
    """A dropped record has none; a literal of a called site (CALL_OPS) has one to ftrace_nop_ops.

    Which entry of .rela.dyn carries it does not matter: the kernel applies them all.
    """
    original, image = patched.original, patched.image
    start, _ = original.table
    width = np.uint64(original.bits // 8)
    gone = np.uint64(start) + patched.slots[patched.dropped].astype(np.uint64) * width
    places, values = original.relative
    kept = ~np.isin(places, gone)
    places, values = places[kept], values[kept]
    if original.call_ops and patched.state == "call" and not stub_of(patched):
        literals = original.records[patched.slots[patched.changed]]
        nop_ops = original.address("ftrace_nop_ops")
        carried = image.code(literals, 8).copy().view("<u8")
        assert set(carried.ravel().tolist()) <= {nop_ops}, "the value stands there as well"
        if len(original.rela):
            places = np.concatenate([places, literals])
            values = np.concatenate([values, np.full(len(literals), nop_ops, np.uint64)])
    order = np.argsort(places, kind="stable")
    assert np.array_equal(image.relative[0], places[order])
    assert np.array_equal(image.relative[1], values[order])
    assert other_relocations(image) == other_relocations(original)


def test_no_other_byte_differs(patched: Patched) -> None:
    """Whole files are compared, up to the original's length; the journal lies behind it."""
    original = patched.original
    differ = different_bytes(original.data, patched.image.data)
    table = (original.offset(original.table[0]), original.table[1] - original.table[0])
    relocations = [original.sections[n][1:] for n in (".rela.dyn", ".relr.dyn")
                   if n in original.sections]  # fmt: skip
    for at, size in [table, *relocations]:  # compared by value above
        differ = differ[(differ < at) | (differ >= at + size)]
    sites = original.offsets(original.sites[patched.changed])
    lead, width = original.extent
    allowed = [spread(sites - lead, width)]
    if original.call_ops:
        literals = original.records[patched.slots[patched.changed]]
        allowed.append(spread(original.offsets(literals), 8))
    if stub := stub_of(patched):
        allowed.append(spread(original.offsets(np.array([stub], np.uint64)), STUB_SIZE))
    if veneers := veneers_of(patched):
        allowed.append(spread(original.offsets(np.array(veneers, np.uint64)), VENEER_SIZE))
    stray = differ[~np.isin(differ, np.concatenate(allowed))]
    assert not len(stray), f"{len(stray)} bytes, at {[hex(at) for at in stray[:5]]}"
    same_length = len(patched.image.data) == len(original.data)
    assert same_length == (not patched.changed.any()), "a change has a journal; none has none"


def test_status_of_the_output(patched: Patched) -> None:
    """A second run sees what the first dropped, and check predicts no ftrace bug."""
    said = ftpatch("status", patched.path).one
    states, _ = read_sites(patched.image, patched.original.sites)
    counted = Counter(states.tolist())
    assert said["sites"] == len(patched.original.sites)
    assert said["dropped"] == int(patched.dropped.sum())
    assert said["states"] == {name: counted[name] for name in ("nop", "call", "unexpected")}
    found = ftpatch("check", patched.path, expect=None).objects
    assert [f for f in found if f["invariant"] == "ftrace_init"] == []


def test_boots(patched: Patched, untouched: Callable[[Vmlinux, bool], Console]) -> None:
    original = patched.original
    for kaslr in kaslr_choices(original.arch):
        plain = untouched(original, kaslr)
        seen = boot(patched.path, original.arch, patched.path.parent, kaslr=kaslr)
        assert seen.reached_panic, seen.tail
        assert seen.ftrace_bug is None, seen.ftrace_bug
        assert seen.warnings <= plain.warnings, seen.warnings - plain.warnings
        assert seen.allocating == announced(patched.image)


def test_undo_gives_the_original_back(patched: Patched) -> None:
    if patched.changed.any():
        ftpatch("undo", patched.path)
    assert filecmp.cmp(patched.path, patched.original.path, shallow=False)
