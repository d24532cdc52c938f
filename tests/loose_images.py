"""Kernel modules (ET_REL) made in memory: every form of site and table that compilers leave.

    .text .init.text ...    functions, STEP bytes apart, the site first, then a call of ``printk``
    table                   one word for each function, filled in by relocations
    .modinfo, .gnu.linkonce.this_module
    relocations of each     in the kernel's order: section symbols first, globals last
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .elf_writer import (
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHF_WRITE,
    SHT_REL,
    SHT_RELA,
    Image,
    Section,
    Symbol,
)
from .tables import rel, rela

__all__ = [
    "CALLING",
    "FORMS",
    "FUNCTIONS",
    "PADS",
    "STEP",
    "Form",
    "Loose",
    "module",
    "section_of",
    "signed",
    "table_of",
]

STEP = 48
"""Bytes from one function's record to the next."""
FUNCTIONS = (
    ("open_it", ".text"),
    ("read_it", ".text"),
    ("write_it", ".text"),
    ("close_it", ".text"),
    ("set_up", ".init.text"),
    ("once", ".text.unlikely"),
)
"""(name, section); the last two sections have no relocations of their own but those of calls."""
INFO_LINK = 0x40  # SHF_INFO_LINK
STT_FUNC, STT_SECTION = 2, 3
MARKER = b"~Module signature appended~\n"
ARM64_NOP, C_NOP = bytes.fromhex("1f2003d5"), b"\x01\x00"


@dataclass(frozen=True)
class Form:
    """How sites are compiled for one architecture: ``site`` stands at the record, the function
    begins ``before`` bytes behind it. ``call`` is the relocation type of calls, ``field`` where in
    a call it writes; with ``mcount`` the site is itself such a call. ``body`` calls printk."""

    arch: str
    machine: int
    table: str
    site: bytes
    absolute: int
    call: int
    body: bytes
    ret: bytes
    before: int = 0
    bits: int = 64
    field: int = 0
    addend: int = 0
    mcount: str = ""
    rela: bool = True

    @property
    def word(self) -> int:
        """Bytes of an address."""
        return self.bits // 8


_X86 = {"table": "__mcount_loc", "ret": b"\xc3", "field": 1, "addend": -4, "mcount": "__fentry__"}
_PFE = "__patchable_function_entries"
_A64 = {"body": bytes.fromhex("00000094"), "ret": bytes.fromhex("c0035fd6")}
_RV = {"body": bytes.fromhex("97000000e7800000"), "ret": b"\x82\x80"}
FORMS = {
    "x86_64": Form(  # type: ignore[arg-type]
        "x86_64", 62, site=b"\xe8" + bytes(4), absolute=1, call=4, body=b"\xe8" + bytes(4), **_X86
    ),
    "i386": Form(  # type: ignore[arg-type]
        "i386",
        3,
        site=b"\xe8\xfc\xff\xff\xff",
        absolute=1,
        call=2,
        body=b"\xe8\xfc\xff\xff\xff",
        bits=32,
        rela=False,
        **_X86,
    ),
    "arm64": Form("arm64", 183, _PFE, ARM64_NOP * 2, 257, 283, **_A64),
    "arm64-ops": Form("arm64", 183, _PFE, ARM64_NOP * 4, 257, 283, before=8, **_A64),
    "riscv64": Form("riscv64", 243, _PFE, C_NOP * 4, 2, 19, **_RV),
    "riscv64-ops": Form("riscv64", 243, _PFE, C_NOP * 8, 2, 19, before=8, **_RV),
}
"""The compilers' forms; ``-ops`` as kernels with CALL_OPS have them."""
CALLING = tuple(name for name, form in FORMS.items() if form.mcount)
PADS = tuple(name for name, form in FORMS.items() if not form.mcount)


@dataclass
class Loose(Image):
    """A relocatable file in the making: ``rows`` are the relocations of each section by its name,
    as (place, type, symbol's name, addend); a section's own name means its section symbol."""

    rows: dict[str, list[tuple[int, int, str, int]]] = field(default_factory=dict)
    rela: bool = True

    def index_of(self, name: str) -> int:
        """Row of a symbol in .symtab; 0 for no name."""
        for row, symbol in enumerate(self.symbols, 1):
            if name and name in (symbol.name, symbol.section if symbol.type == 3 else None):
                return row
        assert not name, name
        return 0

    def build(self) -> bytes:
        """The bytes of the file; the relocation sections come behind all others."""
        sections = self.sections
        tables = [Section("." + name, b"") for name in self.rows]
        link = len(sections) + len(tables) + 1
        for table, (name, rows) in zip(tables, self.rows.items(), strict=True):
            numbered = [(place, kind, self.index_of(s), addend) for place, kind, s, addend in rows]
            table.name = (".rela" if self.rela else ".rel") + name
            table.type = SHT_RELA if self.rela else SHT_REL
            table.data = (
                rela(self, numbered) if self.rela else rel(self, (row[:3] for row in numbered))
            )
            table.flags, table.align, table.link = INFO_LINK, self.bits // 8, link
            table.info = 1 + next(i for i, s in enumerate(sections) if s.name == name)
            table.entsize = (3 if self.rela else 2) * self.bits // 8
        self.sections = sections + tables
        try:
            return super().build()
        finally:
            self.sections = sections


def section_of(image: Image, name: str) -> Section:
    """The section of that name."""
    return next(s for s in image.sections if s.name == name)


def table_of(form: Form, image: Image) -> Section:
    """The section of the table."""
    return section_of(image, form.table)


def module(
    form: Form,
    functions: Sequence[tuple[str, str]] = FUNCTIONS,
    *,
    order: Sequence[int] | None = None,
    by: str = "section",
    name: str = "demo",
    container: str = "module",
) -> Loose:
    """A module with these functions, (name, section). ``order`` of the records; ``by`` what their
    relocations name: ``section`` symbol and addend, ``function``, or a local ``label`` each."""
    image = Loose(form.machine, form.bits, type=1, rela=form.rela)
    texts: dict[str, bytearray] = {}
    places = []
    for function, where in functions:
        text = texts.setdefault(where, bytearray())
        at = len(text)
        places.append((function, where, at))
        body_at = at + len(form.site)
        text += (form.site + form.body + form.ret).ljust(STEP, b"\xcc")
        rows = image.rows.setdefault(where, [])
        if form.mcount:
            rows.append((at + form.field, form.call, form.mcount, form.addend))
        if form.mcount or where == ".text":
            rows.append((body_at + form.field, form.call, "printk", form.addend))
        else:
            text[body_at : body_at + len(form.body)] = form.ret * (len(form.body) // len(form.ret))
    image.rows = {where: rows for where, rows in image.rows.items() if rows}
    flags = SHF_ALLOC | SHF_EXECINSTR
    image.sections = [Section(n, bytes(t), flags=flags) for n, t in texts.items()]
    image.symbols = [Symbol("", 0, type=STT_SECTION, bind=0, section=n) for n in texts]
    chosen = [places[i] for i in order] if order is not None else places
    values = _values(form, image, chosen, by)
    flags = SHF_ALLOC | (0 if form.mcount else SHF_WRITE)
    held = image.table(value for _, value in values) if not form.rela else b""
    image.sections.append(
        Section(
            form.table, held or bytes(form.word * len(values)), flags=flags, align=form.word
        )
    )
    if container == "module":
        info = b"license=GPL\0name=" + name.encode() + b"\0"
        image.sections += [
            Section(".modinfo", info, align=1),
            Section(".gnu.linkonce.this_module", bytes(64), flags=SHF_ALLOC | SHF_WRITE),
        ]
    if values:
        image.rows[form.table] = [
            (form.word * i, form.absolute, symbol, value if form.rela else 0)
            for i, (symbol, value) in enumerate(values)
        ]
    size = len(form.site) - form.before + len(form.body) + len(form.ret)
    image.symbols += [
        Symbol(function, at + form.before, size, STT_FUNC, section=where)
        for function, where, at in places
    ]
    image.symbols.append(Symbol("printk", 0, type=0, section=None))
    if form.mcount:
        image.symbols.append(Symbol(form.mcount, 0, type=0, section=None))
    return image


def _values(
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


def signed(data: bytes, size: int = 300) -> bytes:
    """As scripts/sign-file.c leaves a module; the signature itself is none."""
    signature = bytes(i * 7 & 0xFF for i in range(size))
    head = bytes([0, 0, 2, 0, 0, 0, 0, 0]) + size.to_bytes(4, "big")  # PKEY_ID_PKCS7
    return data + signature + head + MARKER
