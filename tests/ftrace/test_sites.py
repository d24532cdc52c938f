# SPDX-License-Identifier: MIT
"""Every sample against its manifest, and sites against an independent reader."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ftpatch.arch import State
from ftpatch.errors import InputError
from ftpatch.ftrace.sites import read_sites
from ftpatch.image import open_image
from tests.support.command import ftpatch
from tests.support.elf_writer import SHT_NOBITS, Image, Section, Segment
from tests.support.images import (
    FUNCTIONS,
    arm64_callops_kernel,
    arm64_rela_kernel,
    arm64_relr_kernel,
    fentry_kernel,
    pad_program,
    section,
    symbols_at,
)
from tests.support.samples import SAMPLES, WITH_TABLE, Sample, sample
from tests.support.sampling import scaled

IMAGES = {
    "fentry": fentry_kernel(nulls=2),
    "pad": pad_program(),
    "rela": arm64_rela_kernel(),
    "relr": arm64_relr_kernel(nulls=1),
    "callops": arm64_callops_kernel(),
}


STRIPPED = {"pad-stripped", "pad-glibc-static"}


def _name(value: object) -> str:
    return value.name if isinstance(value, Sample) else str(value)


@pytest.mark.parametrize("sample_", WITH_TABLE, ids=_name)
def test_status_is_the_manifest_s(sample_: Sample) -> None:
    result = ftpatch("status", "--json", sample_.path)
    assert result.code == 0, result.err
    told = {"path": str(sample_.path), "dropped": 0, "lost": 0, **sample_.expected}
    assert result.only == told


def test_there_is_no_sample_without_a_test() -> None:
    assert {s.name for s in SAMPLES} - {s.name for s in WITH_TABLE} == {
        "pad-noheaders",
        "libfentry.so",
    }
    assert {path.name for path in SAMPLES[0].path.parent.iterdir()} == {s.name for s in SAMPLES}


def test_without_section_headers_the_table_is_found_by_what_it_is() -> None:
    """The same program with headers says what must come out."""
    without, with_headers = (
        ftpatch("status", "--json", sample(name).path).only for name in ("pad-noheaders", "pad")
    )
    without.pop("path"), with_headers.pop("path")
    assert without == with_headers
    rows = [ftpatch("list", "--json", sample(n).path).json for n in ("pad-noheaders", "pad")]
    assert [row["ip"] for row in rows[0]] == [row["ip"] for row in rows[1]]


def test_a_library_without_a_table_is_said_to_have_none() -> None:
    result = ftpatch("status", sample("libfentry.so").path)
    assert result.code == 2 and "no __mcount_loc" in result.err and result.err.count("\n") == 1


@pytest.mark.parametrize("sample_", WITH_TABLE, ids=_name)
def test_every_site_is_the_reader_s(sample_: Sample, reader: ModuleType) -> None:
    seen = reader.Image(sample_.path, reader.Pad(*sample_.pad))
    wanted = [(site.ip, seen.offset(site.ip), site.state, site.target or "") for site in seen.sites]
    rows = ftpatch("list", "--json", sample_.path).json if wanted else []
    found = [(int(row["ip"], 16), row["offset"], row["state"], row["target"]) for row in rows]
    assert found == wanted
    for row in rows:
        name, into = row["symbol"], row["symbol_offset"]
        named = [value for symbol, value, _ in seen.symbols if symbol == name]
        assert int(row["ip"], 16) - into in named or (not name and sample_.name in STRIPPED)


@pytest.mark.parametrize("name", IMAGES)
def test_made_images_have_the_sites_that_were_made(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(IMAGES[name].build())
    sites = read_sites(open_image(path))
    base = section(IMAGES[name], ".text").address
    lead = 4 if IMAGES[name].machine == 183 else 0
    assert sites.ip.tolist() == [at + lead for at in symbols_at(base).values()]
    state = State.CALL if name == "fentry" else State.NOP
    assert (sites.state == state).all() and sites.lead == lead
    nulls = {"fentry": 2, "relr": 1, "callops": 2}.get(name, 0)
    assert sites.null == nulls and len(sites.table.value) == len(FUNCTIONS) + nulls
    assert sites.abi.kernel == (name != "pad") and sites.abi.null_seen == (nulls > 0)
    assert bool(sites.abi.nop_ops) == (name == "callops")
    data = np.frombuffer(path.read_bytes(), np.uint8)
    for row in range(len(sites)):
        at = int(sites.offset[row])
        assert (data[at : at + sites.code.shape[1]] == sites.code[row]).all()


def _refusal(image: Image, path: Path) -> str:
    path.write_bytes(image.build())
    with pytest.raises(InputError) as caught:
        read_sites(open_image(path))
    return caught.value.reason


def test_a_table_that_cannot_be_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "image"
    image = pad_program()
    table = image.sections[1]
    table.data += b"\1"
    assert "not a multiple of the word size" in _refusal(image, path)
    table.data = table.data[:-1]
    table.type, table.size = SHT_NOBITS, 48
    assert "no bytes in this file" in _refusal(image, path)


@pytest.mark.parametrize(
    ("start", "stop", "words"),
    [
        (48, 0, "precedes"),
        (0, 49, "not in the file"),
        (0, 41, "not a multiple of the word size"),
        (0x100000, 0x100030, "not in the file"),
        (0, 1 << 24, "not in the file"),
    ],
)
def test_a_kernel_s_bounds_that_cannot_be_are_refused(
    start: int, stop: int, words: str, tmp_path: Path
) -> None:
    image = fentry_kernel()
    table = section(image, ".init.data").address
    moved = {"__start_mcount_loc": table + start, "__stop_mcount_loc": table + stop}
    for at, symbol in enumerate(image.symbols):
        if symbol.name in moved:
            image.symbols[at] = type(symbol)(symbol.name, moved[str(symbol.name)], type=0)
    assert words in _refusal(image, tmp_path / "vmlinux")


def test_an_unknown_machine_is_refused(tmp_path: Path) -> None:
    image = pad_program()
    image.machine = 8  # EM_MIPS
    reason = _refusal(image, tmp_path / "image")
    assert reason == "a 64-bit MIPS ELF file, which is not supported"


def test_where_there_are_both_tables_mcount_loc_is_the_one(tmp_path: Path) -> None:
    """The other also lists functions that must not be traced."""
    path = tmp_path / "image"
    image = pad_program()
    places = list(symbols_at(section(image, ".text").address).values())
    at = image.sections[1].address + 0x10000
    # Behind the other, so that it is not just the first that is found.
    image.sections.append(Section("__mcount_loc", image.table(places[1:4]), at, align=8))
    image.segments.append(Segment(("__mcount_loc",)))
    path.write_bytes(image.build())
    sites = read_sites(open_image(path))
    assert (sites.table_name, sites.ip.tolist()) == ("__mcount_loc", places[1:4])


def test_several_sections_of_one_name_are_one_table(tmp_path: Path) -> None:
    path = tmp_path / "image"
    image = pad_program()
    name, table = image.sections[1].name, image.sections[1].data
    places = list(symbols_at(section(image, ".text").address).values())
    image.sections[1].data = table[:16]
    at = image.sections[1].address + 0x10000
    image.sections.append(Section(name, table[16:], at, align=8))
    image.segments[1] = Segment((name,), header={"p_memsz": 0x10100})
    path.write_bytes(image.build())
    assert read_sites(open_image(path)).ip.tolist() == places
    assert ftpatch("status", "--json", path).only["records"] == len(places)


def test_an_empty_table_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "image"
    image = pad_program()
    image.sections[1].data = b""
    path.write_bytes(image.build())
    status = ftpatch("status", "--json", path)
    assert status.code == 0 and status.only["records"] == status.only["sites"] == 0
    assert ftpatch("check", path).code == 0 and ftpatch("list", path).code == 0


@pytest.mark.scaled
def test_programs_without_a_table() -> None:
    """A word that points to a call proves nothing: those of the distribution have no table."""
    seen = 0
    for path in sorted(Path("/usr/bin").iterdir())[: scaled(200, 50)]:
        if path.is_file() and path.open("rb").read(4) == b"\x7fELF":
            result = ftpatch("status", path)
            assert result.code == 2 and "no __mcount_loc" in result.err, result.err
            seen += 1
    assert seen
