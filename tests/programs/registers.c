/* What a function that does nothing leaves alone is left alone by the tracer too: all but the flags. */
#include <stdint.h>
#include "check.h"

#ifdef __x86_64__
struct state {
	uint64_t general[16]; /* in the order of push below */
	uint8_t vectors[512] __attribute__((aligned(64)));
};

__attribute__((naked, noinline, used)) static void nothing(void) { __asm__("ret"); }

/* Loads all registers from one state, calls nothing(), and stores them into another. */
void all_registers(struct state *from, struct state *to);
__asm__("	.text\n"
	"all_registers:\n"
	"	pushq %rbx\n	pushq %rbp\n	pushq %r12\n	pushq %r13\n	pushq %r14\n	pushq %r15\n"
	"	pushq %rsi\n"
	"	fxrstor64 128(%rdi)\n"
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
	"	fxsave64 128(%rdi)\n"
	"	popq %r15\n	popq %r14\n	popq %r13\n	popq %r12\n	popq %rbp\n	popq %rbx\n"
	"	ret\n");

int main(void)
{
	static const char *names[] = {"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9",
				      "r10", "r11", "r12", "r13", "r14", "r15"};
	static struct state from, to;
	int round, i, wrong = 0;

	for (round = 0; round < 50; round++) {
		__asm__ __volatile__("fxsave64 %0" : "=m"(from.vectors));
		for (i = 0; i < 15; i++)
			from.general[i] = 0x0123456789abcdefull * (uint64_t)(i + 1 + round);
		for (i = 160; i < 416; i++) /* xmm0 to xmm15 */
			from.vectors[i] = (uint8_t)(i * 7 + round);
		all_registers(&from, &to);
		for (i = 0; i < 15; i++)
			if (from.general[i] != to.general[i]) {
				if (!round)
					printf("%s\n", names[i]);
				wrong = 1;
			}
		CHECK(!memcmp(from.vectors + 160, to.vectors + 160, 256));
		CHECK(!memcmp(from.vectors, to.vectors, 8) && !memcmp(from.vectors + 24, to.vectors + 24, 4));
	}
	return wrong;
}
#else
int main(void) { return 0; }
#endif
