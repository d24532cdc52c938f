# SPDX-License-Identifier: MIT
"""ACLs, labels and user attributes: what is written lets nobody do more than what it was.

getfacl and getfattr say what a file has, and the kernel itself who may open it.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.command import ftpatch
from tests.support.loose_forms import FORMS
from tests.support.loose_images import module
from tests.support.samples import sample

Copied = Callable[[str], Path]
NOBODY, SOMEBODY, GROUP, OTHER_GROUP = 65534, 54321, 65533, 65532
WAYS = {"new": [], "in-place": ["--in-place"], "force": ["--force"]}
every_way = pytest.mark.parametrize("way", WAYS)
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


def _set(path: Path, *entries: str) -> None:
    if shutil.which("setfacl") is None:
        pytest.skip("no setfacl (Debian: acl)")
    done = subprocess.run(
        ["setfacl", *(word for entry in entries for word in ("-m", entry)), str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"no ACLs here: {done.stderr.strip()}")


def _acl(path: Path) -> str:
    return subprocess.run(
        ["getfacl", "--absolute-names", "--omit-header", "--numeric", str(path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def _may(user: int, groups: list[int], path: Path) -> tuple[bool, ...]:
    """Whether a user may read, write and execute a file: the kernel's own answer."""
    child = os.fork()
    if child == 0:
        os.setgroups(groups[1:])
        os.setresgid(groups[0], groups[0], groups[0])
        os.setresuid(user, user, user)
        os._exit(sum(bit for bit in (os.R_OK, os.W_OK, os.X_OK) if os.access(path, bit)))
    _, status = os.waitpid(child, 0)
    bits = os.waitstatus_to_exitcode(status)
    return tuple(bool(bits & bit) for bit in (os.R_OK, os.W_OK, os.X_OK))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that others can reach: those of pytest are for one user only."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def _image(folder: Path, mode: int = 0o644) -> Path:
    path = folder / "pad"
    path.write_bytes(sample("pad").data)
    path.chmod(mode)
    return path


def _written(path: Path, way: str) -> Path:
    output = path if way == "in-place" else path.with_name("pad.ftpatch")
    if way == "force":
        output.write_bytes(b"was here")
        output.chmod(0o777)
    assert ftpatch("enable", path, *WAYS[way]).code == 0
    return output


@every_way
def test_an_acl_is_kept(way: str, folder: Path) -> None:
    """Its mask is not the group's permission: whose that is keeps it."""
    path = _image(folder, 0o640)
    _set(path, "u:nobody:rwx", f"g:{OTHER_GROUP}:rx", "m::rwx")
    before, mode = _acl(path), stat.S_IMODE(path.stat().st_mode)
    assert mode == 0o670  # which chmod would give to the group
    output = _written(path, way)
    assert _acl(output) == before and stat.S_IMODE(output.stat().st_mode) == mode


@root_only
@every_way
def test_the_kernel_lets_nobody_do_more(way: str, folder: Path) -> None:
    path = _image(folder, 0o640)
    os.chown(path, 0, GROUP)
    _set(path, f"u:{NOBODY}:rwx", f"u:{SOMEBODY}:---", f"g:{OTHER_GROUP}:x", "o::r", "m::rwx")
    who = [
        (NOBODY, [GROUP]),
        (SOMEBODY, [GROUP]),
        (1234, [GROUP]),
        (1234, [OTHER_GROUP]),
        (1234, [1234]),
    ]
    before = [_may(user, groups, path) for user, groups in who]
    assert len(set(before)) > 2
    output = _written(path, way)
    assert [_may(user, groups, output) for user, groups in who] == before


@every_way
def test_nothing_is_inherited_from_the_folder(way: str, folder: Path) -> None:
    """A default ACL gives a new file one, and chmod would set its mask."""
    _set(folder, "d:u:nobody:rwx", "d:g::rwx")
    path = _image(folder, 0o664)
    if shutil.which("setfacl"):
        subprocess.run(["setfacl", "-b", str(path)], check=True)
    path.chmod(0o664)
    before = _acl(path)
    assert _acl(_written(path, way)) == before and "nobody" not in before


@every_way
def test_attributes_and_labels_are_kept(way: str, folder: Path) -> None:
    path = _image(folder, 0o400)
    values = {"user.origin": b"a\0b", "user.empty": b""}
    if os.geteuid() == 0:
        values["security.selinux"] = b"system_u:object_r:shadow_t:s0\0"
    for name, value in values.items():
        try:
            os.setxattr(path, name, value)
        except OSError as error:
            pytest.skip(f"{name} cannot be set here: {error.strerror}")
    output = _written(path, way)
    assert {name: os.getxattr(output, name) for name in os.listxattr(output)} == values
    if shutil.which("getfattr"):
        told = [
            subprocess.run(
                ["getfattr", "--absolute-names", "-d", "-m", "-", each],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.partition("\n")[2]
            for each in (path, output)
        ]
        assert told[0] == told[1] and "user.origin" in told[0]


def test_undo_keeps_them(folder: Path) -> None:
    path = _image(folder, 0o640)
    _set(path, "u:nobody:rwx")
    before = _acl(path)
    for command in (["enable", "--in-place"], ["undo"], ["disable", "--nop", "jmp", "--in-place"]):
        assert ftpatch(command[0], path, *command[1:]).code == 0
        assert _acl(path) == before


@root_only
@every_way
def test_capabilities_are_not_kept(way: str, folder: Path) -> None:
    path = _image(folder, 0o755)
    os.setxattr(path, "user.kept", b"1")
    os.setxattr(
        path, "security.capability", bytes.fromhex("0100000200200000000000000000000000000000")
    )
    output = path if way == "in-place" else path.with_name("pad.ftpatch")
    assert ftpatch("enable", path, "--allow-setuid", *WAYS[way]).code == 0
    assert os.listxattr(output) == ["user.kept"]


@pytest.fixture
def without_acls(folder: Path) -> Iterator[Path]:
    """A file system that has none: ramfs."""
    place = folder / "ram"
    place.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root may mount a ramfs")
    if subprocess.run(["mount", "-t", "ramfs", "ramfs", str(place)], check=False).returncode:
        pytest.skip("a ramfs cannot be mounted here")
    place.chmod(0o755)
    try:
        os.setxattr(place, "user.x", b"")
        pytest.skip("this ramfs has attributes")
    except OSError:
        pass
    finally:
        yield place
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_file_system_without_acls(folder: Path, without_acls: Path) -> None:
    """Who had an entry of their own counts as one of the group, or of the others."""
    path = _image(folder, 0o644)
    os.chown(path, 0, GROUP)
    os.setxattr(path, "user.note", b"lost there")
    _set(path, f"u:{NOBODY}:rwx", f"u:{SOMEBODY}:---", f"g:{OTHER_GROUP}:x", "g::rx", "m::rwx")
    output = without_acls / "pad"
    assert ftpatch("enable", path, "-o", output).code == 0
    assert os.listxattr(output) == []
    for user, groups in (
        (NOBODY, [GROUP]),
        (NOBODY, [1]),
        (SOMEBODY, [GROUP]),
        (SOMEBODY, [1]),
        (1234, [GROUP]),
        (1234, [OTHER_GROUP]),
        (1234, [GROUP, OTHER_GROUP]),
        (1234, [1]),
    ):
        before, after = _may(user, groups, path), _may(user, groups, output)
        assert all(old or not new for old, new in zip(before, after, strict=True)), (user, groups)


@root_only
@pytest.mark.parametrize("acl", [False, True])
def test_a_group_that_cannot_be_given(acl: bool, folder: Path) -> None:
    """Another group has what the others had, not what the first one had."""
    from ftpatch.io.attributes import give_attributes

    path = _image(folder, 0o665)
    os.chown(path, NOBODY, GROUP)
    if acl:
        _set(path, f"u:{SOMEBODY}:rwx", "m::rwx")
    output = folder / "output"
    source, target = os.open(path, os.O_RDONLY), os.open(output, os.O_CREAT | os.O_RDWR, 0o600)
    os.chown(output, SOMEBODY, 1234)
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(1234, 1234, 1234)
            os.setresuid(SOMEBODY, SOMEBODY, SOMEBODY)
            give_attributes(source, target)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert output.stat().st_gid == 1234
    for user, groups in ((1, [1234]), (1, [GROUP]), (1, [1])):
        before, after = _may(user, groups, path), _may(user, groups, output)
        assert all(old or not new for old, new in zip(before, after, strict=True)), (user, groups)
    assert _may(1, [1], output) == (True, False, False)


@pytest.mark.parametrize("way", ["mirror", "in-place"])
def test_trees(way: str, tmp_path: Path) -> None:
    """Modules that change, others, and the folders themselves."""
    tree, output = tmp_path / "tree", tmp_path / "tree" if way == "in-place" else tmp_path / "out"
    (tree / "kernel").mkdir(parents=True)
    for name in ("kernel/demo.ko", "kernel/other.ko", "modules.dep"):
        (tree / name).write_bytes(b"" if "dep" in name else module(FORMS["x86_64"]).build())
    names = ["kernel", "kernel/demo.ko", "kernel/other.ko", "modules.dep"]
    for name in names:
        (tree / name).chmod(0o750)
        _set(tree / name, "u:nobody:rwx")
        os.setxattr(tree / name, "user.name", name.encode())
    _set(tree / "kernel", "d:u:nobody:rwx")
    before = [_acl(tree / name) for name in names]
    where = ["--in-place"] if way == "in-place" else ["-o", output]
    assert ftpatch("disable", tree, "-f", "*:mod:demo", *where).code == 0
    assert [_acl(output / name) for name in names] == before
    assert [os.getxattr(output / name, "user.name").decode() for name in names] == names
