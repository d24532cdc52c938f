# SPDX-License-Identifier: MIT
"""A user's stub that changes registers: the program's own output shows what came of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tracer_programs import LINKS, REGISTERED, traced
from tests.support.user_stubs import (
    CALLER,
    HEAD,
    RETURN,
    compiled_program,
    compiled_stub,
    outcome,
)

every_arch = pytest.mark.parametrize("arch", REGISTERED)
CHANGED = r"""
#include <stdio.h>
struct pair { long first, second; };
__attribute__((noipa)) int sum(int a, int b) { printf("sum %d %d\n", a, b); return a + b; }
__attribute__((noipa)) long long large(int a) { return a + (1ll << 40); }
__attribute__((noipa)) double half(double a) { return a / 2; }
int main(void)
{
	printf("%d\n", sum(1, 2));
	printf("%d %lld %g\n", sum(3, 4), large(5), half(5));
	return 0;
}
"""
PLAIN = "sum 1 2\n3\nsum 3 4\n7 1099511627781 2.5\n"
CHANGES = {
    "argument": (
        CALLER + "{ *ftrace_regs_argument(regs, 0) += 10; }",
        "sum 11 2\n13\nsum 13 4\n17 1099511627781 2.5\n",
    ),
    "result": (
        CALLER + "{}\n" + RETURN + "{ ftrace_regs_set_return_value(regs, 8 +"
        " ftrace_regs_get_return_value(regs)); }",
        "sum 1 2\n11\nsum 3 4\n15 1099511627781 2.5\n",
    ),
    "skipped": (
        CALLER + "{ ftrace_regs_set_return_value(regs, ftrace_regs_get_argument(regs, 1));"
        " ftrace_override_function_with_return(regs); }",
        "2\n4 1099511627781 2.5\n",
    ),
    "skipped-hooked": (
        CALLER + "{ ftrace_regs_set_return_value(regs, 70);"
        " ftrace_override_function_with_return(regs); call->data = 5; }\n"
        + RETURN
        + "{ ftrace_regs_set_return_value(regs, call->data +"
        " ftrace_regs_get_return_value(regs)); }",
        "75\n75 1099511627781 2.5\n",
    ),
    "instead": (
        "static int instead(int a, int b) { return 100 * a + b; }\n" + CALLER + "{"
        " ftrace_regs_set_instruction_pointer(regs, (unsigned long)instead); }",
        "102\n304 1099511627781 2.5\n",
    ),
    "instead-hooked": (
        "static int instead(int a, int b) { return 100 * a + b; }\n" + CALLER + "{"
        " ftrace_regs_set_instruction_pointer(regs, (unsigned long)instead); }\n" + RETURN + "{"
        " ftrace_regs_set_return_value(regs, 1000 + ftrace_regs_get_return_value(regs)); }",
        "1102\n1304 1099511627781 2.5\n",
    ),
    "once": (
        "static int calls;\n" + CALLER + "{ if (calls++) return;"
        " ftrace_regs_set_return_value(regs, -1); ftrace_override_function_with_return(regs); }",
        "-1\nsum 3 4\n7 1099511627781 2.5\n",
    ),
}


@every_arch
@pytest.mark.parametrize("change", CHANGES)
def test_changes_take_effect(change: str, arch: str, tmp_path: Path) -> None:
    """In every kind of program."""
    text, wanted = CHANGES[change]
    stub = compiled_stub(arch, HEAD + text, tmp_path)
    linked = arch not in (
        "arm",
        "ppc64le",
        "riscv64",
        "s390x",
    )  # gcc 12 cannot link static-pie for these
    other = "static-pie" if linked else "pie"
    for link in LINKS if arch == "x86_64" else ("static", other):
        program = compiled_program(arch, tmp_path, text=CHANGED, link=link)
        assert outcome(program, arch) == (0, PLAIN)
        assert outcome(traced(program, str(stub), "-f", "sum"), arch) == (0, wanted)


def test_another_function_has_another_r2(tmp_path: Path) -> None:
    """It is entered by its global entry; what it makes of r2 is undone where it returns."""
    text = (
        "static int calls;\nstatic __attribute__((noipa)) int instead(int a, int b)"
        "{ return 100 * a + b + 1000 * ++calls; }\n"
        f"{CALLER}{{ call->data = regs->gpr[2];"
        " ftrace_regs_set_instruction_pointer(regs, (unsigned long)instead); }\n"
        f"{RETURN}{{ regs->gpr[2] = call->data; }}"
    )
    stub = compiled_stub("ppc64le", HEAD + text, tmp_path)
    for link in ("static", "pie"):
        program = compiled_program("ppc64le", tmp_path, text=CHANGED, link=link)
        patched = traced(program, str(stub), "-f", "sum")
        assert outcome(patched, "ppc64le") == (0, "1102\n2304 1099511627781 2.5\n"), link


SECOND = {
    "x86_64": "regs->dx",
    "i386": "regs->dx",
    "arm": "regs->r[1]",
    "arm64": "regs->regs[1]",
    "riscv64": "regs->a1",
    "loongarch64": "regs->regs[5]",
    "ppc64le": "regs->gpr[4]",
}
"""Where structures of two words are not returned in memory."""


@pytest.mark.parametrize("arch", [arch for arch in REGISTERED if arch in SECOND])
def test_the_second_half_of_a_result(arch: str, tmp_path: Path) -> None:
    """Of two registers; and a result in a vector register stays what it is."""
    text = r"""
    #include <stdio.h>
    struct pair { long first, second; };
    #if defined(__i386__) || defined(__arm__)
    __attribute__((noipa)) long long both(int a) { return a; }
    int main(void) { printf("%llx\n", both(7)); return 0; }
    #else
    __attribute__((noipa)) struct pair both(long a) { return (struct pair){a, 0}; }
    int main(void) { struct pair p = both(7); printf("%lx%08lx\n", p.second, p.first); return 0; }
    #endif
    """
    body = f"{CALLER} {{}}\n{RETURN} {{ {SECOND[arch]} = 0xabc; }}"
    program = compiled_program(arch, tmp_path, text=text)
    stub = compiled_stub(arch, HEAD + body, tmp_path)
    assert outcome(traced(program, str(stub), "-f", "both"), arch) == (0, "abc00000007\n")


@every_arch
def test_arguments_on_the_stack(arch: str, tmp_path: Path) -> None:
    """Each argument is multiplied by a number of its own."""
    text = r"""
    #include <stdio.h>
    __attribute__((noipa)) void ten(int a, long b, int c, long d, int e, long f, int g, long h,
                                    int i, long j)
    {
        printf("%d %ld %d %ld %d %ld %d %ld %d %ld\n", a, b, c, d, e, f, g, h, i, j);
    }
    int main(void) { ten(1, 2, 3, 4, 5, 6, 7, 8, 9, 10); return 0; }
    """
    body = "{ (void)call; for (int i = 0; i < 10; i++) *ftrace_regs_argument(regs, i) *= i; }"
    program = compiled_program(arch, tmp_path, text=text)
    stub = compiled_stub(arch, HEAD + CALLER + body, tmp_path)
    wanted = " ".join(str(i * (i + 1)) for i in range(10))
    assert outcome(traced(program, str(stub), "-f", "ten"), arch) == (0, f"{wanted}\n")
