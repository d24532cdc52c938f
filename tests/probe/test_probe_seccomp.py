# SPDX-License-Identifier: MIT
"""Memory that is not there, read where a seccomp filter answers for the kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ftpatch

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)
FILTERED = r"""
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
__attribute__((noipa)) int look(const long *at) { return at != 0; }
int main(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof(rules) / sizeof(*rules), rules};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &filter))
		return 77;
	look((const long *)4096);
	return write(1, "done\n", 5) != 5;
}
"""


def test_a_filter_that_refuses_the_question(tmp_path: Path) -> None:
    source, program, out = tmp_path / "filtered.c", tmp_path / "filtered", tmp_path / "out"
    source.write_text(FILTERED)
    subprocess.run(["gcc", "-O1", source, "-o", program], check=True)
    done = ftpatch("probe", program, "p look v=+0($arg1)", "-o", out)
    assert done.code == 0, done.err
    trace = tmp_path / "trace"
    env = {**os.environ, "FTPATCH_TRACE": str(trace)}
    ran = subprocess.run([out], env=env, capture_output=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (0, b"done\n")
    assert "v=(fault)" in ftpatch("report", trace).out
