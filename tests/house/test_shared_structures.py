# SPDX-License-Identifier: MIT
"""Structures that Python shares with C are written in C alone: nobody packs them by a format."""

from __future__ import annotations

import ast
import re
import struct
from functools import cache
from pathlib import Path

from ftpatch.layout import structure
from tests.support.source_files import PACKAGE, every_file, parsed

SHARING = ("inject", "probe", "watch", "tracer", "trace", "boot")
"""Packages that speak with the runtime, or read what it wrote."""
OTHERS = {
    "inject/debug_frame.py": "DWARF's entries",
    "inject/debug_sections.py": "DWARF's entries",
    "trace/formats/trace_dat.py": "trace-cmd's header and ftrace's events",
    "trace/formats/uftrace.py": "uftrace's header and records",
    "tracer/server.py": "the kernel's struct ucred",
}
"""Files that pack what is the structure of others."""
SHARED = (
    *("stub_config", "trace_header", "trace_library", "trace_probe", "trace_watch", "trace_chunk"),
    *("trace_profile", "library", "probe_place", "probe", "fetch", "probe_table", "hook"),
    "trace_hist",
    "hook_table",
)


def _name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def _spelled(text: str) -> str:
    """A format of struct with every repetition written out: ``2I8s`` as ``II8s``. Other texts have
    longer numbers, as a commit's, which would be written out to gigabytes."""
    repeated = r"(?<!\d)(\d{1,4})([a-rt-zA-Z?])"
    return re.sub(repeated, lambda found: found[2] * int(found[1]), text.lstrip("<=>"))


@cache
def _forbidden() -> set[str]:
    """Formats of the shared structures."""
    out = set()
    for name in SHARED:
        text = ""
        for base, count in (_base(name, member) for member in structure(name).names or ()):
            text += base * count
        out.add(text)
    return {text for text in out if len(text) > 2}


def _base(name: str, member: str) -> tuple[str, int]:
    dtype = structure(name)[member]
    base, shape = dtype.subdtype or (dtype, (1,))
    letter = {"u8": "Q", "u4": "I", "u2": "H", "i8": "q", "i4": "i"}.get(
        base.str[1:], f"{base.itemsize}s"
    )
    return letter, shape[0]


@every_file
def test_no_format_of_a_shared_structure(path: Path) -> None:
    if _name(path).startswith("layout/"):
        return
    tree = parsed(path)
    sharing = _name(path).startswith(SHARING) and _name(path) not in OTHERS
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert _spelled(node.value) not in _forbidden(), f"line {node.lineno}: {node.value}"
        if sharing and isinstance(node, ast.Import):
            assert "struct" not in [alias.name for alias in node.names], f"line {node.lineno}"
        if sharing and isinstance(node, ast.Call):
            named = ast.unparse(node.func)
            assert named not in ("np.dtype", "numpy.dtype"), f"line {node.lineno}"


def test_formats_are_found() -> None:
    """As they stood in the sources."""
    found = _forbidden()
    for text in ("<8s6I9Q4I7Q2I32s16s4IQ1024s", "<16s4Q5I2H32s9Q", "<3Q4I984s", "<2IQ3I2H"):
        assert _spelled(text) in found
        struct.Struct(text)
