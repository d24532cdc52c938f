# SPDX-License-Identifier: MIT
"""Attributes of a file besides its contents: owner, mode, ACL, labels, user attributes.

A file that replaces another must not grant anybody anything the other did not. With an ACL, the
group bits of the mode are its mask, not the group's permissions (acl(5)), so they are never copied
without it; and a new file may have inherited an ACL from its directory, which chmod would widen.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from pathlib import Path

__all__ = ["give_attributes"]

ACL, DEFAULT_ACL = "system.posix_acl_access", "system.posix_acl_default"
LABELS = ("security.selinux", "security.SMACK64")
"""Attributes that control access, as long as the kernel checks them. Others of security.* grant
privileges (capability) or vouch for the contents (ima, evm): they are not kept."""
SELINUX = Path("/sys/fs/selinux/enforce")
"""Exists if the kernel checks labels."""
VERSION = 2
ENTRY = struct.Struct("<HHI")
"""tag, permissions, id: struct posix_acl_xattr_entry in include/uapi/linux/posix_acl_xattr.h."""
USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 1, 2, 4, 8, 16, 32
"""Tags: ACL_USER_OBJ, ... in include/uapi/linux/posix_acl.h."""
ABSENT = (errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS)
UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS)


def give_attributes(source: int, target: int) -> None:
    """Copy the attributes of the open file ``source`` to the new one ``target``, which nobody but
    its owner may open yet. Neither setuid, setgid nor capabilities are copied.

    A file system without ACLs gets mode bits that grant nobody more than the ACL did, as does a
    file that cannot be given to the group. Raises OSError for what cannot be copied although the
    file system supports it.
    """
    held = os.fstat(source)
    mode = stat.S_IMODE(held.st_mode) & ~(stat.S_ISUID | stat.S_ISGID)
    if stat.S_ISDIR(held.st_mode):
        mode = mode & 0o777 | stat.S_IRWXU  # its creator fills it
    for name in (ACL, DEFAULT_ACL):
        try:
            os.removexattr(target, name)  # inherited from the directory
        except OSError as error:
            if error.errno not in (*ABSENT, errno.EACCES, errno.EINVAL):
                raise
    # While the file is still ours, and writable.
    for name in _names(source):
        if name.startswith("user.") or name in LABELS:
            _give(source, target, name)
    for owner in (held.st_uid, -1):
        try:
            os.fchown(target, owner, held.st_gid)  # only root may give files away
            break
        except OSError:
            pass
    same = os.fstat(target).st_gid == held.st_gid
    if stat.S_ISDIR(held.st_mode) and (default := _value(source, DEFAULT_ACL)) is not None:
        _set(target, DEFAULT_ACL, default)
    acl = _value(source, ACL)
    entries = [] if acl is None else _parsed(acl)
    if not entries:
        os.fchmod(target, mode if same else _without_group(mode))
        return
    os.fchmod(target, mode & ~0o077)
    if not same:
        entries = _for_another_group(entries)
    if stat.S_ISDIR(held.st_mode):
        entries = [(t, p | 7 if t == USER_OBJ else p, i) for t, p, i in entries]
    packed = struct.pack("<I", VERSION) + b"".join(ENTRY.pack(*entry) for entry in entries)
    if not _set(target, ACL, packed):
        os.fchmod(target, _narrowed(mode, entries))


def _names(source: int) -> list[str]:
    try:
        return os.listxattr(source)
    except OSError:
        return []


def _value(source: int, name: str) -> bytes | None:
    try:
        return os.getxattr(source, name)
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise OSError(error.errno, f"{name}: {error.strerror}") from None


def _give(source: int, target: int, name: str) -> None:
    """Copy one attribute."""
    value = _value(source, name)
    try:
        same = _value(target, name) == value  # for example a label inherited from the directory
    except OSError:
        same = False
    if value is None or same:
        return
    try:
        _set(target, name, value)
    except OSError as error:
        denied = error.errno in (errno.EPERM, errno.EACCES)
        if not (name in LABELS and denied and not SELINUX.exists()):
            raise


def _set(target: int, name: str, value: bytes) -> bool:
    """Return whether the file system supports such attributes."""
    try:
        os.setxattr(target, name, value)
    except OSError as error:
        if error.errno in UNSUPPORTED:
            return False
        raise OSError(error.errno, f"{name}: {error.strerror}") from None
    return True


def _parsed(acl: bytes) -> list[tuple[int, int, int]]:
    """(tag, permissions, id) of each entry. Raises OSError for an unknown form."""
    if len(acl) % ENTRY.size != 4 or acl[:4] != struct.pack("<I", VERSION):
        raise OSError(errno.EINVAL, f"{ACL}: unsupported format")
    return list(ENTRY.iter_unpack(acl[4:]))


def _without_group(mode: int) -> int:
    """Mode bits for a file of another group: members of either get what both had."""
    both = mode >> 3 & mode & 7
    return mode & ~0o077 | both << 3 | both


def _for_another_group(entries: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The same for an ACL."""
    permissions = {tag: bits for tag, bits, _ in entries if tag in (GROUP_OBJ, MASK, OTHER)}
    both = permissions[GROUP_OBJ] & permissions.get(MASK, 7) & permissions[OTHER]
    return [(t, both if t in (GROUP_OBJ, OTHER) else p, i) for t, p, i in entries]


def _narrowed(mode: int, entries: list[tuple[int, int, int]]) -> int:
    """Mode bits in place of an ACL. Users with an entry of their own now count as group or others,
    and must not gain anything by that."""
    permissions = {tag: bits for tag, bits, _ in entries if tag in (GROUP_OBJ, MASK, OTHER)}
    mask = permissions.get(MASK, 7)
    group, other = permissions[GROUP_OBJ] & mask, permissions[OTHER]
    for tag, bits, _ in entries:
        if tag == USER:
            group &= bits & mask
        if tag in (USER, GROUP):
            other &= bits & mask
    return mode & ~0o077 | group << 3 | other
