# SPDX-License-Identifier: MIT
"""Numbers and names as tables have them."""

from __future__ import annotations

from ftpatch.trace.render.style import time_text

__all__ = ["bar", "cut", "moment", "share", "spent"]

BAR = "▏▎▍▌▋▊▉█"


def spent(ns: int, known: bool) -> str:
    """A time as the reports have it; its bare number, where the clock's rate is not ``known``."""
    if ns < 0:
        return "?"
    return time_text(ns).strip() if known else str(ns)


def moment(ns: int, known: bool) -> str:
    """Seconds since the start."""
    if not known:
        return str(ns)
    sign = "-" * (ns < 0)
    return f"{sign}{abs(ns) // 10**9}.{abs(ns) % 10**9:09}"


def share(part: int, whole: int) -> str:
    """Percent."""
    return f"{100 * part / whole:.1f}%" if whole else ""


def bar(part: int, whole: int, width: int) -> str:
    """A bar of a share, as wide as ``width`` if that is all."""
    eighths = round(8 * width * part / whole) if whole else 0
    eighths = min(eighths, 8 * width)
    text = "█" * (eighths // 8) + (BAR[eighths % 8 - 1] if eighths % 8 else "")
    return text.ljust(width)


def cut(text: str, width: int) -> str:
    """The text, or what there is room for, and an ellipsis."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"
