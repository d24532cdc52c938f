# SPDX-License-Identifier: MIT
"""What `status`, `list` and `check` say of untouched kernels, against an independent reading."""

from __future__ import annotations

from collections import Counter

from .cli import ftpatch
from .independent import Vmlinux
from .sitecode import read_sites


def test_status_counts_what_is_there(image: Vmlinux) -> None:
    said = ftpatch("status", image.path).one
    states, targets = read_sites(image, image.sites)
    null = int((image.records == 0).sum())
    counted = Counter(states.tolist())
    assert said["container"] == "vmlinux"
    assert said["arch"] == image.arch
    assert said["table"] == "__mcount_loc"
    assert said["records"] == len(image.records)
    assert said["null"] == null
    assert said["dropped"] == 0
    assert said["sites"] == len(image.records) - null
    assert said["states"] == {name: counted[name] for name in ("nop", "call", "unexpected")}
    by_address = {image.address(name): count for name, count in said["targets"].items()}
    assert by_address == Counter(targets[states == "call"].tolist())


def test_list_names_every_site_as_kallsyms_does(image: Vmlinux) -> None:
    said = ftpatch("list", image.path).objects
    states, targets = read_sites(image, image.sites)
    # A site's code begins with the move before the call, on arm64.
    offsets = image.offsets(image.sites)
    names = image.kallsyms.lookup(image.sites)
    expected = {
        int(ip): (int(at), name, offset, state)
        for ip, at, (name, offset, _), state in zip(
            image.sites, offsets, names, states.tolist(), strict=True
        )
    }
    listed = {
        int(row["ip"], 16): (row["offset"], row["symbol"], row["symbol_offset"], row["state"])
        for row in said
    }
    assert len(said) == len(listed)
    end = image.address("_etext")
    if expected.get(end, ("", ""))[1] == "_etext":
        # Without KALLSYMS_ALL that alone stays of what stands there: scripts/kallsyms.c.
        del expected[end], listed[end]
    wrong = {ip for ip in listed.keys() | expected.keys() if listed.get(ip) != expected.get(ip)}
    sample = [(hex(ip), listed.get(ip), expected.get(ip)) for ip in sorted(wrong)[:5]]
    assert not wrong, f"{len(wrong)} sites: {sample}"
    compiled = image.find("__fentry__") or image.find("__gnu_mcount_nc")
    assert all(targets[states == "call"] == compiled)


def test_check_predicts_no_ftrace_bug(image: Vmlinux) -> None:
    found = ftpatch("check", image.path, expect=None)
    assert found.status in (0, 1), found.complaint
    assert [f for f in found.objects if f["invariant"] == "ftrace_init"] == []
