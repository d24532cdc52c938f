// SPDX-License-Identifier: MIT
/* What each thread loses, at the end of the trace file. Most threads lose nothing, and have no entry. */
#include "text.h"
#include "threads.h"

/* A thread's entry in its process's file, NULL if there is no room for one more. A handler may come in
 * between, and take another for the same thread: both count. */
REGISTERS struct trace_account *account_of(struct thread *t)
{
	struct trace_header *header = process.header;
	struct trace_account *account = t->account;
	ulong page = process.page ?: PAGE;
	u32 number, most;

	if (!header || !header->accounts)
		return 0;
	/* Not of an earlier file, though that may have been where this one is. */
	if (account && (ulong)account - (ulong)header < header->size && account->tid == t->tid)
		return account;
	most = (u32)(header->size - header->accounts) / sizeof(*account);
	if (header->accounted >= most)
		return 0;
	number = __atomic_fetch_add(&header->accounted, 1, __ATOMIC_RELAXED);
	if (number >= most)
		return 0;
	account = (struct trace_account *)((char *)header + header->accounts) + number;
	if (process.grows && failed(populate((char *)((ulong)account & ~(page - 1)), page)))
		return 0; /* the disk is full */
	account->tid = t->tid;
	t->account = account;
	return account;
}

REGISTERS void account_lost(struct thread *t, enum trace_lost kind)
{
	struct trace_account *account = account_of(t);

	if (account)
		__atomic_fetch_add(&account->lost[kind], 1, __ATOMIC_RELAXED);
}
