# SPDX-License-Identifier: MIT
"""What `check` predicts of a broken kernel is, word for word, what that kernel prints.

Where the kernel stumbles later, or over something else than ftrace_init, `check` need only have
named what is wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from .breakage import Breakage, broken
from .cases import entry_sites
from .cli import ftpatch, read_check
from .independent import Vmlinux
from .oracle import DIFFERS, PROPERTY, Row, summary
from .qemu import Console, boot, read_console

# Where a kernel must refuse whatever its version; the other breakages depend on it.
REFUSED = {"nop_for_call", "call_elsewhere", "call_past_the_entry", "trap", "move_for_nop",
           "hint_for_nop", "short_nops", "brcl_elsewhere", "last_halfword", "brasl"}  # fmt: skip


def choose(image: Vmlinux, breakage: str, place: str) -> int:
    """Number of a site: of the function, or for "random-SEED" of any; not the last."""
    if not place.startswith("random-"):
        return image.names.index(place)
    entries = entry_sites(image)[:-1].nonzero()[0].tolist()
    return int(random.Random(f"{place} {image.arch} {breakage}").choice(entries))


def test_broken_by_hand(
    image: Vmlinux,
    kernel_name: str,
    work_copy: Path,
    breakage: tuple[Breakage, str],
    untouched: Callable[[Vmlinux, bool], Console],
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    what, place = breakage
    number = choose(image, what.__name__, place)
    with broken(work_copy, what(image, number)):
        foretold = read_check(work_copy)
        told = read_console(foretold.text)
        # Without KASLR: an address is part of the words.
        seen = boot(work_copy, image.arch, work_copy.parent, bug_ends=True)
    bug = seen.linked_bug(image.arch)
    trouble = ""
    if bug is None:
        new = seen.warnings - untouched(image, False).warnings
        trouble = "; ".join(sorted(new)) or ("" if seen.reached_panic else "does not boot")
    # The count comes behind the records: a kernel that dies of one says none.
    counted = told.allocating == seen.allocating or (bool(trouble) and seen.allocating is None)
    same = told.ftrace_bug == bug and counted
    dead = bug is None and not seen.reached_panic
    agreed = same and (not trouble or bool(foretold.findings)) and foretold.dies <= dead
    if what.__name__ == "record_four_off":
        agreed = agreed and foretold.dies == dead == image.call_ops
    others = ", ".join(name for name in foretold.findings if name != "ftrace_init")
    row = Row(
        kernel_name, "vmlinux", what.__name__, image.names[number],
        summary(told.ftrace_bug, told.allocating, "does not boot" * foretold.dies),
        summary(bug, seen.allocating, trouble), others, agreed,
    )  # fmt: skip
    record_property(PROPERTY, row.properties())
    if reason := DIFFERS.get((kernel_name, what.__name__)):
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    if what.__name__ in REFUSED:
        assert bug is not None, "the kernel does not mind: the test breaks nothing"
    assert agreed, (row, told.ftrace_bug, bug)


def test_keep_records(image: Vmlinux, copy: Path) -> None:
    verb = "enable" if image.pads else "disable"
    done = ftpatch(verb, copy, "--in-place", "--keep-records", "-f", "vfs_read").one
    assert (done["changed"], done["dropped"]) == (1, 0)
    seen = boot(copy, image.arch, copy.parent, bug_ends=True)
    assert seen.allocating is not None, seen.tail
    if not image.init_compares:
        assert seen.ftrace_bug is None
    else:
        assert seen.ftrace_bug is not None
        assert seen.ftrace_bug.symbol.startswith("vfs_read+")
    assert read_console(read_check(copy).text).ftrace_bug == seen.linked_bug(image.arch)
