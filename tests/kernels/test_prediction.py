"""What `check` predicts of a broken kernel is, word for word, what that kernel prints."""

from __future__ import annotations

from pathlib import Path

from .breakage import Breakage, break_copy
from .cli import ftpatch
from .independent import Vmlinux
from .qemu import FtraceBug, boot, read_console

# Where a kernel must refuse whatever its version; the other breakages depend on it.
ALWAYS_REFUSED = {"nop_for_call", "call_elsewhere", "two_sites", "move_for_nop", "hint_for_nop"}


def predicted(path: Path) -> FtraceBug | None:
    """The ftrace bug that `check` foretells."""
    answer = ftpatch("check", path, expect=None)
    assert answer.status in (0, 1), answer.complaint
    bugs = [f["bug"] for f in answer.objects if f["invariant"] == "ftrace_init"]
    if not bugs:
        return None
    assert answer.status == 1
    # The kernel prints one and gives up; a list of them begins with that one.
    return read_console(bugs[0]).ftrace_bug


def printed(path: Path, image: Vmlinux) -> FtraceBug | None:
    """The ftrace bug that the kernel prints. Without KASLR: an address is part of it."""
    seen = boot(path, image.arch, path.parent)
    assert seen.allocating is not None, seen.tail
    return seen.ftrace_bug


def test_broken_by_hand(image: Vmlinux, copy: Path, breakage: Breakage) -> None:
    break_copy(copy, breakage(image))
    seen = printed(copy, image)
    if breakage.__name__ in ALWAYS_REFUSED:
        assert seen is not None, "the kernel itself does not mind: the test breaks nothing"
    assert predicted(copy) == seen


def test_keep_records(image: Vmlinux, copy: Path) -> None:
    verb = "enable" if image.pads else "disable"
    done = ftpatch(verb, copy, "--in-place", "--keep-records", "-f", "vfs_read").one
    assert (done["changed"], done["dropped"]) == (1, 0)
    seen = printed(copy, image)
    if image.arch == "riscv64":  # ftrace_init_nop writes without a look
        assert seen is None
    else:
        assert seen is not None
        assert seen.symbol.startswith("vfs_read+")
    assert predicted(copy) == seen
