# SPDX-License-Identifier: MIT
"""``ftpatch extract``: unpack the kernel or module inside a container."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ftpatch.cli.completion import images
from ftpatch.cli.console import json_line, lines, tell_links
from ftpatch.cli.options import Force, Format, Json, Quiet, wants_json
from ftpatch.errors import InputError, UsageError

__all__ = ["command"]

ELF = b"\x7fELF"
PACKED = {".gz", ".xz", ".zst", ".lz4", ".lzma", ".bz2"}


def command(
    image: Annotated[
        Path,
        typer.Argument(
            metavar="IMAGE",
            readable=False,
            autocompletion=images,
            help="bzImage, zImage, zboot image or compressed file.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Output file [default: IMAGE without .gz, .xz, ..., or with .elf or .Image].",
        ),
    ] = None,
    force: Force = False,
    json: Json = False,
    format_: Format = None,
    quiet: Quiet = False,
) -> None:
    """Extract the kernel or module from a container.

    IMAGE is a bzImage, a zImage, a zboot image or a compressed file; it holds an ELF file, an Image
    or bare memory, which is extracted as an ELF file.

    Example: ftpatch extract /boot/vmlinuz -o vmlinux
    """
    as_json = wants_json(json, format_)
    from ftpatch.elf.elf_file import map_file
    from ftpatch.elf.known_files import what_is
    from ftpatch.image.prefetch import payload_of

    data, _ = map_file(image)
    payload = payload_of(image, data.data)
    if not payload.layers:
        known = what_is(payload.data)
        whole = payload.container or payload.data[:4].tobytes() == ELF
        if known is not None and not whole:
            raise InputError(image, f"cannot extract {known.name}", known.advice)
        raise UsageError(image, "nothing to extract", "use the file itself")
    target = output or _name(image, payload.raw.name if payload.raw else "elf")
    from ftpatch.io.output import Copy

    with Copy(image, target, force=force, allow_setuid=True) as copy:
        from ftpatch.write.write import write_new

        write_new(copy, payload.data.tobytes())
    tell_links(copy)
    layers = [layer.name for layer in payload.layers]
    if as_json:
        json_line({"output": str(target), "layers": layers, "length": len(payload.data)})
    elif not quiet:
        lines([f"{', '.join(layers)}: {len(payload.data)} bytes", f"wrote {target}"])


def _name(image: Path, kind: str) -> Path:
    if image.suffix in PACKED:
        return image.with_suffix("")
    return image.with_name(f"{image.name}.{kind}")
