# SPDX-License-Identifier: MIT
"""Names of probes' events, also of those whose FUNC is a wildcard.

p:* 'str*'          probes/strlen
p:grp/* 'str*'      grp/strlen
p 'str*'            probes/p_strlen_0
p:calls 'str*'      calls/strlen
p:grp/in 'str*'     grp/in_strlen
"""

from __future__ import annotations

import re
from enum import Enum

from ftpatch.core.token import Token

__all__ = ["GROUP", "KERNEL_GROUP", "NAME_LIMIT", "EventNames", "Pattern", "event_name", "template"]

GROUP = "probes"
"""The default group."""
KERNEL_GROUP = "kprobes"
"""The kernel's."""
NAME_LIMIT = 63
"""Maximum length of event and group names: MAX_EVENT_NAME_LEN without the NUL."""


class Pattern(Enum):
    """The form of wildcards that a probe's FUNC may be."""

    NONE = ""
    GLOB = "glob"
    REGEX = "regular expression"


def event_name(text: str) -> str:
    """A text as an event's name: with ``_`` for what cannot be in one."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)[:NAME_LIMIT]
    return f"_{name}"[:NAME_LIMIT] if name[:1].isdigit() else name


def template(kind: str, group: str, name: str | None) -> str:
    """GROUP/NAME for the functions of a wildcard, with a ``*`` in place of each function's;
    ``name`` as given, None for none."""
    if name is None:
        return f"{group}/{kind}_*_0"
    if "*" in name:
        return f"{group}/{name}"
    return f"{name}/*" if group == GROUP else f"{group}/{name}_*"


class EventNames:
    """Groups and names that a command has given away."""

    def __init__(self) -> None:
        self._taken = set[tuple[str, str]]()

    def take(self, group: str, name: str) -> bool:
        """Give a name away; whether it was free."""
        free = (group, name) not in self._taken
        self._taken.add((group, name))
        return free

    def require(self, group: str, name: str, text: str) -> None:
        """Give away the name of a probe. Raises UsageError if it is taken, as with EEXIST."""
        if not self.take(group, name):
            raise Token.of(text).refuse(
                f"given group/event name {group}/{name} already exists",
                "use another name, as in p:NAME",
            )

    def of_function(self, template: str, function: str) -> tuple[str, str]:
        """Give away a free name for a function: of several with one name, the others get a number
        behind it, as in ``perf probe``."""
        group, _, name = template.partition("/")
        front, _, behind = name.partition("*")
        number, ending = 0, behind
        while True:
            room = NAME_LIMIT - len(front) - len(ending)
            found = event_name(front + event_name(function)[: max(room, 0)]) + ending
            if self.take(group, found):
                return group, found
            number += 1
            ending = f"{behind}_{number}"
