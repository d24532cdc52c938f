"""Options that several verbs have, in ftrace's and trace-cmd's words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from ftpatch.errors import InputError, UsageError

__all__ = [
    "AllowSetuid",
    "Args",
    "Depth",
    "DryRun",
    "Filter",
    "Force",
    "Image",
    "ImageOrTree",
    "Images",
    "InPlace",
    "Json",
    "KeepRecords",
    "Notrace",
    "Output",
    "Quiet",
    "Regex",
    "Site",
    "StripSignature",
    "Verbose",
    "bytes_of",
    "output_path",
    "wants_json",
]

Image = Annotated[
    Path,
    typer.Argument(
        metavar="IMAGE",
        readable=False,
        help="A kernel, module, program or library.",
    ),
]
ImageOrTree = Annotated[
    Path,
    typer.Argument(
        metavar="IMAGE",
        readable=False,
        help="A kernel, module, program or library, or a folder of them.",
    ),
]
Images = Annotated[
    list[Path],
    typer.Argument(
        metavar="IMAGE",
        readable=False,
        help="Kernels, modules, programs, libraries, or folders.",
    ),
]
Filter = Annotated[
    list[str],
    typer.Option(
        "-f",
        "--filter",
        metavar="GLOB",
        help="Functions to select, by symbol or source name (* ? [], a leading ! removes, "
        "@FILE reads a list, 0xADDR is one site, GLOB:mod:MODULE those of a module). "
        "Repeatable.",
    ),
]
Notrace = Annotated[
    list[str],
    typer.Option("-n", "--notrace", metavar="GLOB", help="Functions to leave out. Repeatable."),
]
Regex = Annotated[
    bool, typer.Option("--regex", help="Filters are regular expressions that match whole names.")
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Default: the input's name + .ftpatch."),
]
InPlace = Annotated[bool, typer.Option("--in-place", help="Replace the input.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output.")]
KeepRecords = Annotated[
    bool,
    typer.Option("--keep-records", help="Leave the table alone; `check` predicts the outcome."),
]
AllowSetuid = Annotated[
    bool,
    typer.Option("--allow-setuid", help="Accept a setuid input; the output never is."),
]
StripSignature = Annotated[
    bool,
    typer.Option("--strip-signature", help="Accept a signed module; the output is unsigned."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Verify everything, write nothing.")]
Site = Annotated[
    str | None,
    typer.Option("--site", metavar="SYMBOL", help="A named site, such as ftrace_call."),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No summary.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Say more.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Format = Annotated[
    str | None, typer.Option("--format", metavar="text|json", help="--json is --format json.")
]


Args = Annotated[bool, typer.Option("--args", help="Record arguments and return values.")]
Depth = Annotated[
    int,
    typer.Option(
        "--depth",
        min=8,
        max=65536,
        help="Nested calls to follow in each thread.",
    ),
]


def wants_json(json: bool, format_: str | None) -> bool:
    """Whether output is JSON. Raises UsageError for a format that is neither."""
    if format_ not in (None, "text", "json"):
        raise UsageError(None, f"unknown format {format_!r}", "use text or json")
    return json or format_ == "json"


LEAST = 64 << 10
"""Bytes of a trace file, as in stubs/runtime/file.h."""


def bytes_of(text: str) -> int:
    """``64M`` of a trace file, in bytes. Raises UsageError for what is no size, or too small."""
    found = re.fullmatch(r"(\d{1,12})([KMG]?)", text, re.IGNORECASE)
    if found is None:
        raise UsageError(None, f"{text!r} is not a size", "say 64M, or 1G")
    size = int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2].upper()]
    if size < LEAST:
        raise UsageError(None, f"a trace file of {text} is too small", "the minimum is 64K")
    return size


def output_path(image: Path, output: Path | None, in_place: bool) -> Path:
    """Where to write. Raises UsageError for two places, or for a link to be replaced."""
    if in_place and output is not None:
        raise UsageError(None, "--in-place and -o name two outputs", "choose one")
    if not image.name:
        raise InputError(image, "not a regular file", "give one image")
    if in_place and image.is_symlink():
        raise UsageError(image, "a link cannot be replaced in place", "name the file itself")
    if in_place:
        return image
    return output or image.with_name(image.name + ".ftpatch")
