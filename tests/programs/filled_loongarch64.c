// SPDX-License-Identifier: MIT
/* Fills registers, calls a function that does nothing, and prints what is in them: of r0 to r31, and of f0 to
 * f31. tp, sp, r21 and ra are left alone. */
#include <stdio.h>

#define FILLED "4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31"
#define SAVED "22, 23, 24, 25, 26, 27, 28, 29, 30, 31"
#define FLOATS "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, " \
	"27, 28, 29, 30, 31"

__asm__(".text; .globl probed; .type probed, @function\n"
	"probed: .cfi_startproc; nop; nop; nop; jr $ra; .cfi_endproc; .size probed, . - probed\n"
	".section __patchable_function_entries, \"aw\"; .p2align 3; .dword probed; .text\n"
	".globl filled; .type filled, @function\n"
	"filled: .cfi_startproc\n"
	"addi.d $sp, $sp, -512; .cfi_adjust_cfa_offset 512\n"
	"st.d $a0, $sp, 0; st.d $ra, $sp, 8; .cfi_rel_offset 1, 8\n"
	".irp n, " FLOATS "; li.d $t0, 0x3ff0000000000000 + (\\n << 44); movgr2fr.d $f\\n, $t0; .endr\n"
	".irp n, " SAVED "; st.d $r\\n, $sp, 8 * \\n - 160; .endr\n"
	".irp n, " FILLED "; li.d $r\\n, 0x1234000000000000 + \\n * 0x10001; .endr\n"
	"bl probed\n"
	".irp n, " FILLED "; st.d $r\\n, $sp, 256 + 8 * \\n; .endr\n"
	"ld.d $a0, $sp, 0\n"
	".irp n, " FILLED "; ld.d $t0, $sp, 256 + 8 * \\n; st.d $t0, $a0, 8 * \\n; .endr\n"
	".irp n, " FLOATS "; fst.d $f\\n, $a0, 256 + 8 * \\n; .endr\n"
	".irp n, " SAVED "; ld.d $r\\n, $sp, 8 * \\n - 160; .endr\n"
	"ld.d $ra, $sp, 8; addi.d $sp, $sp, 512; jr $ra; .cfi_endproc; .size filled, . - filled\n");

void filled(unsigned long *out);

int main(void)
{
	unsigned long out[64] = {0};
	int n;

	filled(out);
	for (n = 0; n < 64; n++)
		printf("%lx\n", out[n]);
	return 0;
}
