# SPDX-License-Identifier: MIT
"""Kernel modules (ET_REL) made in memory: every form of site and table that compilers leave.

In this order, with the headers of sections last:

    .text .init.text ...    functions, STEP bytes apart: the site first, then a call of ``printk``
    table                   one word for each function, filled in by relocations
    .modinfo, .gnu.linkonce.this_module
    relocations of each     local symbols come first, as link editors want them
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.elf_writer import (
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHF_WRITE,
    SHT_REL,
    SHT_RELA,
    Image,
    Section,
    Symbol,
)
from tests.support.loose_forms import Form
from tests.support.tables import rel, rela

__all__ = [
    "FUNCTIONS",
    "MARKER",
    "NAMES",
    "PLACES",
    "STEP",
    "Loose",
    "module",
    "put",
    "section_of",
    "signed",
]

STEP = 48
"""Bytes from one function's record to the next of its section."""
FUNCTIONS = (
    ("open_it", ".text"),
    ("read_it", ".text"),
    ("write_it", ".text"),
    ("close_it", ".text"),
    ("set_up", ".init.text"),
    ("once", ".text.unlikely"),
)
"""(name, section). Of forms with pads, only .text has relocations of its own."""
NAMES = [name for name, _ in FUNCTIONS]
PLACES = {name: (".text", STEP * i) for i, name in enumerate(NAMES[:4])}
PLACES |= {"set_up": (".init.text", 0), "once": (".text.unlikely", 0)}
"""(section, offset of its record) of each of them."""
INFO_LINK = 0x40  # SHF_INFO_LINK
STT_FUNC, STT_SECTION = 2, 3
MARKER = b"~Module signature appended~\n"


@dataclass
class Loose(Image):
    """A relocatable file in the making: ``rows`` are the relocations of each section by its name,
    as (place, type, symbol's name, addend); a section's own name means its section symbol.
    ``edits`` overrides fields of any section's header, also of those that ``build`` adds."""

    rows: dict[str, list[tuple[int, int, str, int]]] = field(default_factory=dict)
    edits: dict[str, dict[str, int]] = field(default_factory=dict)
    rela: bool = True

    def row_of(self, name: str) -> int:
        """Row of a symbol in .symtab; 0 for no name. A number stands for itself."""
        if name.isdigit():
            return int(name)
        for row, symbol in enumerate(self.symbols, 1):
            if name and name in (symbol.name, symbol.section if symbol.type == 3 else None):
                return row
        assert not name, name
        return 0

    def build(self) -> bytes:
        """The bytes of the file."""
        before, link = self.sections, len(self.sections) + len(self.rows) + 1
        self.sections = [*before, *(self._relocations(name, link) for name in self.rows)]
        try:
            for section in self.sections:
                section.header |= self.edits.get(section.name, {})
            return super().build()
        finally:
            self.sections = before

    def _relocations(self, name: str, link: int) -> Section:
        rows = [(at, kind, self.row_of(symbol), a) for at, kind, symbol, a in self.rows[name]]
        data = rela(self, rows) if self.rela else rel(self, (row[:3] for row in rows))
        return Section(
            (".rela" if self.rela else ".rel") + name,
            data,
            type=SHT_RELA if self.rela else SHT_REL,
            flags=INFO_LINK,
            align=self.bits // 8,
            link=link,
            info=1 + [s.name for s in self.sections].index(name),
            entsize=(3 if self.rela else 2) * self.bits // 8,
        )

    def _symbol_table(self, before: list[Section]) -> list[Section]:
        added = super()._symbol_table(before)
        for section in added:
            section.header |= self.edits.get(section.name, {})
        return added


def section_of(image: Image, name: str) -> Section:
    """The section of that name."""
    return next(s for s in image.sections if s.name == name)


def put(image: Image, folder: Path, name: str = "demo.ko") -> Path:
    """Write an image to a folder."""
    path = folder / name
    path.write_bytes(image.build())
    return path


def signed(data: bytes, size: int = 300) -> bytes:
    """As scripts/sign-file.c leaves a module; the signature itself is none."""
    signature = bytes(i * 7 & 0xFF for i in range(size))
    head = bytes([0, 0, 2, 0, 0, 0, 0, 0]) + size.to_bytes(4, "big")  # PKEY_ID_PKCS7
    return data + signature + head + MARKER


def module(
    form: Form,
    functions: Sequence[tuple[str, str]] = FUNCTIONS,
    *,
    order: Sequence[int] | None = None,
    by: str = "section",
    name: str = "demo",
) -> Loose:
    """A module with these functions, (name, section). ``order`` of the records; ``by`` what their
    relocations name: ``section`` symbol and addend, ``function``, or a local ``label`` each. With
    an empty ``name`` it is an object and no module."""
    image = Loose(form.machine, form.bits, form.big, type=1, rela=form.rela)
    texts: dict[str, bytearray] = {where: bytearray() for _, where in functions}
    places = []
    for function, where in functions:
        text, rows = texts[where], image.rows.setdefault(where, [])
        at = len(text)
        places.append((function, where, at))
        if form.mcount:
            rows.append((at + form.field, form.call, form.mcount, form.addend))
        body = form.body if form.mcount or where == ".text" else b""
        if body:
            rows.append((at + len(form.site) + form.field, form.call, "printk", form.addend))
        text += (form.site + body + form.ret).ljust(STEP, b"\xcc")
    image.rows = {where: rows for where, rows in image.rows.items() if rows}
    flags = SHF_ALLOC | SHF_EXECINSTR
    image.sections = [Section(n, bytes(t), flags=flags) for n, t in texts.items()]
    image.symbols = [Symbol("", 0, type=STT_SECTION, bind=0, section=n) for n in texts]
    values = _records(form, image, [places[i] for i in order or range(len(places))], by)
    held = image.table(0 if form.rela else value for _, value in values)
    flags = SHF_ALLOC | (0 if form.mcount else SHF_WRITE)
    image.sections.append(Section(form.table, held, flags=flags, align=form.word))
    if name:
        info = f"license=GPL\0name={name}\0".encode()
        image.sections.append(Section(".modinfo", info, align=1))
        own = Section(".gnu.linkonce.this_module", bytes(64), flags=SHF_ALLOC | SHF_WRITE)
        image.sections.append(own)
    image.rows[form.table] = [
        (form.word * i, form.absolute, symbol, value if form.rela else 0)
        for i, (symbol, value) in enumerate(values)
    ]
    size = len(form.pad + form.body + form.ret)
    image.symbols += [
        Symbol(function, at + form.before, size, STT_FUNC, section=where)
        for function, where, at in places
    ]
    others = ("printk", form.mcount) if form.mcount else ("printk",)
    image.symbols += [Symbol(other, 0, type=0, section=None) for other in others]
    return image


def _records(
    form: Form, image: Loose, places: Sequence[tuple[str, str, int]], by: str
) -> list[tuple[str, int]]:
    """(symbol's name, addend) of each record; labels are added to the symbols."""
    if by == "section":
        return [(where, at) for _, where, at in places]
    if by == "function":
        return [(function, -form.before) for function, _, _ in places]
    labels = [f".LPFE{i}" for i in range(len(places))]
    image.symbols += [
        Symbol(label, at, type=0, bind=0, section=where)
        for label, (_, where, at) in zip(labels, places, strict=True)
    ]
    return [(label, 0) for label in labels]
