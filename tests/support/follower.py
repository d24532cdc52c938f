# SPDX-License-Identifier: MIT
"""``ftpatch report --follow`` beside a program that does what it is told."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.command import (
    PATIENCE,
    Result,
    child_env,
    ftpatch,
    ftpatch_command,
    patched_command,
)
from tests.support.padded import padded
from tests.support.stopping import until

__all__ = ["Follower", "Orders", "beside", "following", "orders", "traced_orders"]

SOURCE = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

volatile int sold;

int price(int n) { return 2 * n; }
int sell(int n) { sold += n; return price(n); }
void *thread(void *n) { return (void *)(long)sell(*(int *)n); }

int main(void)
{
	char line[64];
	pthread_t id;

	printf("ready %d\n", getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		int n = atoi(line + 1);

		switch (line[0]) {
		case 's':
			sell(n);
			break;
		case 't':
			pthread_create(&id, 0, thread, &n);
			pthread_join(id, 0);
			break;
		case 'f':
			if (!fork()) {
				sell(n);
				exit(0);
			}
			wait(0);
			break;
		case 'k':
			abort();
		}
		printf("%d\n", sold);
		fflush(stdout);
	}
	return 0;
}
"""


class Orders:
    """The program while it runs."""

    def __init__(self, process: subprocess.Popen[str], pid: int) -> None:
        self._process, self.pid = process, pid

    def do(self, *orders: str) -> None:
        """Have orders carried out: s, t or f, and a number, to sell that many here, in a thread or
        in a forked child."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        for order in orders:
            stdin.write(f"{order}\n")
            stdin.flush()
            assert stdout.readline().strip().isdigit()

    def end(self) -> str:
        """Let it end; what else it, or who runs it, prints."""
        return self._process.communicate(timeout=PATIENCE)[0]

    def kill(self) -> None:
        """Kill it."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)


def traced_orders(folder: Path, tracer: str = "function_graph") -> tuple[Path, Path]:
    """Compile the program; also return it with a tracer in it."""
    path = padded(folder, SOURCE, "-g", "-fno-inline", "-pthread")
    traced = folder / "traced"
    assert ftpatch("enable", path, "--tracer", tracer, "-o", traced).code == 0
    return path, traced


@contextmanager
def orders(*words: Path | str, **env: str) -> Iterator[Orders]:
    """Run it, as it is or by a command."""
    pipe = subprocess.PIPE
    environment = {**child_env(), **env}
    with subprocess.Popen(
        [*map(str, words)], stdin=pipe, stdout=pipe, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline().split()
        assert said[:1] == ["ready"], said
        try:
            yield Orders(process, int(said[1]))
        finally:
            process.kill()


class Follower:
    """``ftpatch report --follow`` while it runs; ``lines`` are those that have come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.removesuffix("\n"))

    def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until so many lines have a text."""

        def there() -> bool:
            found = sum(text in line for line in [*self.lines]) >= times
            assert found or self.process.poll() is None, self.end()
            return found

        until(there, PATIENCE)

    def end(self, number: signal.Signals | None = None) -> Result:
        """Wait for its end, which a signal may ask for."""
        if number is not None:
            self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self.process.stderr is not None
        out = "".join(f"{line}\n" for line in self.lines)
        return Result(code, out, self.process.stderr.read())


@contextmanager
def beside(*words: Path | str, script: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Run a command while something else is done, after a ``script`` that replaced parts of it."""
    pipe, environment = subprocess.PIPE, child_env(COLUMNS="80")
    command = patched_command(script, *words) if script else ftpatch_command(*words)
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def following(*words: Path | str) -> Iterator[Follower]:
    """Run it."""
    pipe = subprocess.PIPE
    command = ftpatch_command("report", "--follow", *words)
    with subprocess.Popen(
        command, stdout=pipe, stderr=pipe, text=True, env=child_env(COLUMNS="80")
    ) as process:
        try:
            yield Follower(process)
        finally:
            process.kill()
