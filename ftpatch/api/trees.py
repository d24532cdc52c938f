# SPDX-License-Identifier: MIT
"""Trees of kernel modules, as a user of Python meets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from ftpatch.api.given import AnyPath, path_of, patterns
from ftpatch.api.planner import Disable, Enable, SitePlanner
from ftpatch.api.writing import Writing, WritingOptions, writing_of
from ftpatch.errors import FtpatchError, InputError
from ftpatch.io.tree import module_paths

if TYPE_CHECKING:
    from ftpatch.update.update import Outcome

__all__ = ["Tree", "TreeOutcome"]


@dataclass(frozen=True, kw_only=True)
class TreeOutcome:
    """The outcome of each module that has sites, by its path in the tree, and ``errors``, of files
    that are not in the output. A module with refused sites was not written; the others were."""

    modules: dict[Path, Outcome]
    errors: tuple[FtpatchError, ...]

    @property
    def sites(self) -> int:
        """Sites of all modules."""
        return sum(one.sites for one in self.modules.values())

    @property
    def selected(self) -> int:
        """Sites that were selected."""
        return sum(one.selected for one in self.modules.values())

    @property
    def changed(self) -> int:
        """Sites that were changed."""
        return sum(one.changed for one in self.modules.values())

    @property
    def dropped(self) -> int:
        """Records dropped."""
        return sum(one.dropped for one in self.modules.values())

    @property
    def written(self) -> list[Path]:
        """The modules that were written."""
        return [one.written for one in self.modules.values() if one.written is not None]

    @property
    def refused(self) -> list[Path]:
        """The modules that were not written, because of a refused site."""
        return [path for path, one in self.modules.items() if one.refused]


class Tree:
    """A folder of kernel modules, in which each is updated by itself, on all processors.

    One bad module does not hide the others: it is in the outcome's ``errors``, or ``refused``, and
    left out. Raises InputError for what is no folder.
    """

    def __init__(self, path: AnyPath) -> None:
        self.path = path_of("path", path)
        if not self.path.is_dir():
            raise InputError(self.path, "not a directory", "use ftpatch.open() for a file")

    def __repr__(self) -> str:
        return f"<tree {self.path}>"

    @property
    def modules(self) -> list[Path]:
        """Paths of its modules, for ``ftpatch.open``. Raises InputError for what cannot be read."""
        paths, errors = module_paths(self.path)
        if errors:
            raise errors[0]
        return paths

    def enable(
        self,
        filter: str | Sequence[str] = (),
        *,
        notrace: str | Sequence[str] = (),
        regex: bool = False,
        to: str | None = None,
        keep_records: bool = False,
        **options: Unpack[WritingOptions],
    ) -> TreeOutcome:
        """Turn the selected sites of every module into calls, ``in_place``, or into the folder
        ``output``, which gets everything else as it is.

        Raises UsageError for a filter that matches nothing in any module, and where no module would
        change for a reason; nothing is written then.
        """
        plan = Enable(
            filters=patterns("filter", filter),
            notrace=patterns("notrace", notrace),
            regex=regex,
            site=None,
            keep_records=keep_records,
            to=to,
        )
        writing = writing_of(self.path, options)
        return _updated(writing, plan)

    def disable(
        self,
        filter: str | Sequence[str] = (),
        *,
        notrace: str | Sequence[str] = (),
        regex: bool = False,
        nop: str | None = None,
        keep_records: bool = False,
        **options: Unpack[WritingOptions],
    ) -> TreeOutcome:
        """Turn the selected sites of every module into NOPs, and write as ``enable`` does."""
        plan = Disable(
            filters=patterns("filter", filter),
            notrace=patterns("notrace", notrace),
            regex=regex,
            site=None,
            keep_records=keep_records,
            nop=nop,
        )
        writing = writing_of(self.path, options)
        return _updated(writing, plan)

    def undo(self, *, everything: bool = False, dry_run: bool = False) -> list[Path]:
        """Take back the latest command, or ``everything``, in each module that has a journal, in
        place; the modules that it changed.

        Raises the first error of a module when the others are done, InputError where no module has
        a journal.
        """
        from ftpatch.api.tree_undo import undo_tree

        done, errors = list[Path](), list[FtpatchError]()
        for path, result in undo_tree(self.path, everything=everything, dry_run=dry_run):
            if isinstance(result, FtpatchError):
                errors.append(result)
            else:
                done.append(path)
        if errors:
            first, *others = errors
            for other in others:
                first.add_note(str(other))
            raise first
        if not done:
            raise InputError(self.path, "no module has a journal")
        return done


def _updated(writing: Writing, plan: SitePlanner) -> TreeOutcome:
    from ftpatch.api.tree_update import TreeUpdate

    modules, errors = dict[Path, "Outcome"](), list[FtpatchError]()
    made = TreeUpdate(writing, plan, errors.append)
    for path, outcome in made.carry_out(verbose=True):
        if isinstance(outcome, FtpatchError):
            errors.append(outcome)
        else:
            modules[path] = outcome
    return TreeOutcome(modules=modules, errors=tuple(errors))
