# SPDX-License-Identifier: MIT
"""The views, the keys and their help, and where the parts of the screen are."""

from __future__ import annotations

from textual.binding import Binding, BindingType

__all__ = ["BINDINGS", "CSS", "KEYS", "VIEWS", "views_of"]

VIEWS = {
    "functions": "Functions",
    "around": "Callers",
    "tree": "Tree",
    "time": "Time line",
    "source": "Source",
    "help": "Help",
}
"""Identifiers of views, and their names."""
SEARCHED = ("functions", "around", "tree", "time")
NEEDS = {
    "sort": ("functions",),
    "reverse": ("functions",),
    "thread": ("time",),
    "unfold": ("tree", "around"),
    "found": SEARCHED,
}
"""Views of actions that not all of them have."""
CSS = """
Screen { layout: vertical; }
#top { height: 1; padding: 0 1; background: $panel; text-style: bold; }
#detail { height: auto; max-height: 3; min-height: 1; padding: 0 1; color: $text-muted; }
#ask { height: 1; border: none; padding: 0 1; }
#ask:focus { border: none; }
ContentSwitcher { height: 1fr; }
"""
BINDINGS: list[BindingType] = [
    Binding("f", "view('functions')", "Functions"),
    Binding("c", "around", "Callers"),
    Binding("t", "view('tree')", "Tree"),
    Binding("l", "view('time')", "Time"),
    Binding("s", "view('source')", "Source"),
    Binding("slash", "ask('search')", "Search", key_display="/"),
    Binding("o", "sort", "Sort"),
    Binding("O", "reverse", show=False),
    Binding("left_square_bracket", "thread(-1)", show=False),
    Binding("right_square_bracket", "thread(1)", show=False),
    Binding("g", "ask('moment')", "Go to"),
    Binding("question_mark", "view('help')", "Help", key_display="?"),
    Binding("q", "quit", "Quit"),
    Binding("ctrl+c", "quit", show=False, priority=True),
    Binding("n", "found(1)", show=False),
    Binding("N", "found(-1)", show=False),
    Binding("right", "unfold(True)", show=False),
    Binding("left", "unfold(False)", show=False),
    Binding("backspace", "walk_back", show=False),
    Binding("escape", "close", show=False),
    Binding("ctrl+z", "suspend_process", show=False),
]
KEYS = """\
f          functions, by self time; o sorts by the next column, O reverses
             the order: the arrow in the header shows which one it is
c, Enter   callers and callees of the function under the cursor;
           Enter goes on to one of them, Backspace goes back
t          call tree; Enter, Right and Left unfold and fold
l          time line: a thread's calls in order, at the function's longest call
             [ and ]  previous thread, next thread
             g        go to a moment, in seconds since the start
             +        still open when the recording ended
             !        left without returning (exception, longjmp)
s          source of the function; lines that have code of it are marked
/          search for part of a name, or a glob; n and N: next, previous
Tab        switch between callers and callees
Esc        close the search
?          this help, and notes on what is missing from the recording
q          quit; Ctrl-Z: suspend

Times are as in the other reports: Total includes the functions called, Self
does not. Of a function that calls itself, Total is the time of its outermost
calls; Avg is of all its calls. Share is of the time of the whole list.\
""".splitlines()


def views_of(action: str, parameters: tuple[object, ...]) -> tuple[str, ...]:
    """The views in which a key's action means something."""
    if action == "ask":
        return ("time",) if parameters == ("moment",) else SEARCHED
    return NEEDS.get(action, tuple(VIEWS))
