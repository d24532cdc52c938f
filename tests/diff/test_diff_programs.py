# SPDX-License-Identifier: MIT
"""``diff`` of what probes and watches wrote into programs without a table, and of a folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.samples import BUILT, sample

SOURCE = """
int printf(const char *, ...);
int counter;
__attribute__((noinline)) int work(int a) { counter += a; return counter * 3; }
__attribute__((noinline)) int leaf(int a) { asm volatile(""); return a + 1; }
int main(void) { printf("%d\\n", work(1) + leaf(2)); return 0; }
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def program() -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    Path("prog.c").write_text(SOURCE)
    subprocess.run(["gcc", "-O2", "-g", "prog.c", "-o", "prog"], check=True)
    return Path("prog")


def _objdump(path: Path, symbol: str) -> str:
    """binutils' word for the first instruction of a function."""
    command = ["objdump", "-d", f"--disassemble={symbol}", "--no-show-raw-insn", str(path)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(rf"<{symbol}>:\n\s*[0-9a-f]+:\s+(\w+)", text)
    assert found
    return found[1]


def test_a_probed_program_shows_both_sides(program: Path) -> None:
    assert ftpatch("probe", program, "p:x work", "p:y leaf").code == 0
    out = Path("prog.ftpatch")
    for arguments in ((program,), (program, out), (out,)):
        result = ftpatch("diff", "--json", *arguments)
        assert result.code == 1 and not result.err
        rows = result.json
        code = {row["symbol"]: row for row in rows if row["kind"] == "code"}
        assert set(code) == {"work+0x0", "leaf+0x0"}
        assert code["work+0x0"]["old"].startswith(_objdump(program, "work"))
        assert re.match(r"jmp 0x[0-9a-f]+ \(inserted\)", code["work+0x0"]["new"])
        assert code["leaf+0x0"]["old"].startswith(_objdump(program, "leaf"))
        assert code["leaf+0x0"]["new"] != code["leaf+0x0"]["old"]
        headers = {row["symbol"]: row for row in rows if row["kind"] == "header"}
        shown = subprocess.run(["readelf", "-hW", str(out)], capture_output=True, text=True).stdout
        entry = re.search(r"Entry point address:\s+(0x[0-9a-f]+)", shown)
        assert entry and headers["e_entry"]["new"] == entry[1]
        laid = [row for row in rows if row["kind"] == "laid in"]
        assert len(laid) == 1 and int(laid[0]["new"].split()[0]) > 1000
    text = ftpatch("diff", program).out
    assert "journal" in text and "jmp 0x" in text
    assert "code" in ftpatch("diff", "--stat", program).out


def test_a_stripped_program_has_whole_instructions(program: Path) -> None:
    names = subprocess.run(["nm", "prog"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"([0-9a-f]+) T work", names)
    assert found
    subprocess.run(["strip", "prog"], check=True)
    at = hex(int(found[1], 16))
    assert ftpatch("probe", program, f"p:x {at}").code == 0
    rows = [row for row in ftpatch("diff", "--json", program).json if row["kind"] == "code"]
    assert [row["address"] for row in rows] == [at]
    assert "(%rip)" in rows[0]["old"] and ".byte" not in rows[0]["old"]


def test_a_watched_program(program: Path) -> None:
    assert ftpatch("watch", program, "counter:rw-").code == 0
    kinds = {row["kind"] for row in ftpatch("diff", "--json", program).json}
    assert {"header", "laid in", "journal"} <= kinds


def test_programs_without_a_table_are_compared(program: Path) -> None:
    shutil.copyfile(program, "other")
    assert ftpatch("diff", program, "other").code == 0
    data = bytearray(Path("other").read_bytes())
    at = data.index(b"%d\n")
    data[at] ^= 1
    Path("other").write_bytes(data)
    assert [row["kind"] for row in ftpatch("diff", "--json", program, "other").json] == ["data"]


def test_here_nothing_was_changed() -> None:
    shutil.copyfile(sample("pad").path, "pad")
    Path("notes").write_text("nothing\n")
    result = ftpatch("diff")
    assert (result.code, result.err) == (0, "")
    assert result.out == "no file in this directory has a journal or a FILE.ftpatch beside it\n"
    assert ftpatch("diff", "--json").out == ""


def test_here_everything_that_was_changed_is_told() -> None:
    for name in ("pad", "fentry", "vmlinux-x86_64"):
        shutil.copyfile(BUILT / name, name)
    assert ftpatch("disable", "fentry").code == 0
    assert ftpatch("disable", "--in-place", "vmlinux-x86_64", "-f", "vfs_read").code == 0
    os.mkfifo("pipe")
    Path("link").symlink_to("fentry")
    Path("folder").mkdir()
    shutil.copyfile("vmlinux-x86_64", "folder/vmlinux")
    result = ftpatch("diff", "--json")
    assert result.code == 1 and not result.err
    rows = result.json
    assert {row["path"] for row in rows} == {"fentry", "vmlinux-x86_64"}
    for name in ("fentry", "vmlinux-x86_64"):
        alone = ftpatch("diff", "--json", name).json
        assert [row for row in rows if row["path"] == name] == [{"path": name, **r} for r in alone]
    text = ftpatch("diff").out
    assert text.startswith("fentry:\nKIND ") and "\nvmlinux-x86_64:\n" in text
    # What was written is all that is left: it has a journal of its own.
    Path("fentry").unlink()
    assert {row["path"] for row in ftpatch("diff", "--json").json} == {
        "fentry.ftpatch",
        "vmlinux-x86_64",
    }
    assert ftpatch("undo", "vmlinux-x86_64").code == 0
    assert ftpatch("undo", "fentry.ftpatch").code == 0
    assert ftpatch("diff").code == 0


def test_here_one_broken_file_does_not_hide_the_others() -> None:
    shutil.copyfile(BUILT / "fentry", "fentry")
    assert ftpatch("disable", "fentry").code == 0
    Path("broken").write_bytes((BUILT / "pad").read_bytes()[:100])
    result = ftpatch("diff", "--json")
    assert (
        result.code == 2
        and result.err.count("\n") == 1
        and result.err.startswith("ftpatch: broken")
    )
    assert {row["path"] for row in result.json} == {"fentry"}


def test_a_compressed_module_is_looked_into() -> None:
    from tests.support.loose_forms import FORMS
    from tests.support.loose_images import module

    if shutil.which("xz") is None:
        pytest.skip("xz is not installed")
    Path("demo.ko").write_bytes(module(FORMS["x86_64"]).build())
    subprocess.run(["xz", "--check=crc32", "demo.ko"], check=True)
    assert ftpatch("disable", "--in-place", "demo.ko.xz").code == 0
    assert {row["path"] for row in ftpatch("diff", "--json").json} == {"demo.ko.xz"}


def test_kinds_that_are_left_out_are_counted(tmp_path: Path) -> None:
    data = bytearray(sample("vmlinux-x86_64").path.read_bytes())
    (tmp_path / "before").write_bytes(data)
    rodata = data.index(b"Linux version")
    for number in range(60):
        data[rodata - 64 * number] ^= number + 1
    (tmp_path / "after").write_bytes(data)
    both = ("diff", tmp_path / "before", tmp_path / "after")
    every = ftpatch(*both, "--stat", "--limit", "0").out.splitlines()
    assert every[0].startswith("COUNT  KIND") and len(every) > 42
    assert sum(int(line.split()[0]) for line in every[1:]) == len(ftpatch(*both, "--json").json)
    shown = ftpatch(*both, "--stat").out.splitlines()
    assert shown[1:-1] == every[1:41]
    assert shown[-1] == f"... and {len(every) - 41} more; --limit 0 shows all"
