# SPDX-License-Identifier: MIT
"""Filters of seccomp: the kernel runs them too, and says what came of it."""

from __future__ import annotations

import os
import random
import struct
import subprocess
from pathlib import Path

import pytest

from ftpatch.errors import InputError
from ftpatch.process.seccomp import Call, allows, may_call, run_filter
from ftpatch.process.stop import stopped
from tests.support.sampling import FUZZ, scaled
from tests.support.stopping import built, running

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or os.getuid() != 0, reason="needs root on x86-64"
)
PROGRAM = r"""
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
/* program FILE...: installs the filters, makes the call NUMBER with the arguments of each line of
 * its input, and prints errno. */
int main(int argc, char **argv) {
    struct sock_filter code[4096];
    unsigned long n, a[6];
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "r");
        struct sock_fprog all = {fread(code, sizeof *code, 4096, file), code};
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all)) { perror(argv[i]); return 2; }
    }
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (scanf("%lu %lu %lu %lu %lu %lu %lu", &n, a, a + 1, a + 2, a + 3, a + 4, a + 5) == 7) {
        long result = syscall(n, a[0], a[1], a[2], a[3], a[4], a[5]);
        printf("%d\n", result < 0 ? errno : 0);
    }
    return 0;
}
"""
NUMBER = 5000
"""Of no call: whatever errno there is comes from a filter, or is ENOSYS."""
ENOSYS = 38
AUDIT = 0xC000003E
ERRNO, ALLOW, KILL = 0x50000, 0x7FFF0000, 0x80000000
Insn = tuple[int, int, int, int]
LOAD, EQUAL, RETURN, RETURN_A = 0x20, 0x15, 0x06, 0x16


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seccomp")
    (folder / "calls.c").write_text(PROGRAM)
    return built(folder / "calls.c", folder)


def _packed(code: list[Insn]) -> bytes:
    return b"".join(struct.pack("=HBBI", *one) for one in code)


def _for_number(code: list[Insn]) -> bytes:
    """A filter that runs code for NUMBER, and allows everything else."""
    return _packed([(LOAD, 0, 0, 0), (EQUAL, 1, 0, NUMBER), (RETURN, 0, 0, ALLOW), *code])


def _random(rng: random.Random) -> list[Insn]:
    """Code that ends with an errno of what it has computed."""
    words = [0, 1, 31, 0xFFF, 0xFFFFFFFF, 0x80000000, rng.randrange(1 << 32)]
    slots = [(op, 0, 0, slot) for slot in range(3) for op in (0x02, 0x03)]
    out: list[Insn] = [(LOAD, 0, 0, 16), (0x07, 0, 0, 0), *slots]
    length = rng.randrange(5, 40)
    for at in range(length):
        kind = rng.randrange(8)
        k = rng.choice(words)
        if kind == 0:
            out.append((LOAD, 0, 0, 4 * rng.choice([0, 1, *range(4, 16)])))  # not its address
        elif kind == 1:
            out.append((rng.choice([0x00, 0x01]), 0, 0, k))
        elif kind == 2:
            out.append((rng.choice([0x02, 0x03, 0x60, 0x61]), 0, 0, rng.randrange(3)))
        elif kind == 3:
            out.append((rng.choice([0x07, 0x87, 0x80, 0x81]), 0, 0, 0))
        elif kind < 6:
            op = rng.choice([0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0xA0])
            x = rng.random() < 0.5 and op not in (0x30, 0x60, 0x70, 0x80)
            if op in (0x60, 0x70):
                k %= 32
            out.append((0x04 | op | 0x08 * x, 0, 0, 0 if x else k or 1))
        else:
            op, x = rng.choice([0x10, 0x20, 0x30, 0x40]), rng.random() < 0.5
            far = length - at - 1
            to = (rng.randrange(min(far, 20) + 1), rng.randrange(min(far, 20) + 1))
            out.append((0x05 | op | 0x08 * x, *to, 0 if x else k))
    return [*out, (0x54, 0, 0, 0xFFF), (0x44, 0, 0, ERRNO), (RETURN_A, 0, 0, 0)]


def _arguments(rng: random.Random) -> tuple[int, ...]:
    return tuple(rng.choice([0, 1, rng.randrange(1 << 64)]) for _ in range(6))


@pytest.mark.scaled
def test_random_filters(program: Path, tmp_path: Path) -> None:
    for seed in range(scaled(300, 30)):
        rng = random.Random(f"{FUZZ} {seed}")
        held = _for_number(_random(rng))
        (tmp_path / "filter").write_bytes(held)
        inputs = [_arguments(rng) for _ in range(20)]
        text = "".join(f"{NUMBER} {' '.join(map(str, one))}\n" for one in inputs)
        words = [program, tmp_path / "filter"]
        done = subprocess.run(words, input=text, capture_output=True, text=True, check=True)
        said = [int(line) for line in done.stdout.splitlines()[1:]]
        for arguments, errno in zip(inputs, said, strict=True):
            value = run_filter(held, Call(number=NUMBER, audit=AUDIT, arguments=arguments))
            assert value & 0xFFFF0000 == ERRNO
            assert min(value & 0xFFFF, 4095) == errno, (seed, arguments)


def _refuses(number: int, argument: int, action: int) -> bytes:
    """A filter that does this to a call with such a first argument."""
    return _packed(
        [
            (LOAD, 0, 0, 0),
            (EQUAL, 0, 3, number),
            (LOAD, 0, 0, 16),
            (EQUAL, 0, 1, argument),
            (RETURN, 0, 0, action),
            (RETURN, 0, 0, ALLOW),
        ]
    )


def test_all_filters_of_a_process(program: Path, tmp_path: Path) -> None:
    """As the kernel shows them, and as it answers the calls."""
    rows = [(9, 1), (9, 2), (10, 1), (11, 7), (NUMBER, 3)]
    filters = [_refuses(9, 1, ERRNO | 77), _refuses(10, 1, ERRNO | 78), _refuses(9, 1, ALLOW)]
    filters.append(_refuses(NUMBER, 3, ERRNO | 79))
    paths = [tmp_path / str(index) for index in range(len(filters))]
    for path, held in zip(paths, filters, strict=True):
        path.write_bytes(held)
    with running(program, *paths) as one:
        calls = [Call(number=n, audit=AUDIT, arguments=(argument,)) for n, argument in rows]
        with stopped(one.process) as world:
            found = may_call(world, world.threads[0], calls)
        text = "".join(f"{n} {argument} 0 0 0 0 0\n" for n, argument in rows)
        said = [int(line) for line in one.ended(text).splitlines()]
    assert [errno not in (77, 78, 79) for errno in said] == found
    assert found == [False, True, False, True, False]


def test_none_and_strict(program: Path, tmp_path: Path) -> None:
    with running(program) as one, stopped(one.process) as world:
        assert may_call(world, world.threads[0], [Call(number=9, audit=AUDIT)]) == [True]
    (tmp_path / "strict.c").write_text(r"""
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    char c;
    printf("ready %d\n", getpid()); fflush(stdout);
    prctl(PR_SET_SECCOMP, 1);
    read(0, &c, 1);
    syscall(SYS_exit, 0);
}
""")
    with running(built(tmp_path / "strict.c", tmp_path)) as one:
        one.wait_asleep()
        with stopped(one.process) as world:
            assert may_call(world, world.threads[0], [Call(number=9, audit=AUDIT)]) == [False]
        one.ended()


def test_what_kills_and_what_is_no_filter() -> None:
    call = Call(number=9, audit=AUDIT, arguments=(1,))
    assert not allows([_refuses(9, 1, KILL)], call)
    assert allows([_refuses(9, 1, KILL)], Call(number=10, audit=AUDIT))
    divides = _packed([(0x01, 0, 0, 0), (0x3C, 0, 0, 0), (RETURN, 0, 0, ALLOW)])
    assert run_filter(divides, call) == 0, "the kernel ends the thread"
    for code in ([(0xFF, 0, 0, 0)], [(LOAD, 0, 0, 64)], [], [(0x05, 0, 0, 9)]):
        with pytest.raises(InputError):
            run_filter(_packed(code), call)
