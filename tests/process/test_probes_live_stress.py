# SPDX-License-Identifier: MIT
"""Probes laid into a program with threads, signals, children, jumps and coroutines, again and
again, and left there by commands that were killed: it says in the end what it says untouched."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ftpatch.api.probing import parsed_probes
from ftpatch.errors import InputError, Refused
from ftpatch.probe.in_process import Limits, lay_into
from ftpatch.probe.targets import find_targets
from ftpatch.process import attached
from ftpatch.process.attached import detach
from ftpatch.process.loaded import loaded_images
from ftpatch.process.process import Process, find_process
from ftpatch.process.process_journal import recall
from ftpatch.tracer.recordings import TraceFiles
from tests.support.busy import busy, busy_program, ended, ours_in, taken_out
from tests.support.command import child_env, ftpatch, ftpatch_command
from tests.support.probed_process import asked, compiled, hits
from tests.support.sampling import scaled
from tests.support.stopping import until

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
OWN = ("leaf", "fibonacci", "mixed", "many", "tail", "jump_deep", "jumps", "throws", "yield_deep")
LIBC = (
    *("malloc", "free", "calloc", "strlen", "poll", "nanosleep", "pthread_mutex_lock", "fork"),
    *("pthread_create", "pthread_join", "sigaction", "execve", "waitpid", "read", "write"),
)
PATIENCE = 60
"""Seconds until everything can be taken out, whatever lies on a stack."""


def _probes(kinds: str) -> list[str]:
    """Probes of these kinds on all of them."""
    places = [*OWN, *(f"libc.so.6:{name}" for name in LIBC)]
    return [
        f"{kind}:{kind}{number} {place} value={'$arg1' if kind == 'p' else '$retval'}"
        for kind in kinds
        for number, place in enumerate(places)
    ]


def _cycle(process: Process, trace: Path, kinds: str) -> list[Path]:
    loaded, _ = loaded_images(process)
    refused = Refused()
    definitions = parsed_probes(loaded[0].file, _probes(kinds), refused)
    targets = find_targets(loaded, definitions, refused)
    assert [len(one.found) for one in targets] == [len(OWN), len(LIBC)], refused.errors
    limits = Limits(depth=1024, size=1 << 20)
    with TraceFiles(trace, process.place / "exe", loaded[0].path) as made:
        lay_into(process, loaded, targets, limits, made.environment, str(trace))
        time.sleep(0.02)
        _taken_out(process)
        return made.finish()


def _taken_out(process: Process) -> None:
    end = time.monotonic() + PATIENCE
    while recall(process) is not None:
        assert time.monotonic() < end
        with contextlib.suppress(InputError):  # a thread may not stop in time
            detach(process)


@pytest.mark.scaled
@pytest.mark.parametrize("flags", [(), ("-fno-exceptions",)], ids=["throws", "none"])
@pytest.mark.parametrize("kinds", ["p", "r", "pr"])
def test_cycles(tmp_path: Path, kinds: str, flags: tuple[str, ...]) -> None:
    path = busy_program(tmp_path, *flags)
    with busy(path, scaled(20, 8, 100), scaled(200, 50, 500)) as program:
        process = find_process(program.pid)
        for number in range(scaled(20, 4, 200)):
            trace = tmp_path / f"{number}.trace"
            try:
                files = _cycle(process, trace, kinds)
            except InputError as error:
                assert "did not stop" in str(error) or "stayed inside" in str(error), error
                _taken_out(process)
                continue
            assert ours_in(program.pid) == []
            assert trace in files
            for file in files:
                file.unlink()
        said = ftpatch("check", "--pid", str(program.pid))
        assert said.code == 0, said.out


@pytest.mark.scaled
def test_killed_at_any_moment(tmp_path: Path) -> None:
    path, rng = busy_program(tmp_path, "-fno-exceptions"), random
    with busy(path, 4, 100, killed=True) as program:
        pid = ("--pid", str(program.pid))
        lay = ("probe", *pid, *_probes("pr"), "--keep", "--force", "-o", str(tmp_path / "t.trace"))
        begun = time.monotonic()
        assert ended(signal.SIGKILL, 60, *lay, both=True)[0] == 0
        laying = time.monotonic() - begun
        taken_out(program.pid)
        for _ in range(scaled(10, 3, 200)):
            ended(signal.SIGKILL, laying * rng.uniform(0.3, 1.1), *lay, both=True)
            if rng.random() < 0.5:
                ended(signal.SIGKILL, laying * rng.uniform(0.2, 0.8), "undo", *pid, both=True)
            taken_out(program.pid)
            assert ours_in(program.pid) == []
            checked = ftpatch("check", *pid)
            assert checked.code == 0, checked.out


@pytest.mark.parametrize("nops", [0, 1])
def test_a_thread_waits_in_the_code_to_change(
    tmp_path: Path, nops: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system call among the bytes of the jump: its thread stands inside of them, or right behind
    them and goes back to make the call again."""
    monkeypatch.setattr(attached, "WAIT", 0.2)
    source = tmp_path / "waits.c"
    source.write_text(
        "#include <stdio.h>\n"
        'long waits(int, char *, long); __asm__(".globl waits\\n.type waits, @function\\n"\n'
        f'"waits: xor %eax, %eax\\n{"nop;" * nops} syscall\\n"\n'
        '"nop; nop; ret\\n.size waits, .-waits");\n'
        'int main(void) { char held; puts("ready"); fflush(stdout);\n'
        "while (waits(0, &held, 1) == 1) if (held == '\\n') { puts(\"on\"); fflush(stdout); }\n"
        "return 7; }\n"
    )
    path = tmp_path / "waits"
    subprocess.run(["gcc", "-O1", str(source), "-o", str(path)], check=True)
    with asked(path) as running:
        process = find_process(int(running.pid[1]))
        until(lambda: (process.place / "stat").read_text().split()[2] == "S")
        before = running.maps()
        said = ftpatch("probe", *running.pid, "p waits", "--seconds", "1")
        assert said.code == 2 and "a thread stayed inside of the code to change" in said.err
        running.require_clean(before)
        assert running.ask("") == "on"


@pytest.mark.parametrize("ending", ["seconds", "signal", "exit"])
def test_probed_for_a_while(tmp_path: Path, ending: str) -> None:
    path, trace = compiled(tmp_path), tmp_path / "t.trace"
    seconds = ("--seconds", "1") if ending == "seconds" else ()
    words = ("probe", "p:six six n=$arg1:s64", "--pid")
    with asked(path) as running:
        before = running.maps()
        command = ftpatch_command(*words, running.pid[1], "-o", trace, *seconds)
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, env=child_env(), stdout=pipe, stderr=pipe, text=True
        ) as probing:
            process = find_process(int(running.pid[1]))
            until(lambda: bool((one := recall(process)) and one.header and len(one.changes)), 60)
            if ending != "seconds":
                jumps = recall(process)
                assert jumps is not None
                until(lambda: _stands(process, int(jumps.changes.offset[0])), 60)
                running.ask("c5")
            if ending == "signal":
                probing.send_signal(signal.SIGINT)
            elif ending == "exit":
                assert running.program.stdin is not None
                running.program.stdin.close()
                running.program.stdin = None
            out, err = probing.communicate()
        assert probing.returncode == 0, err
        assert "1 place probed, longest pause" in err
        if ending != "exit":
            running.require_clean(before)
    number = 0 if ending == "seconds" else 5
    head, sums, wrote = out.splitlines()
    assert head.split() == ["#", "PROBE", "WAY", "HITS", "MISSED"]
    assert sums.split() == ["#", "six", "jump", str(number), "0"]
    assert wrote == f"wrote {trace}"
    assert hits(trace)[0] == ({"six": 5} if number else {})


def _stands(process: Process, address: int) -> bool:
    """Test whether a jump stands at an address."""
    with (process.place / "mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(1) == b"\xe9"
