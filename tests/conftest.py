"""What all tests share."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

from tests.support.samples import FOLDER, sample

# The same examples on every machine and in every run: a failure must be found by whoever looks.
settings.register_profile(
    "fixed",
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("fixed")


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[str], Path]:
    """Gives a copy of a sample in a folder of its own, to be written to."""

    def copied(name: str) -> Path:
        source = sample(name)
        target = tmp_path / name
        target.write_bytes(source.data)
        target.chmod(0o755)
        return target

    return copied


@pytest.fixture(scope="session")
def reader() -> ModuleType:
    """The reader that wrote the manifest, on pyelftools and Capstone: a script beside the samples,
    not a package."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module("reader")
    finally:
        sys.path.remove(str(FOLDER))
