// SPDX-License-Identifier: MIT
/* What a function that does nothing leaves alone is left alone by the tracer too: all but the flags,
 * and what its architecture lets every function change. */
#include <stdint.h>
#include "check.h"

#define MOST 32
struct state {
	uintptr_t general[MOST];
	uint8_t vectors[512] __attribute__((aligned(64))); /* of x86: as fxsave has them */
};

/* Loads all registers from one state, calls nothing(), and stores them into another. Registers that
 * may be changed on return only are stored by nothing(). */
void all_registers(struct state *from, struct state *to);

#if defined(__x86_64__)
static const char *const names[] = {"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9",
				    "r10", "r11", "r12", "r13", "r14", "r15", 0};
enum { VECTORS = 160, VECTORS_END = 416 };

__attribute__((naked, noinline, used, no_stack_protector)) static void nothing(void) { __asm__("ret"); }
__asm__("	.text\n"
	"all_registers:\n"
	"	pushq %rbx\n	pushq %rbp\n	pushq %r12\n	pushq %r13\n	pushq %r14\n	pushq %r15\n"
	"	pushq %rsi\n"
	"	fxrstor64 256(%rdi)\n"
	"	movq 0(%rdi), %rax\n	movq 8(%rdi), %rbx\n	movq 16(%rdi), %rcx\n"
	"	movq 24(%rdi), %rdx\n	movq 32(%rdi), %rsi\n	movq 48(%rdi), %rbp\n"
	"	movq 56(%rdi), %r8\n	movq 64(%rdi), %r9\n	movq 72(%rdi), %r10\n"
	"	movq 80(%rdi), %r11\n	movq 88(%rdi), %r12\n	movq 96(%rdi), %r13\n"
	"	movq 104(%rdi), %r14\n	movq 112(%rdi), %r15\n	movq 40(%rdi), %rdi\n"
	"	call nothing\n"
	"	xchgq %rdi, (%rsp)\n" /* to; its own value is on the stack */
	"	movq %rax, 0(%rdi)\n	movq %rbx, 8(%rdi)\n	movq %rcx, 16(%rdi)\n"
	"	movq %rdx, 24(%rdi)\n	movq %rsi, 32(%rdi)\n	movq %rbp, 48(%rdi)\n"
	"	movq %r8, 56(%rdi)\n	movq %r9, 64(%rdi)\n	movq %r10, 72(%rdi)\n"
	"	movq %r11, 80(%rdi)\n	movq %r12, 88(%rdi)\n	movq %r13, 96(%rdi)\n"
	"	movq %r14, 104(%rdi)\n	movq %r15, 112(%rdi)\n"
	"	popq %rax\n	movq %rax, 40(%rdi)\n"
	"	fxsave64 256(%rdi)\n"
	"	popq %r15\n	popq %r14\n	popq %r13\n	popq %r12\n	popq %rbp\n	popq %rbx\n"
	"	ret\n");

#elif defined(__i386__)
static const char *const names[] = {"eax", "ecx", "edx", "ebx", "ebp", "esi", "edi", 0};
enum { VECTORS = 160, VECTORS_END = 288 };

__attribute__((naked, noinline, used, no_stack_protector)) static void nothing(void)
{
	__asm__("movl %ecx, 4(%esp)\n	ret");
}
__asm__("	.text\n"
	"all_registers:\n"
	"	pushl %ebx\n	pushl %ebp\n	pushl %esi\n	pushl %edi\n"
	"	movl 20(%esp), %edi\n"
	"	fxrstor 128(%edi)\n"
	"	pushl 24(%esp)\n	pushl $0\n"
	"	movl 0(%edi), %eax\n	movl 4(%edi), %ecx\n	movl 8(%edi), %edx\n"
	"	movl 12(%edi), %ebx\n	movl 16(%edi), %ebp\n	movl 20(%edi), %esi\n"
	"	movl 24(%edi), %edi\n"
	"	call nothing\n"
	"	xchgl %edi, 4(%esp)\n"
	"	movl %eax, 0(%edi)\n	movl %edx, 8(%edi)\n	movl %ebx, 12(%edi)\n"
	"	movl %ebp, 16(%edi)\n	movl %esi, 20(%edi)\n"
	"	popl 4(%edi)\n	popl 24(%edi)\n"
	"	fxsave 128(%edi)\n"
	"	popl %edi\n	popl %esi\n	popl %ebp\n	popl %ebx\n"
	"	ret\n");

#elif defined(__aarch64__)
/* "": x9, which the site itself changes, and two that a veneer on the way may change (AAPCS64). */
static const char *const names[] = {"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "", "x10",
				    "x11", "x12", "x13", "x14", "x15", "", "", "x18", "x19",
				    "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28",
				    "x29", 0};
enum { VECTORS = 0, VECTORS_END = 512 };

__asm__("	.macro vectors what\n"
	"	.irp n, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30\n"
	"	.altmacro\n	one \\what, \\n, %(\\n + 1), %(\\n * 16)\n	.noaltmacro\n"
	"	.endr\n	.endm\n"
	"	.macro one what, a, b, at\n	\\what q\\a, q\\b, [x9, #\\at]\n	.endm\n"
	"	.text\n	.type nothing, %function\n"
	"nothing:\n	nop\n	nop\n"
	"	ldr x9, [sp, #160]\n"
	"	stp x10, x11, [x9, #80]\n	stp x12, x13, [x9, #96]\n"
	"	stp x14, x15, [x9, #112]\n"
	"	ret\n	.size nothing, . - nothing\n"
	"	.section __patchable_function_entries, \"awo\", %progbits, nothing\n"
	"	.p2align 3\n	.8byte nothing\n"
	"	.text\n"
	"all_registers:\n"
	"	stp x29, x30, [sp, #-176]!\n	stp x19, x20, [sp, #16]\n	stp x21, x22, [sp, #32]\n"
	"	stp x23, x24, [sp, #48]\n	stp x25, x26, [sp, #64]\n	stp x27, x28, [sp, #80]\n"
	"	stp d8, d9, [sp, #96]\n	stp d10, d11, [sp, #112]\n	stp d12, d13, [sp, #128]\n"
	"	stp d14, d15, [sp, #144]\n	str x1, [sp, #160]\n"
	"	add x9, x0, #256\n	vectors ldp\n"
	"	mov x30, x0\n"
	"	ldp x0, x1, [x30]\n	ldp x2, x3, [x30, #16]\n	ldp x4, x5, [x30, #32]\n"
	"	ldp x6, x7, [x30, #48]\n	ldp x8, x9, [x30, #64]\n	ldp x10, x11, [x30, #80]\n"
	"	ldp x12, x13, [x30, #96]\n	ldp x14, x15, [x30, #112]\n	ldp x16, x17, [x30, #128]\n"
	"	ldp x18, x19, [x30, #144]\n	ldp x20, x21, [x30, #160]\n	ldp x22, x23, [x30, #176]\n"
	"	ldp x24, x25, [x30, #192]\n	ldp x26, x27, [x30, #208]\n	ldp x28, x29, [x30, #224]\n"
	"	bl nothing\n"
	"	ldr x9, [sp, #160]\n"
	"	stp x0, x1, [x9]\n	stp x2, x3, [x9, #16]\n	stp x4, x5, [x9, #32]\n"
	"	stp x6, x7, [x9, #48]\n	str x8, [x9, #64]\n"
	"	stp x18, x19, [x9, #144]\n	stp x20, x21, [x9, #160]\n	stp x22, x23, [x9, #176]\n"
	"	stp x24, x25, [x9, #192]\n	stp x26, x27, [x9, #208]\n	stp x28, x29, [x9, #224]\n"
	"	add x9, x9, #256\n	vectors stp\n"
	"	ldp x19, x20, [sp, #16]\n	ldp x21, x22, [sp, #32]\n	ldp x23, x24, [sp, #48]\n"
	"	ldp x25, x26, [sp, #64]\n	ldp x27, x28, [sp, #80]\n	ldp d8, d9, [sp, #96]\n"
	"	ldp d10, d11, [sp, #112]\n	ldp d12, d13, [sp, #128]\n	ldp d14, d15, [sp, #144]\n"
	"	ldp x29, x30, [sp], #176\n"
	"	ret\n");
#elif defined(__riscv)
/* By number. "": zero, those that have their own use (ra, sp, gp, tp), and t0, which the site changes. */
static const char *const names[] = {"", "", "", "", "", "", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3",
				    "a4", "a5", "a6", "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8",
				    "s9", "s10", "s11", "t3", "t4", "t5", "t6", 0};
enum { VECTORS = 0, VECTORS_END = 256 };

__asm__("	.macro floats what\n	.altmacro\n	.set n, 0\n"
	"	.rept 32\n	float \\what, %n, %(n * 8 + 256)\n	.set n, n + 1\n	.endr\n"
	"	.noaltmacro\n	.endm\n"
	"	.macro float what, n, at\n	\\what f\\n, \\at(t0)\n	.endm\n"
	"	.macro kept what\n"
	"	.irp n, 1, 8, 9, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27\n	\\what x\\n, 8*\\n(sp)\n	.endr\n"
	"	.irp n, 8, 9, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27\n	f\\what f\\n, 256+8*\\n(sp)\n	.endr\n"
	"	.endm\n"
	"	.macro general what\n"
	"	.irp n, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\n"
	"	\\what x\\n, 8*\\n(t0)\n	.endr\n	.endm\n"
	"	.text\n	.type nothing, %function\n	.balign 4\n"
	"	.option push\n	.option norvc\n"
	"nothing:\n	nop\n	nop\n"
	"	ret\n	.size nothing, . - nothing\n"
	"	.option pop\n"
	"	.section __patchable_function_entries, \"awo\", %progbits, nothing\n"
	"	.p2align 3\n	.8byte nothing\n"
	"	.text\n"
	"all_registers:\n"
	"	addi sp, sp, -512\n	kept sd\n	sd a1, 0(sp)\n"
	"	mv t0, a0\n	floats fld\n	general ld\n"
	"	call nothing\n"
	"	ld t0, 0(sp)\n	floats fsd\n	general sd\n"
	"	kept ld\n	addi sp, sp, 512\n"
	"	ret\n");
#elif defined(__loongarch__)
/* $t0 is the site's. */
static const char *const names[] = {"a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "", "t1", "t2", "t3", "t4",
				    "t5", "t6", "t7", "t8", "fp", "s0", "s1", "s2", "s3", "s4", "s5", "s6",
				    "s7", "s8", 0};
enum { VECTORS = 0, VECTORS_END = 256 };
#define GENERAL "4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20"
#define SAVED "22, 23, 24, 25, 26, 27, 28, 29, 30, 31" /* fp is behind t8 in the state */
#define FLOATS "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, " \
	"26, 27, 28, 29, 30, 31"
__asm__("	.text\n	.type nothing, @function\n"
	"nothing:\n	nop\n	nop\n	jr $ra\n"
	"	.section __patchable_function_entries, \"awo\", @progbits, .text\n"
	"	.p2align 3\n	.dword nothing\n"
	"	.text\n	.type all_registers, @function\n"
	"all_registers:\n"
	"	addi.d $sp, $sp, -176\n	st.d $a1, $sp, 0\n	st.d $ra, $sp, 8\n"
	"	.irp n, " SAVED "\n	st.d $r\\n, $sp, 8 * \\n - 160\n	.endr\n"
	"	.irp n, 24, 25, 26, 27, 28, 29, 30, 31\n	fst.d $f\\n, $sp, 8 * \\n - 96\n	.endr\n"
	"	move $ra, $a0\n"
	"	.irp n, " FLOATS "\n	fld.d $f\\n, $ra, 256 + 8 * \\n\n	.endr\n"
	"	.irp n, " SAVED "\n	ld.d $r\\n, $ra, 8 * (\\n - 5)\n	.endr\n"
	"	.irp n, " GENERAL "\n	ld.d $r\\n, $ra, 8 * (\\n - 4)\n	.endr\n"
	"	bl nothing\n"
	"	ld.d $ra, $sp, 0\n"
	"	.irp n, " FLOATS "\n	fst.d $f\\n, $ra, 256 + 8 * \\n\n	.endr\n"
	"	.irp n, " SAVED "\n	st.d $r\\n, $ra, 8 * (\\n - 5)\n	.endr\n"
	"	.irp n, " GENERAL "\n	st.d $r\\n, $ra, 8 * (\\n - 4)\n	.endr\n"
	"	.irp n, " SAVED "\n	ld.d $r\\n, $sp, 8 * \\n - 160\n	.endr\n"
	"	.irp n, 24, 25, 26, 27, 28, 29, 30, 31\n	fld.d $f\\n, $sp, 8 * \\n - 96\n	.endr\n"
	"	ld.d $ra, $sp, 8\n	addi.d $sp, $sp, 176\n	jr $ra\n");
#elif defined(__s390x__)
/* By number. "": those that have their own use (r14, r15), r1, which the site changes, and r0, which a call of
 * __fentry__ does: nested.c tells whether the tracer keeps it. */
static const char *const names[] = {"", "", "r2", "r3", "r4", "r5", "r6", "r7",
				    "r8", "r9", "r10", "r11", "r12", "r13", 0};
enum { VECTORS = 0, VECTORS_END = 128 };

__attribute__((noinline, used, no_stack_protector, optimize("O2", "omit-frame-pointer")))
static void nothing(void)
{
	__asm__ __volatile__("stmg %r3, %r5, 240(%r15)");
}
__asm__("	.macro floats what, from, base, at\n"
	"	.irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
	"	.if \\n >= \\from\n	\\what %f\\n, \\at+8*\\n(\\base)\n	.endif\n	.endr\n	.endm\n"
	"	.text\n"
	"all_registers:\n"
	"	stmg %r6, %r15, 48(%r15)\n	aghi %r15, -272\n"
	"	floats std, 8, %r15, 96\n	stg %r3, 224(%r15)\n"
	"	floats ld, 0, %r2, 256\n	lmg %r2, %r13, 16(%r2)\n"
	"	brasl %r14, nothing\n"
	"	lg %r1, 224(%r15)\n	lmg %r3, %r5, 240(%r15)\n"
	"	floats std, 0, %r1, 256\n	stmg %r2, %r13, 16(%r1)\n"
	"	floats ld, 8, %r15, 96\n"
	"	lmg %r6, %r15, 272+48(%r15)\n"
	"	br %r14\n");

#elif defined(__powerpc64__)
/* By number. "": those that have their own use (r1, r13), and r0, which the site changes. Of the vector
 * registers all that hold arguments, behind the 32 for floating point. */
static const char *const names[] = {"", "", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "r12",
				    "", "r14", "r15", "r16", "r17", "r18", "r19", "r20", "r21", "r22",
				    "r23", "r24", "r25", "r26", "r27", "r28", "r29", "r30", "r31", 0};
enum { VECTORS = 0, VECTORS_END = 512 };

__asm__("	.macro floats what\n	.altmacro\n	.set n, 0\n"
	"	.rept 32\n	float \\what, %n, %(n * 8 + 256)\n	.set n, n + 1\n	.endr\n"
	"	.noaltmacro\n	.endm\n"
	"	.macro float what, n, at\n	\\what \\n, \\at(31)\n	.endm\n"
	"	.macro vectors what\n"
	"	.irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n"
	"	li 12, 16*\\n+512\n	\\what \\n, 31, 12\n	.endr\n	.endm\n"
	"	.macro general what\n"
	"	.irp n, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30\n"
	"	\\what \\n, 8*\\n(31)\n	.endr\n	.endm\n"
	"	.text\n	.type nothing, %function\n"
	"nothing:\n	nop\n	nop\n"
	"	blr\n	.size nothing, . - nothing\n"
	"	.section __patchable_function_entries, \"awo\", %progbits, nothing\n"
	"	.p2align 3\n	.8byte nothing\n"
	"	.text\n"
	"all_registers:\n"
	"	mflr 0\n	std 0, 16(1)\n	stdu 1, -512(1)\n"
	"	.irp n, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\n"
	"	std \\n, 8*\\n(1)\n	stfd \\n, 256+8*\\n(1)\n	.endr\n"
	"	std 2, 24(1)\n	std 4, 32(1)\n"
	"	mr 31, 3\n	floats lfd\n	vectors lvx\n	general ld\n	ld 31, 248(31)\n"
	"	bl nothing\n"
	"	std 31, 40(1)\n	ld 31, 32(1)\n"
	"	general std\n	ld 12, 40(1)\n	std 12, 248(31)\n	floats stfd\n	vectors stvx\n"
	"	ld 2, 24(1)\n"
	"	.irp n, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\n"
	"	ld \\n, 8*\\n(1)\n	lfd \\n, 256+8*\\n(1)\n	.endr\n"
	"	addi 1, 1, 512\n	ld 0, 16(1)\n	mtlr 0\n"
	"	blr\n");
#elif defined(__arm__)
/* In the instruction set of the file. Of VFP all that every processor has. */
static const char *const names[] = {"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11",
				    "r12", 0};
enum { VECTORS = 0, VECTORS_END = 128 };

__asm__("	.text\n	.balign 4\n	.type nothing, %function\n"
	"nothing:\n	nop\n	nop\n	nop\n"
	"	bx lr\n	.size nothing, . - nothing\n"
	"	.section __patchable_function_entries, \"awo\", %progbits, nothing\n"
	"	.p2align 2\n	.4byte nothing\n"
	"	.text\n	.type all_registers, %function\n"
	"all_registers:\n"
	"	push {r1, r4-r11, lr}\n	vpush {d8-d15}\n"
	"	add r12, r0, #128\n	vldmia r12, {d0-d15}\n"
	"	mov lr, r0\n	ldmia lr, {r0-r12}\n"
	"	bl nothing\n"
	"	ldr lr, [sp, #64]\n	stmia lr, {r0-r12}\n"
	"	add lr, lr, #128\n	vstmia lr, {d0-d15}\n"
	"	vpop {d8-d15}\n	pop {r1, r4-r11, pc}\n");
#endif

int main(void)
{
	static struct state from, to;
	int round, i, wrong = 0;

	for (round = 0; round < 50; round++) {
#if defined(__x86_64__) || defined(__i386__)
		__asm__ __volatile__("fxsave %0" : "=m"(from.vectors));
#endif
		for (i = 0; names[i]; i++)
			from.general[i] = (uintptr_t)(0x0123456789abcdefull * (uint64_t)(i + 1 + round));
		for (i = VECTORS; i < VECTORS_END; i++)
			from.vectors[i] = (uint8_t)(i * 7 + round);
		all_registers(&from, &to);
		for (i = 0; names[i]; i++)
			if (*names[i] && from.general[i] != to.general[i]) {
				if (!round)
					printf("%s\n", names[i]);
				wrong = 1;
			}
		CHECK(!memcmp(from.vectors + VECTORS, to.vectors + VECTORS, VECTORS_END - VECTORS));
#if defined(__x86_64__) || defined(__i386__) /* the control words of both */
		CHECK(!memcmp(from.vectors, to.vectors, 8) && !memcmp(from.vectors + 24, to.vectors + 24, 4));
#endif
	}
	return wrong;
}
