# SPDX-License-Identifier: MIT
"""The signature of a module: it goes when the module changes, if that is asked for, and comes back
with undo."""

from __future__ import annotations

import lzma
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.loose_forms import FORMS
from tests.support.loose_images import MARKER, module, signed
from tests.support.samples import sample

VERBS = ("status", "list", "check", "disable", "undo", "diff")
CHANGING = (["disable"], ["enable", "--to", "my_tracer"], ["enable", "--to", "printk"])
STRIP = "--strip-signature"
changing = pytest.mark.parametrize("verb", CHANGING, ids=" ".join)


def _plain(name: str = "x86_64") -> bytes:
    return module(FORMS[name]).build()


@pytest.fixture
def put(tmp_path: Path) -> Callable[[bytes], Path]:
    """Gives a module of these bytes."""

    def written(data: bytes) -> Path:
        path = tmp_path / "demo.ko"
        path.write_bytes(data)
        return path

    return written


def _lying(size: int, *, behind: int = 300, signer: int = 0, key: int = 0) -> bytes:
    """A signature of ``behind`` bytes that says it has ``size``."""
    head = bytes([0, 0, 2, signer, key, 0, 0, 0]) + size.to_bytes(4, "big")
    return _plain() + bytes(behind) + head + MARKER


@changing
@pytest.mark.parametrize("way", [[], ["--in-place"], ["--dry-run"]], ids=["new", "in-place", "dry"])
def test_refused_unless_asked_for(
    verb: list[str], way: list[str], put: Callable[[bytes], Path]
) -> None:
    data = signed(_plain())
    path = put(data)
    result = ftpatch(*verb, path, *way)
    assert result.code == 2 and not result.out and result.err.count("\n") == 1
    assert "the module is signed" in result.err and f"use {STRIP}" in result.err
    assert path.read_bytes() == data
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@changing
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("size", [0, 1, 300, 70_000])
def test_it_goes_and_comes_back(
    verb: list[str], name: str, size: int, put: Callable[[bytes], Path]
) -> None:
    plain = _plain(name)
    data = signed(plain, size)
    path = put(data)
    result = ftpatch(*verb, "--in-place", path, STRIP)
    assert result.code == 0, result.err
    after = path.read_bytes()
    if name not in ("x86_64", "i386") and verb == ["disable"]:
        assert after == data, "pads are NOPs: nothing changes, so it is still valid"
        return
    assert MARKER not in after
    assert after[: len(plain)].startswith(b"\x7fELF") and after != plain
    assert ftpatch("check", path).code == 0
    assert ftpatch("undo", path).code == 0
    assert path.read_bytes() == data


def test_what_modinfo_says(put: Callable[[bytes], Path]) -> None:
    """kmod reads the same place. (PKCS#7 it can only tell of with a real one.)"""
    if shutil.which("modinfo") is None:
        pytest.skip("no modinfo: install kmod")

    def signer(path: Path) -> str:
        command = ["modinfo", "-F", "signer", str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    head = bytes([1, 4, 1, 5, 4, 0, 0, 0]) + (20).to_bytes(4, "big")  # RSA, SHA-256, X.509
    data = _plain() + b"Alicekeys" + bytes(20) + head + MARKER
    path = put(data)
    assert signer(path) == "Alice"
    assert ftpatch("disable", "--in-place", path, STRIP).code == 0
    assert signer(path) == "" and ftpatch("undo", path).code == 0
    assert path.read_bytes() == data


@pytest.mark.parametrize("way", [["--in-place"], ["-o", "out.ko"]], ids=["in-place", "new"])
def test_kept_where_nothing_changes(
    way: list[str], put: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = signed(_plain("arm64"))
    path = put(data)
    monkeypatch.chdir(path.parent)
    for options in ([], [STRIP]):
        assert ftpatch("disable", path, *way, *options).code == 0
        written = path if way[0] == "--in-place" else Path("out.ko")
        assert written.read_bytes() == data
        if written != path:
            written.unlink()


def test_a_second_command_on_an_unsigned_one(put: Callable[[bytes], Path]) -> None:
    data = signed(_plain())
    path = put(data)
    assert ftpatch("disable", "--in-place", path, "-f", "open_it", STRIP).code == 0
    first = path.read_bytes()
    assert ftpatch("disable", "--in-place", path, "-f", "read_it").code == 0, "it has none now"
    assert ftpatch("undo", path).code == 0 and path.read_bytes() == first
    assert ftpatch("undo", path).code == 0 and path.read_bytes() == data


@pytest.mark.parametrize("everything", [[], ["--all"]])
def test_signed_again_after_patching(everything: list[str], put: Callable[[bytes], Path]) -> None:
    """A signature behind the journal hides nothing of it. It goes with what it signs."""
    data = signed(_plain())
    path = put(data)
    assert ftpatch("disable", "--in-place", path, "-f", "open_it", STRIP).code == 0
    path.write_bytes(signed(path.read_bytes(), 77))
    assert ftpatch("status", "--json", path).only["dropped"] == 1
    assert ftpatch("undo", path, *everything).code == 0
    assert path.read_bytes() == data


def test_patched_signed_and_patched_again(put: Callable[[bytes], Path]) -> None:
    """Each command's undo gives back what that command met, with the signature it had."""
    states = [signed(_plain("arm64-ops"))]
    path = put(states[0])
    for number, function in enumerate(("open_it", "read_it", "set_up")):
        few = ["--to", "my_tracer", "-f", function]
        assert ftpatch("enable", "--in-place", path, *few).code == 2
        assert ftpatch("enable", "--in-place", path, *few, STRIP).code == 0
        path.write_bytes(signed(path.read_bytes(), 10 + number))
        states.append(path.read_bytes())
    everything = path.with_name("all.ko")
    assert ftpatch("undo", "--all", path, "-o", everything).code == 0
    assert everything.read_bytes() == states[0]
    for state in reversed(states[:-1]):
        assert ftpatch("undo", path).code == 0
        assert path.read_bytes() == state


def test_signed_twice(put: Callable[[bytes], Path]) -> None:
    """All go: a kernel would take the one that is left for the changed module's."""
    data = signed(signed(_plain()), 40)
    path = put(data)
    assert ftpatch("disable", "--in-place", path, STRIP).code == 0
    assert MARKER not in path.read_bytes()
    assert ftpatch("undo", path).code == 0
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    "data",
    [
        _lying(1 << 31),
        _lying(0xFFFF_FFFF),
        _lying(301),
        _lying(400),
        _lying(1500),
        _lying(len(_plain()) + 300 - 64),
        _lying(len(_plain()) + 300),
        _lying(len(_plain()) + 301),
        _lying(300, key=1),
        _lying(200, signer=101),
        _lying(0, behind=0)[: -len(MARKER) - 12] + MARKER,
    ],
    ids=lambda data: str(len(data)),
)
def test_a_length_that_lies(data: bytes, put: Callable[[bytes], Path]) -> None:
    """What is cut off must lie behind the module: nothing is written that nobody could read."""
    path = put(data)
    for verb in VERBS:
        strip = [STRIP] if verb == "disable" else []
        result = ftpatch(verb, path, *strip)
        assert result.code == 2 and "signature" in result.err, (verb, result)
    assert path.read_bytes() == data
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("data", [_lying(100), _lying(290, signer=4, key=6), _lying(0, behind=9)])
def test_a_length_that_is_shorter(data: bytes, put: Callable[[bytes], Path]) -> None:
    """Then there is something between module and signature, which stays."""
    path = put(data)
    assert ftpatch("disable", "--in-place", path, STRIP).code == 0
    assert not path.read_bytes().endswith(MARKER) and ftpatch("status", path).code == 0
    assert ftpatch("undo", path).code == 0
    assert path.read_bytes() == data


@pytest.mark.parametrize("data", [MARKER, bytes(12) + MARKER, b"\x7fELF" + MARKER])
def test_nothing_but_a_signature(data: bytes, put: Callable[[bytes], Path]) -> None:
    assert ftpatch("status", put(data)).code == 2


@pytest.mark.parametrize("tail", [MARKER[:-1], MARKER + b"\n", MARKER.upper(), bytes(40)])
def test_what_is_no_signature(tail: bytes, put: Callable[[bytes], Path]) -> None:
    """It is kept like anything else behind the sections."""
    data = signed(_plain())[: -len(MARKER)] + tail
    path = put(data)
    assert ftpatch("disable", "--in-place", path).code == 0
    assert path.read_bytes()[len(_plain()) : len(data)] == data[len(_plain()) :]
    assert ftpatch("undo", path).code == 0 and path.read_bytes() == data


def test_programs_have_none(put: Callable[[bytes], Path]) -> None:
    data = signed(sample("pad").data)
    path = put(data)
    assert ftpatch("enable", "--in-place", path).code == 0
    assert MARKER in path.read_bytes()
    assert ftpatch("undo", path).code == 0 and path.read_bytes() == data


def test_inside_of_a_compressed_module(put: Callable[[bytes], Path]) -> None:
    data = signed(_plain())
    path = put(lzma.compress(data))
    result = ftpatch("disable", "--in-place", path)
    assert result.code == 2 and STRIP in result.err
    assert ftpatch("disable", "--in-place", path, STRIP).code == 0
    assert not lzma.decompress(path.read_bytes()).endswith(MARKER)
    assert ftpatch("undo", path).code == 0
    assert lzma.decompress(path.read_bytes()) == data


@pytest.mark.parametrize("sides", [1, 2])
def test_diff_tells_of_it(sides: int, put: Callable[[bytes], Path]) -> None:
    data = signed(_plain(), 260)
    path = put(data)
    before = path.with_name("before.ko")
    before.write_bytes(data)
    assert ftpatch("disable", "--in-place", path, STRIP, "-f", "open_it").code == 0
    rows = ftpatch("diff", "--json", *[before, path][-sides:]).json
    (row,) = (row for row in rows if row["kind"] == "signature")
    assert (row["old"], row["new"]) == ("300 bytes", "")
