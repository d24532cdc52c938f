/* SPDX-License-Identifier: MIT */
// A tracer for modules: count_calls, exported, counts its calls in a module parameter, and leaves
// every register that a function's entry may still need. Linked into a module of Debian's.

#if defined(__riscv) && __riscv_xlen == 64
# define WORD .dword
# define WIDTH 8
#elif defined(__i386__) || defined(__arm__)
# define WORD .long
# define WIDTH 4
#else
# define WORD .quad
# define WIDTH 8
#endif

#ifdef __arm__
	.syntax unified
	.arm
#endif
	.text
	.p2align 4
	.globl count_calls
	.type count_calls, %function
count_calls:
#if defined(__x86_64__)
	lock incl calls(%rip)
	ret
#elif defined(__i386__)
	lock incl calls
	ret
#elif defined(__aarch64__)
	// Called by `mov x9, x30; bl`: x9 is the function's own way back, x30 the way into it.
	hint #34		// bti c
	mov x10, x30
	mov x30, x9
	adrp x11, calls
	add x11, x11, :lo12:calls
1:	ldxr w12, [x11]
	add w12, w12, #1
	stxr w13, w12, [x11]
	cbnz w13, 1b
	ret x10
#elif defined(__s390x__)
	// Called by `brasl %r0`; only r0 and r1 are free.
	larl %r1, calls
	asi 0(%r1), 1
	lgr %r1, %r0
	br %r1
#elif defined(__loongarch_lp64)
	// Called by `move $t0, $ra; bl`: $t0 is the function's own way back, $ra the way into it.
	la.pcrel $t1, calls
	li.w $t2, 1
	amadd.w $zero, $t2, $t1
	move $t1, $ra
	move $ra, $t0
	jr $t1
#elif defined(__arm__)
	// Called by `push {lr}; bl`: the function's own way back is on the stack, lr the way into it.
	push {r0, r1, r2}
	movw r0, #:lower16:calls
	movt r0, #:upper16:calls
1:	ldrex r1, [r0]
	add r1, r1, #1
	strex r2, r1, [r0]
	cmp r2, #0
	bne 1b
	pop {r0, r1, r2}
	mov ip, lr
	pop {lr}
	bx ip
#else
	// Called by `auipc t0; jalr t0`.
	lla t1, calls
	li t2, 1
	amoadd.w zero, t2, (t1)
	jr t0
#endif
	.size count_calls, . - count_calls

	.bss
	.p2align 2
	.type calls, %object
	.size calls, 4
calls:	.skip 4

	.section .rodata.tracer, "a"
parameter: .asciz "calls"

	.section __param, "a"	// struct kernel_param
	.p2align WIDTH / 4 + 1
	WORD parameter, __this_module, param_ops_int
	.2byte 0444		// perm
	.byte -1, 0		// level, flags
	.p2align WIDTH / 4 + 1
	WORD calls

	.section __ksymtab_strings, "aMS", %progbits, 1
exported: .asciz "count_calls"
namespace: .asciz ""

	.section __ksymtab, "a"	// struct kernel_symbol, by HAVE_ARCH_PREL32_RELOCATIONS or not
	.p2align WIDTH / 4 + 1
#if defined(__riscv) || defined(__s390x__) || defined(__loongarch_lp64) || defined(__arm__)
	WORD count_calls, exported, namespace
#else
	.long count_calls - ., exported - ., namespace - .
#endif
#if defined(__loongarch_lp64)	// of v7.2
	.section __kflagstab, "a"
	.byte 0
#endif
	.section .note.GNU-stack, "", %progbits
