# SPDX-License-Identifier: MIT
"""A guest of arm64 in which ftpatch runs beside the programs that it changes.

qemu-user has no ptrace(2), so a Debian kernel is booted with a small user space (user_space.py),
and one boot runs all cases (guest_cases.py).
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.process.test_stop_calls import AGAIN, BY_HANDLER, ENDED, RESUMED, TIMED
from tests.support.probed_process import LIBRARY, PROGRAM

from . import fetch
from .apt import Archive, FetchError
from .guest import cpio
from .guest_cases import SAID
from .qemu import run_machine
from .trees import ensure_tree
from .user_space import PLACE, package, user_space

__all__ = [
    "ALSO",
    "CC",
    "CXX",
    "NEWER",
    "OLDER",
    "WAITS",
    "case",
    "found_in_guest",
    "require_clean",
]

ROOT = Path(__file__).parent.parent.parent
OLDER, NEWER = "linux-image-arm64-dbg", "linux-image-6.12-arm64-dbg"
"""Meta packages of kernels: 6.1, and the one of Debian 13, which Debian 12 has as well."""
END = "@@ end"
LIMIT = 1500  # seconds; all of it took 874 on two cores with a load of 25
APPEND = "console=ttyAMA0 panic=-1 loglevel=1"
CASES = (
    *("tests/__init__.py", "tests/kernels/__init__.py", "tests/kernels/guest_cases.py"),
    *(f"tests/kernels/in_guest{part}.py" for part in ("", "_ends", "_probes", "_walks")),
)
MACHINE = ("-m", "1536M", "-smp", "2")
CC, CXX = "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++"
PADS = "-fpatchable-function-entry=2"
WAITS = dict.fromkeys(ENDED + RESUMED + BY_HANDLER, True) | dict.fromkeys(TIMED + AGAIN, False)
"""Cases of waiting.c, and whether they have to be woken."""
ALSO = (
    *("function_graph", "pending", "probes_jump", "probes_library", "probes_pending"),
    *("walks_left", "walks_awaited", "kills"),
)
"""Cases that run on the newer kernel, too."""
INIT = f"""#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /tmp /run
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev
mkdir -p /dev/shm; mount -t tmpfs s /dev/shm; mount -t tmpfs t /tmp
exec >/dev/console 2>&1 </dev/null
export LD_LIBRARY_PATH=/lib/aarch64-linux-gnu:/usr/lib/aarch64-linux-gnu
export PYTHONHOME=/usr PYTHONPATH=/{PLACE}:/ COLUMNS=80 OPENBLAS_NUM_THREADS=1
/usr/bin/python3.11 -m tests.kernels.guest_cases CASES
echo '{END}'
sleep 60
"""


def found_in_guest(scratch: Path, meta: str, *cases: str) -> dict[str, Any]:
    """Boot a kernel, and return what each case found, or each of these. Raises FetchError without
    the kernel or its user space."""
    known = [one for one in fetch.kernels() if one.meta and one.meta.name == meta]
    if not known:
        raise FetchError(f"{meta} is not to be had, or not wanted (FTPATCH_KERNEL_SET)")
    tree, python = ensure_tree(known[0]), user_space(Archive("arm64"))
    files = {
        "init": INIT.replace("CASES", " ".join(cases)).encode(),
        "bin/busybox": tree.busybox.read_bytes(),
        "called": _built(scratch, "tests/kernels/called.c", PADS),
        "signed": _built(scratch, "tests/kernels/called.c", PADS, "-mbranch-protection=standard"),
        "waiting": _built(scratch, "tests/process/waiting.c", "-w", "-lrt"),
    }
    files |= _probed(scratch) | _walking(scratch)
    files |= {name: (ROOT / name).read_bytes() for name in CASES}
    files["cases.json"] = json.dumps(WAITS).encode()
    files |= package(ROOT / "ftpatch", PLACE) | package(ROOT / "stubs", PLACE)
    initrd = scratch / "initrd"
    initrd.write_bytes(python + cpio(files))
    words: list[str | Path] = [*MACHINE, "-initrd", initrd]
    text = run_machine("arm64", tree.kernel, APPEND, END, *words, limit=LIMIT)
    initrd.unlink()
    lines = [line.partition(SAID)[2] for line in text.splitlines() if SAID in line]
    assert END in text, text[-3000:]
    return {name: json.loads(held) for name, _, held in (line.partition(" ") for line in lines)}


def _built(folder: Path, source: str | Path, *words: str) -> bytes:
    path = folder / "program"
    command: list[str | Path] = [CC, "-O1", "-pthread", ROOT / source, "-o", path, *words]
    subprocess.run(command, check=True)
    return path.read_bytes()


def _probed(scratch: Path) -> dict[str, bytes]:
    """The program of tests/support/probed_process.py in all its forms, by their names."""
    source, library = scratch / "asked.c", scratch / "libthree.so"
    source.write_text(PROGRAM)
    (scratch / "three.c").write_text(LIBRARY)
    flags = ("-shared", "-fpic", f"-Wl,-soname,{library.name}")
    library.write_bytes(_built(scratch, scratch / "three.c", *flags))
    (scratch / "longer.c").write_text('__asm__(".text; .space 2048");\n')
    with_library = ("-DLIBRARY", "-Wl,--no-as-needed", str(library), "-Wl,-rpath,/")
    return {
        "asked": _built(scratch, source),
        "asked-pads": _built(scratch, source, PADS),
        "asked-bti": _built(scratch, source, "-mbranch-protection=bti"),
        "asked-signed": _built(scratch, source, "-mbranch-protection=standard"),
        "asked-static": _built(scratch, source, "-static"),
        "asked-static-longer": _built(scratch, source, "-static", str(scratch / "longer.c")),
        "asked-library": _built(scratch, source, *with_library),
        library.name: library.read_bytes(),
    }


def _walking(scratch: Path) -> dict[str, bytes]:
    """tests/programs/walks.cc and its library."""
    words: list[str | Path] = [CXX, "-O1", "-rdynamic", PADS, ROOT / "tests/programs/walks.cc"]
    library, path = scratch / "libthrough.so", scratch / "walks"
    shared = ("-DLIBRARY", "-shared", "-fpic", f"-Wl,-soname,{library.name}")
    subprocess.run([*words, *shared, "-o", library], check=True)
    subprocess.run([*words, library, "-Wl,-rpath,/", "-o", path, "-pthread"], check=True)
    return {one.name: one.read_bytes() for one in (library, path)}


def case(said: dict[str, Any], name: str) -> dict[str, Any]:
    """What a case found."""
    found: dict[str, Any] = said[name]
    assert "error" not in found, found["error"]
    return found


def require_clean(found: dict[str, Any]) -> None:
    """Require code as in the files, and the mappings that there were before."""
    assert (found["check"], found["maps"]) == (0, []), (found["said"], found["maps"])
