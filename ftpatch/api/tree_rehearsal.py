# SPDX-License-Identifier: MIT
"""A tree's update before the first byte of it is written: does it make sense at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ftpatch.api.planner import SitePlanner
from ftpatch.errors import FtpatchError, NoTable, UsageError
from ftpatch.ftrace.filter import MODULE, near
from ftpatch.ftrace.sites import read_sites
from ftpatch.image import open_image
from ftpatch.io.tree import Watching, each
from ftpatch.names.spelling import like
from ftpatch.names.suggest import meant
from ftpatch.update.update import prepare

__all__ = ["rehearse"]


@dataclass(frozen=True)
class _Rehearsal:
    """Return whether a module would change, and which filters match nothing in it; None without
    sites."""

    plan: SitePlanner
    strip_signature: bool

    def __call__(self, path: Path) -> tuple[bool, frozenset[str]] | None:
        missing = set[str]()
        try:
            prepared = prepare(
                path, lambda sites: self.plan(sites, missing), strip_signature=self.strip_signature
            )
        except NoTable:
            return None
        return bool(len(prepared.plan.changes)) and not prepared.refused, frozenset(missing)


def rehearse(
    root: Path,
    modules: list[Path],
    plan: SitePlanner,
    *,
    strip_signature: bool,
    watching: Watching,
) -> None:
    """Plan and verify every module, and write nothing.

    Raises UsageError for a filter that matches nothing anywhere, and, where no module would change,
    the first of the reasons why the command cannot be carried out.
    """
    changes, missing, failed = False, None, list[FtpatchError]()
    results = each(_Rehearsal(plan, strip_signature), modules)
    for _, result in watching(results, len(modules), "planning"):
        if isinstance(result, FtpatchError):
            failed.append(result)
        elif result is not None:
            changes |= result[0]
            missing = set(result[1]) if missing is None else missing & result[1]
    if missing and not failed:  # else it may match one that could not be looked at
        text = min(missing)
        hint = _meant(text, modules, watching)
        raise UsageError(root, f"filter {text!r} matches no site of any module", hint)
    usage = [error for error in failed if isinstance(error, UsageError)]
    if usage and not changes:
        first = usage[0]
        more = len(usage) - 1
        others = f" (and {more} module{'s' * (more > 1)} more)" if more else ""
        raise UsageError(first.path, first.reason + others, first.hint)


@dataclass(frozen=True)
class _Near:
    """Names of a module's functions that are like one that none has."""

    name: str

    def __call__(self, path: Path) -> list[str]:
        try:
            return near(read_sites(open_image(path)), self.name)
        except NoTable:
            return []


def _meant(text: str, modules: list[Path], watching: Watching) -> str:
    """The question for a filter that matches nothing; empty where nothing is like it."""
    name = text.removeprefix("!").partition(MODULE)[0]
    results = watching(each(_Near(name), modules), len(modules), "looking")
    names = {one for _, found in results if not isinstance(found, FtpatchError) for one in found}
    return "" if name in names else meant(like(name, sorted(names)), "")
