"""Which kernels, which cases, and one patched file per case that lives as long as its tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from . import fetch
from .cases import Case, Patched, cases
from .cli import ftpatch
from .fetch import FetchError, Kernel
from .independent import Vmlinux
from .qemu import Console, boot

HERE = Path(__file__).parent
EM_AARCH64 = 183


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
        if kernel.required and os.environ.get("CI") == "true":
            pytest.fail(f"{kernel.name}: {error}", pytrace=False)
        pytest.skip(f"{kernel.name}: {error}")


def _is_arm64(kernel: Kernel) -> bool:
    if kernel.meta is not None:
        return kernel.meta.arch == "arm64"
    if kernel.problem:
        return False
    with kernel.path.open("rb") as file:
        return int.from_bytes(file.read(20)[18:], "little") == EM_AARCH64


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = [name for name in ("image", "patched", "kaslr") if name in metafunc.fixturenames]
    if not {"image", "patched"} & set(names):
        return
    rows = []
    for kernel in _kernels():
        arm64 = _is_arm64(kernel)
        # With `--dist loadgroup`, all of a kernel's tests go to one worker.
        group = pytest.mark.xdist_group(kernel.name)
        subjects: list[Kernel | Case] = [kernel]
        if "patched" in names:
            subjects = list(cases(kernel, arm64))
        for subject in subjects:
            name = subject.id if isinstance(subject, Case) else subject.name
            if "kaslr" not in names:
                rows.append(pytest.param(subject, id=name, marks=group))
                continue
            # x86's KASLR is the decompressor's, which a bare vmlinux does without.
            for kaslr in (False, True) if arm64 else (False,):
                boot_id = f"{name}-{'kaslr' if kaslr else 'nokaslr'}"
                rows.append(pytest.param(subject, kaslr, id=boot_id, marks=group))
    if "kaslr" not in names:
        metafunc.parametrize(names[0], rows, indirect=True, scope="session")
    else:
        metafunc.parametrize(names, rows, indirect=names[:1], scope="session")


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest) -> Vmlinux:
    """An untouched kernel."""
    return _image(request.param)


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
    """How a kernel boots before anything is done to it; each once per session."""
    seen: dict[tuple[Path, bool], Console] = {}

    def look(image: Vmlinux, kaslr: bool) -> Console:
        key = (image.path, kaslr)
        if key not in seen:
            seen[key] = boot(image.path, image.arch, scratch, kaslr=kaslr)
        return seen[key]

    return look
