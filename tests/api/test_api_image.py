# SPDX-License-Identifier: MIT
"""``ftpatch.open``: what the independent reader of the samples, cmp and the command line say."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ftpatch
from tests.support.command import ROOT
from tests.support.command import ftpatch as command
from tests.support.images import fentry_kernel
from tests.support.samples import WITH_TABLE, Sample, sample

KERNEL = sample("vmlinux-x86_64").path
API: Any = ftpatch
"""The same, without types."""
every_sample = pytest.mark.parametrize("one", WITH_TABLE, ids=lambda one: one.name)


@every_sample
def test_what_the_manifest_says(one: Sample) -> None:
    image = ftpatch.open(one.path)
    assert (image.container, image.arch) == (one.expected["container"], one.expected["arch"])
    sites = image.sites
    assert len(sites) == one.expected["sites"]
    states = Counter(site.state for site in sites)
    assert {name: states[name] for name in ("nop", "call", "unexpected")} == one.expected["states"]
    calls = sites[sites.state == "call"]
    assert Counter(calls.target.tolist()) == one.expected["targets"]
    assert set(sites[sites.state != "call"].target) <= {""}


def test_symbols_are_those_of_nm() -> None:
    """The last symbol at or before each site."""
    listed = subprocess.run(["nm", "-n", KERNEL], capture_output=True, text=True, check=True)
    functions = [line.split() for line in listed.stdout.splitlines()]
    starts = np.array([int(at, 16) for at, _, _ in functions], np.uint64)
    sites = ftpatch.open(KERNEL).sites
    assert sites.ip.dtype == np.uint64 and len(sites) == 40
    for site in sites:
        start = site.ip - site.symbol_offset
        assert site.symbol in [functions[row][2] for row in np.flatnonzero(starts == start)]


def test_symbols_may_be_far_below(tmp_path: Path) -> None:
    """More bytes than a signed number holds."""
    image, path = fentry_kernel(), tmp_path / "vmlinux"
    image.symbols = [
        symbol if "mcount_loc" in str(symbol.name) else replace(symbol, value=0x10, size=0)
        for symbol in image.symbols
    ]
    path.write_bytes(image.build())
    sites = ftpatch.open(path).sites
    assert (sites.ip - sites.symbol_offset == 0x10).all() and sites.symbol_offset.min() > 1 << 63
    assert command("list", path).code == 0


def test_offsets_are_where_the_code_is() -> None:
    data = KERNEL.read_bytes()
    assert {data[site.offset] for site in ftpatch.open(KERNEL).sites} == {0xE8}


def test_a_selection_is_that_of_the_command_line() -> None:
    sites = ftpatch.open(KERNEL).sites
    chosen = sites.select(["vfs_*", "!vfs_open"], notrace="vfs_read")
    assert set(chosen.symbol) == {"vfs_write", "vfs_fsync"}
    assert [site.symbol for site in sites[::-1].select("vfs_open")] == ["vfs_open"]
    with pytest.raises(ftpatch.UsageError, match="matches no site"):
        sites.select("vfs_raed")
    with pytest.raises(AttributeError, match="no column 'symbols'"):
        _ = getattr(sites, "symbols")  # noqa: B009


def test_data_frames_take_the_columns() -> None:
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    sites = ftpatch.open(KERNEL).sites
    for frame in (pandas.DataFrame(sites.columns()), polars.DataFrame(sites.columns())):
        assert frame.shape == (40, 7) and list(frame.columns) == list(ftpatch.Site._fields)
        assert set(frame["state"]) == {"call"} and not frame["dropped"].any()


def test_enable_and_undo(tmp_path: Path) -> None:
    output = tmp_path / "out"
    done = ftpatch.open(KERNEL).enable("vfs_*", notrace="vfs_open", output=output)
    assert (done.selected, done.changed, done.written) == (3, 3, output)
    other = tmp_path / "other"
    assert command("enable", KERNEL, "-f", "vfs_*", "-n", "vfs_open", "-o", other).code == 0
    assert output.read_bytes() == other.read_bytes()
    now = ftpatch.open(output)
    assert set(now.sites[now.sites.target == "ftrace_caller"].symbol) == {
        "vfs_read",
        "vfs_write",
        "vfs_fsync",
    }
    assert now.sites.dropped.sum() == 3
    assert now.undo() == output
    assert output.read_bytes() == KERNEL.read_bytes()


def test_a_tracer_is_laid_in(tmp_path: Path) -> None:
    pad = sample("pad").path
    done = ftpatch.open(pad).enable(tracer="function", output=tmp_path / "out")
    assert done.changed == len(ftpatch.open(pad).sites)
    other = tmp_path / "other"
    assert command("enable", pad, "--tracer", "function", "-o", other).code == 0
    assert (tmp_path / "out").read_bytes() == other.read_bytes()


def test_a_refused_site_is_told_and_nothing_written(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    data = bytearray(KERNEL.read_bytes())
    site = next(iter(ftpatch.open(KERNEL).sites.select("vfs_read")))
    data[site.offset] = 0xCC
    broken.write_bytes(data)
    image = ftpatch.open(broken)
    with pytest.raises(ftpatch.SiteRefused, match=r"1 site refused.*vfs_read\+0x4.*EINVAL") as told:
        image.disable("vfs_*")
    ((bug, reason),) = told.value.refused
    assert getattr(bug, "ip") == site.ip and reason.startswith("EINVAL")  # noqa: B009
    assert image.disable("vfs_*", dry_run=True).refused == told.value.refused
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]


def test_check_is_the_commands(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    ftpatch.open(KERNEL).disable("vfs_read", keep_records=True, output=broken)
    check = ftpatch.open(broken).check()
    (finding,) = check.findings
    (told,) = command("check", "--json", broken).json
    assert (finding.invariant, hex(finding.ip or 0)) == (told["invariant"], told["ip"])
    assert check.ftrace_init is not None and check.ftrace_init.verdict.value == told["verdict"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"site": "ftrace_call", "filter": "vfs_*"}, "selects a single site"),
        ({"tracer": "function", "to": "vfs_read"}, "brings its own callee"),
        ({"to": "nowhere"}, "nowhere"),
        ({"in_place": True, "output": "x"}, "mutually exclusive"),
    ],
    ids=["site", "tracer", "to", "output"],
)
def test_what_makes_no_sense(options: dict[str, object], reason: str) -> None:
    with pytest.raises(ftpatch.UsageError, match=reason):
        ftpatch.open(KERNEL).enable(**options)  # type: ignore[arg-type]


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(ftpatch.InputError, match="No such file"):
        ftpatch.open(tmp_path / "nothing")
    with pytest.raises(ftpatch.NoTable):
        _ = ftpatch.open("/bin/true").sites
    with pytest.raises(ftpatch.InputError, match="no journal"):
        ftpatch.open(KERNEL).undo(dry_run=True)
    (tmp_path / "vmlinux").write_bytes(KERNEL.read_bytes())
    with pytest.raises(ftpatch.UsageError, match="exists"):
        ftpatch.open(KERNEL).enable(output=tmp_path / "vmlinux")
    assert issubclass(ftpatch.NoTable, ftpatch.InputError)
    assert issubclass(ftpatch.InputError, ftpatch.FtpatchError)


def test_an_import_is_cheap() -> None:
    """Nothing but the package itself, until a name is used."""
    script = """
import sys
before = set(sys.modules)
import ftpatch
new = {name.split(".")[0] for name in set(sys.modules) - before}
assert new <= {"ftpatch", "importlib", "typing", "_typing"} | sys.stdlib_module_names, new
assert [n for n in sys.modules if n.startswith("ftpatch")] == ["ftpatch"]
assert "numpy" not in sys.modules
for name in ftpatch.__all__:
    assert name in dir(ftpatch) and getattr(ftpatch, name) is not None
assert "numpy" in sys.modules and "typer" not in sys.modules and "keystone" not in sys.modules
try:
    ftpatch.nothing
except AttributeError as error:
    assert "nothing" in str(error)
else:
    raise SystemExit("there is nothing")
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


def test_a_type_checker_knows_the_names(tmp_path: Path) -> None:
    """As the one who uses it meets it: with ``py.typed``, under --strict."""
    user = tmp_path / "user.py"
    user.write_text(
        "import ftpatch\n"
        "image = ftpatch.open('vmlinux')\n"
        "reveal_type(image.enable('vfs_*').changed)\n"
        "reveal_type([site.symbol for site in image.sites])\n"
        "image.enable(3)\n"
        "image.enable(output='out', in_palce=True)\n"
    )
    words = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-incremental"]
    done = subprocess.run(
        [*words, "--follow-imports=silent", "--ignore-missing-imports", user],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    told = done.stdout.splitlines()
    assert 'Revealed type is "int"' in told[0].replace("builtins.", "")
    assert 'Revealed type is "list[str]"' in told[1].replace("builtins.", "")
    assert 'user.py:5: error: Argument 1 to "enable"' in told[2]
    assert 'user.py:6: error: Unexpected keyword argument "in_palce"' in told[3]
    assert "Found 2 errors in 1 file" in told[-1]


def test_an_index_gives_one_site() -> None:
    sites = ftpatch.open(sample("vmlinux-x86_64").path).sites
    rows = list(sites)
    assert sites[0] == rows[0] and sites[-1] == rows[-1] and sites[len(rows) - 1] == rows[-1]
    assert list(sites[:2]) == rows[:2] and list(sites[sites.symbol == rows[1].symbol]) == [rows[1]]
    with pytest.raises(IndexError):
        sites[len(rows)]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda _: API.open(3), "path is int, not a path"),
        (lambda _: API.open(b"image"), "path is bytes, not a path"),
        (lambda _: API.open(""), "path is an empty path; "),
        (lambda _: API.Tree(None), "path is NoneType, not a path"),
        (lambda image: API.Trace(image.path, 3), "path is int, not a path"),
        (lambda image: API.Trace(image.path, image=3), "image is int, not a path"),
        (lambda image: API.Trace(image.path, tid="1"), "tid is str, not a whole number"),
        (lambda image: API.Trace(image.path, tid=[1, 2.5]), "tid is float, not a whole number"),
        (lambda image: API.Trace(image.path, only=3), "only is int, not text"),
        (lambda image: API.Trace(image.path, max_depth="1"), "max_depth is str, not a whole"),
        (lambda image: API.Trace(image.path, time=0.5), "time is float, not text"),
        (lambda image: image.enable(3), "filter is int, not text, or several texts"),
        (lambda image: image.enable(["a", None]), "filter is NoneType, not text"),
        (lambda image: image.enable(b"a"), "filter is bytes, not text"),
        (lambda image: image.enable(to=0x1000), "to is int, not text"),
        (lambda image: image.enable(tracer="nop", max_stack="9"), "max_stack is str, not a whole"),
        (lambda image: image.enable(tracer="nop", size=True), "size is bool, not a whole number"),
        (lambda image: image.enable(output=3), "output is int, not a path"),
        (lambda image: image.disable(notrace=3), "notrace is int, not text"),
        (lambda image: image.diff(3), "other is int, not a path"),
        (lambda image: image.sites.select(3), "filter is int, not text"),
    ],
)
def test_arguments_of_other_types(call: Callable[[Any], object], said: str) -> None:
    """They are errors of ours, and name the argument."""
    image: Any = ftpatch.open(KERNEL)
    with pytest.raises(ftpatch.FtpatchError) as told:
        call(image)
    assert str(told.value).startswith(said)
