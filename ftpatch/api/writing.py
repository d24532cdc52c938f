# SPDX-License-Identifier: MIT
"""One image written: an update, or the undo of one, into the output that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from ftpatch.api.given import AnyPath, path_of
from ftpatch.errors import FtpatchError, InputError, UsageError

if TYPE_CHECKING:
    from ftpatch.api.planner import Planner
    from ftpatch.image import Image
    from ftpatch.io.output import Copy
    from ftpatch.update.update import Prepared
    from ftpatch.write.undo import Undo

__all__ = [
    "SUFFIX",
    "Undone",
    "Updated",
    "Wait",
    "Writing",
    "WritingOptions",
    "copy_of",
    "output_path",
    "require_place",
    "write_undo",
    "write_update",
    "writing_of",
]

PACKED_AS = {"gzip": ".gz", "xz": ".xz", "zstd": ".zst"}
PACKED = set(PACKED_AS.values())
"""Ends of names that say how a module is packed."""
SUFFIX = ".ftpatch"
"""Suffix of the output that a command writes beside its input."""
Wait = Callable[["Copy"], None]
"""Called where there is nothing to do but to wait for the copy."""


@dataclass(frozen=True, kw_only=True)
class Writing:
    """The image to be written, and where: the options that commands which write share."""

    image: Path
    output: Path | None = None
    in_place: bool = False
    force: bool = False
    allow_setuid: bool = False
    strip_signature: bool = False
    sign: str | None = None
    dry_run: bool = False


class WritingOptions(TypedDict, total=False):
    """Keywords of everything that writes: ``output`` (default: the image's name + ``.ftpatch``) or
    ``in_place``; ``force``: over an existing output; ``allow_setuid``: of a setuid program;
    ``strip_signature``: of a signed module or kernel; ``sign``: the command that signs the kernel
    anew; ``dry_run``: verify all, write nothing."""

    output: AnyPath | None
    in_place: bool
    force: bool
    allow_setuid: bool
    strip_signature: bool
    sign: str | None
    dry_run: bool


def writing_of(image: Path, options: WritingOptions) -> Writing:
    """Complete the options for an image. Raises TypeError for others than these."""
    output = options.get("output")
    given: dict[str, Any] = {**options}
    if output is not None:
        given["output"] = path_of("output", output)
    return Writing(image=image, **given)


@dataclass(frozen=True)
class Updated:
    """An update: ``target`` is where it is, or would be; ``written`` where it is, None where it was
    refused or not asked for. ``names`` is how many the file had whose place it took."""

    prepared: Prepared
    target: Path
    written: Path | None
    names: int


@dataclass(frozen=True)
class Undone:
    """An undo, as Updated; ``image`` is what it was taken back from."""

    undo: Undo
    image: Image
    target: Path
    written: Path | None
    names: int


def output_path(image: Path, output: Path | None, in_place: bool) -> Path:
    """Choose the output's path. Raises UsageError for two places, or for a link to be replaced."""
    if in_place and output is not None:
        raise UsageError(None, "--in-place and -o are mutually exclusive", "choose one")
    if not image.name:
        raise InputError(image, "not a regular file", "use a single image")
    if in_place and image.is_symlink():
        hint = f"use its target, {_target(image)}"
        raise UsageError(image, "a symbolic link cannot be replaced in place", hint)
    if in_place:
        return image
    return output or image.with_name(image.name + SUFFIX)


def write_update(writing: Writing, plan: Planner, wait: Wait = lambda _: None) -> Updated:
    """Plan with the image's sites, verify, and write unless a site is refused. Raises what the plan
    raises, InputError, UsageError, and OutputError where it cannot be written."""
    target = output_path(writing.image, writing.output, writing.in_place)
    # The copy runs while everything heavy is imported and planned.
    with copy_of(writing, target, in_place=writing.in_place) as copy:
        from ftpatch.update.update import update
        from ftpatch.write.sign import Signer

        signer = None if writing.sign is None else Signer(writing.sign)
        strip = writing.strip_signature or signer is not None
        prepared = plan.prepare(writing.image, strip_signature=strip)
        packed = prepared.image.compression
        if writing.output and target.suffix in PACKED and target.suffix != PACKED_AS.get(packed):
            how = f"the output is compressed like the input ({packed or 'uncompressed'})"
            raise UsageError(target, how, "use a name with a matching suffix")
        if not prepared.refused and not writing.dry_run:
            wait(copy)
            update(copy, prepared, partial(signer, name=target) if signer else lambda _: None)
    written = None if prepared.refused or writing.dry_run else target
    return Updated(prepared, target, written, copy.names)


def write_undo(
    writing: Writing, *, everything: bool = False, wait: Wait = lambda _: None
) -> Undone:
    """Take back the latest update, or all, in place unless there is an output. Raises InputError
    without a journal, SiteRefused where the image was modified by something else, OutputError."""
    in_place = writing.in_place or writing.output is None
    if in_place and writing.image.is_symlink():
        _planned_undo(writing.image, everything=everything)  # its target may have nothing to undo
    target = output_path(writing.image, writing.output, in_place)
    with copy_of(writing, target, in_place=in_place) as copy:
        from ftpatch.write.undo import take_back

        image, undo = _planned_undo(writing.image, everything=everything)
        if not writing.dry_run:
            wait(copy)
            take_back(copy, image, undo)
    return Undone(undo, image, target, None if writing.dry_run else target, copy.names)


def _planned_undo(path: Path, *, everything: bool) -> tuple[Image, Undo]:
    """Open an image and plan its undo. Raises what plan_undo raises; NoJournal names the file that
    a command wrote from the image, if that has one."""
    from ftpatch.image import open_image
    from ftpatch.write.undo import NoJournal, plan_undo

    image = open_image(path)
    try:
        return image, plan_undo(image, everything=everything)
    except NoJournal as error:
        inputs = [one for one in (path, _target(path)) if one.suffix != SUFFIX]
        for written in (one.with_name(one.name + SUFFIX) for one in inputs):
            if _has_journal(written):
                hint = f"use `ftpatch undo {written}`"
                raise NoJournal(path, error.reason, hint) from None
        raise


def _target(path: Path) -> Path:
    """The file that a symbolic link leads to, below the current directory by its relative path."""
    real, here = path.resolve(), Path.cwd()
    return real.relative_to(here) if real.is_relative_to(here) else real


def _has_journal(path: Path) -> bool:
    from ftpatch.image import open_image

    try:
        return bool(open_image(path).blocks)
    except FtpatchError:
        return False


def require_place(writing: Writing, target: Path) -> None:
    """Raise UsageError and OutputError for a place where the output could not be written, which a
    dry run does not try."""
    from ftpatch.io.output import require_output, require_writable

    require_output(writing.image, target, force=writing.force, in_place=writing.in_place)
    require_writable(target)


def copy_of(writing: Writing, target: Path, *, in_place: bool) -> Copy:
    """The copy that is to become the output; for a dry run, of nothing."""
    from ftpatch.io.output import Copy

    return Copy(
        writing.image,
        None if writing.dry_run else target,
        force=writing.force,
        allow_setuid=writing.allow_setuid,
        in_place=in_place,
    )
