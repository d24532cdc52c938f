# SPDX-License-Identifier: MIT
"""Spellings of functions and variables on the command line: as in the symbol table or as in
sources.

    _ZN4shop4Cart3addEi          the symbol table's name
    shop::Cart::add(int)         the source's, in which spaces do not count
    shop::Cart::add              without parameters: every function of that name
    int shop::most<int>(int)     a template's, with what it returns or without
    shop::most                   without arguments: every instance of a template

A glob or a regular expression is compared with each of them; with the last form only if it has a
space, or `b*` would mean all that returns a bool. Rust's `<shop::Cart>::add::<u8>` is
`shop::Cart::add`, too. `shop::Cart::add` also means what optimizers made of it
(`shop::Cart::add(int) [clone .isra.0]`), but the names of C, which have no such form, are compared
as they are: `add` is not `add.isra.0`, as it is not for set_ftrace_filter.
"""

from __future__ import annotations

import difflib
import fnmatch
import heapq
import re
import warnings
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ftpatch.errors import UsageError
from ftpatch.names.demangle import MANGLED, demangled
from ftpatch.names.parameters import called_name, name_span
from ftpatch.names.short_names import without_arguments
from ftpatch.names.suggest import SHOWN

__all__ = [
    "OPTIMIZED",
    "PLT",
    "Wanted",
    "bare",
    "is_glob",
    "last_word",
    "like",
    "named",
    "spellings",
]

PLT = "@plt"
"""Suffix of an imported function's name, as link editors and debuggers show its PLT entry."""
BESIDE = ("const", "volatile", "signed", "unsigned", "long", "short", "char", "operator")
"""Words that are separated by a space in C++ names."""
KEPT = 1 << 26
"""Characters of spellings that are cached: a command asks for the same ones with each filter."""
RANKED = 1 << 9
"""Names compared with an unknown one."""
CLONE = re.compile(r" \[clone [^]]*\]")
TEMPLATE = re.compile(r"<[^<>]*>")
TURBOFISH = re.compile(r"::<.*>$", re.DOTALL)
WORD = re.compile(r"[^\W\d]\w*")
OPTIMIZED = re.compile(r"(\.(cold|part|isra|constprop|lto_priv|llvm)(\.\d+)*|\.\d+)+$")
"""Suffixes that optimizers append to the symbols of clones."""
SET = re.compile(r"\[[^]]*\]")
LONG = re.compile(r"[A-Za-z_]\w{2,}", re.ASCII)
UNWRITTEN = ("_ZT", "_ZGV", "_ZGR")
"""Names added by compilers: vtables and type information, guards, temporaries."""
SHORT = """
allocator basic_iostream basic_istream basic_ostream basic_string char_traits iostream istream
ostream std string
abi alignof anonymous auto bool char char8_t char16_t char32_t class clone complex const
const_cast construction cxx11 decimal decimal32 decimal64 decimal128 decltype default delete double
dynamic_cast enable_if enum false float fold for guard half imaginary int key lambda long name
namespace new noexcept non nullptr nullptr_t operator reference reinterpret_cast requires restrict
short signed sizeof static_cast struct table temporary template this throw thunk transaction true
typeid typeinfo typename unnamed union unsigned variable vector virtual void volatile vtable VTT
wchar_t __float128 __int128 __vector
closure coroutine crate drop dyn extern f16 f32 f64 f128 i8 i16 i32 i64 i128 impl isize mut shim str
u8 u16 u32 u64 u128 unsafe usize
Class ClassInfo Interface ModuleInfo __Class __ctor __dtor __init __postblit body byte cdouble cent
cfloat creal dchar delegate function ifloat idouble immutable inout initializer ireal lazy main
moduleinfo noreturn null out package pure real ref return scope shared static ubyte ucent uint ulong
ushort typeof wchar nothrow nogc property safe system trusted live
""".split()  # noqa: SIM905
"""Words of names that mangled ones do not spell out: abbreviations and types of the Itanium C++ ABI
(sections 5.1.4, 5.1.5 and 5.1.10), of Rust's and D's schemes."""


def bare(name: str) -> str:
    """Remove the spaces of a name."""
    return name.replace(" ", "")


def is_glob(text: str) -> bool:
    """Return whether a filter's text contains glob characters."""
    return any(c in text for c in "*?[")


_kept: dict[str, tuple[str, ...]] = {}
_room = [KEPT]


def spellings(name: str) -> tuple[str, ...]:
    """Return a function's or variable's names in the source, as this module's top describes, with
    spaces as in c++filt; the last one is the full name."""
    found = _kept.get(name)
    if found is None:
        found = _spellings(name)
        size = sum(map(len, found))
        if size <= _room[0]:
            _room[0] -= size
            _kept[name] = found
    return found


def _spellings(name: str) -> tuple[str, ...]:
    source = demangled(name)
    begin, end = name_span(source)
    plain, rest = source[begin:end], source[begin:]
    found = [plain, rest]
    if "[clone" in rest:
        found.append(CLONE.sub("", rest))
    if plain.endswith(">"):
        found.append(TURBOFISH.sub("", plain))
    if plain.startswith("<"):
        found.append(_inherent(found[-1]))
    if "<" in plain:
        found.append(without_arguments(plain))
    return (*dict.fromkeys(one for one in found if one != source), source)


class Wanted:
    """The names selected by a filter's text: a name, a glob of set_ftrace_filter, or a ``regex``
    for whole names."""

    def __init__(self, text: str, *, regex: bool = False) -> None:
        """Raises UsageError for an invalid regular expression."""
        self._text, self._regex = text, regex
        self._bare = bare(text)
        self._globs = not regex and is_glob(text)
        self._whole = " " in text.strip() or regex
        self._source = bare(demangled(text)) if text.startswith(MANGLED) else None
        pattern = bare_pattern = ""
        if regex:
            pattern = bare_pattern = text
        elif self._globs:
            pattern, bare_pattern = fnmatch.translate(text), fnmatch.translate(self._bare)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about sets whose meaning may change
                self._pattern, self._in_source = re.compile(pattern), re.compile(bare_pattern)
        except (re.error, OverflowError, RecursionError) as error:
            reason = f"filter {text!r} is not a regular expression: {error}"
            raise UsageError(None, reason) from None
        # Where spaces were left out, a template's return type precedes its name.
        joined = "(" in text and "<" in text and " " not in text
        words = [] if regex or joined else LONG.findall(SET.sub(" ", text))
        self._words = [word for word in words if not _unspelled(word)]
        if not regex and WORD.fullmatch(text):  # a lone identifier follows its length
            self._words = [f"{len(text)}{text}"]

    def match(
        self, names: Sequence[str], sources: Iterable[int] | None = None
    ) -> NDArray[np.bool_]:
        """Test which of the names are selected, bool[n]. ``sources``: those that may have other
        forms, if the caller knows."""
        if self._regex or self._globs:
            found = np.fromiter(map(self._pattern.fullmatch, names), object, len(names))
            hit = found.astype(bool)
        else:
            hit = np.fromiter((name == self._text for name in names), bool, len(names))
        if sources is None:
            sources = [i for i, name in enumerate(names) if has_forms(name)]
        for i in sources:
            # A source's name may begin with the return type.
            if not hit[i] or not names[i].startswith(MANGLED):
                hit[i] = self._means(names[i])
        return hit

    def matches(self, *names: str) -> bool:
        """Return whether any of these is selected."""
        return bool(self.match(names).any())

    def _means(self, name: str) -> bool:
        """Match one of its other forms."""
        mangled = name.startswith(MANGLED)
        if mangled and not all(word in name for word in self._words):
            return False
        forms = spellings(name)
        if not mangled and self._source is not None:
            return self._source == bare(forms[-1])
        if any(self._bare == bare(form) for form in forms):
            return True
        if not (self._regex or self._globs):
            return False
        if not self._whole and len(forms) > 1 and name_span(forms[-1])[0]:
            forms = forms[:-1]
        match = self._in_source.fullmatch
        return any(match(bare(form)) or (self._regex and match(form)) for form in forms)


def named(
    texts: Collection[str], names: Sequence[str], sources: Iterable[int]
) -> tuple[NDArray[np.bool_], set[str]]:
    """Test which of the names any of many texts without globs selects, bool[n]; also return the
    texts that select none. ``sources`` as in ``Wanted.match``."""
    plain = set(texts)
    hit = np.fromiter((name in plain for name in names), bool, len(names))
    met = plain.intersection(names)
    by_form: dict[str, list[str]] = {}
    for text in plain:
        by_form.setdefault(bare(text), []).append(text)
    for i in sources:
        for form in spellings(names[i]):
            for text in by_form.get(bare(form), ()):
                hit[i] = True
                met.add(text)
    return hit, plain - met


def _unspelled(word: str) -> bool:
    """Return whether a mangled name may lack a word of a filter: one of SHORT or a part of it, or
    one next to an omitted space, as in ``shop::Cartconst&``."""
    return any(word in one for one in SHORT) or word.startswith(BESIDE) or word.endswith(BESIDE)


def has_forms(name: str) -> bool:
    """Return whether a name is mangled, or a source's with several parts."""
    return name.startswith(MANGLED) or "::" in name or "(" in name


def like(text: str, names: Sequence[str]) -> list[str]:
    """At most SHOWN of the names similar to ``text``, in a form that can be entered."""
    text = SET.sub("", bare(text).removeprefix("!")).replace("*", "").replace("?", "")
    last = last_word(text)
    wanted = last or text
    if len(wanted) < 2:
        return []
    near = _ranked(wanted, [name for name in names if not name.startswith(UNWRITTEN)])
    sources = [called_name(demangled(name)) for name in near]
    if "<" not in text:  # nor has what is offered, which is every instance
        sources = [without_arguments(name) for name in sources]
    known = list(dict.fromkeys(map(_written, sources)))
    found = [name for name in known if last and last_word(name) == last]
    found += difflib.get_close_matches(text, known)
    ends = {last_word(name): name for name in reversed(known)}
    found += [ends[end] for end in difflib.get_close_matches(last, ends)]
    return list(dict.fromkeys(found))[:SHOWN]


def _ranked(word: str, names: Sequence[str]) -> list[str]:
    """The names that share most with a word. Mangled ones spell identifiers out."""
    pairs, letters = {word[i : i + 2] for i in range(len(word) - 1)}, set(word)
    near = heapq.nsmallest(
        RANKED, names, key=lambda name: (-sum(pair in name for pair in pairs), len(name))
    )
    # Two swapped letters leave no pair.
    near += heapq.nsmallest(
        RANKED,
        names,
        key=lambda name: (abs(len(name) - len(word)), -sum(c in name for c in letters)),
    )
    return list(dict.fromkeys(near))


def last_word(name: str) -> str:
    """The last identifier of a function's name, empty for an operator's."""
    plain = OPTIMIZED.sub("", TURBOFISH.sub("", called_name(name)))
    while plain != (plain := TEMPLATE.sub("", plain)):
        pass
    found = WORD.fullmatch(re.split(r"::|\.", plain)[-1].removeprefix("~"))
    return found[0] if found and not found[0].startswith("operator") else ""


def _inherent(name: str) -> str:
    """``shop::Cart::add`` of Rust's ``<shop::Cart>::add``."""
    depth = 0
    for at, c in enumerate(name):
        depth += (c == "<") - (c == ">" and name[at - 1] != "-")
        if not depth:
            inside, behind = name[1:at], name[at + 1 :]
            trait = " as " in inside or not behind.startswith("::")
            return name if trait else TURBOFISH.sub("", inside) + behind
    return name


def _written(name: str) -> str:
    if name.startswith("<"):  # of Rust's, in which ` as ` stands
        return name
    return bare(name).replace("(anonymousnamespace)", "(anonymous namespace)")
