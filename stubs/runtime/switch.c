// SPDX-License-Identifier: MIT
/* A signal that switches recording off and on, as a word in the trace file does from outside.
 *
 * The program's own action comes first. It has one when it begins only by what it inherits, or in a
 * library's process: then the signal is left alone. Where it sets one later, the kernel takes that in
 * place of ours. Blocked, the signal waits, and whoever waits for it gets it. */
#include "action.h"
#include "file.h"

#define SIGILL 4
#define SIGTRAP 5
#define SIGFPE 8
#define SIGKILL 9
#define SIGSTOP 19
#define SIGSYS 31
#define SIGNALS 64
#define LIBC_FIRST 32 /* that glibc and musl keep for themselves: cancelling threads, setuid() in all ... */
#define LIBC_LAST 34  /* ... of them, and musl's timers */
#define SA_ONSTACK 0x08000000 /* Go's and other small stacks have no room */
#define BIT(signal) (1ull << ((signal) - 1))
#define RUNTIMES (BIT(SIGILL) | BIT(SIGTRAP) | BIT(SIGBUS) | BIT(SIGFPE) | BIT(SIGSEGV) | BIT(SIGSYS))
#define UNCAUGHT (BIT(SIGKILL) | BIT(SIGSTOP))

/* By number, from 1 on (include/uapi/asm-generic/signal.h; the same on x86). */
static const char names[] =
	"HUP\0INT\0QUIT\0ILL\0TRAP\0ABRT\0BUS\0FPE\0KILL\0USR1\0SEGV\0USR2\0PIPE\0ALRM\0TERM\0STKFLT\0CHLD\0CONT\0"
	"STOP\0TSTP\0TTIN\0TTOU\0URG\0XCPU\0XFSZ\0VTALRM\0PROF\0WINCH\0IO\0PWR\0SYS\0";

static int is_switch(u32 signal)
{
	return signal && signal <= SIGNALS && (signal < LIBC_FIRST || signal > LIBC_LAST) &&
	       !(BIT(signal) & (RUNTIMES | UNCAUGHT));
}

static int is_named(const char *text, const char *name)
{
	while (*name && *text == *name)
		text++, name++;
	return !*text && !*name;
}

/* Of USR2, SIGUSR2 or 12; SIGNALS + 1 if it is no signal. */
static u32 signal_of(const char *text)
{
	const char *name = names;
	u32 number = 0;

	if (*text >= '0' && *text <= '9') {
		for (; *text >= '0' && *text <= '9' && number <= SIGNALS; text++)
			number = number * 10 + (u32)(*text - '0');
		return *text ? SIGNALS + 1 : number;
	}
	if (text[0] == 'S' && text[1] == 'I' && text[2] == 'G')
		text += 3;
	for (number = 1; *name; number++, name += length(name) + 1)
		if (is_named(text, name))
			return number;
	return SIGNALS + 1;
}

/* Of the process that it was sent to: not of one that forked and shares its parent's file, or that
 * shares its parent's memory until it calls exec. */
LANDING static void switched(int signal)
{
	struct trace_header *header;
	u32 before;

	(void)signal;
	if (!process.known->here)
		trace_forked();
	if (!(ftpatch_config.clock & GIVES_UP_CALLS) &&
	    (u32)syscall6(SYS_getpid, 0, 0, 0, 0, 0, 0) != process.pid)
		return;
	do {
		header = process.header;
		if (!header || header->pid != process.pid)
			return;
		before = __atomic_fetch_xor(&header->off, OFF_NOW, __ATOMIC_ACQ_REL);
	} while (before & OFF_MOVED); /* in the file that comes after it */
}

/* FTPATCH_TRACE_SIGNAL, or what the program was patched with. */
void switch_kept(char **envp)
{
	static const char variable[] = "FTPATCH_TRACE_SIGNAL";
	const char *text = environment(envp, variable);
	struct action old = ACTION(0, 0, 0), new = ACTION(0, SA_RESTART | SA_ONSTACK, ~(BIT(SIGSEGV) | BIT(SIGBUS)));
	u32 wanted = ftpatch_config.signal, asked;
	void *handler = switched;

	if (ftpatch_config.flags & TRACE_ATTACHED || ftpatch_config.tracer == TRACER_NOP)
		return;
	if (text && *text) {
		asked = signal_of(text);
		if (asked && !is_switch(asked))
			say(variable, text, "not a signal that can switch recording; using the program's default");
		else
			wanted = asked;
	}
	if (!is_switch(wanted))
		return;
	__asm__("" : "+r"(handler)); /* no constant struct: nothing would relocate it */
	new.handler = handler;
	with_restorer(&new);
	if (act_on((int)wanted, 0, &old))
		return;
	if (old.handler) {
		char what[96];

		what[0] = 0;
		append(what, sizeof(what), "signal ");
		append_number(what, sizeof(what), wanted);
		append(what, sizeof(what), " is ignored or handled already; it does not switch recording");
		say(0, 0, what);
		return;
	}
	act_on((int)wanted, &new, 0);
}
