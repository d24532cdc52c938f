# SPDX-License-Identifier: MIT
"""Traps in programs that nobody here wrote and that use signals themselves: they count what the
kernel's uprobes count, and what the programs were asked for.

The uprobe is behind what the trap replaces, and on no system call: the kernel's own copy of that
ends perl, with ftpatch or without.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.busy import taken_out
from tests.support.command import ftpatch
from tests.support.postgres import NEEDED, SERVER, client, postgres
from tests.support.sampling import scaled
from tests.support.told import Told
from tests.support.uprobes import counting, uprobe

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs x86-64")
CALLS = 500
PERL = """
use POSIX; $| = 1;
print "ready\\n";
while (my $line = <STDIN>) {
    POSIX::getppid() for 1 .. $line;
    print "done $line";
}
"""
JAVA = """
import java.util.Scanner;
import java.util.zip.Inflater;
class Loaded {
    static volatile long sum, caught;
    static class Node { long value; }
    static long value(Node node) { return node.value; }
    public static void main(String[] words) throws Exception {
        System.out.println("ready");
        for (int i = 0; i < 2; i++) {
            Thread load = new Thread(() -> {
                for (long n = 0; ; n++)
                    try { sum += value(n % 16 == 0 ? null : new Node()); }
                    catch (NullPointerException e) { caught++; }
            });
            load.setDaemon(true);
            load.start();
        }
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextInt()) {
            int calls = lines.nextInt();
            Thread[] threads = new Thread[4];
            for (int i = 0; i < 4; i++) {
                threads[i] = new Thread(() -> {
                    Inflater one = new Inflater();
                    for (int n = 0; n < calls; n++) sum += one.getAdler();
                    one.end();
                });
                threads[i].start();
            }
            System.gc();
            for (Thread one : threads) one.join();
            System.out.println("done " + calls);
        }
    }
}
"""
"""Threads that ask, beside others that take SIGSEGV all the time: null pointers are found so."""


def _counted(trace: Path) -> dict[str, tuple[str, int, int]]:
    """Way, hits and missed ones by probe."""
    rows = ftpatch("report", trace, "--json").json
    return {row["probe"]: (row["way"], row["hits"], row["missed"]) for row in rows if "hits" in row}


def _lay(pid: str, trace: Path, *words: str) -> None:
    said = ftpatch("probe", "--pid", pid, *words, "--keep", "--force", "-o", trace)
    assert said.code == 0, said.err


def test_an_idle_interpreter(tmp_path: Path) -> None:
    """It waits in a function with a large buffer, which holds the last trap's frame."""
    perl, libc = shutil.which("perl", path="/usr/bin"), Path("/lib/x86_64-linux-gnu/libc.so.6")
    if perl is None or not libc.exists():
        pytest.skip("needs perl and glibc of x86-64")
    trace = tmp_path / "t.trace"
    with uprobe(str(libc), "getppid+7") as event, Told(perl, "-e", PERL) as program:
        _lay(program.pid, trace, "p:asked libc.so.6:getppid", "--no-optimize")
        with counting(event, program.pid) as perf:
            assert program.asks(CALLS) == f"done {CALLS}\n"
            told = perf.ends()
        said = ftpatch("undo", "--pid", program.pid)
        assert (said.code, said.err) == (0, "")
        assert program.asks(5) == "done 5\n"
        program.require_clean()
    assert told == CALLS and _counted(trace) == {"asked": ("trap", CALLS, 0)}


@pytest.mark.scaled
def test_a_virtual_machine_under_load(tmp_path: Path) -> None:
    """A function of four bytes, which has no room for a jump."""
    javac, java = (shutil.which(name, path="/usr/bin") for name in ("javac", "java"))
    if javac is None or java is None:
        pytest.skip("needs a JDK")
    function = "Java_java_util_zip_Inflater_getAdler"
    library = Path(java).resolve().parent.parent / "lib" / "libzip.so"
    (tmp_path / "Loaded.java").write_text(JAVA)
    subprocess.run([javac, "-d", tmp_path, tmp_path / "Loaded.java"], check=True)
    trace = tmp_path / "t.trace"
    words = (f"p:asked libzip.so:{function}", f"r:told libzip.so:{function} $retval:u32")
    with (
        uprobe(str(library), f"{function}+3") as event,
        Told(java, "-cp", str(tmp_path), "Loaded") as program,
    ):
        assert program.asks(5) == "done 5\n"
        for _ in range(scaled(10, 2)):
            _lay(program.pid, trace, *words)
            with counting(event, program.pid) as perf:
                assert program.asks(CALLS) == f"done {CALLS}\n"
                told = perf.ends()
            taken_out(int(program.pid))
            assert program.asks(10) == "done 10\n"
            wanted = ("trap", 4 * CALLS, 0)
            assert told == 4 * CALLS and _counted(trace) == {"asked": wanted, "told": wanted}
        program.require_clean()


@NEEDED
@pytest.mark.scaled
def test_a_database_under_load(tmp_path: Path) -> None:
    """A function of one byte, called for each command, beside one with a jump. Queries that fail
    jump out of what they were in, and set their mask of signals."""
    assert SERVER is not None
    trace = tmp_path / "t.trace"
    with (
        postgres() as socket,
        uprobe(str(SERVER), "EndCommand") as event,
        client(socket) as asked_by,
    ):
        bench = str(SERVER.parent / "pgbench")
        of = ("-h", str(socket), "-U", "postgres")
        subprocess.run([bench, *of, "-i", "-q", "postgres"], check=True, capture_output=True)
        load = [bench, *of, "-n", "-c", "2", "-T", "3600", "postgres"]
        with subprocess.Popen(load, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as others:
            try:
                for _ in range(scaled(10, 2)):
                    _lay(asked_by.pid, trace, "p:began BeginCommand", "p:asked pg_parse_query")
                    with counting(event, asked_by.pid) as perf:
                        for number in range(CALLS // 2):
                            assert asked_by.asks(f"select {number} * 7") == str(number * 7)
                            assert asked_by.asks("select 1 / 0; select 3") == "3"
                        told = perf.ends()
                    taken_out(int(asked_by.pid))
                    assert asked_by.asks("select 6 * 7") == "42"
                    counted = _counted(trace)
                    assert told == CALLS
                    assert counted["began"] == ("trap", told + CALLS // 2, 0)
                    assert counted["asked"] == ("jump", told + CALLS // 2, 0)
                assert ftpatch("check", "--pid", asked_by.pid).code == 0
                assert others.poll() is None
            finally:
                others.terminate()
                others.communicate()
