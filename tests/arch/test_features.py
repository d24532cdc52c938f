# SPDX-License-Identifier: MIT
"""An absent file of an architecture's folder is a feature that is not there, and said so."""

from __future__ import annotations

from pathlib import Path

import pytest

from ftpatch import arch as package
from ftpatch.arch import FEATURES, feature, supports
from ftpatch.arch.raw_image import raw_images
from ftpatch.errors import InputError
from tests.support.command import Result, ftpatch
from tests.support.samples import BUILT

PAD, KERNEL = BUILT / "pad", BUILT / "vmlinux-x86_64"
PROBE = (PAD, "p work+5 %ax", "r work $retval", "--dry-run", "--json")


@pytest.fixture
def without(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The feature, which no architecture has any more."""
    name = str(request.param)
    has = package._has
    monkeypatch.setattr(package, "_has", lambda arch, file: file != name and has(arch, file))
    caches = (supports, raw_images)
    for cached in caches:
        cached.cache_clear()
        request.addfinalizer(cached.cache_clear)
    return name


every_feature = pytest.mark.parametrize("without", FEATURES, indirect=True)


def _commands(tmp_path: Path) -> dict[str, Result]:
    to = tmp_path / "to"
    return {
        "status": ftpatch("status", PAD),
        "check": ftpatch("check", KERNEL),
        "enable": ftpatch("enable", PAD, "--to", "work", "-o", to),
        "diff": ftpatch("diff", PAD, to),
        "tracer": ftpatch("enable", PAD, "--tracer", "function", "-o", tmp_path / "tracer"),
        "boot": ftpatch("enable", KERNEL, "--tracer", "boot", "-o", tmp_path / "boot"),
        "probe": ftpatch("probe", *PROBE),
        "trap": ftpatch("probe", *PROBE, "--no-optimize"),
        "watch": ftpatch("watch", PAD, "orders:rw-", "--dry-run"),
    }


CODES = {"diff": 1, "boot": 1}
"""Where it is not 0: the two differ; the sample has no room for the tracer's word."""
PROBES = {"probe", "trap"}
REFUSED = {
    "boot": {"boot"},
    **dict.fromkeys(("move", "detour", "registers", "returns_twice"), PROBES),
    "system_calls": {"trap"},
}
"""A feature and the commands that need it."""


@every_feature
def test_only_what_needs_it_is_refused_in_one_line(without: str, tmp_path: Path) -> None:
    for name, found in _commands(tmp_path).items():
        assert "internal error" not in found.err, (name, found.err)
        if name in REFUSED.get(without, ()):
            assert found.code == 2 and found.err.count("\n") == 1, (name, found.err)
        else:
            assert found.code == CODES.get(name, 0), (name, found.err)


def test_with_all_of_them_a_jump_is_laid() -> None:
    assert [row["way"] for row in ftpatch("probe", *PROBE).json] == ["jump", "pad"]


@pytest.mark.parametrize("without", ["branches"], indirect=True)
def test_without_branches_only_one_instruction_is_changed(without: str) -> None:
    """By a pun, which nobody who jumps behind it notices."""
    rows = ftpatch("probe", *PROBE).json
    assert not supports("x86_64", without)
    assert [row["way"] for row in rows] == ["pun", "pad"]
    assert rows[0]["reason"] == "it is not known how x86_64 branches"


@every_feature
def test_what_is_absent_is_an_input_error(without: str) -> None:
    with pytest.raises(InputError, match=r"not supported on x86_64$"):
        feature("x86_64", without)
