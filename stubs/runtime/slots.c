// SPDX-License-Identifier: MIT
/* libc functions that the program calls through slots of its GOT. */
#include "hooks.h"

#define PROT_RW 3
#define PROT_R 1

static ulong real[HOOKS]; /* what the program would have called */

static inline const struct hook_table *hook_table(void)
{
	return linked(struct hook_table, ftpatch_config.hooks);
}

/* The dynamic linker protects whole pages. */
static int is_sealed(const struct hook *hook)
{
	ulong page = (ulong)(hook->place + process.bias) & -process.page;
	const struct hook_table *table = hook_table();

	return page >= (((ulong)(table->sealed + process.bias)) & -process.page) &&
	       page < (((ulong)(table->sealed_end + process.bias)) & -process.page);
}

/* A lazily bound GOT slot is overwritten on first use. */
void hooked_kept(enum hook_which which, ulong wrapper)
{
	u32 i;

	for (i = 0; i < hook_table()->count; i++) {
		const struct hook *hook = &hook_table()->hook[i];
		volatile ulong *slot = (volatile ulong *)(ulong)(hook->place + process.bias);

		if (hook->which != which || *slot == wrapper || is_sealed(hook))
			continue;
		real[which] = *slot;
		*slot = wrapper;
	}
}

ulong hooked_real(enum hook_which which)
{
	return real[which];
}

void slots_set(void)
{
	ulong wrappers[HOOKS];
	int sealed;
	u32 i;

	if (!ftpatch_config.hooks)
		return;
	wrappers[HOOK_CLOSE] = (ulong)hooked_close;
	wrappers[HOOK_CLOSEFROM] = (ulong)hooked_closefrom;
	wrappers[HOOK_CLOSE_RANGE] = (ulong)hooked_close_range;
	wrappers[HOOK_DUP2] = (ulong)hooked_dup2;
	wrappers[HOOK_DUP3] = (ulong)hooked_dup3;
	for (i = 0; i < hook_table()->count; i++) {
		const struct hook *hook = &hook_table()->hook[i];
		ulong place = (ulong)(hook->place + process.bias), page = place & -process.page;

		real[hook->which] = *(ulong *)place;
		sealed = is_sealed(hook);
		if (sealed &&
		    syscall6(SYS_mprotect, (long)page, (long)process.page, PROT_RW, 0, 0, 0) < 0)
			continue;
		*(ulong *)place = wrappers[hook->which];
		if (sealed)
			syscall6(SYS_mprotect, (long)page, (long)process.page, PROT_R, 0, 0, 0);
	}
}
