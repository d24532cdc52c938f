# SPDX-License-Identifier: MIT
"""The traced program itself: a tracer in it, with or without sites of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ftpatch.core.changes import Changes
from ftpatch.errors import FtpatchError, NoTable, UsageError
from ftpatch.ftrace.filter import Selection
from ftpatch.ftrace.sites import read_sites
from ftpatch.image import Image
from ftpatch.inject.runtime import TRACERS
from ftpatch.tracer.choice import Choice, require_tracer
from ftpatch.tracer.imported_calls import find_calls
from ftpatch.tracer.plan import Tracing, plan_runtime, plan_traced, require_untraced
from ftpatch.update.update import Prepared, cleared_name, prepare_bare, prepare_sites

__all__ = [
    "Cleared",
    "prepare_program",
    "require_no_library",
    "suggests_calls",
    "tell_cleared",
    "with_calls",
]

Cleared = Callable[[Path, str], None]
"""Called before the run with a file, and the property that its copy loses."""


def with_calls(image: Image, choice: Choice, tracing: Tracing) -> Tracing:
    """Add the chosen ones of the program's library calls. Raises UsageError for a tracer that
    cannot follow them, or a program without any."""
    require_tracer(tracing.tracer, "--libcalls")
    require_untraced(image)
    found = find_calls(image, hooks=TRACERS[tracing.tracer].hooks)
    return replace(tracing, calls=choice.of_calls(image, found))


def prepare_program(image: Image, choice: Choice, tracing: Tracing) -> Prepared:
    """Prepare a tracer for the program's chosen sites, if it has any, and for all that ``tracing``
    names. Raises UsageError where nothing is chosen."""
    require_no_library(image)
    try:
        sites = read_sites(image, named=True)
    except NoTable:
        choice.require(image.path)
        return prepare_bare(image, plan_runtime(image, tracing))
    prepared = prepare_sites(
        image, sites, lambda found: plan_traced(found, choice.of(found), tracing)
    )
    choice.require(image.path)
    return prepared


def require_no_library(image: Image) -> None:
    """Raise UsageError for a shared object: it has a tracer, but is not run."""
    if image.is_library:
        hint = f"use --lib '{image.path.name}' PROG, or `ftpatch enable` for all that load it"
        raise UsageError(image.path, f"{image.kind}, not a program", hint)


def suggests_calls(error: NoTable, image: Image, tracing: Tracing) -> NoTable:
    """The error for a program without sites, with what can be recorded of it: library calls, and
    what probes see."""
    try:
        with_calls(image, Choice(Selection()), tracing)
    except FtpatchError:
        return error
    hint = "use --libcalls (before PROG) to trace its library calls, `ftpatch probe -c`, which "
    hint += f"needs no pads, or {error.hint}"
    return NoTable(error.path, error.reason, hint)


def tell_cleared(image: Image, changes: Changes, on_cleared: Cleared) -> None:
    """Report the property that the copy of an image loses, if any."""
    name = cleared_name(image, changes)
    if name:
        on_cleared(image.path, name)
