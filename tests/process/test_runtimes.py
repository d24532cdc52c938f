# SPDX-License-Identifier: MIT
"""Interpreters as Debian has them, probed while they run: what their scripts call is counted, and
they do as without."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.busy import ours_in, taken_out
from tests.support.command import ftpatch
from tests.support.told import Told

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
CALLS = 500
SCRIPTS = {
    "python3": (
        "-c",
        """
import os, sys, threading
def work(n):
    for _ in range(n):
        os.getppid()
print("ready", flush=True)
for line in sys.stdin:
    threads = [threading.Thread(target=work, args=(int(line) // 5,)) for _ in range(5)]
    for one in threads: one.start()
    for one in threads: one.join()
    print("done", line.strip(), flush=True)
""",
    ),
    "perl": (
        "-e",
        """
use POSIX; $| = 1;
print "ready\\n";
while (my $line = <STDIN>) {
    POSIX::getppid() for 1 .. $line;
    print "done $line";
}
""",
    ),
    "node": (
        "-e",
        """
console.log("ready");
require("readline").createInterface({input: process.stdin}).on("line", line => {
    for (let i = 0; i < line; i++) process.ppid;
    console.log("done", Number(line));
});
""",
    ),
}


JAVA = """
import java.util.Scanner;
class Yields {
    static volatile long sum;
    public static void main(String[] words) throws Exception {
        System.out.println("ready");
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextInt()) {
            int calls = lines.nextInt();
            Thread[] threads = new Thread[4];
            for (int i = 0; i < 4; i++) {
                threads[i] = new Thread(() -> { for (int n = 0; n < calls; n++) Thread.yield(); });
                threads[i].start();
            }
            for (Thread one : threads) one.join();
            System.out.println("done " + calls);
        }
    }
}
"""


def test_a_virtual_machine(tmp_path: Path) -> None:
    """Threads of its own beside those that are asked, and code that it makes while it runs."""
    javac, java = (shutil.which(name, path="/usr/bin") for name in ("javac", "java"))
    if javac is None or java is None:
        pytest.skip("needs a JDK")
    (tmp_path / "Yields.java").write_text(JAVA)
    subprocess.run([javac, "-d", tmp_path, tmp_path / "Yields.java"], check=True)
    trace = tmp_path / "t.trace"
    with Told(java, "-cp", str(tmp_path), "Yields") as program:
        words = ("p:gave libc.so.6:sched_yield", "r:back libc.so.6:sched_yield")
        assert program.asks(5) == "done 5\n"
        said = ftpatch("probe", "--pid", program.pid, *words, "--keep", "-o", trace)
        assert said.code == 0, said.err
        assert program.asks(CALLS) == f"done {CALLS}\n"
        taken_out(int(program.pid))
        assert program.asks(10) == "done 10\n"
        program.require_clean()
    lines = ftpatch("report", trace).out.splitlines()
    assert sum(": gave: " in line for line in lines) >= 4 * CALLS  # its own threads do so, too
    assert sum(": back: " in line for line in lines) >= 4 * CALLS


@pytest.mark.parametrize("name", SCRIPTS)
def test_calls_of_a_script_are_counted(name: str, tmp_path: Path) -> None:
    path = shutil.which(name, path="/usr/bin")
    if path is None:
        pytest.skip(f"needs {name}")
    trace = tmp_path / "t.trace"
    with Told(path, *SCRIPTS[name]) as program:
        assert program.asks(5) == "done 5\n"
        words = ("p:asked libc.so.6:getppid", "r:told libc.so.6:getppid $retval:s32")
        said = ftpatch("probe", "--pid", program.pid, *words, "--keep", "-o", trace)
        assert said.code == 0, said.err
        assert program.asks(CALLS) == f"done {CALLS}\n"
        taken_out(int(program.pid))
        assert ours_in(int(program.pid)) == []
        assert program.asks(10) == "done 10\n"
        program.require_clean()
    lines = ftpatch("report", trace).out.splitlines()
    assert sum(": asked: " in line for line in lines) == CALLS
    told = [line for line in lines if ": told: " in line]
    assert len(told) == CALLS and all(f"={os.getpid()} " in f"{line} " for line in told)
