# SPDX-License-Identifier: MIT
"""Which kernels, which cases, and one patched file per case that lives as long as its tests."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NoReturn
from zlib import crc32

import pytest

from tests.support import sampling

from . import fetch
from .apt import lock
from .booted import BEHIND
from .breakage import BREAKAGES, SITES
from .cases import SEED, Case, Patched, cases
from .cli import ftpatch
from .fetch import FetchError, Kernel
from .independent import PADS, Vmlinux
from .mod_breakage import module_breakages
from .process_guest import ALSO, CC, CXX, NEWER, OLDER, found_in_guest
from .qemu import CRAMPED, Console, boot, need
from .rotation import in_share, one_of
from .trees import ARCHES, Tree, ensure_tree
from .variants import Loaded, load_all

pytest_plugins = ["tests.kernels.run"]
HERE = Path(__file__).parent
MODULES_TRACED = ("x86_64", "arm64", "riscv64", "ppc64le")
BOOT_SHARES = {"riscv64": 10, "ppc64le": 10}
"""In how many shares the boot tracer's tests come, of which a run has one, on machines of which no
kernel is required."""


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Only who names this folder gets its tests: they download 4 GB."""
    for arg in config.args:
        path = (config.invocation_params.dir / arg.split("::")[0]).resolve()
        if path.is_relative_to(HERE):
            return None
    return True


@cache
def _kernels() -> list[Kernel]:
    return fetch.kernels()


@cache
def _image(kernel: Kernel) -> Vmlinux:
    try:
        return Vmlinux(fetch.ensure(kernel))
    except FetchError as error:
        _missing(kernel, error)


def _missing(kernel: Kernel, error: FetchError) -> NoReturn:
    if kernel.required and os.environ.get("CI") == "true":
        pytest.fail(f"{kernel.name}: {error}", pytrace=False)
    pytest.skip(f"{kernel.name}: {error}")


@cache
def _machine(kernel: Kernel) -> str:
    """ftpatch's word for a kernel's architecture, or x86; nothing is fetched for it."""
    if kernel.meta is not None:
        arch = ARCHES.get(kernel.meta.arch, kernel.meta.arch)
    else:
        arch = Vmlinux(kernel.path).arch
    return arch if arch in BREAKAGES else "x86"


@cache  # pytest keeps a fixture while its parameter is the same object
def _cases(kernel: Kernel) -> list[Case]:
    return cases(kernel, pads=_machine(kernel) != "x86")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "tree" in metafunc.fixturenames:
        rows = [pytest.param(k, id=k.name) for k in _kernels() if k.meta is not None]
        if "module_breakage" in metafunc.fixturenames:
            rows = [
                pytest.param(k, name, id=f"{k.name}-{name}")
                for k in _kernels()
                if k.meta is not None
                for name in module_breakages(k.meta.arch)
            ]
            names = ["tree", "module_breakage"]
            metafunc.parametrize(names, rows, indirect=["tree"], scope="session")
            return
        metafunc.parametrize("tree", rows, indirect=True, scope="session")
        return
    wanted = [n for n in ("image", "patched", "breakage") if n in metafunc.fixturenames]
    rows = []
    for kernel in _kernels() if wanted else []:
        if wanted == ["image"]:
            rows.append(pytest.param(kernel, id=kernel.name))
        elif wanted == ["patched"]:
            rows += [pytest.param(c, id=c.id) for c in _cases(kernel)]
        else:
            for each in BREAKAGES[_machine(kernel)]:
                more = [f"random-{SEED}"] if each.__name__ in SITES else []
                for place in ("vfs_read", *more):
                    name = f"{kernel.name}-{each.__name__}-{place}"
                    rows.append(pytest.param(kernel, (each, place), id=name))
    if wanted:
        metafunc.parametrize(wanted, rows, indirect=wanted[:1], scope="session")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the boot tracer's tests that are not in the day's share."""
    if sampling.FULL or any("::" in arg for arg in config.args):
        return
    optional = sum(not meta.required and meta.in_turn for meta in fetch.METAS)
    numbers = Counter[tuple[str, str]]()
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        names = getattr(item, "fixturenames", ())
        number = crc32(item.path.name.encode())
        if "traceable" in names:
            kernel = params["image"]
            number += numbers[kernel.name, item.path.name]
            numbers[kernel.name, item.path.name] += 1
        elif "traceable_tree" in names:  # one boot for all of a file
            kernel = params["tree"]
        else:
            continue
        shares = BOOT_SHARES.get(_machine(kernel), 1)
        if not in_share(number, shares, sampling.SEED, optional):
            item.add_marker(pytest.mark.skip(reason="in another share: set FTPATCH_FULL=1"))


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest) -> Vmlinux:
    """An untouched kernel."""
    return _image(request.param)


@pytest.fixture(scope="session")
def sampled(image: Vmlinux) -> Vmlinux:
    """A kernel of the sample, in which is one of each machine's, on another day another one; and
    each of those that FTPATCH_KERNELS names."""
    _require_sampled(next(kernel for kernel in _kernels() if kernel.path == image.path))
    return image


def _require_sampled(kernel: Kernel) -> None:
    if not sampling.FULL and kernel.meta is not None:
        there = [one for one in _kernels() if one.meta is not None and not one.problem]
        alike = sorted(one.name for one in there if _machine(one) == _machine(kernel))
        optional = sum(not meta.required for meta in fetch.METAS)
        if kernel.name != one_of(alike, sampling.SEED, optional):
            pytest.skip("not in this sample: set FTPATCH_FULL=1")


@pytest.fixture(scope="session")
def traceable(sampled: Vmlinux) -> Vmlinux:
    """A kernel of an architecture that has a boot tracer."""
    if sampled.arch not in BEHIND:
        pytest.skip(f"{sampled.arch} has no boot tracer")
    return sampled


@pytest.fixture(scope="session")
def tree(request: pytest.FixtureRequest) -> Tree:
    """A kernel's boot image and modules."""
    kernel: Kernel = request.param
    try:
        return ensure_tree(kernel)
    except FetchError as error:
        _missing(kernel, error)


@pytest.fixture(scope="session")
def traceable_tree(tree: Tree) -> Tree:
    """The same of a sampled kernel of an architecture whose modules can have a tracer."""
    _require_sampled(next(kernel for kernel in _kernels() if kernel.name == tree.name))
    if tree.arch not in MODULES_TRACED:
        pytest.skip(f"{tree.arch}'s modules have no tracer")
    return tree


@pytest.fixture(scope="session")
def changed(tree: Tree, scratch: Path) -> Iterator[Path]:
    """A kernel as it is installed, all of whose sites are NOPs; where they are built so, calls; or
    some of them, where there is no room for all."""
    path = scratch / f"{tree.name}.changed"
    verb = "enable" if tree.arch in PADS else "disable"
    words = ["-f", "vfs_*"] if tree.arch in CRAMPED else []
    report = ftpatch(verb, tree.vmlinuz, "--strip-signature", "-o", path, *words).one
    changed, dropped = report["changed"], report["dropped"]
    assert changed > (50 if words else 30_000)
    # Where ftrace_init compares nothing, a NOP needs no record less.
    assert 0.9 * changed < dropped < changed if tree.arch == "arm" else dropped == changed
    yield path
    path.unlink()


@pytest.fixture(scope="session")
def loaded(tree: Tree, scratch: Path) -> Loaded:
    """A boot in which the modules of a kernel are loaded, as they are and patched."""
    return load_all(tree, scratch)


@pytest.fixture(scope="session")
def kernel_name(image: Vmlinux) -> str:
    """ "6.1-amd64" """
    return next(k.name for k in _kernels() if k.path == image.path)


@pytest.fixture(scope="session")
def work_copy(image: Vmlinux, scratch: Path) -> Iterator[Path]:
    """A copy for those who put back what they write."""
    path = scratch / f"{image.path.parent.name}.work"
    shutil.copyfile(image.path, path)
    yield path
    path.unlink()


@pytest.fixture
def copy(image: Vmlinux, scratch: Path) -> Iterator[Path]:
    """A copy of an untouched kernel to write into; it goes afterwards."""
    path = scratch / f"{image.path.parent.name}.copy"
    shutil.copyfile(image.path, path)
    yield path
    path.unlink()


@pytest.fixture(scope="session")
def patched(request: pytest.FixtureRequest, scratch: Path) -> Iterator[Patched]:
    """A case's output. The file goes before the next is made: some have 600 MB."""
    case: Case = request.param
    original = _image(case.kernel)
    out = scratch / f"{case.id}.vmlinux"
    words = case.words(original, scratch)
    try:
        answer = ftpatch(case.verb, original.path, "-o", out, *words)
        yield Patched(case, original, out, answer.one)
    finally:
        out.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def untouched(scratch: Path) -> Callable[[Vmlinux, bool], Console]:
    """How a kernel boots before anything is done to it, with KASLR or without."""
    seen: dict[tuple[Path, bool], Console] = {}

    def look(image: Vmlinux, kaslr: bool) -> Console:
        key = (image.path, kaslr)
        if key not in seen:
            seen[key] = boot(image.path, image.arch, scratch, kaslr=kaslr)
        return seen[key]

    return look


@pytest.fixture(scope="session")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each case of running processes found, in one boot for all workers."""
    return _in_guest(tmp_path_factory, OLDER)


@pytest.fixture(scope="session")
def said_by_newer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same of some cases, on a newer kernel."""
    return _in_guest(tmp_path_factory, NEWER, *ALSO)


def _in_guest(factory: pytest.TempPathFactory, meta: str, *cases: str) -> dict[str, Any]:
    base = factory.getbasetemp()
    held = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"{meta}.json"
    need(CC)
    need(CXX)
    with lock(f"processes-{meta}"):
        if not held.is_file():
            try:
                found = found_in_guest(factory.mktemp("processes"), meta, *cases)
            except FetchError as error:
                if os.environ.get("CI") == "true" and meta == OLDER:
                    pytest.fail(str(error), pytrace=False)
                pytest.skip(str(error))
            held.write_text(json.dumps(found))
    out: dict[str, Any] = json.loads(held.read_text())
    return out
