# SPDX-License-Identifier: MIT
"""C programs with random functions, which print their arguments as JSON."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FUNCTIONS", "random_program"]

FUNCTIONS = 40
HEAD = """\
#include <stdbool.h>
#include <stdio.h>
enum colour { RED = 1, BLUE = -7, GREEN = 900 };
static const char *colour_name(enum colour c)
{
	return c == RED ? "RED" : c == BLUE ? "BLUE" : "GREEN";
}
"""


@dataclass(frozen=True)
class Scalar:
    """``shown``: how printf() shows it; ``given``: what is given to that, of ``@``."""

    name: str
    values: tuple[str, ...]
    shown: str = "%d"
    given: str = "@"

    def value(self, draw: random.Random) -> str:
        """A value, as an initialiser."""
        return draw.choice(self.values)

    def format(self, place: str) -> tuple[str, list[str]]:
        """The format of what stands at a place, and its arguments."""
        return self.shown, [self.given.replace("@", place)]


@dataclass(frozen=True)
class Struct:
    """A structure, a member of which may be an array."""

    name: str
    members: tuple[tuple[str, int, Type], ...]

    def value(self, draw: random.Random) -> str:
        """A value, as an initialiser."""
        parts = []
        for _, count, one in self.members:
            values = [one.value(draw) for _ in range(max(count, 1))]
            parts.append(f"{{{', '.join(values)}}}" if count else values[0])
        return f"{{{', '.join(parts)}}}"

    def format(self, place: str) -> tuple[str, list[str]]:
        """The format of what stands at a place, and its arguments."""
        shown, given = [], []
        for name, count, one in self.members:
            places = [f"{place}.{name}[{n}]" for n in range(count)] or [f"{place}.{name}"]
            parts = [one.format(each) for each in places]
            text = ", ".join(part for part, _ in parts)
            shown.append(f'\\"{name}\\": ' + (f"[{text}]" if count else text))
            given += [each for _, more in parts for each in more]
        return f"{{{', '.join(shown)}}}", given

    @property
    def source(self) -> str:
        """Its declaration."""
        members = "".join(
            f" {one.name} {name}{f'[{count}]' if count else ''};"
            for name, count, one in self.members
        )
        return f"{self.name} {{{members} }};\n"


Type = Scalar | Struct
SCALARS = (
    Scalar("char", ("'a'", "'Z'", "'+'"), '\\"%c\\"'),
    Scalar("signed char", ("-128", "5")),
    Scalar("unsigned char", ("255", "6")),
    Scalar("short", ("-32768", "7")),
    Scalar("unsigned short", ("65535", "8")),
    Scalar("int", ("-2147483647", "9")),
    Scalar("unsigned", ("4294967295u", "10"), "%u"),
    Scalar("long long", ("-9223372036854775807ll", "11"), "%lld"),
    Scalar("unsigned long", ("4000000000ul", "12"), "%lu"),
    Scalar("bool", ("true", "false"), "%s", '(@ ? "true" : "false")'),
    Scalar("float", ("1.5f", "-0.25f"), "%.2f"),
    Scalar("double", ("2.5", "-1e10"), "%.2f"),
    Scalar("long double", ("3.5l",), "%.1Lf"),
    Scalar("const void *", ("(void *)64", "(void *)0x7fff1234"), '\\"%#lx\\"', "(long)@"),
    Scalar("enum colour", ("RED", "BLUE", "GREEN"), '\\"%s\\"', "colour_name(@)"),
)
WIDE = Scalar("__int128", ("-13", "14"), "%ld", "(long)@")


def random_program(seed: int, folder: Path, *, wide: bool) -> Path:
    """The source of a program; ``wide``: its processor has __int128."""
    draw = random.Random(seed)
    scalars: list[Type] = [*SCALARS, *[WIDE] * wide]
    structs: list[Type] = []
    for number in range(20):
        # Few sorts in one structure: so there are those of floats alone.
        sorts: list[Type] = draw.sample(scalars, draw.choice((1, 1, 2, 3)))
        if structs and draw.random() < 0.3:
            sorts.append(draw.choice(structs))
        members = [
            (f"m{n}", draw.choice((0, 0, 0, 1, 2, 3)), draw.choice(sorts))
            for n in range(draw.randint(1, 4))
        ]
        structs.append(Struct(f"struct s{number}", tuple(members)))
    body, main = [], []
    for number in range(FUNCTIONS):
        types: list[Type] = [
            draw.choice(scalars if draw.random() < 0.6 else structs)
            for _ in range(draw.randint(1, 8))
        ]
        result: Type = draw.choice([*scalars, *structs])
        parts = [one.format(f"p{n}") for n, one in enumerate(types)]
        shown = ", ".join(f'\\"p{n}\\": {text}' for n, (text, _) in enumerate(parts))
        given = "".join(f", {each}" for _, more in parts for each in more)
        declared = ", ".join(f"{one.name} p{n}" for n, one in enumerate(types))
        body.append(
            f"__attribute__((noinline, noclone)) {result.name} f{number}({declared})\n{{\n"
            f"\t{result.name} out = {result.value(draw)};\n\n"
            f'\tprintf("{{\\"f{number}\\": {{{shown}}}}}\\n"{given});\n\treturn out;\n}}\n'
        )
        values = [
            f"({one.name}){one.value(draw)}" if isinstance(one, Struct) else one.value(draw)
            for one in types
        ]
        main.append(f"\tf{number}({', '.join(values)});\n")
    source = folder / "random.c"
    declarations = "".join(one.source for one in structs if isinstance(one, Struct))
    text = (
        f"{HEAD}{declarations}{''.join(body)}int main(void)\n{{\n{''.join(main)}\treturn 0;\n}}\n"
    )
    source.write_text(text)
    return source
