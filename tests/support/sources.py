# SPDX-License-Identifier: MIT
"""Debian's source packages, through the machine's own apt configuration: no root, no system lists.

What the machine fetches packages from has their sources, too; a line more asks for them:

    Types: deb     ->     Types: deb-src
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.kernels.apt import DAY, C, FetchError, folder, lock

__all__ = ["FetchError", "source"]

ETC = Path("/etc/apt")
STEP = 300  # seconds that one apt command may take


def source(package: str, target: Path) -> Path:
    """Unpack a package's source, with Debian's patches, into a folder that is not there yet. Raises
    FetchError."""
    with lock("sources"):
        held = _fetched(package)
    # Its signature was apt's business, which compared it with the signed list.
    _run(["dpkg-source", "--no-check", "-x", str(held), str(target)], target.parent)
    return target


def _fetched(package: str) -> Path:
    """The .dsc of a package, beside its other files; kept for the next time."""
    home = folder().parent / "sources"
    place = home / package
    found = sorted(place.glob("*.dsc"))
    if found:
        return found[0]
    _update(home)
    place.mkdir(exist_ok=True)
    words = ["apt-get", *_settings(home), "source", "-q", "--download-only"]
    try:
        _run([*words, package], place)
    except FetchError:
        # A mirror may lack the newest version, which its lists name, and have others.
        for version in _versions(home, package):
            with suppress(FetchError):
                _run([*words, f"{package}={version}"], place)
                break
        else:
            raise
    found = sorted(place.glob("*.dsc"))
    if not found:
        raise FetchError(f"apt-get source {package} fetched nothing")
    return found[0]


def _versions(home: Path, package: str) -> list[str]:
    """All versions of a source package that the lists name."""
    words = ["apt-cache", *_settings(home), "showsrc", "--only-source", package]
    return re.findall(r"^Version: (\S+)$", _run(words, home), flags=re.M)


def _update(home: Path) -> None:
    """Renew the lists once a day."""
    stamp = home / "updated"
    if stamp.is_file() and time.time() - stamp.stat().st_mtime < DAY:
        return
    for name in ("lists/partial", "cache/archives/partial", "parts"):
        (home / name).mkdir(parents=True, exist_ok=True)
    parts = ETC / "sources.list.d"
    for file in [ETC / "sources.list", *parts.glob("*.list"), *parts.glob("*.sources")]:
        if file.is_file():
            text = re.sub(r"^Types:.*$", "Types: deb-src", file.read_text(), flags=re.M)
            text = re.sub(r"^deb ", "deb-src ", text, flags=re.M)
            (home / "parts" / file.name).write_text(text)
    _run(["apt-get", *_settings(home), "update", "-q", "--error-on=any"], home)
    stamp.touch()


def _settings(home: Path) -> list[str]:
    settings: dict[str, str | Path] = {
        "Acquire::Languages": "none",
        "Acquire::Retries": "2",
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": home / "parts",
        "Dir::State::lists": home / "lists",
        "Dir::Cache": home / "cache",
    }
    return [f"-o{key}={value}" for key, value in settings.items()]


def _run(command: Sequence[str], cwd: Path) -> str:
    """Run a command, and return what it printed. Raises FetchError."""
    try:
        done = subprocess.run(
            command, cwd=cwd, env=C, capture_output=True, text=True, timeout=STEP, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FetchError(f"{command[0]}: {error}") from error
    if done.returncode:
        raise FetchError(f"{command[0]}: {'; '.join(done.stderr.strip().splitlines()[-3:])}")
    return done.stdout
