"""manifest.json: what each sample is, how it was built, and what ftpatch should say of it.

    manifest.py write FOLDER    describe the files of a folder
    manifest.py check           rebuild into a temporary folder and compare

The expected values come from reader.py and prove.py, which share nothing with ftpatch.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prove import run
from reader import Image, Pad

HERE = Path(__file__).resolve().parent
BUILT, MANIFEST = HERE / "built", HERE / "manifest.json"
CALLS = Pad(0, 0)


@dataclass(frozen=True)
class Sample:
    """One file: its pad, what it shows, and which neighbours it needs to be understood."""

    shows: str
    pad: Pad = CALLS
    twin: str | None = None
    library: str | None = None


SAMPLES = {
    "vmlinux-x86_64": Sample(
        "A linked x86-64 kernel: calls of __fentry__, endbr64 before some, call padding with"
        " __pfx_ symbols, a sorted table with the null records of overridden weak functions."
    ),
    "vmlinux-x86_64-clang": Sample(
        "The same by clang and lld; the table is not sorted, and two of its records lie in"
        " overridden weak functions that no symbol names."
    ),
    "vmlinux-i386": Sample(
        "A linked i386 kernel: its own NOP5 (3e 8d 74 26 00) in x86_nops, ftrace_graph_call."
    ),
    "vmlinux-arm64": Sample(
        "arm64 as of 6.1: the table's bytes are zero, its values are RELATIVE addends, it is not"
        " sorted; some sites after a BTI, some before paciasp; no null records.",
        Pad(2, 0),
    ),
    "vmlinux-arm64-callops": Sample(
        "arm64 as of 6.12: CALL_OPS (4,2), values in place, .relr.dyn, unused R_AARCH64_NONE in"
        " .rela.dyn, null records whose RELR bit is still set, ftrace_nop_ops.",
        Pad(4, 2),
    ),
    "vmlinux-arm64-callops-room": Sample(
        "The same with 256 bytes of .text that belong to no symbol: room for a stub that has the"
        " ops pointer, where .rela.dyn has too few entries for all literals.",
        Pad(4, 2),
    ),
    "vmlinux-arm64-far": Sample(
        "arm64 as of 5.10 whose ftrace_caller is 256 MB away, out of a BL's reach, with room for"
        " veneers in .text; ftrace_graph_call.",
        Pad(2, 0),
    ),
    "vmlinux-arm64-far-full": Sample(
        "The same without twelve bytes of .text that belong to no symbol.", Pad(2, 0)
    ),
    "pad": Sample("gcc's pad, five 0x90, in a PIE.", Pad(5, 0)),
    "pad-nonpie": Sample("gcc's pad in a program at a fixed address.", Pad(5, 0)),
    "pad-cet": Sample("gcc's pad after endbr64.", Pad(5, 0)),
    "pad-5-5": Sample("N == M: all NOPs before the function, hence no site.", Pad(5, 5)),
    "pad-7-2": Sample("Two NOPs before the function, five in it.", Pad(7, 2)),
    "pad-clang": Sample("clang's pad: one NOP5, 0f 1f 44 00 08.", Pad(5, 0)),
    "pad-clang-cet": Sample("clang's pad after endbr64.", Pad(5, 0)),
    "pad-static": Sample("A static program with its own start file, no libc.", Pad(5, 0)),
    "pad-static-pie": Sample("A static-PIE that relocates itself, no libc.", Pad(5, 0)),
    "pad-glibc-static": Sample(
        "A stripped static program with glibc inside: IRELATIVE, TLS, much code without sites.",
        Pad(5, 0),
        twin="../build/pad-glibc-static/symbols",
    ),
    "pad-stripped": Sample("pad without symbols.", Pad(5, 0), twin="pad"),
    "pad-noheaders": Sample("pad without section headers: it runs, but has no table.", Pad(5, 0)),
    "fentry": Sample("Calls of the program's own __fentry__, e8 rel32, at fixed addresses."),
    "fentry-cet": Sample("The same after endbr64."),
    "fentry-nop": Sample("-mnop-mcount: NOP5 (0f 1f 44 00 00) where the call would be."),
    "fentry-pie": Sample(
        "A PIE whose calls through the GOT the linker made direct: 67 e8 rel32; the table is in a"
        " read-only section, hence DT_TEXTREL."
    ),
    "fentry-pie-got": Sample("A PIE that calls through the GOT: ff 15 disp32."),
    "fentry-static": Sample("-mfentry in a static program with its own start file, no libc."),
    "fentry-plt": Sample("Calls of libfentry.so's __fentry__ through the PLT."),
    "fentry-library": Sample(
        "A PIE that gets work and __fentry__ from libmfentry.so.", library="libmfentry.so"
    ),
    "pad-library": Sample("A PIE that gets work from libpad.so.", Pad(5, 0), library="libpad.so"),
    "libfentry.so": Sample("A shared library with __fentry__ and nothing else: no table."),
    "libpad.so": Sample("A shared library with gcc's pad.", Pad(5, 0)),
    "libmfentry.so": Sample(
        "A shared library that calls __fentry__ through the GOT (GLOB_DAT): ff 15 disp32."
    ),
    "i386-pad": Sample("gcc's pad on i386, static, no libc.", Pad(5, 0)),
    "i386-pad-pie": Sample("gcc's pad in an i386 static-PIE: REL relocations.", Pad(5, 0)),
    "i386-fentry": Sample("-mfentry on i386: e8 rel32 at the entry."),
    "i386-mcount": Sample("-pg on i386: a call of mcount after the prologue."),
    "arm64-pad": Sample("gcc's two NOPs on arm64, in a PIE.", Pad(2, 0)),
    "arm64-pad-bti": Sample("The same after BTI, and before paciasp.", Pad(2, 0)),
    "arm64-pad-static": Sample("Static arm64 program, no libc.", Pad(2, 0)),
    "arm64-pad-static-bti": Sample("The same with BTI and pointer authentication.", Pad(2, 0)),
    "arm64-pad-4-2": Sample("Two NOPs before the function, as CALL_OPS has.", Pad(4, 2)),
    "arm64-pad-clang-bti": Sample("clang and lld on arm64, BTI and paciasp.", Pad(2, 0)),
}


def sha256(path: Path) -> str:
    """A file's digest."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def first_line(*command: str) -> str:
    """The first line that a command prints, or what is missing."""
    try:
        return subprocess.check_output(command, text=True).splitlines()[0]
    except FileNotFoundError:
        return f"no {command[0]}"


def commands(name: str) -> list[str]:
    """The commands that build one file, those for several sources folded into one."""
    dry = ["make", "--no-print-directory", "--dry-run", "--always-make", f"built/{name}"]
    text = subprocess.check_output(dry, cwd=HERE, text=True).replace("\\\n", " ")
    folded: list[str] = []
    for line in text.splitlines():
        line = " ".join(line.replace(sys.executable, "python3").split())
        line = re.sub(r"-([cS]) (\w+)/[\w-]+\.([csS]) -o \S+", r"-\1 \2/*.\3", line)
        line = re.sub(r"-([cS]) (build/\S+)/[\w-]+\.s -o \S+", r"-\1 \2/*.s", line)
        line = re.sub(r"(tools/objtool.py \w+ \S+)/[\w-]+\.s", r"\1/*.s", line)
        line = re.sub(r"(build/[\w.-]+/)[\w-]+\.o( \1[\w-]+\.o)*", r"\1*.o", line)
        if not line.startswith("mkdir") and line not in folded:
            folded.append(line)
    return folded


def toolchain(built_by: list[str]) -> dict[str, str]:
    """The compiler, the linker, and for hosted programs the libc, by their own words."""
    compiler = built_by[0].split()[0]
    linker = next((c for c in built_by if c.startswith("ld.lld")), "").split()[:1]
    if not linker and "-fuse-ld=lld" in " ".join(built_by):
        linker = ["ld.lld-14"]
    if not linker and first_line(compiler, "--version") != f"no {compiler}":
        linker = [first_line(compiler, "-print-prog-name=ld")]
    tools = {
        "compiler": first_line(compiler, "--version"),
        "linker": first_line(*(linker or ["ld"]), "--version"),
    }
    if "-nostdlib" not in " ".join(built_by) and not tools["compiler"].startswith("no "):
        library = Path(first_line(compiler, "-print-file-name=libc.so.6"))
        text = library.read_bytes() if library.exists() else b""
        found = re.search(rb"GNU C Library \([^)]*\)[^\n]*", text)
        tools["libc"] = found[0].decode() if found else "no libc"
    return tools


def describe(name: str, folder: Path) -> dict[str, Any]:
    """One file's object."""
    sample, path = SAMPLES[name], folder / name
    built_by = commands(name)
    described: dict[str, Any] = {
        "name": name,
        "shows": sample.shows,
        "commands": built_by,
        **toolchain(built_by),
        "size": path.stat().st_size,
        "sha256": sha256(path),
        "pad": list(sample.pad),
        "expected": Image(path, sample.pad).expected(),
    }
    twin = folder / (sample.twin or name)
    caller = Image(twin, sample.pad).address_of("ftrace_caller")
    described["ftrace_caller"] = None if caller is None else hex(caller)
    if described["expected"]["container"] == "executable":
        library = sample.library
        described["run"] = run(
            path, sample.pad, twin, (folder / library, SAMPLES[library].pad) if library else None
        )
    return described


def write(folder: Path) -> None:
    """Write manifest.json."""
    strangers = {path.name for path in folder.iterdir()} ^ set(SAMPLES)
    if strangers:
        sys.exit(f"not both built and described: {', '.join(sorted(strangers))}")
    objects = [json.dumps(describe(name, folder), indent=1) for name in SAMPLES]
    MANIFEST.write_text("[\n" + ",\n".join(objects) + "\n]\n")


def check() -> None:
    """Compare the committed files, and rebuilt ones where the tools are the same."""
    described = {entry["name"]: entry for entry in json.loads(MANIFEST.read_text())}
    wrong = [
        f"{name}: not as described"
        for name, entry in described.items()
        if sha256(BUILT / name) != entry["sha256"]
    ]
    same = []
    for name, entry in described.items():
        now = toolchain(entry["commands"])
        if all(entry.get(tool) == version for tool, version in now.items()):
            same.append(name)
        else:
            print(f"{name}: skipped: other compiler")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "built"
        places = [f"OUT={out}", f"OBJ={folder}/build", f"PYTHON={sys.executable}"]
        make = ["make", "--silent", *places, *(f"{out}/{name}" for name in same)]
        subprocess.run(make, cwd=HERE, check=True, stderr=subprocess.DEVNULL)
        for name in same:
            if sha256(out / name) != described[name]["sha256"]:
                wrong.append(f"{name}: rebuilt differently")
    print(*wrong, f"{len(same)} of {len(described)} files rebuilt and compared", sep="\n")
    sys.exit(bool(wrong))


def main() -> None:
    """Write or check."""
    match sys.argv[1:]:
        case ["write", folder]:
            write(Path(folder))
        case ["check"]:
            check()
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
