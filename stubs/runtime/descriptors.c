// SPDX-License-Identifier: MIT
/* The events' file descriptors, in a program that closes every descriptor it finds, as servers do
 * when they start. Without them nothing would be watched any longer, and nobody would know why. The
 * program does not see them: closing through libc skips them, and if it wants their numbers, they
 * move. */
#include "file.h"
#include "watch.h"

#define MOST (~0u)
#define SYS_close_range 436 /* Linux 5.9; watches need a later one */

typedef int (*close_)(int);
typedef void (*closefrom_)(int);
typedef int (*close_range_)(u32, u32, int);
typedef int (*dup2_)(int, int);
typedef int (*dup3_)(int, int, int);

/* Our first descriptor from `low` on; MOST: none. */
static u32 next(u32 low)
{
	u32 i, found = MOST;

	for (i = 0; i < WATCHES; i++)
		if (descriptors[i] && descriptors[i] >= low && descriptors[i] < found)
			found = descriptors[i];
	return found;
}

static int is_ours(int fd)
{
	return fd > 0 && next((u32)fd) == (u32)fd;
}

/* Duplicate an event's descriptor, which the program is about to close. */
static void moved(int fd)
{
	u32 i;
	long now;

	for (i = 0; i < WATCHES; i++)
		if (fd > 0 && descriptors[i] == (u32)fd) {
			now = descriptor_kept(syscall6(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0, 0, 0, 0));
			descriptors[i] = failed(now) ? 0 : (u32)now;
		}
}

int hooked_close(int fd)
{
	int ret = ((close_)hooked_real(HOOK_CLOSE))(is_ours(fd) ? -1 : fd);

	hooked_kept(HOOK_CLOSE, (ulong)hooked_close);
	return ret;
}

void hooked_closefrom(int from)
{
	u32 low = from < 0 ? 0 : (u32)from, ours;

	for (; (ours = next(low)) != MOST; low = ours + 1)
		if (ours > low && syscall6(SYS_close_range, low, ours - 1, 0, 0, 0, 0))
			break; /* not permitted: libc has other ways */
	((closefrom_)hooked_real(HOOK_CLOSEFROM))((int)low);
	hooked_kept(HOOK_CLOSEFROM, (ulong)hooked_closefrom);
}

int hooked_close_range(u32 low, u32 high, int flags)
{
	close_range_ close_range = (close_range_)hooked_real(HOOK_CLOSE_RANGE);
	u32 ours;
	int ret = 0;

	for (; !ret && low <= high && (ours = next(low)) != MOST && ours <= high; low = ours + 1)
		if (ours > low)
			ret = close_range(low, ours - 1, flags);
	if (!ret && (low <= high || next(high) != high))
		ret = close_range(low, high, flags);
	hooked_kept(HOOK_CLOSE_RANGE, (ulong)hooked_close_range);
	return ret;
}

int hooked_dup2(int old, int new)
{
	int ret;

	if (old != new)
		moved(new);
	ret = ((dup2_)hooked_real(HOOK_DUP2))(old, new);
	hooked_kept(HOOK_DUP2, (ulong)hooked_dup2);
	return ret;
}

int hooked_dup3(int old, int new, int flags)
{
	int ret;

	if (old != new)
		moved(new);
	ret = ((dup3_)hooked_real(HOOK_DUP3))(old, new, flags);
	hooked_kept(HOOK_DUP3, (ulong)hooked_dup3);
	return ret;
}
