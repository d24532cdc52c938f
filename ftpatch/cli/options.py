# SPDX-License-Identifier: MIT
"""Options that several verbs share, in ftrace's and trace-cmd's words."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer.models import OptionInfo

from ftpatch.api.recording_limits import MIN_TRACE_SIZE
from ftpatch.api.writing import Writing
from ftpatch.cli.completion import images, pids, report_formats, some_of
from ftpatch.errors import UsageError
from ftpatch.names.suggest import require_known

__all__ = [
    "AllowSetuid",
    "Args",
    "BOOT",
    "Core",
    "DryRun",
    "Filter",
    "Force",
    "FullNames",
    "Images",
    "InPlace",
    "Json",
    "KeepRecords",
    "LibCalls",
    "LiveFormat",
    "LiveReports",
    "RunFormat",
    "RunReports",
    "MaxEvents",
    "MaxStack",
    "Notrace",
    "Off",
    "OptionalImage",
    "OptionalTree",
    "Output",
    "Pid",
    "Pids",
    "Quiet",
    "Recording",
    "Regex",
    "Ring",
    "Rotate",
    "Sign",
    "Sink",
    "Site",
    "StripSignature",
    "Until",
    "Update",
    "Verbose",
    "WithTime",
    "bytes_of",
    "format_of",
    "live_format",
    "require_first",
    "require_kernel",
    "require_pid",
    "require_input",
    "wants_json",
]

TEXT_OR_JSON = ("text", "json")
"""The formats of a verb that prints no report."""
OptionalImage = Annotated[
    Path | None,
    typer.Argument(
        metavar="IMAGE",
        readable=False,
        autocompletion=images,
        help="Kernel, module, program or library.",
    ),
]
OptionalTree = Annotated[
    Path | None,
    typer.Argument(
        metavar="IMAGE",
        readable=False,
        autocompletion=images,
        help="Kernel, module, program or library, or a directory of them.",
    ),
]
Images = Annotated[
    list[Path],
    typer.Argument(
        metavar="IMAGE",
        readable=False,
        autocompletion=images,
        help="Kernels, modules, programs, libraries or directories of them.",
    ),
]
Pid = Annotated[
    int | None,
    typer.Option(
        "-p", "--pid", metavar="PID", autocompletion=pids, help="Running process, instead of IMAGE."
    ),
]
Pids = Annotated[
    list[int],
    typer.Option(
        "-p",
        "--pid",
        metavar="PID",
        autocompletion=pids,
        help="Running process, instead of IMAGE. Repeatable.",
    ),
]
Core = Annotated[
    Path | None,
    typer.Option(
        "--core",
        metavar="FILE",
        readable=False,
        help="Crash dump, or /proc/kcore, of the kernel IMAGE: its text as it was in memory.",
    ),
]
Recording = Annotated[
    bool,
    typer.Option(
        "--recording",
        help="With --pid: switch only the recording, whatever makes it; leave the sites alone.",
    ),
]
Filter = Annotated[
    list[str],
    typer.Option(
        "-f",
        "--filter",
        metavar="GLOB",
        help="Functions to select, by symbol or source name: * ? [] match, !GLOB removes, @FILE "
        "reads a list, 0xADDR is one site, GLOB:mod:MODULE limits to a module. "
        "Repeatable.",
    ),
]
Notrace = Annotated[
    list[str],
    typer.Option("-n", "--notrace", metavar="GLOB", help="Functions to exclude. Repeatable."),
]
Regex = Annotated[
    bool, typer.Option("--regex", help="Match filters as regular expressions against whole names.")
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Output file [default: INPUT.ftpatch]."),
]
InPlace = Annotated[bool, typer.Option("--in-place", help="Replace the input file.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing output file.")]
KeepRecords = Annotated[
    bool,
    typer.Option("--keep-records", help="Leave the table alone; `check` predicts the result."),
]
AllowSetuid = Annotated[
    bool,
    typer.Option("--allow-setuid", help="Accept a setuid input; the output is never setuid."),
]
StripSignature = Annotated[
    bool,
    typer.Option(
        "--strip-signature", help="Accept a signed module or kernel and write it unsigned."
    ),
]
Sign = Annotated[
    str | None,
    typer.Option(
        "--sign",
        metavar="COMMAND",
        help="Sign the kernel for UEFI: COMMAND signs the file {} in place, as 'sbsign --key db.key"
        " --cert db.crt --output {} {}' does.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Verify everything, write nothing.")]
Site = Annotated[
    str | None,
    typer.Option("--site", metavar="SYMBOL", help="One named site, such as ftrace_call."),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print no summary.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Print more details.")]
FullNames = Annotated[
    bool,
    typer.Option(
        "-v",
        "--verbose",
        help="Print C++, Rust and D names whole, with template arguments and return types.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="text|json",
        autocompletion=some_of(*TEXT_OR_JSON),
        help="Output format.",
    ),
]


def _live_format(when: str) -> OptionInfo:
    """The option for the format of a report that is printed ``when`` something is observed."""
    option: OptionInfo = typer.Option(
        "--format",
        metavar="FORMAT",
        autocompletion=report_formats,
        help=f"Output format: text or json. {when}: format of the printed report; see `ftpatch "
        "report --help`.",
    )
    return option


def _live_reports(when: str) -> OptionInfo:
    """The option for the reports that are made ``when`` something is observed."""
    option: OptionInfo = typer.Option(
        "--report",
        metavar="FORMAT[=FILE]",
        autocompletion=report_formats,
        help=f"{when}: report to print, or to write to FILE; no other is printed, unless "
        "--format asks for one. Repeatable.",
    )
    return option


LiveFormat = Annotated[str | None, _live_format("With --pid")]
LiveReports = Annotated[list[str], _live_reports("With --pid")]
RunFormat = Annotated[str | None, _live_format("With --pid or -c")]
RunReports = Annotated[list[str], _live_reports("With --pid or -c")]


Args = Annotated[bool, typer.Option("--args", help="Record arguments and return values.")]
LibCalls = Annotated[
    bool,
    typer.Option(
        "--libcalls",
        help="Trace the program's calls to shared libraries as well, as NAME@plt. Neither side "
        "needs pads; -f and -n apply to these calls, too.",
    ),
]
MaxStack = Annotated[
    int,
    typer.Option(
        "--max-stack",
        metavar="N",
        min=8,
        max=65536,
        help="Entries of each thread's ret_stack; calls nested deeper are counted, not recorded.",
    ),
]
Ring = Annotated[
    bool,
    typer.Option(
        "--ring", help="Keep the latest events: when the trace file is full, overwrite the oldest."
    ),
]
Rotate = Annotated[
    int,
    typer.Option(
        "--rotate",
        metavar="N",
        min=0,
        max=999,
        show_default=False,
        help="When the trace file is full, begin FILE.r1, FILE.r2 and so on, and keep the last N "
        "full ones.",
    ),
]
Off = Annotated[
    bool,
    typer.Option(
        "--off",
        help="Begin with recording switched off; `ftpatch enable --pid PID --recording` switches "
        "it on.",
    ),
]
Signal = Annotated[
    str,
    typer.Option(
        "--signal",
        metavar="SIGNAL",
        help="Let a signal, such as USR2, switch recording off and on.",
    ),
]
BOOT = "boot"
"""Name of the tracer that the next options are for."""
Sink = Annotated[
    str,
    typer.Option(
        "--sink",
        metavar="SINK",
        help="Device that the boot tracer writes to: {sinks}.",
    ),
]
Until = Annotated[
    str,
    typer.Option("--until", metavar="FUNC", help="Function whose call stops the boot tracer."),
]
MaxEvents = Annotated[
    int | None,
    typer.Option("--max", metavar="N", help="Maximum number of events that the boot tracer sends."),
]
WithTime = Annotated[bool, typer.Option("--time", help="Record timestamps in the boot trace.")]


@dataclass(frozen=True, kw_only=True)
class Update(Writing):
    """The options of a command that writes."""

    as_json: bool
    quiet: bool
    verbose: bool


def require_input(images: Sequence[Path], pids: Sequence[int]) -> None:
    """Raise UsageError unless there are images or processes, and not both."""
    if images and pids:
        raise UsageError(None, "IMAGE and --pid are mutually exclusive", "choose one")
    if not images and not pids:
        raise UsageError(None, "no IMAGE and no --pid", "name a file, or a running process")
    for image in images:
        if image.name.isdecimal() and not image.exists() and Path("/proc", image.name).exists():
            raise UsageError(image, "no such file", f"use --pid {image.name} for the process")


def require_kernel(images: Sequence[Path], pids: Sequence[int]) -> Path:
    """Return the one image that --core goes with. Raises UsageError for others, or for none."""
    if pids:
        raise UsageError(None, "--core and --pid are mutually exclusive", "choose one")
    if len(images) != 1:
        reason = "--core needs the vmlinux of the kernel that it is of"
        raise UsageError(None, reason, "name that one IMAGE")
    return images[0]


def require_first(program: Path, others: Sequence[str], what: str) -> None:
    """Raise UsageError if a program's path stands behind the ``what`` that go into it."""
    if not os.path.lexists(program) and any(map(os.path.isfile, others)):
        raise UsageError(None, f"{str(program)!r} is not a file", f"PROG comes before the {what}")


def require_pid(options: Mapping[str, object]) -> None:
    """Raise UsageError for an option, by its name, that means nothing without a process."""
    for name, value in options.items():
        if value:
            raise UsageError(None, f"{name} needs --pid", "name a running process, or remove it")


def format_of(json: bool, format_: str | None, known: Collection[str] = TEXT_OR_JSON) -> str | None:
    """Return the format that --format or --json asks for. Raises UsageError for an unknown one, and
    for two."""
    if format_ is not None:
        name, assigned, file = format_.partition("=")
        if assigned and name in known and known is not TEXT_OR_JSON:
            hint = f"use --report {format_}; with `ftpatch report`, -o {file or 'FILE'}"
            raise UsageError(None, f"--format {format_!r} names a file", hint)
        require_known("format", format_, known)
    if json and format_ not in (None, "json"):
        raise UsageError(None, f"--json and --format {format_} conflict", "choose one")
    return "json" if json else format_


def wants_json(json: bool, format_: str | None) -> bool:
    """Return True for JSON output. Raises UsageError as ``format_of``."""
    return format_of(json, format_) == "json"


def live_format(json: bool, format_: str | None) -> str | None:
    """Return the format of a running process's report; text is the usual one. Raises UsageError as
    ``format_of``."""
    from ftpatch.trace.formats import reports

    if format_ == "text":
        format_of(json, format_)
        return None
    return format_of(json, format_, reports())


def bytes_of(text: str) -> int:
    """Parse a trace file size such as ``64M``. Raises UsageError if malformed or too small."""
    found = re.fullmatch(r"(\d{1,12})([KMG]?)", text, re.IGNORECASE | re.ASCII)
    if found is None:
        raise UsageError(None, f"invalid size {text!r}", "use a size such as 64M or 1G")
    size = int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2].upper()]
    if size < MIN_TRACE_SIZE:
        raise UsageError(None, f"trace file size {text} is too small", "the minimum is 64K")
    return size
