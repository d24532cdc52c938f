# SPDX-License-Identifier: MIT
"""Words that take probes away, as in kprobe_events: ``-:[GROUP/]NAME``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ftpatch.core.token import Token
from ftpatch.errors import Refused, UsageError
from ftpatch.names.suggest import meant, near
from ftpatch.probe.definition import Definition
from ftpatch.probe.event_names import GROUP
from ftpatch.probe.grammar import parse_event

__all__ = ["REMOVES", "is_removal", "remaining", "require_new"]

REMOVES = "-:"
"""Begin of a removal."""


def is_removal(text: str) -> bool:
    """Test whether a word takes a probe away."""
    return text.lstrip().startswith(REMOVES)


def remaining(
    held: Sequence[Definition], removals: Iterable[str], refused: Refused
) -> list[Definition]:
    """The probes that are left of those a program has; a removal of none is ``refused``, as with
    ENOENT."""
    left = list(held)
    for text in removals:
        with refused.told():
            word = Token.of(text.strip())
            group, name = parse_event(word.cut(len(REMOVES)), GROUP)
            found = [one for one in left if (one.group, one.name) == (group, name)]
            if not found:
                names = [one.event for one in left]
                event = name if group == GROUP else f"{group}/{name}"
                known = f"it has {', '.join(names)}" if names else "it has none"
                raise word.cut(len(REMOVES)).refuse(
                    f"no probe {event} in this program", meant(near(event, names), known)
                )
            left.remove(found[0])
    return left


def require_new(
    held: Sequence[Definition], new: Iterable[Definition], refused: Refused
) -> list[Definition]:
    """The ``new`` probes but those whose names a program's have: these are ``refused``, as with
    EEXIST."""
    places = {(one.group, one.name): one for one in held}
    out = []
    for one in new:
        has = None if one.template else places.get((one.group, one.name))
        with refused.told():
            if has is not None:
                place = f"{has.symbol}+{has.offset:#x}" if has.symbol else f"{has.address or 0:#x}"
                raise UsageError(
                    None,
                    f"{one.text}: {one.event} is in this program already, at {place}",
                    f"take it away with {REMOVES}{one.event}, or use another name",
                )
            out.append(one)
    return out
