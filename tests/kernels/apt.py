# SPDX-License-Identifier: MIT
"""apt for any architecture and suite, beside the machine's own state: no root, no system lists.

The sources are the machine's own; of another suite of the distribution, the same with its name:

    Suites: bookworm bookworm-updates     ->     Suites: trixie trixie-updates

What that makes of a source which has no such suite is a list that is missing, and no more.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

__all__ = ["DAY", "Archive", "FetchError", "files_of", "folder", "lock"]

DAY = 24 * 3600  # seconds
STEP = 1800  # seconds that one apt command may take: the packages have up to 1 GB
C = os.environ | {"LC_ALL": "C"}  # apt's words are read
ETC = Path("/etc/apt")


class FetchError(Exception):
    """Something could not be had; the text says what was tried and what was answered."""


def folder() -> Path:
    """The cache: ``$XDG_CACHE_HOME`` (or ``~/.cache``) ``/ftpatch/kernels``."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(home) / "ftpatch" / "kernels"
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def lock(name: str) -> Iterator[None]:
    """One process at a time."""
    with (folder() / f".{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Archive:
    """What apt offers for an architecture; ``suite``: of that suite instead of the machine's."""

    arch: str  # Debian's word
    suite: str = ""

    @property
    def name(self) -> str:
        return f"apt-{self.arch}" + (f"-{self.suite}" if self.suite else "")

    def update(self) -> str:
        """Renew the lists once a day; what went wrong, or an empty string.

        A list that one of the sources does not have need not matter: who asks decides.
        """
        with lock(self.name):
            return _update(self)

    def run(self, command: str, *words: str, cwd: Path | None = None) -> str:
        """Run an apt command; what it printed."""
        state = folder() / self.name
        (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        (state / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
        settings: dict[str, str | Path] = {
            "APT::Architecture": self.arch,
            "APT::Architectures": self.arch,
            "Acquire::Languages": "none",
            "Acquire::Retries": "3",
            "Dir::State::lists": state / "lists",
            "Dir::Cache": state / "cache",
        }
        if self.suite:
            settings |= {
                "Dir::Etc::sourcelist": "/dev/null",
                "Dir::Etc::sourceparts": _sources(state / "sources", self.suite),
            }
        line = [command, *(f"-o{key}={value}" for key, value in settings.items()), *words]
        try:
            done = subprocess.run(
                line, cwd=cwd, env=C, capture_output=True, text=True, timeout=STEP
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FetchError(f"{command} {' '.join(words)}: {error}") from error
        if done.returncode:
            last = "; ".join(done.stderr.strip().splitlines()[-3:])
            raise FetchError(f"{command} {' '.join(words)} ({self.name}): {last}")
        return done.stdout

    def download(self, package: str, where: Path) -> Path:
        """Fetch a package (``name`` or ``name=version``) into a folder."""
        self.run("apt-get", "download", "-q", package, cwd=where)
        return next(where.glob("*.deb"))


@cache
def _update(archive: Archive) -> str:
    stamp = folder() / archive.name / "updated"
    if stamp.is_file() and time.time() - stamp.stat().st_mtime < DAY:
        return ""
    try:
        archive.run("apt-get", "update", "-q", "--error-on=any")
    except FetchError as error:
        # What has come serves for the day, where a suite was derived: others may lack it.
        if archive.suite and any((folder() / archive.name / "lists").glob("*Packages*")):
            stamp.touch()
        return str(error)
    stamp.touch()
    return ""


def _sources(where: Path, suite: str) -> Path:
    """A folder with the machine's sources, of another suite."""
    own = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    if not own:
        raise FetchError(f"this machine does not say which suite it is, to take {suite} instead")
    where.mkdir(parents=True, exist_ok=True)
    parts = ETC / "sources.list.d"
    for file in [ETC / "sources.list", *parts.glob("*.list"), *parts.glob("*.sources")]:
        if file.is_file():
            text = re.sub(rf"\b{re.escape(own)}\b", suite, file.read_text())
            held = where / file.name
            if not held.is_file() or held.read_text() != text:
                held.write_text(text)
    return where


def files_of(deb: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Path and contents of a package's files, in its order. Who has seen enough stops there."""
    with (
        subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as packer,
        tarfile.open(fileobj=packer.stdout, mode="r|", bufsize=1 << 20) as archive,
    ):
        try:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                if content is not None:
                    yield member.name, content
        finally:
            packer.kill()
