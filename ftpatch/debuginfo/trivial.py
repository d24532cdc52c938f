# SPDX-License-Identifier: MIT
"""Classes that C++ copies as it copies bytes, where the compiler, as gcc, does not state it.

Others are passed by reference (Itanium C++ ABI, section 3.1.2.3).
"""

from __future__ import annotations

from ftpatch.arch.arguments import UnclearError
from ftpatch.debuginfo.dies import DIE, children, name_of, number, type_of

__all__ = ["is_trivial"]

MAX_DEPTH = 32
"""Classes within classes, and types of one member."""
IN_CLASS = 1
"""DW_DEFAULTED_in_class."""
CLASSES = {"DW_TAG_structure_type", "DW_TAG_class_type", "DW_TAG_union_type"}
AROUND = {f"DW_TAG_{name}" for name in ("const_type", "volatile_type", "typedef", "array_type")}
REFERENCES = {"DW_TAG_reference_type", "DW_TAG_rvalue_reference_type"}


def is_trivial(die: DIE, depth: int = 0) -> bool:
    """Return whether a class has neither copy nor move constructor nor destructor of its own, nor
    has anything in it. Raises UnclearError."""
    if depth > MAX_DEPTH or "DW_AT_declaration" in die.attributes:
        raise UnclearError
    for child in children(die):
        held = child.attributes
        if child.tag == "DW_TAG_subprogram":
            if number(child, "DW_AT_virtuality", 0) or _is_copying(child, die):
                return False
        elif child.tag == "DW_TAG_inheritance" or child.tag == "DW_TAG_member":
            if "DW_AT_external" in held or "DW_AT_declaration" in held:
                continue  # static
            if number(child, "DW_AT_virtuality", 0) or name_of(child).startswith("_vptr"):
                return False
            inner = _class_of(child)
            if inner is not None and not is_trivial(inner, depth + 1):
                return False
    return True


def _class_of(die: DIE) -> DIE | None:
    """The class that a member is of, if it is of one."""
    for _ in range(MAX_DEPTH):
        if "DW_AT_type" not in die.attributes:
            return None
        die = type_of(die)
        if die.tag in CLASSES:
            return die
        if die.tag not in AROUND:
            return None
    raise UnclearError


def _is_copying(method: DIE, die: DIE) -> bool:
    """Return whether a method is a destructor, or a constructor that copies or moves, that the
    class's author wrote. What is implicit follows from the bases and members."""
    name, held = name_of(method), method.attributes
    if "DW_AT_artificial" in held or number(method, "DW_AT_defaulted", 0) == IN_CLASS:
        return False
    own = name_of(die).partition("<")[0]
    if name.startswith("~"):
        return True
    if name.partition("<")[0] != own:
        return False
    taken = [one for one in children(method) if one.tag == "DW_TAG_formal_parameter"][1:]
    if not taken or "DW_AT_type" not in taken[0].attributes:
        return False
    to = type_of(taken[0])
    if to.tag not in REFERENCES or _class_of(to) is None:
        return False
    if "DW_AT_deleted" in held:
        raise UnclearError
    return bool(_class_of(to) == die)
