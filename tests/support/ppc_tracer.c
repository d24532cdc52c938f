// SPDX-License-Identifier: MIT
// Run calls of ppc64le's boot tracer in a process: what is the kernel's alone is an illegal
// instruction here, and done by hand. Calls of the hypervisor are words of 1; they lose every
// register that they may lose.
//
//   w ADDRESS HEX            write memory
//   r ADDRESS COUNT          read it: HEX
//   m MODE                   2: there is no console for events; 3: each call is refused at first
//   c ENTRY SITE SP RETURNS  as a site would: what was sent in HEX, or a line that says what is wrong
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

enum { NIP = 32, MSR = 33, CTR = 35, LR = 36, XER = 37, CCR = 38 };
enum { NO_CONSOLE = 2, BUSY = 3 };
#define EVENTS 0x710000f0

extern char begins[];
static volatile uint64_t entry, site, pointer, returns, msr, srr[2];
static uint64_t ours[48], given[48];
static unsigned char sent[1 << 16];
static volatile int count, mode, refused;
static const char *volatile wrong;

static uint64_t garbage(int number) { return 0xdeadbeefcafe0000ull + number; }

static void leave(unsigned long *gpr)
{
	memcpy(gpr, ours, sizeof ours);
	gpr[NIP] += 4;
}

static void hypervisor(unsigned long *gpr)
{
	uint64_t unit = gpr[4], bytes[2] = { gpr[6], gpr[7] };
	long result = 0;

	if (msr & 0x8000)
		wrong = "interrupts are on";
	if (gpr[3] != 0x58 || gpr[5] > 16 || (unit && unit != EVENTS))
		wrong = "another call";
	if (unit && mode == NO_CONSOLE)
		result = -4;
	else if (mode == BUSY && !refused++)
		result = 1;
	else
		for (unsigned i = refused = 0; i < gpr[5]; i++)
			sent[count++] = bytes[i / 8] >> (56 - i % 8 * 8);
	for (int i = 0; i <= 12; i += i == 0 ? 4 : 1)
		gpr[i] = garbage(i);
	gpr[3] = result;
	gpr[CTR] = garbage(13);
	gpr[XER] = 0x20000000;
	gpr[CCR] = (gpr[CCR] & 0x00fff000) | 0x55000555;
	srr[0] = srr[1] = garbage(14);
}

static void finish(unsigned long *gpr)
{
	for (int i = 1; i < 32; i++)
		if (i != 11 && i != 12 && gpr[i] != given[i])
			wrong = "a register is another";
	if (gpr[LR] != returns)
		wrong = "the link register is not the caller's";
	if ((gpr[CCR] ^ given[CCR]) & 0x00fff000)
		wrong = "fields of cr that are kept";
	if (msr != 0x9002 || srr[0] != 0x1111 || srr[1] != 0x2222)
		wrong = "the machine's state";
	leave(gpr);
}

static void illegal(int number, siginfo_t *info, void *context)
{
	unsigned long *gpr = ((ucontext_t *)context)->uc_mcontext.gp_regs;
	uint32_t code = *(uint32_t *)gpr[NIP];
	int register_ = code >> 21 & 31, half = code >> 16 & 1;

	if (gpr[NIP] == (uint64_t)begins) {
		memcpy(ours, gpr, sizeof ours);
		for (int i = 3; i < 32; i++)
			if (i != 13)
				gpr[i] = 0x1234000056780000 * i + site;
		gpr[0] = returns;
		gpr[1] = pointer;
		gpr[CCR] = 0x12345678;
		gpr[LR] = site;
		gpr[NIP] = entry;
		memcpy(given, gpr, sizeof given);
		return;
	}
	if (gpr[NIP] == site) {
		finish(gpr);
		return;
	}
	if (code == 1)
		hypervisor(gpr);
	else if ((code & 0xfc1fffff) == 0x7c0000a6) // mfmsr
		gpr[register_] = msr;
	else if ((code & 0xfc1fffff) == 0x7c010164) // mtmsrd rS, 1
		msr = (msr & ~0x8002ull) | (gpr[register_] & 0x8002);
	else if ((code & 0xfc1effff) == 0x7c1a02a6) // mfsrr0, mfsrr1
		gpr[register_] = srr[half];
	else if ((code & 0xfc1effff) == 0x7c1a03a6) // mtsrr0, mtsrr1
		srr[half] = gpr[register_];
	else {
		wrong = "an illegal instruction";
		leave(gpr);
		return;
	}
	gpr[NIP] += 4;
}

static void late(int number, siginfo_t *info, void *context)
{
	wrong = "it waits";
	leave(((ucontext_t *)context)->uc_mcontext.gp_regs);
}

static void call(void)
{
	struct itimerval limit = { .it_value = { .tv_sec = 2 } }, none = { 0 };

	*(uint32_t *)site = 0;
	wrong = 0;
	count = refused = 0;
	msr = 0x9002;
	srr[0] = 0x1111;
	srr[1] = 0x2222;
	setitimer(ITIMER_REAL, &limit, 0);
	__asm__ volatile(".globl begins\nbegins: .long 0" ::: "memory");
	setitimer(ITIMER_REAL, &none, 0);
	if (wrong) {
		printf("%s", wrong);
		return;
	}
	for (int i = 0; i < count; i++)
		printf("%02x", sent[i]);
}

int main(void)
{
	static char line[1 << 16], hex[1 << 16], stack[1 << 16];
	struct sigaction action = { .sa_sigaction = illegal, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	stack_t other = { .ss_sp = stack, .ss_size = sizeof stack };
	unsigned long at, size;

	sigaltstack(&other, 0);
	sigaction(SIGILL, &action, 0);
	action.sa_sigaction = late;
	sigaction(SIGALRM, &action, 0);
	for (at = 0x100000; at < 0x400000; at += 0x100000)
		if (mmap((void *)(at - 0x10000), 0x30000, PROT_READ | PROT_WRITE | PROT_EXEC,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
			return 1;
	while (fgets(line, sizeof line, stdin)) {
		if (sscanf(line, "w %lx %65535s", &at, hex) == 2) {
			for (size = 0; hex[2 * size]; size++)
				sscanf(hex + 2 * size, "%2hhx", (unsigned char *)at + size);
			__builtin___clear_cache((char *)at, (char *)at + size);
		} else if (sscanf(line, "r %lx %lx", &at, &size) == 2) {
			for (unsigned long i = 0; i < size; i++)
				printf("%02x", ((unsigned char *)at)[i]);
		} else if (sscanf(line, "m %d", &mode) == 1) {
		} else if (sscanf(line, "c %lx %lx %lx %lx", &entry, &site, &pointer, &returns) == 4) {
			call();
		}
		printf("\n");
		fflush(stdout);
	}
	return 0;
}
