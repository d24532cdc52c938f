/* SPDX-License-Identifier: MIT */
/* Numbers of system calls where an architecture has none of its own: include/uapi/asm-generic/unistd.h. */
#ifndef FTPATCH_GENERIC_NUMBERS_H
#define FTPATCH_GENERIC_NUMBERS_H

#define SYS_getcwd 17
#define SYS_epoll_pwait 22
#define SYS_unlinkat 35
#define SYS_fstatfs 44
#define SYS_ftruncate 46
#define SYS_fallocate 47
#define SYS_openat 56
#define SYS_close 57
#define SYS_read 63
#define SYS_write 64
#define SYS_pselect6 72
#define SYS_ppoll 73
#define SYS_readlinkat 78
#define SYS_nanosleep 101
#define SYS_clock_gettime 113
#define SYS_tgkill 131
#define SYS_rt_sigsuspend 133
#define SYS_rt_sigaction 134
#define SYS_rt_sigprocmask 135
#define SYS_rt_sigpending 136
#define SYS_rt_sigtimedwait 137
#define SYS_getrlimit 163
#define SYS_prctl 167
#define SYS_getpid 172
#define SYS_getppid 173
#define SYS_getuid 174
#define SYS_gettid 178
#define SYS_socket 198
#define SYS_connect 203
#define SYS_setsockopt 208
#define SYS_getsockopt 209
#define SYS_recvmsg 212
#define SYS_munmap 215
#define SYS_mremap 216
#define SYS_mmap 222
#define SYS_mprotect 226
#define SYS_madvise 233
#define SYS_memfd_create 279
#define SYS_membarrier 283
#define SYS_statx 291
#define SYS_io_pgetevents 292
#define SYS_io_uring_enter 426
#define SYS_epoll_pwait2 441

#endif
