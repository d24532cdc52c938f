# SPDX-License-Identifier: MIT
"""Users' stubs laid into kernel modules: compiled by gcc, placed by GNU ld, run by Unicorn."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ROOT, ftpatch
from tests.support.loose_forms import FORMS
from tests.support.loose_images import PLACES, module, put
from tests.support.loose_reader import read_loose
from tests.support.placed_modules import KERNEL, STACK, STARTS, Placed

ARCHES = ("x86_64", "arm64", "riscv64")
COMPILERS = {
    "x86_64": "x86_64-linux-gnu-gcc",
    "arm64": "aarch64-linux-gnu-gcc",
    "i386": "i686-linux-gnu-gcc",
    "riscv64": "riscv64-linux-gnu-gcc",
}
FLAGS = (
    *("-O2", "-shared", "-fPIC", "-nostdlib", "-ffreestanding", "-mgeneral-regs-only"),
    *("-fno-stack-protector", "-Wl,-Bsymbolic"),
)
KERNELS = ROOT / "tests" / "kernels" / "module_stub.c"
PUBLIC = '__attribute__((visibility("default"))) '
CALLER = PUBLIC + "void ftrace_caller(unsigned long ip, unsigned long parent)"
every_arch = pytest.mark.parametrize("arch", ARCHES)


def _stub(arch: str, source: str, folder: Path, *flags: str) -> Path:
    compiler, out = COMPILERS[arch], folder / "own.elf"
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    words = [compiler, *(flags or FLAGS), "-x", "c", "-", "-o", str(out)]
    if arch == "riscv64":
        words.remove("-mgeneral-regs-only")
    words += ["-mno-red-zone", "-fcf-protection=none"] if arch == "x86_64" else []
    subprocess.run(words, input=source, text=True, check=True)
    return out


@every_arch
def test_it_is_called_with_the_sites(arch: str, tmp_path: Path) -> None:
    """And leaves registers alone; of constants it has a table."""
    form, path = FORMS[arch], put(module(FORMS[arch]), tmp_path)
    before = path.read_bytes()
    stub = _stub(arch, KERNELS.read_text(), tmp_path)
    assert ftpatch("enable", "--in-place", path, "--tracer", stub).code == 0
    held = read_loose(path)
    assert held.calls(form, "ftpatch_caller", *PLACES.values())
    assert ftpatch("check", path).code == 0
    placed, wanted = Placed(path, form, tmp_path), b""
    for function in ("open_it", "set_up", "once", "write_it"):
        section, record = PLACES[function]
        ip = STARTS[section] + record + form.before + len(form.enabled)
        placed.call(function, STACK + 0x8000, KERNEL)
        wanted += b"@%08x\n" % ip
    assert placed.sent == wanted
    assert ftpatch("enable", "--in-place", path, "--tracer", stub).code == 1
    assert ftpatch("undo", path).code == 0
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (f"static int n; {CALLER} {{ __atomic_fetch_add(&n, 1, 0); }}", "writes data (.bss)"),
        (f"static int n = 1; {CALLER} {{ ++*(volatile int *)&n; }}", "writes data (.data)"),
        (
            f"extern int n; {CALLER} {{ *(volatile int *)&n; }}",
            "the stub needs a dynamic linker",
        ),
        (f"{CALLER} {{}} {PUBLIC} void ftrace_return(void) {{}}", "cannot have returns"),
        (f"{PUBLIC} void ftrace_regs_caller(void) {{}}", "cannot have registers"),
        (f"{PUBLIC} void other(void) {{}}", "the stub defines no ftrace_caller"),
    ],
)
def test_stubs_that_do_not_work_in_a_module(source: str, said: str, tmp_path: Path) -> None:
    path = put(module(FORMS["x86_64"]), tmp_path)
    stub = _stub("x86_64", source, tmp_path)
    result = ftpatch("enable", path, "--tracer", stub)
    assert result.code == 2 and said in result.err and result.err.count("\n") == 1
    assert not (tmp_path / "demo.ko.ftpatch").exists()


def test_other_files(tmp_path: Path) -> None:
    path = put(module(FORMS["x86_64"]), tmp_path)
    foreign = _stub("arm64", f"{CALLER} {{}}", tmp_path)
    for stub, said in (
        (foreign, "the stub is for another architecture"),
        (path, "the stub defines no ftrace_caller"),
        (tmp_path / "none.elf", "cannot read"),
    ):
        result = ftpatch("enable", path, "--tracer", stub)
        assert result.code == 2 and said in result.err and result.err.count("\n") == 1
    fixed = _stub("x86_64", f"{CALLER} {{}}", tmp_path, "-nostdlib", "-no-pie", "-Wl,-e0")
    assert "not a shared object" in ftpatch("enable", path, "--tracer", fixed).err


@pytest.mark.parametrize("arch", ["i386"])
def test_architectures_without_an_entry(arch: str, tmp_path: Path) -> None:
    path = put(module(FORMS[arch]), tmp_path)
    stub = _stub(arch, f"{CALLER} {{}}", tmp_path)
    result = ftpatch("enable", path, "--tracer", stub)
    said = f"a stub in a module is not supported on {arch}"
    assert result.code == 2 and said in result.err and result.err.count("\n") == 1


@pytest.mark.parametrize("tracer", ["function", "function_graph", "nop"])
def test_programs_tracers_are_not_for_modules(tracer: str, tmp_path: Path) -> None:
    path = put(module(FORMS["x86_64"]), tmp_path)
    result = ftpatch("enable", path, "--tracer", tracer)
    said = "this tracer works on programs, not on a module; use --tracer boot, a stub of your own"
    assert result.code == 2 and said in result.err
