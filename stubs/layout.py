# SPDX-License-Identifier: MIT
"""Writes what debug information says of the structures and constants of layout.c.

    layout.py ELF JSON HEADER

JSON is for ftpatch/layout, HEADER for assembly.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from elftools.dwarf.die import DIE
from elftools.elf.elffile import ELFFile

TEXT = "layout_"
"""What variables begin with that stand for texts."""
QUALIFIERS = {"DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type"}
SIGNED = {5, 6}
"""DW_ATE_signed, DW_ATE_signed_char (DWARF 5, 7.8)."""


def plain(die: DIE) -> DIE:
    """A type without the names and qualifiers that it goes by."""
    while die.tag in QUALIFIERS:
        die = die.get_DIE_from_attribute("DW_AT_type")
    return die


def name_of(die: DIE) -> str:
    """The name of a structure, a member or a constant; empty for what has none."""
    name = die.attributes.get("DW_AT_name")
    return name.value.decode() if name else ""


def number(die: DIE, attribute: str) -> int:
    """A number that a DIE has."""
    return int(die.attributes[attribute].value)


def type_name(die: DIE) -> str:
    """A type as the files call it: ``u32``, ``s64``, ``char``, ``struct frame``."""
    die = plain(die)
    if die.tag == "DW_TAG_structure_type":
        return f"struct {name_of(die)}"
    if die.tag == "DW_TAG_base_type" and name_of(die) == "char":
        return "char"
    if die.tag not in ("DW_TAG_base_type", "DW_TAG_pointer_type", "DW_TAG_enumeration_type"):
        raise SystemExit(f"layout.py: {die.tag} {name_of(die)} is not provided for")
    signed = die.tag == "DW_TAG_base_type" and number(die, "DW_AT_encoding") in SIGNED
    return f"{'s' if signed else 'u'}{8 * number(die, 'DW_AT_byte_size')}"


def member(die: DIE) -> dict[str, Any]:
    """Where a member is; ``count`` of an array, 0 of one that has no end."""
    if "DW_AT_bit_size" in die.attributes or "DW_AT_data_bit_offset" in die.attributes:
        raise SystemExit(f"layout.py: bitfield {name_of(die)}: not provided for")
    out = {"at": number(die, "DW_AT_data_member_location")}
    kind = plain(die.get_DIE_from_attribute("DW_AT_type"))
    if kind.tag != "DW_TAG_array_type":
        return {**out, "type": type_name(kind)}
    ranges = list(kind.iter_children())
    if len(ranges) != 1:
        raise SystemExit(f"layout.py: {name_of(die)} has {len(ranges)} dimensions")
    count = 0
    if "DW_AT_upper_bound" in ranges[0].attributes:
        count = number(ranges[0], "DW_AT_upper_bound") + 1
    elif "DW_AT_count" in ranges[0].attributes:
        count = number(ranges[0], "DW_AT_count")
    return {**out, "type": type_name(kind.get_DIE_from_attribute("DW_AT_type")), "count": count}


def read(path: Path) -> dict[str, Any]:
    """All that a linked file's debug information says, by names in their order."""
    constants: dict[str, int] = {}
    little = True
    structures: dict[str, dict[str, Any]] = {}
    texts: dict[str, str] = {}
    with path.open("rb") as file:
        elf = ELFFile(file)
        little = elf.little_endian
        for unit in elf.get_dwarf_info().iter_CUs():
            for die in unit.iter_DIEs():
                if die.tag == "DW_TAG_enumerator":
                    constants[name_of(die)] = number(die, "DW_AT_const_value")
                if die.tag == "DW_TAG_union_type":
                    raise SystemExit(f"layout.py: union {name_of(die)}: not provided for")
                if die.tag == "DW_TAG_structure_type" and "DW_AT_byte_size" in die.attributes:
                    members = (one for one in die.iter_children() if one.tag == "DW_TAG_member")
                    structures[name_of(die)] = {
                        "size": number(die, "DW_AT_byte_size"),
                        "members": {name_of(one): member(one) for one in members},
                    }
        for symbol in elf.get_section_by_name(".symtab").iter_symbols():
            if symbol.name.startswith(TEXT):
                section = elf.get_section(symbol["st_shndx"])
                at = symbol["st_value"] - section["sh_addr"]
                data = section.data()[at : at + symbol["st_size"]]
                texts[symbol.name.removeprefix(TEXT)] = data.decode("ascii")
    parts: dict[str, dict[str, Any]]
    parts = {"constants": constants, "structures": structures, "texts": texts}
    found: dict[str, Any] = {part: dict(sorted(names.items())) for part, names in parts.items()}
    return found if little else {**found, "big_endian": True}


def as_json(layout: dict[str, Any]) -> str:
    """The file for Python, a line for each member; the byte order where it is big-endian."""
    lines = []
    for name, one in layout["structures"].items():
        members = (f"   {json.dumps(key)}: {json.dumps(at)}" for key, at in one["members"].items())
        head = f'  {json.dumps(name)}: {{"size": {one["size"]}, "members": {{\n'
        lines.append(head + ",\n".join(members) + "}}")
    out = [' "big_endian": true'] if layout.get("big_endian") else []
    for part in ("constants", "texts"):
        values = (f"  {json.dumps(key)}: {json.dumps(one)}" for key, one in layout[part].items())
        out.append(f' "{part}": {{\n' + ",\n".join(values) + "}")
    out.append(' "structures": {\n' + ",\n".join(lines) + "}")
    return "{\n" + ",\n".join(out) + "}\n"


def as_header(layout: dict[str, Any]) -> str:
    """The file for assembly: STRUCTURE_MEMBER, SIZEOF_STRUCTURE, constants and texts."""
    lines = ["/* Made of layout.c by layout.py. */"]
    for name, one in layout["structures"].items():
        upper = name.upper()
        lines.append(f"#define SIZEOF_{upper} {one['size']}")
        for key, at in one["members"].items():
            lines.append(f"#define {upper}_{key.upper()} {at['at']}")
    lines += [f"#define {name} {value}" for name, value in layout["constants"].items()]
    for name, text in layout["texts"].items():
        held = text.replace("\0", "\\000")
        lines.append(f'#define {name} "{held}"')
    return "\n".join(lines) + "\n"


def main(words: list[str]) -> None:
    """Read the first file, write the other two."""
    layout = read(Path(words[0]))
    for path, text in zip(words[1:], (as_json(layout), as_header(layout)), strict=True):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
