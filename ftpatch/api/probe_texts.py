# SPDX-License-Identifier: MIT
"""The texts of probes, read for an image's architecture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ftpatch.errors import Refused, UsageError

if TYPE_CHECKING:
    from ftpatch.image import Image
    from ftpatch.probe import Definition
    from ftpatch.probe.event_names import Pattern

__all__ = ["parsed_probes", "pattern_of"]


def pattern_of(regex: bool) -> Pattern:
    """The form of a program's wildcards."""
    from ftpatch.probe.event_names import Pattern

    return Pattern.REGEX if regex else Pattern.GLOB


def parsed_probes(
    image: Image,
    probes: Sequence[str],
    refused: Refused,
    *,
    kernel: bool = False,
    pattern: Pattern | None = None,
) -> Sequence[Definition]:
    """Parse the probes of one command for an image's architecture, leaving out what is
    ``refused``; ``kernel``: as a kernel takes them; ``pattern``: what a FUNC may be instead of a
    name. Raises UsageError for an architecture without probes."""
    from ftpatch.arch import arch_of, supporting, supports
    from ftpatch.arch.registers import registers_of
    from ftpatch.probe import parse_probes
    from ftpatch.probe.event_names import Pattern

    arch = arch_of(image.elf.skeleton.machine, image.elf.skeleton.elf_class)
    if arch is None or not supports(arch.name, "registers"):
        known = ", ".join(supporting("registers"))
        raise UsageError(
            image.path, "probes are not supported on its architecture", f"supported: {known}"
        )
    registers = registers_of(arch.name)
    return parse_probes(
        [*probes],
        registers.names,
        refused,
        arguments=len(registers.arguments),
        vectors=registers.vectors,
        kernel=kernel,
        pattern=pattern or Pattern.NONE,
    )
