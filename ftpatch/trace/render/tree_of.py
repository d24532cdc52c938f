# SPDX-License-Identifier: MIT
"""The tree of a source's calls, for formats that show stacks."""

from __future__ import annotations

from ftpatch.trace.render.style import Style
from ftpatch.trace.source import EventSource
from ftpatch.trace.tree import Tree, grow

__all__ = ["tree_of"]


def tree_of(source: EventSource, style: Style) -> Tree:
    """The tree of a source's calls; a remark tells where it is too large."""
    recording = source.recording
    tree = grow(style.rows(source), recording.window)
    if tree.merged:
        recording.remarks.append(
            f"more than {len(tree.parent)} different stacks: calls on further stacks count as "
            "part of their callers"
        )
    return tree
