// SPDX-License-Identifier: MIT
/* A trace file that `ftpatch trace` creates: it has no name yet, so nobody can truncate it, and we
 * need no permission to create it. We connect, receive its descriptor, and are done. */
#include "file.h"

#define AF_UNIX 1
#define SOCK_STREAM 1
#define SOCK_CLOEXEC 02000000
#define SOL_SOCKET 1
#ifndef SO_PEERCRED /* an architecture may have others */
#define SO_PEERCRED 17
#define SO_RCVTIMEO 20
#define SO_SNDTIMEO 21
#endif
#define SCM_RIGHTS 1
#define MSG_CMSG_CLOEXEC 0x40000000
#define PATIENCE 10 /* seconds to wait for an answer, on a busy machine */
#define PR_GET_SECCOMP 21

struct address {
	u16 family;
	char name[108]; /* in the abstract namespace: after a NUL */
};

struct message {
	void *name;
	u32 name_size;
	void *parts;
	ulong part_count;
	void *control;
	ulong control_size;
	int flags;
};

struct control {
	ulong size;
	int level, type;
	int fd;
};

static struct address server;
static u32 server_size; /* length of its address, 0: there is none */
static u32 owner;       /* uid it runs as: that of the program */
static int was_filtered; /* system calls were filtered at startup, as in a container */

static int is_filtered(void)
{
	return syscall6(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0, 0) > 0;
}

void server_kept(const char *name)
{
	ulong n = length(name);

	if (n + 1 > sizeof(server.name))
		return;
	server.family = AF_UNIX;
	append(server.name + 1, sizeof(server.name) - 1, name);
	server_size = (u32)(sizeof(server.family) + 1 + n);
	owner = (u32)syscall6(SYS_getuid, 0, 0, 0, 0, 0, 0);
	was_filtered = is_filtered();
}

/* Whether the program gave up system calls, or may have: a call to open a socket is fatal to most
 * that do. */
static int may_forbid(void)
{
	return (!was_filtered || ftpatch_config.clock & GIVES_UP_CALLS) && is_filtered();
}

/* Whether the listener is ours: names are free once their owner is gone. */
static int is_ours(long socket)
{
	u32 peer[3] = {0, ~0u, ~0u}, size = sizeof(peer); /* pid, uid, gid */

	return !syscall6(SYS_getsockopt, socket, SOL_SOCKET, SO_PEERCRED, (long)peer, (long)&size, 0) &&
	       peer[1] == owner;
}

static long received(long socket)
{
	struct control control = {0, 0, 0, -1};
	char byte;
	struct {
		void *at;
		ulong size;
	} part = {&byte, 1};
	struct message message = {0, 0, &part, 1, &control, sizeof(control), 0};
	long n = syscall6(SYS_recvmsg, socket, (long)&message, MSG_CMSG_CLOEXEC, 0, 0, 0);

	if (n != 1 || message.control_size < sizeof(ulong) + 3 * sizeof(int) ||
	    control.level != SOL_SOCKET || control.type != SCM_RIGHTS)
		return failed(n) ? n : -EINVAL;
	return control.fd;
}

/* A descriptor, or a negative errno. `again`: the program is already running. */
long file_handed(int again)
{
	long patience[2] = {PATIENCE, 0}, fd, ret;

	if (!server_size || (again && may_forbid()))
		return -EINVAL;
	fd = syscall6(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, 0, 0, 0);
	if (failed(fd))
		return fd;
	syscall6(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, (long)patience, sizeof(patience), 0);
	syscall6(SYS_setsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, (long)patience, sizeof(patience), 0);
	ret = syscall6(SYS_connect, fd, (long)&server, server_size, 0, 0, 0);
	if (!failed(ret))
		/* Who attaches waits for us, and may be root. */
		ret = (!again && ftpatch_config.flags & TRACE_ATTACHED) || is_ours(fd) ? received(fd) : -EPERM;
	syscall6(SYS_close, fd, 0, 0, 0, 0, 0);
	return ret;
}
