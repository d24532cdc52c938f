# SPDX-License-Identifier: MIT
"""The boot tracer behind the text of a riscv64 kernel: headers, code and calls as GNU's tools read
them, with CALL_OPS and without."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from ftpatch.boot import find_source
from ftpatch.boot.plan import BootTracing, plan_boot
from ftpatch.errors import UsageError
from ftpatch.ftrace.sites import read_sites
from ftpatch.image import open_image
from tests.support.command import ftpatch
from tests.support.gnu import PREFIXES
from tests.support.samples import BUILT

KERNELS = ("vmlinux-riscv64", "vmlinux-riscv64-callops")
PREFIX = PREFIXES["riscv64"][0]
CALL = re.compile(r"\tjr?alr?\t(?:t0,)?-?\d+\((t0)\) # ([0-9a-f]+)")
ST_VALUE = 8
"""Offset in an Elf64_Sym."""
OPS_DISTANCE = 8
"""Bytes from a literal to its function."""


def _gnu(tool: str, *words: str | Path) -> str:
    program = f"{PREFIX}{tool}"
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=True)
    return done.stdout


def _symbols(path: Path) -> dict[str, int]:
    rows = (line.split() for line in _gnu("nm", path).splitlines())
    return {row[2]: int(row[0], 16) for row in rows if len(row) == 3}


@pytest.mark.parametrize("name", KERNELS)
def test_every_site_calls_what_every_reader_finds(name: str, tmp_path: Path) -> None:
    plain, path, flat = BUILT / name, tmp_path / name, tmp_path / "flat"
    done = ftpatch("enable", plain, "--tracer", "boot", "-o", path, "--json")
    assert done.code == 0, done.err
    source = find_source(open_image(path))
    symbols = _symbols(plain)
    assert symbols["_etext"] < source.at < symbols["__init_begin"]
    assert not re.search("warning", _gnu("readelf", "-SlW", path), re.IGNORECASE)
    _gnu("objcopy", "-O", "binary", path, flat)
    laid = flat.read_bytes()[source.at - symbols["_start"] :]
    assert laid.startswith(b"FTPBOOT2")

    text = _gnu("objdump", "-d", "-M", "no-aliases", "-j", ".text", "-j", ".init.text", path)
    calls = [int(to, 16) for _, to in CALL.findall(text)]
    assert calls.count(source.at + source.mark.entry) == done.only["changed"] == len(source.ip)
    # Where each call returns is where the tracer's events say that it was called.
    behind = [int(line.split(":")[0], 16) + 4 for line in text.splitlines() if CALL.search(line)]
    assert {at - source.at for at in behind} >= set(source.places.tolist())
    if name.endswith("callops"):
        old, new = (open_image(one).elf for one in (plain, path))
        entry = min(ip for ip in source.ip.tolist()) - 4
        start = int(old.offset_of(source.ip[source.ip == entry + 4])[0]) - 4 - OPS_DISTANCE
        assert old.data[start:][:8].tobytes() == new.data[start:][:8].tobytes()
    assert ftpatch("check", path).code == 0
    assert ftpatch("undo", path).code == 0
    assert path.read_bytes() == plain.read_bytes()


@pytest.mark.parametrize("what", ["something is there", "no symbol", "too little"])
def test_what_is_not_free_is_refused(what: str, tmp_path: Path) -> None:
    plain = tmp_path / "vmlinux"
    data = bytearray((BUILT / KERNELS[0]).read_bytes())
    symbols = _symbols(BUILT / KERNELS[0])
    elf = open_image(BUILT / KERNELS[0]).elf
    (text,) = (one for one in elf.sections if one.name == ".text")
    if what == "something is there":
        data[text.offset + text.size + 200] = 1
    elif what == "no symbol":
        data = bytearray(bytes(data).replace(b"\0__init_begin\0", b"\0__init_begun\0"))
    else:
        with (BUILT / KERNELS[0]).open("rb") as file:
            table = ELFFile(file).get_section_by_name(".symtab")
            names = [symbol.name for symbol in table.iter_symbols()]
            at = table["sh_offset"] + table["sh_entsize"] * names.index("__init_begin") + ST_VALUE
        data[at : at + 8] = (symbols["_etext"] + 256).to_bytes(8, "little")
    plain.write_bytes(data)
    done = ftpatch("enable", plain, "--tracer", "boot", "-o", tmp_path / "out")
    said = "no symbols for the end" if what == "no symbol" else "behind its text up to __init_begin"
    assert done.code == 1 and said in done.err and done.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_kernel_that_calls_mcount_is_refused() -> None:
    """Behind a function's prologue t0 is no way back."""
    sites = read_sites(open_image(BUILT / KERNELS[0]))
    called = replace(sites, abi=replace(sites.abi, pad=False))
    with pytest.raises(UsageError, match="for pads"):
        plan_boot(called, np.ones(len(sites), bool), BootTracing())
