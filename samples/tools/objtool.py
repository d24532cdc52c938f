# SPDX-License-Identifier: MIT
"""What Linux's objtool adds to an object file, done on the compiler's assembly.

    objtool.py mcount FILE.s    a record per `call __fentry__` or `call _mcount` (where the compiler
                                has no -mrecord-mcount)
    objtool.py prefix FILE.s    a __pfx_NAME symbol on the 16 bytes of padding before NAME

The file is rewritten in place.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CALL = re.compile(r"^\s+callq?\s+(__fentry__|_mcount)(@PLT|@plt)?\s*(#.*)?$")
FUNCTION = re.compile(r"^\s+\.type\s+([A-Za-z_]\w*),\s*@function")
PADDING = 16


def add_records(lines: list[str]) -> list[str]:
    """After each call, an entry of __mcount_loc that points to it."""
    out: list[str] = []
    for number, line in enumerate(lines):
        if not CALL.match(line):
            out.append(line)
            continue
        label = f".Lmcount{number}"
        out += [
            f"{label}:",
            line,
            '\t.section __mcount_loc,"a",@progbits',
            f"\t.quad\t{label}",
            "\t.previous",
        ]
    return out


def add_prefixes(lines: list[str]) -> list[str]:
    """After each function's .type, its prefix symbol; only padded functions get one."""
    names = [found[1] for line in lines if (found := FUNCTION.match(line))]
    padded = set(re.findall(r"^\s+\.quad\s+(\.LPFE\d+)$", "\n".join(lines), re.MULTILINE))
    owners: set[str] = set()
    for number, line in enumerate(lines):
        if line.rstrip(":") in padded:
            rest = (text.rstrip(":") for text in lines[number:] if text.endswith(":"))
            owners.update([name for name in rest if name in names][:1])
    out = list(lines)
    for name in names:
        if name in owners:
            out += [
                f"\t.set\t__pfx_{name}, {name} - {PADDING}",
                f"\t.type\t__pfx_{name}, @function",
                f"\t.size\t__pfx_{name}, {PADDING}",
            ]
    return out


def main() -> None:
    """Rewrite one assembly file."""
    job, name = sys.argv[1:]
    path = Path(name)
    lines = path.read_text().splitlines()
    done = {"mcount": add_records, "prefix": add_prefixes}[job](lines)
    path.write_text("\n".join(done) + "\n")


if __name__ == "__main__":
    main()
