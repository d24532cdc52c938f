# SPDX-License-Identifier: MIT
"""``check`` for machines: annotations, JUnit documents and JSON, whatever names a file has."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite

from ftpatch.api.checking import check_image
from ftpatch.cli.check_formats.github import annotation
from ftpatch.cli.console import clean
from ftpatch.errors import FtpatchError
from ftpatch.ftrace.check.check import INVARIANTS, Check
from tests.support.broken import put_code
from tests.support.command import Result, ftpatch, ftpatch_process
from tests.support.elf_writer import Image, Symbol
from tests.support.images import fentry_kernel, pad_program, symbols_at

X86, PROGRAM = 0xFFFF_FFFF_8100_0000, 0x40_1000
P6 = bytes.fromhex("0f1f440000")
ANY = st.text(st.characters(codec=None))
NASTY = st.lists(
    st.sampled_from(
        ["::error::x", "##[error]x", "%0A", "\r\n", ",", "=", ":", "]]>", "\0", "\ufffe"]
    )
).map("".join)


def outcome(path: Path) -> Check | str:
    """What the check of one image says, or in one line why it cannot be read."""
    try:
        return check_image(path)
    except FtpatchError as error:
        return str(error)


READERS = {  # junit-10.xsd of Jenkins' xUnit plugin: children, required and other attributes
    "testsuites": ({"testsuite"}, set(), {"name", "tests", "failures", "errors", "time"}),
    "testsuite": (
        {"properties", "testcase", "system-out"},
        {"tests"},
        {"name", "failures", "errors", "skipped", "time"},
    ),
    "properties": ({"property"}, set(), set()),
    "property": (set(), {"name", "value"}, set()),
    "system-out": (set(), set(), set()),
    "testcase": ({"failure", "error", "skipped"}, {"name"}, {"classname", "time"}),
    "failure": (set(), set(), {"type", "message"}),
    "error": (set(), set(), {"type", "message"}),
    "skipped": (set(), set(), {"type", "message"}),
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _put(name: str, image: Image | bytes) -> Path:
    path = Path(name)
    path.write_bytes(image if isinstance(image, bytes) else image.build())
    return path


def _bare() -> Image:
    """A program without a table."""
    image = pad_program()
    image.sections.pop()
    image.segments.pop()
    return image


def _three() -> list[Path]:
    """One image without findings, one with an ftrace bug, one that cannot be read."""
    bad = put_code(fentry_kernel(), symbols_at(X86)["vfs_read"], P6)
    return [_put("good", pad_program()), _put("bad", bad), _put("text", b"no ELF\n")]


def _read_command(line: str) -> tuple[str, dict[str, str], str] | None:
    """As the runner does: TryParseV2 in src/Runner.Common/ActionCommand.cs of actions/runner."""

    def unescape(text: str, names: dict[str, str]) -> str:
        for token, escape in names.items():
            text = text.replace(escape, token)
        return text

    data = {"\r": "%0D", "\n": "%0A", "%": "%25"}
    line = line.lstrip()
    end = line.find("::", 2)
    if not line.startswith("::") or end < 0:
        return None
    name, _, rest = line[2:end].partition(" ")
    pairs = (item.split("=", 1) for item in rest.strip().split(",") if item)
    named = {":": "%3A", ",": "%2C"} | data
    return (
        name,
        {key: unescape(value, named) for key, value in pairs},
        unescape(line[end + 2 :], data),
    )


def test_annotations() -> None:
    result = ftpatch("check", "--format", "github", *_three())
    assert (result.code, result.err) == (2, "")
    first, second = map(_read_command, result.out.splitlines())
    assert first is not None and second is not None
    assert first[:2] == ("error", {"file": "bad", "title": "ftpatch ftrace_init"})
    words = first[2].splitlines()
    assert words[0].startswith("ftrace_init: 0xffffffff81000040 vfs_read+0x0/0x40: ")
    assert words[1:] == ftpatch("check", "--json", "bad").only["bug"].splitlines()
    assert second == (
        "error",
        {"file": "text", "title": "ftpatch: cannot read"},
        outcome(Path("text")),
    )


@given(ANY | NASTY, ANY | NASTY, st.lists(ANY | NASTY, min_size=1))
def test_an_annotation_is_read_as_it_was_meant(file: str, title: str, said: list[str]) -> None:
    line = annotation("error", said, file=f"f{file}", title=f"t{title}f")
    assert line.isprintable(), "one line, and nothing that moves a cursor"
    # Spaces at the end of the properties are lost; here they end with a letter.
    assert _read_command(line) == (
        "error",
        {"file": clean(f"f{file}"), "title": clean(f"t{title}f")},
        "\n".join(map(clean, said)),
    )


def test_names_inject_no_command() -> None:
    image = pad_program()
    at = symbols_at(PROGRAM)["schedule"]
    names = ["x\n::error::y", "x\r::set-env name=PATH::y", "##[add-mask]y", "a::b,c=d%0A"]
    for name in names:
        image.symbols = [s for s in image.symbols if s.value != at]
        image.symbols.append(Symbol(name, at, 64))
        path = _put(f"im{name.replace('/', '')}age", put_code(image, at, b"\xcc"))
        result = ftpatch("check", "--format", "github", path)
        read = _read_command(result.out)
        assert result.out.count("\n") == 1 and not result.err and read is not None
        assert read[1] == {"file": clean(str(path)), "title": "ftpatch site-known"}
        assert f" {clean(name)}+0x0: " in read[2]


def _document(result: Result) -> ET.Element:
    """The document, after it was held against what readers accept."""
    root = ET.fromstring(result.out)
    assert root.tag == "testsuites" and result.out.isascii()
    for element in root.iter():
        children, required, other = READERS[element.tag]
        assert {child.tag for child in element} <= children
        assert required <= set(element.attrib) <= required | other
    for suite in [root, *root]:
        for tag, attribute in (("failure", "failures"), ("error", "errors"), ("testcase", "tests")):
            assert int(suite.attrib[attribute]) == len(suite.findall(f".//{tag}"))
    return root


def test_a_junit_document() -> None:
    result = ftpatch("check", "--format", "junit", *_three())
    assert (result.code, result.err) == (2, "")
    good, bad, text = _document(result)
    for suite, name in ((good, "good"), (bad, "bad")):
        assert suite.attrib["name"] == name
        assert [case.attrib["name"] for case in suite.iter("testcase")] == list(INVARIANTS)
        assert {case.attrib["classname"] for case in suite.iter("testcase")} == {name}
    assert not list(good.iter("failure"))
    (failure,) = bad.iter("failure")
    assert failure.attrib == {"type": "ftrace_init", "message": "1 finding"}
    assert failure.text is not None
    assert failure.text.splitlines()[1:] == ftpatch("check", "bad").out.splitlines()[1:-2]
    (error,) = text.iter("error")
    assert error.text == outcome(Path("text"))


def test_a_junit_document_of_a_directory_is_short() -> None:
    """Trees have thousands of modules, and most of them break nothing."""
    _three()
    Path("tree").mkdir()
    for name in ("good", "bad"):
        Path(name).rename(Path("tree") / name)
    result = ftpatch("check", "--format", "junit", "tree")
    told = {suite.attrib["name"]: suite for suite in _document(result)}
    cases = {
        name: {case.attrib["name"]: [e.tag for e in case] for case in suite.iter("testcase")}
        for name, suite in told.items()
    }
    assert cases == {
        "tree/good": {"other invariants": []},
        "tree/bad": {"other invariants": [], "ftrace_init": ["failure"]},
    }
    good = ET.tostring(told["tree/good"])
    assert len(good) < 100 + 15 * len("tree/good")


def test_junitparser_reads_it(tmp_path: Path) -> None:
    _three()
    assert ftpatch("check", "--write-baseline", "known", "bad").code == 0
    _put("bad", put_code(fentry_kernel(), symbols_at(X86)["vfs_read"], b"\xcc" * 5))
    result = ftpatch("check", "--format", "junit", "--baseline", "known", "good", "bad")
    document = JUnitXml.fromstring(result.out.encode())
    assert isinstance(document, JUnitXml)
    suites = [suite for suite in document if isinstance(suite, TestSuite)]
    assert [(s.name, s.tests, s.failures, s.errors, s.skipped) for s in suites] == [
        ("good", len(INVARIANTS), 0, 0, 0),
        ("bad", len(INVARIANTS), 1, 0, 1),
    ]
    cases = {case.name: case for case in suites[1] if isinstance(case, TestCase)}
    assert cases["record-unique"].is_passed
    assert [type(r) for r in cases["site-known"].result] == [Failure]
    assert [type(r) for r in cases["ftrace_init"].result] == [Skipped]


def test_names_do_not_break_the_document() -> None:
    """XML 1.0 has no place for control characters, not even escaped."""
    at = symbols_at(PROGRAM)["schedule"]
    plain = ["]]>", "<a b='c\">&", "\x01\x1b[0m", "\ufffe\uffff", "\x85\u2028", "é😀"]
    names: list[str | bytes] = [*plain, b"\xff"]
    for name in names:
        image = pad_program()
        image.symbols = [s for s in image.symbols if s.value != at]
        image.symbols.append(Symbol(name, at, 64))
        _put("image", put_code(image, at, b"\xcc"))
        (suite,) = _document(ftpatch("check", "--format", "junit", "image"))
        (failure,) = suite.iter("failure")
        shown = clean(name) if isinstance(name, str) else "\\xff"
        assert failure.text is not None and f" {shown}+0x0: " in failure.text


@given(ANY)
def test_what_is_shown_is_xml(text: str) -> None:
    element = ET.Element("a", b=clean(text))
    element.text = clean(text)
    read = ET.fromstring(ET.tostring(element, "us-ascii", xml_declaration=True))
    assert read.text == (clean(text) or None) and read.attrib == {"b": clean(text)}


def test_a_path_that_is_no_text() -> None:
    """Names of files are bytes; those that are no UTF-8 are shown escaped, in every format."""
    path = _put(b"im\xffage".decode("utf-8", "surrogateescape"), b"no ELF\n")
    _put("bad", put_code(pad_program(), symbols_at(PROGRAM)["schedule"], b"\xcc"))
    path.with_name("x").write_bytes(Path("bad").read_bytes())
    Path("x").replace(path)
    for format_ in ("text", "github", "junit", "json"):
        result = ftpatch_process("check", "--format", format_, path)
        assert result.code == 1 and "im" in result.out and "\\udcff" in result.out, format_


def test_an_empty_document_is_a_document() -> None:
    (suite,) = _document(ftpatch("check", "--format", "junit", _put("good", pad_program())))
    assert suite.attrib["failures"] == suite.attrib["errors"] == "0"


@pytest.mark.parametrize("what", ["good", "nothing", "text", "bare"])
def test_every_format_says_that_nothing_was_found(what: str) -> None:
    """Readers of a document, or of a log, get one, whatever there is to check; JSON has a line for
    each finding and note."""
    Path("tree").mkdir()
    if what == "good":
        _put("tree/good", pad_program())
    elif what == "text":
        _put("tree/readme", b"no ELF\n")
    elif what == "bare":
        _put("tree/bare", _bare())
    note, code = {
        "good": ("1 image, 0 unreadable, every invariant holds", 0),
        "bare": ("1 image, 1 without call sites, 0 unreadable, nothing to check", 1),
    }.get(what, ("0 images, 0 unreadable, nothing to check", 2))
    result = ftpatch("check", "--json", "tree")
    assert (result.code, result.out) == (code, "")
    said = _read_command(ftpatch("check", "--format", "github", "tree").out.rstrip("\n"))
    if code == 2:
        assert said is not None and said[0] == "error" and "no images in this directory" in said[2]
    else:
        assert said == ("notice", {"title": "ftpatch"}, note)
        assert ftpatch("check", "-q", "--format", "github", "tree").out == ""
    assert _document(ftpatch("check", "--format", "junit", "tree")).attrib["failures"] == "0"
    (run,) = json.loads(ftpatch("check", "--format", "sarif", "tree").out)["runs"]
    assert run["results"] == []


def test_a_finding_about_an_image_has_no_address() -> None:
    path = _put("bare", _bare())
    words = "table-found: no __mcount_loc and no __patchable_function_entries; compile with "
    assert ftpatch("check", path).out.startswith(f"bare: {words}")
    assert ftpatch("check", "--json", path).only["ip"] is None
    said = _read_command(ftpatch("check", "--format", "github", path).out)
    assert said is not None and said[2].startswith(words)
    (failure,) = _document(ftpatch("check", "--format", "junit", path)).iter("failure")
    assert failure.text is not None and failure.text.startswith(words)
    (run,) = json.loads(ftpatch("check", "--format", "sarif", path).out)["runs"]
    (result,) = run["results"]
    assert result["message"]["text"].startswith(words) and result["properties"] == {}
    Path("known").write_text('{"image": "bare", "invariant": "table-found", "place": "0x0"}\n')
    assert ftpatch("check", "--baseline", "known", path).code == 0, "as earlier versions wrote it"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--format", "xml"], "text, json, github, junit or sarif"),
        (["--json", "--format", "junit"], "conflict"),
        (["--format", "juint"], "unknown format 'juint'; did you mean junit?"),
        (["--baseline", "a", "--write-baseline", "b"], "mutually exclusive"),
    ],
)
def test_formats_that_are_none(arguments: list[str], words: str) -> None:
    result = ftpatch("check", *arguments, _put("good", pad_program()))
    assert (result.code, result.out) == (2, "") and words in result.err


def test_json_twice_is_json() -> None:
    _three()
    plain = ftpatch("check", "--json", "bad")
    assert ftpatch("check", "--json", "--format", "json", "bad") == plain
    assert json.loads(plain.out)["invariant"] == "ftrace_init"


def test_a_check_can_come_from_another_process() -> None:
    for path in _three():
        result = outcome(path)
        assert pickle.loads(pickle.dumps(result)) == result
    assert isinstance(outcome(Path("text")), str)
    assert check_image(Path("bad")) == outcome(Path("bad"))


def test_the_order_of_the_images_is_that_of_the_command() -> None:
    good, bad, text = _three()
    result = ftpatch("check", "--format", "github", text, bad, good, text)
    files = [read[1]["file"] for read in map(_read_command, result.out.splitlines()) if read]
    assert files == ["text", "bad", "text"] and result.code == 2
