# SPDX-License-Identifier: MIT
"""A user space for a guest: Debian's Python and C library, and what ftpatch imports.

The guest's packages come by apt, compiled ones of PyPI by pip, in the versions that run the tests;
what is pure Python is taken from beside them. All of it is compiled here: under emulation that
takes a minute. Keystone has no package for arm64: what it assembles is recorded here, and told.
"""

from __future__ import annotations

import compileall
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from py_compile import PycInvalidationMode

from .apt import Archive, FetchError, files_of, folder, lock
from .guest import cpio

__all__ = ["package", "user_space"]

PACKAGES = (
    *("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libexpat1", "libffi8", "libbz2-1.0"),
    *("liblzma5", "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib"),
)
PYTHON = "3.11"
STRIP = "aarch64-linux-gnu-strip"
WHEELS = ("numpy", "capstone", "zstandard", "lz4", "pydantic_core")
PURE = (
    *("typer", "click", "rich", "shellingham", "annotated_doc", "demangle", "elftools"),
    *("pydantic", "annotated_types", "typing_inspection"),
)
PURE_NAMES = ("typer", "rich", "demangle", "pyelftools", "pydantic")
"""The distributions whose versions matter."""
MODULES = ("typing_extensions",)
PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64")
UNUSED = (
    *("/test/", "/tests/", "/idlelib/", "/lib2to3/", "/ensurepip/", "/f2py/", "/share/"),
    *("/pydoc_data/", "/gconv/", "/numpy/distutils/", "/zstandard/_cffi", "/pip/"),
)
"""Parts of paths: the kernel unpacks all else, under emulation."""
LOADER = "ld-linux-aarch64.so.1"
"""Expected in /lib by all programs, a link in its package."""
PLACE = f"usr/lib/python{PYTHON}/site-packages"
ASSEMBLED = (
    *("nop", "mov x9, lr", "bl 0x101000", "b 0x101000", "br x16"),
    *("str x0, [sp, -16]!", "ldr x0, [sp], 16"),
    "stp x30, x17, [sp, -16]!; movz x17, 0; movk x17, 0, lsl 16; ldp x30, x17, [sp], 16",
)
AT = 0x10_0000
KEYSTONE = '''"""What Keystone assembled elsewhere."""
KS_ARCH_ARM64 = KS_MODE_LITTLE_ENDIAN = 0
KNOWN = {known!r}
class Ks:
    def __init__(self, kind, mode): pass
    def asm(self, text, at): return list(KNOWN[text, at]), 1
'''


def user_space(archive: Archive) -> bytes:
    """An archive for the kernel to unpack ("newc"). Raises FetchError."""
    versions = " ".join(f"{name}={metadata.version(name)}" for name in (*WHEELS, *PURE_NAMES))
    made_by = Path(__file__).read_bytes() + versions.encode()
    key = hashlib.sha256(made_by).hexdigest()[:16]
    path = folder() / archive.name / f"user-{key}.cpio"
    with lock(f"{archive.name}-user"):
        if not path.is_file():
            _make(archive, path)
    return path.read_bytes()


def package(source: Path, place: str) -> dict[str, bytes]:
    """The files of a Python package, compiled, as they stand at ``place`` in the guest."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / place
        ignored = shutil.ignore_patterns("__pycache__", "*.pyi")
        shutil.copytree(source, root / source.name, ignore=ignored)
        return _compiled(Path(scratch), sources=True)  # it looks for its own


def _make(archive: Archive, path: Path) -> None:
    archive.update()
    for old in path.parent.glob("user-*.cpio"):
        old.unlink()
    with tempfile.TemporaryDirectory(dir=folder(), prefix=".download-") as held:
        scratch, root = Path(held), Path(held) / "root"
        root.mkdir()
        for name in PACKAGES:
            where = scratch / name
            where.mkdir()
            _unpack(archive.download(name, where), root)
        (loader,) = root.glob(f"lib/*/{LOADER}")
        shutil.copyfile(loader, root / "lib" / LOADER)
        _python(scratch, root)
        large = [
            one for name in ("lz4", "zstandard") for one in (root / PLACE / name).rglob("*.so")
        ]
        subprocess.run([STRIP, "--strip-debug", *large], check=True)
        part = scratch / "part"
        part.write_bytes(cpio(_compiled(root)))
        part.replace(path)


def _unpack(deb: Path, root: Path) -> None:
    """A package's files; and its libraries by the names that they are needed by, for there are no
    links."""
    for name, content in files_of(deb):
        place = root / name.removeprefix("./")
        if _is_unused(name):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.read())
        if ".so." in place.name:
            known = subprocess.run(["objdump", "-p", place], capture_output=True, text=True).stdout
            for line in known.splitlines():
                words = line.split()
                if words[:1] == ["SONAME"] and words[1] != place.name:
                    place.with_name(words[1]).write_bytes(place.read_bytes())


def _is_unused(name: str) -> bool:
    return any(word in f"/{name}" for word in UNUSED) or name.endswith((".pyi", ".h", ".a"))


def _python(scratch: Path, root: Path) -> None:
    """Packages of PyPI."""
    place, wheels = root / PLACE, scratch / "wheels"
    words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    words += ["--python-version", PYTHON, "--implementation", "cp", "-d", str(wheels)]
    words += [word for name in PLATFORMS for word in ("--platform", name)]
    words += [f"{name}=={metadata.version(name)}" for name in WHEELS]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise FetchError(f"pip download: {done.stderr.strip().splitlines()[-1:]}")
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(place, [one for one in file.namelist() if not _is_unused(one)])
    for name in PURE:
        spec = find_spec(name)
        if spec is not None and spec.origin is not None:
            ignored = shutil.ignore_patterns("__pycache__", "*.pyi")
            shutil.copytree(Path(spec.origin).parent, place / name, ignore=ignored)
    for name in MODULES:
        spec = find_spec(name)
        if spec is not None and spec.origin is not None:
            shutil.copyfile(spec.origin, place / f"{name}.py")
    (place / "keystone.py").write_text(KEYSTONE.format(known=_assembled()))


def _assembled() -> dict[tuple[str, int], bytes]:
    import keystone

    engine = keystone.Ks(keystone.KS_ARCH_ARM64, keystone.KS_MODE_LITTLE_ENDIAN)
    return {(text, AT): bytes(engine.asm(text, AT)[0]) for text in ASSEMBLED}


def _compiled(root: Path, *, sources: bool = False) -> dict[str, bytes]:
    """All files below a folder, by their paths in it; those of Python compiled, with their
    ``sources`` or in place of them."""
    compileall.compile_dir(
        root,
        quiet=2,
        workers=2,
        legacy=not sources,
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,  # times get lost
        stripdir=root,
    )
    files = [path for path in root.rglob("*") if path.is_file()]
    kept = [one for one in files if one.suffix != ".py" or not one.with_suffix(".pyc").is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in kept}
