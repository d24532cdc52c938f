# SPDX-License-Identifier: MIT
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
from pathlib import Path
from typing import Any

from described import SAMPLES
from prove import run
from reader import Image

HERE = Path(__file__).resolve().parent
BUILT, MANIFEST = HERE / "built", HERE / "manifest.json"


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
