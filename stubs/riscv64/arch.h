/* SPDX-License-Identifier: MIT */
/* riscv64: clock, thread pointer, system calls. */
#ifndef FTPATCH_ARCH_H
#define FTPATCH_ARCH_H

/* There is no attribute for it: entry.S saves what C functions may change. */
#define REGISTERS

#define PAGE 4096ul

static inline u64 ticks(void)
{
	u64 now;

	__asm__ __volatile__("rdtime %0" : "=r"(now));
	return now;
}

static inline u64 ticks_hz(void)
{
	return 0; /* unknown without measuring */
}

/* 0 before there is one, as the kernel starts programs. */
static inline ulong thread_pointer(void)
{
	ulong tp;

	__asm__ __volatile__("mv %0, tp" : "=r"(tp));
	return tp;
}

static inline void thread_pointer_known(ulong hwcap2, int dynamic)
{
	(void)hwcap2;
	(void)dynamic;
}

/* struct pthread is below the thread pointer. Nothing is known to be mapped below it, so it is
 * searched from its end. */
#define TID_FIRST -4
#define TID_LAST -2560
#define TID_STEP -4

/* Many a number is as small as the id of a container's first process; glibc (nptl/descr.h) has two
 * pointers of a list before the id, musl (pthread_impl.h) has the struct begin 32 bytes before it,
 * with a pointer to itself. */
#define TID_CHECKED
static inline int is_tid(ulong at)
{
	const ulong *before = (const ulong *)at;

	if (at % sizeof(ulong))
		return 0;
	return (before[-1] > PAGE && before[-2] > PAGE) || before[-4] == at - 32;
}

/* include/uapi/asm-generic/unistd.h */
#define SYS_read 63
#define SYS_write 64
#define SYS_close 57
#define SYS_clock_gettime 113
#define SYS_prctl 167
#define SYS_getpid 172
#define SYS_getppid 173
#define SYS_gettid 178
#define SYS_rt_sigprocmask 135
#define SYS_madvise 233
#define SYS_getcwd 17
#define SYS_getuid 174
#define SYS_socket 198
#define SYS_connect 203
#define SYS_recvmsg 212
#define SYS_setsockopt 208
#define SYS_getsockopt 209
#define SYS_statx 291
#define SYS_getrlimit 163
#define SYS_nanosleep 101
#define SYS_membarrier 283
#define SYS_tgkill 131
#define SYS_rt_sigaction 134
#define SYS_mprotect 226
#define SYS_mmap 222
#define SYS_munmap 215
#define SYS_mremap 216
#define SYS_rt_sigpending 136
#define SYS_rt_sigtimedwait 137
#define SYS_rt_sigsuspend 133
#define SYS_pselect6 72
#define SYS_ppoll 73
#define SYS_epoll_pwait 22
#define SYS_memfd_create 279
#define SYS_io_pgetevents 292
#define SYS_io_uring_enter 426
#define SYS_epoll_pwait2 441
#define O_NOFOLLOW_ 0400000
#define AT_FDCWD -100

struct timespec_ {
	long seconds, nanoseconds;
};

static inline long syscall6(long number, long a, long b, long c, long d, long e, long f)
{
	register long a7 __asm__("a7") = number;
	register long a0 __asm__("a0") = a;
	register long a1 __asm__("a1") = b;
	register long a2 __asm__("a2") = c;
	register long a3 __asm__("a3") = d;
	register long a4 __asm__("a4") = e;
	register long a5 __asm__("a5") = f;

	__asm__ __volatile__("ecall"
			     : "+r"(a0)
			     : "r"(a7), "r"(a1), "r"(a2), "r"(a3), "r"(a4), "r"(a5)
			     : "memory");
	return a0;
}

static inline long mmap_(ulong at, ulong size, int protection, int flags, long fd)
{
	return syscall6(SYS_mmap, (long)at, (long)size, protection, flags, fd, 0);
}

static inline long munmap_(ulong at, ulong size)
{
	return syscall6(SYS_munmap, (long)at, (long)size, 0, 0, 0, 0);
}

static inline long open_(const char *path, int flags, int mode)
{
	return syscall6(56, AT_FDCWD, (long)path, flags, mode, 0, 0);
}

static inline long readlink_(const char *path, char *to, ulong size)
{
	return syscall6(78, AT_FDCWD, (long)path, (long)to, (long)size, 0, 0);
}

static inline long unlink_(const char *path)
{
	return syscall6(35, AT_FDCWD, (long)path, 0, 0, 0, 0);
}

static inline long truncate_(long fd, u64 size)
{
	return syscall6(46, fd, (long)size, 0, 0, 0, 0);
}

static inline long fallocate_(long fd, u64 size)
{
	return syscall6(47, fd, 0, 0, (long)size, 0, 0);
}

/* RLIMIT_FSIZE */
static inline void file_limit(u64 limit[2])
{
	syscall6(SYS_getrlimit, 1, (long)limit, 0, 0, 0, 0);
}

/* Bytes that a file system has left for us, by fstatfs (<asm-generic/statfs.h>); 0 if it does not tell. */
static inline u64 room_left(long fd)
{
	u64 held[15];

	return syscall6(44, fd, (long)held, 0, 0, 0, 0) ? 0 : held[4] * held[1]; /* f_bavail, f_bsize */
}

static inline u64 divide(u64 number, u64 by)
{
	return number / by;
}

/* Saved by a detour (probes.S), and restored but for gp and tp. */
struct registers {
	ulong x[32];       /* as instructions number them */
	ulong back, place; /* of a hit: into the detour; number of the place */
};

static inline ulong stack_pointer(const struct registers *regs)
{
	return regs->x[2];
}

/* The location of the return address on function entry. */
static inline ulong *return_place(struct registers *regs)
{
	return &regs->x[1];
}

#define FRAME_POINTER(regs) ((regs)->x[8])
#define is_signed_handler is_handler
#define unsigned_(address) (address)

static inline u64 register_(const struct registers *regs, u32 number)
{
	return regs->x[number & 31];
}

/* The low eight bytes of fa0 to fa7, which are f10 to f17, then of f0 to f9 and f18 to f31. Only who asks
 * for one needs the D extension. */
static inline u64 vector_(u32 number)
{
	u64 held = 0;

	switch (number < 8 ? number + 10 : number < 18 ? number - 8 : number) {
#define VECTOR(n) case n: __asm__ __volatile__(".option push\n\t.option arch, +d\n\tfmv.x.d %0, f" #n \
					       "\n\t.option pop" : "=r"(held)); break;
		VECTOR(0) VECTOR(1) VECTOR(2) VECTOR(3) VECTOR(4) VECTOR(5) VECTOR(6) VECTOR(7)
		VECTOR(8) VECTOR(9) VECTOR(10) VECTOR(11) VECTOR(12) VECTOR(13) VECTOR(14) VECTOR(15)
		VECTOR(16) VECTOR(17) VECTOR(18) VECTOR(19) VECTOR(20) VECTOR(21) VECTOR(22) VECTOR(23)
		VECTOR(24) VECTOR(25) VECTOR(26) VECTOR(27) VECTOR(28) VECTOR(29) VECTOR(30) VECTOR(31)
#undef VECTOR
	}
	return held;
}

/* The vdso provides it. */
static inline void restored_by(ulong *flags, void **restorer)
{
	(void)flags;
	(void)restorer;
}

/* A signal handler's context, up to the registers (arch/riscv/include/uapi/asm). */
struct context {
	ulong before[22]; /* struct ucontext up to uc_mcontext */
	ulong ip, x[31];  /* from ra on */
};

#define LANDING

/* Go on at another place. */
static inline void goes_on(struct context *context, ulong ip)
{
	context->ip = ip;
}

/* The signals blocked when this one arrived. */
static inline u64 *signal_mask(struct context *context)
{
	return (u64 *)((char *)context + 40);
}

/* No place has a trap, since no call can be redirected: system_calls.c. */
#define LEAD_JUMP 4 /* bytes */
#define LEAD_REACH 0x100000ul
#define LEAD_RESULT(call) ((call)->args[0])

#endif
