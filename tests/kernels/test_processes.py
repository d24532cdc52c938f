# SPDX-License-Identifier: MIT
"""Running processes of arm64: ftpatch runs in a guest, beside programs that count their own calls.

qemu-user has no ptrace(2), so a Debian kernel is booted with a small user space (user_space.py),
and one boot runs all cases (in_guest.py).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.process.test_stop_calls import AGAIN, BY_HANDLER, ENDED, RESUMED, TIMED

from . import fetch
from .apt import Archive, FetchError, lock
from .guest import cpio
from .in_guest import SAID
from .qemu import need, run_machine
from .trees import ensure_tree
from .user_space import PLACE, package, user_space

ROOT = Path(__file__).parent.parent.parent
META = "linux-image-arm64-dbg"
END = "@@ end"
LIMIT = 1500  # seconds; all of it takes some two minutes on two cores that have nothing else to do
APPEND = "console=ttyAMA0 panic=-1 loglevel=1"
MACHINE = ("-m", "1536M", "-smp", "2")
CC = "aarch64-linux-gnu-gcc"
WAITS = dict.fromkeys(ENDED + RESUMED + BY_HANDLER, True) | dict.fromkeys(TIMED + AGAIN, False)
"""Cases of waiting.c, and whether they have to be woken."""
INIT = f"""#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /tmp /run
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev
mkdir -p /dev/shm; mount -t tmpfs s /dev/shm; mount -t tmpfs t /tmp
exec >/dev/console 2>&1 </dev/null
export LD_LIBRARY_PATH=/lib/aarch64-linux-gnu:/usr/lib/aarch64-linux-gnu
export PYTHONHOME=/usr PYTHONPATH=/{PLACE} COLUMNS=80 OPENBLAS_NUM_THREADS=1
python=/usr/bin/python3.11
$python /in_guest.py
echo '{END}'
sleep 60
"""


@pytest.fixture(scope="session")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each case found, in one boot for all workers."""
    base = tmp_path_factory.getbasetemp()
    held = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "processes.json"
    need(CC)
    with lock("processes"):
        if not held.is_file():
            held.write_text(json.dumps(_boot(tmp_path_factory.mktemp("processes"))))
    found: dict[str, Any] = json.loads(held.read_text())
    return found


def _boot(scratch: Path) -> dict[str, Any]:
    try:
        (kernel,) = [one for one in fetch.kernels() if one.meta and one.meta.name == META]
        tree, python = ensure_tree(kernel), user_space(Archive("arm64"))
    except (FetchError, ValueError) as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    pads = "-fpatchable-function-entry=2"
    files = {
        "init": INIT.encode(),
        "in_guest.py": (ROOT / "tests/kernels/in_guest.py").read_bytes(),
        "bin/busybox": tree.busybox.read_bytes(),
        "called": _built(scratch, "tests/kernels/called.c", pads),
        "signed": _built(scratch, "tests/kernels/called.c", pads, "-mbranch-protection=standard"),
        "waiting": _built(scratch, "tests/process/waiting.c", "-w", "-lrt"),
    }
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


def _built(folder: Path, source: str, *words: str) -> bytes:
    path = folder / "program"
    command: list[str | Path] = [CC, "-O1", "-pthread", ROOT / source, "-o", path, *words]
    subprocess.run(command, check=True)
    return path.read_bytes()


def _case(said: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = said[name]
    assert "error" not in found, found["error"]
    return found


def _clean(found: dict[str, Any]) -> None:
    assert (found["check"], found["maps"]) == (0, []), (found["said"], found["maps"])


def test_an_untouched_process_is_clean(said: dict[str, Any]) -> None:
    found = _case(said, "reads")
    assert found["sites"] == {"called": 7, "libc.so.6": 0, "ld-linux-aarch64.so.1": 0}
    names = ("one", "two", "mixed", "handle", "deep", "works", "main")
    assert found["states"] == dict.fromkeys(names, "nop")
    assert found["check"].endswith(
        "3 images, 2 without call sites, 0 unreadable, every invariant holds\n"
    )


@pytest.mark.parametrize("tracer", ["function", "function_graph"])
def test_calls_are_counted(said: dict[str, Any], tracer: str) -> None:
    """As often as the program counts them, in three threads."""
    found = _case(said, tracer)
    assert found["traced"] == found["after"] == found["plain"]
    _, ones, twos, _ = map(int, found["plain"].split())
    assert found["counted"] == {"one": ones, "two": twos}
    _clean(found)


def test_pending_calls_return(said: dict[str, Any]) -> None:
    """From where they were called, after the tracer is gone."""
    found = _case(said, "pending")
    assert found["first"]["code"] == 0 and found["first"]["returns"] == 21, found
    assert found["answer"] == "20"
    _clean(found["first"])


def test_signed_return_addresses_are_waited_for(said: dict[str, Any]) -> None:
    """Only the thread itself can sign what would be put back."""
    found = _case(said, "signed")
    assert found["first"]["code"] == 1
    assert "whose return addresses are signed" in found["first"]["said"]
    assert found["answer"] == "20"
    _clean(found)


def test_taken_in_and_out_while_signals_arrive(said: dict[str, Any]) -> None:
    found = _case(said, "cycles")
    assert {line.split()[0] for line in found["answers"]} == {found["plain"].split()[0]}, found
    _clean(found)


def test_one_command_traces_and_leaves(said: dict[str, Any]) -> None:
    found = _case(said, "traces")
    assert found["code"] == 0 and "sites traced" in found["err"], found
    assert found["during"] == found["plain"]
    rows = [line.split() for line in found["out"].splitlines()]
    hits = {words[-1]: int(words[0]) for words in rows if words[:1] and words[0].isdecimal()}
    assert set(hits) == {"one", "two"} and hits["one"] > hits["two"] > 0, found
    _clean(found)


def test_system_calls_go_on_waiting(said: dict[str, Any]) -> None:
    """As they end when nobody stops their process."""
    found = _case(said, "calls")
    assert (
        found["number"] + len(found["skipped"]) == len(WAITS) and found["number"] > len(WAITS) / 2
    )
    assert found["differ"] == {}
