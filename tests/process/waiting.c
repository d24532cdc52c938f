// SPDX-License-Identifier: MIT
/* Waits in a system call, and says how that ended.
 *
 * `waiting CASE` prints its process number, waits, and is woken when it reads a byte, or when its
 * time is over. Then it prints the call's result and errno, how often it ended with EINTR before (it
 * is made again each time), how many signals were handled, and how many milliseconds it took.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LONG 100           /* s: a limit that is not reached */
#define SHORT 400          /* ms: one that is */
static int fd[2], other, id = -1, is_queue, by_handler;
static unsigned word;
static pid_t child;
static aio_context_t aio;
static struct timespec far = {LONG, 0}, near = {0, SHORT * 1000000L};
static sigset_t usr2;
static char byte[2], page[4096];
static struct iovec part = {byte, 1};
static struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
static struct epoll_event event;
static struct sockaddr_un name = {.sun_family = AF_UNIX};
static struct msgbuf_ { long type; char text[1]; } letter = {1, {0}};
static unsigned *sq_tail, *sq_array;
static struct io_uring_sqe *sqes;
static sem_t semaphore;
static mqd_t queue;
static volatile sig_atomic_t handled;

static void handle(int number) { handled++; }
static struct timespec after(long ms) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_nsec += ms * 1000000L;
	t.tv_sec += t.tv_nsec / 1000000000L;
	t.tv_nsec %= 1000000000L;
	return t;
}
static void must(int ok, const char *what) {
	if (!ok) { printf("skip %s: %s\n", what, strerror(errno)); exit(0); }
}

/* What the cases share: how they are prepared and woken. */
static void nothing(void) { must(pipe(fd) == 0, "pipe"); }
static void put_byte(void) { must(write(fd[1], "", 1) == 1, "write"); }
static void epoll(void) {
	must((other = epoll_create1(0)) >= 0, "epoll");
	must((fd[0] = fd[1] = eventfd(0, 0)) >= 0, "eventfd");
	event.events = EPOLLIN;
	must(epoll_ctl(other, EPOLL_CTL_ADD, fd[0], &event) == 0, "epoll_ctl");
}
static void put_event(void) { must(eventfd_write(fd[1], 1) == 0, "eventfd"); }
static void put_signal(void) { kill(getpid(), SIGUSR2); }
static void semaphores(void) { must((id = semget(IPC_PRIVATE, 1, 0600)) >= 0, "semget"); }
static void put_semaphore(void) { struct sembuf one = {0, 1, 0}; semop(id, &one, 1); }
static struct sembuf take = {0, -1, 0};
static void events(void) {
	must(syscall(SYS_io_setup, 4, &aio) == 0, "io_setup");
	must((other = memfd_create("aio", 0)) >= 0, "memfd");
}
static void put_aio(void) {
	struct iocb one = {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = other,
		.aio_buf = (unsigned long)byte, .aio_nbytes = 1}, *list[1] = {&one};
	must(syscall(SYS_io_submit, aio, 1, list) == 1, "io_submit");
}
static struct io_event done[1];
static void uring(void) {
	struct io_uring_params p = {0};
	must((other = syscall(SYS_io_uring_setup, 4, &p)) >= 0, "io_uring_setup");
	char *ring = mmap(0, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, other,
		IORING_OFF_SQ_RING);
	sqes = mmap(0, p.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED, other,
		IORING_OFF_SQES);
	must(ring != MAP_FAILED && sqes != MAP_FAILED, "mmap");
	sq_tail = (unsigned *)(ring + p.sq_off.tail);
	sq_array = (unsigned *)(ring + p.sq_off.array);
}
static void put_uring(void) {
	memset(sqes, 0, sizeof *sqes);
	sqes->opcode = IORING_OP_NOP;
	sq_array[0] = 0;
	__atomic_store_n(sq_tail, 1, __ATOMIC_RELEASE);
	must(syscall(SYS_io_uring_enter, other, 1, 0, 0, 0, 0) == 1, "io_uring_enter");
}
static void limit(int socket) {
	struct timeval t = {LONG, 0};
	setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
	setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}
static void pair(void) {
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0, "socketpair");
	limit(fd[0]);
}
static void unlimited(void) { must(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0, "pair"); }
static void full_pair(void) {
	pair();
	while (send(fd[0], page, sizeof page, MSG_DONTWAIT) > 0) {}
}
static void drain(void) {
	while (recv(fd[1], page, sizeof page, MSG_DONTWAIT) > 0) {}
}
static void listening(void) {
	/* An abstract name, one for each process. */
	snprintf(name.sun_path + 1, 50, "ftpatch-%d", getpid());
	fd[0] = socket(AF_UNIX, SOCK_STREAM, 0);
	fd[1] = socket(AF_UNIX, SOCK_STREAM, 0);
	limit(fd[0]);
	limit(fd[1]);
	must(bind(fd[0], (struct sockaddr *)&name, sizeof name) == 0, "bind");
	must(listen(fd[0], 0) == 0, "listen");
}
static void put_connection(void) { connect(fd[1], (struct sockaddr *)&name, sizeof name); }
static void full_backlog(void) {
	listening();
	int s;
	do s = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	while (connect(s, (struct sockaddr *)&name, sizeof name) == 0);
}
static void accepted(void) { accept(fd[0], 0, 0); }
static void inet(void) {
	struct sockaddr_in_ { unsigned short f, p; unsigned a; char z[8]; } to = {AF_INET, 0, 0x0100007f};
	socklen_t size = sizeof to;
	other = socket(AF_INET, SOCK_STREAM, 0);
	must(bind(other, (struct sockaddr *)&to, sizeof to) == 0 && listen(other, 1) == 0, "listen");
	getsockname(other, (struct sockaddr *)&to, &size);
	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	must(connect(fd[0], (struct sockaddr *)&to, sizeof to) == 0, "connect");
	fd[1] = accept(other, 0, 0);
	limit(fd[0]);
}
static void watched(void) {
	fd[0] = inotify_init1(0);
	must(mkdtemp(strcpy(page, "/tmp/ftpatch-XXXXXX")) != 0, "mkdtemp");
	must(inotify_add_watch(fd[0], page, IN_CREATE) >= 0, "inotify");
}
static void put_file(void) {
	char path[100];
	snprintf(path, sizeof path, "%s/file", page);
	close(open(path, O_CREAT, 0600));
	unlink(path);
	rmdir(page);
}
static void letters(void) {
	must((id = msgget(IPC_PRIVATE, 0600)) >= 0, "msgget");
	is_queue = 1;
}
static void put_letter(void) { msgsnd(id, &letter, 1, 0); }
static void full_letters(void) { letters(); while (msgsnd(id, &letter, 1, IPC_NOWAIT) == 0) {} }
static void take_letter(void) { struct msgbuf_ l; while (msgrcv(id, &l, 1, 0, IPC_NOWAIT) >= 0) {} }
static void mail(void) {
	char path[50];
	struct mq_attr a = {.mq_maxmsg = 1, .mq_msgsize = 1};
	snprintf(path, sizeof path, "/ftpatch-%d", getpid());
	must((queue = mq_open(path, O_RDWR | O_CREAT, 0600, &a)) >= 0, "mq_open");
	mq_unlink(path);
}
static void put_mail(void) { mq_send(queue, byte, 1, 0); }
static void lockable(void) {
	char path[] = "/tmp/ftpatch-XXXXXX";
	must((fd[0] = mkstemp(path)) >= 0, "mkstemp");
	fd[1] = open(path, O_RDWR);
	unlink(path);
}
static void flocked(void) { lockable(); flock(fd[1], LOCK_EX); }
static void unlock(void) { flock(fd[1], LOCK_UN); }
static struct flock whole = {.l_type = F_WRLCK}, none = {.l_type = F_UNLCK};
static void owned(void) { lockable(); fcntl(fd[1], F_OFD_SETLK, &whole); }
static void disown(void) { fcntl(fd[1], F_OFD_SETLK, &none); }
static void parent(void) {
	nothing();
	if ((child = fork()) == 0) { close(fd[1]); read(fd[0], byte, 1); _exit(0); }
}
static void wake_word(void) { syscall(SYS_futex, &word, FUTEX_WAKE, 1, 0, 0, 0); }
static void lock_word(void) { sem_init(&semaphore, 0, 0); }
static void post(void) { sem_post(&semaphore); }
static void pipe_full(void) {
	nothing();
	fcntl(fd[1], F_SETFL, O_NONBLOCK);
	while (write(fd[1], page, sizeof page) > 0) {}
	fcntl(fd[1], F_SETFL, 0);
}
static void take_page(void) { read(fd[0], page, sizeof page); }
static void signals(void) { fd[0] = signalfd(-1, &usr2, 0); }
static void alarmed(void) {
	struct itimerspec t = {.it_value = near};
	fd[0] = timerfd_create(CLOCK_MONOTONIC, 0);
	timerfd_settime(fd[0], 0, &t, 0);
}
static void unblocked(void) {
	by_handler = 1;
	pthread_sigmask(SIG_UNBLOCK, &usr2, 0);
	signal(SIGUSR2, handle);
}
static void caught(void) { by_handler = 1; signal(SIGUSR2, handle); }
static void fifo(void) {
	snprintf(page, sizeof page, "/tmp/ftpatch-fifo-%d", getpid());
	must(mkfifo(page, 0600) == 0, "mkfifo");
}
static void open_fifo(void) { open(page, O_WRONLY); unlink(page); }
static void *ended(void *p) { read(fd[0], byte, 1); return 0; }
static struct pollfd poll_it(void) { struct pollfd p = {fd[0], POLLIN, 0}; return p; }
static sigset_t empty;

#define POLLED struct pollfd p = poll_it()
#define SELECTED fd_set s; FD_ZERO(&s); FD_SET(fd[0], &s)
#define YES(call) ({ long n = call; n > 0 ? 1 : n; })
#define ADDRESS (struct sockaddr *)&name, sizeof name
#define CASES \
	/* of which a plain stop makes EINTR */ \
	X(epoll_wait, epoll, put_event, epoll_wait(other, &event, 1, -1)) \
	X(epoll_wait_limit, epoll, put_event, epoll_wait(other, &event, 1, LONG * 1000)) \
	X(epoll_pwait, epoll, put_event, epoll_pwait(other, &event, 1, -1, &empty)) \
	X(epoll_pwait2, epoll, put_event, epoll_pwait2(other, &event, 1, &far, &empty)) \
	X(sigwaitinfo, nothing, put_signal, sigwaitinfo(&usr2, 0)) \
	X(sigtimedwait, nothing, put_signal, sigtimedwait(&usr2, 0, &far)) \
	X(semop, semaphores, put_semaphore, semop(id, &take, 1)) \
	X(semtimedop, semaphores, put_semaphore, semtimedop(id, &take, 1, &far)) \
	X(io_getevents, events, put_aio, syscall(SYS_io_getevents, aio, 1, 1, done, &far)) \
	X(io_uring_enter, uring, put_uring, \
		syscall(SYS_io_uring_enter, other, 0, 1, IORING_ENTER_GETEVENTS, 0, 0)) \
	X(recv, pair, put_byte, recv(fd[0], byte, 1, 0)) \
	X(recv_inet, inet, put_byte, recv(fd[0], byte, 1, 0)) \
	X(recvmsg, pair, put_byte, recvmsg(fd[0], &message, 0)) \
	X(recvmmsg, pair, put_byte, \
		({ struct mmsghdr m = {message}; recvmmsg(fd[0], &m, 1, 0, 0); })) \
	X(read_socket, pair, put_byte, read(fd[0], byte, 1)) \
	X(readv_socket, pair, put_byte, readv(fd[0], &part, 1)) \
	X(accept, listening, put_connection, YES(accept(fd[0], 0, 0))) \
	X(accept4, listening, put_connection, YES(accept4(fd[0], 0, 0, SOCK_CLOEXEC))) \
	X(connect, full_backlog, accepted, connect(fd[1], ADDRESS)) \
	X(send, full_pair, drain, send(fd[0], byte, 1, 0)) \
	X(sendmsg, full_pair, drain, sendmsg(fd[0], &message, 0)) \
	X(write_socket, full_pair, drain, write(fd[0], byte, 1)) \
	/* that are made again by the kernel */ \
	X(io_pgetevents, events, put_aio, syscall(SYS_io_pgetevents, aio, 1, 1, done, &far, 0)) \
	X(poll, nothing, put_byte, ({ POLLED; poll(&p, 1, -1); })) \
	X(poll_limit, nothing, put_byte, ({ POLLED; poll(&p, 1, LONG * 1000); })) \
	X(ppoll, nothing, put_byte, ({ POLLED; ppoll(&p, 1, &far, &empty); })) \
	X(select, nothing, put_byte, ({ SELECTED; select(fd[0] + 1, &s, 0, 0, 0); })) \
	X(pselect, nothing, put_byte, ({ SELECTED; pselect(fd[0] + 1, &s, 0, 0, &far, &empty); })) \
	X(futex, nothing, wake_word, syscall(SYS_futex, &word, FUTEX_WAIT, 0, 0, 0, 0)) \
	X(futex_limit, nothing, wake_word, syscall(SYS_futex, &word, FUTEX_WAIT, 0, &far, 0, 0)) \
	X(sem_wait, lock_word, post, sem_wait(&semaphore)) \
	X(read_pipe, nothing, put_byte, read(fd[0], byte, 1)) \
	X(write_pipe, pipe_full, take_page, write(fd[1], byte, 1)) \
	X(read_event, epoll, put_event, read(fd[0], page, 8)) \
	X(read_signal, signals, put_signal, read(fd[0], page, 128)) \
	X(read_inotify, watched, put_file, YES(read(fd[0], page, sizeof page))) \
	X(recv_forever, unlimited, put_byte, recv(fd[0], byte, 1, 0)) \
	X(wait4, parent, put_byte, YES(wait4(child, 0, 0, 0))) \
	X(waitid, parent, put_byte, ({ siginfo_t i; waitid(P_PID, child, &i, WEXITED); })) \
	X(msgrcv, letters, put_letter, msgrcv(id, &letter, 1, 0, 0)) \
	X(msgsnd, full_letters, take_letter, msgsnd(id, &letter, 1, 0)) \
	X(mq_receive, mail, put_mail, mq_receive(queue, byte, 1, 0)) \
	X(flock, flocked, unlock, flock(fd[0], LOCK_EX)) \
	X(fcntl, owned, disown, fcntl(fd[0], F_OFD_SETLKW, &whole)) \
	X(open_fifo, fifo, open_fifo, YES(open(page, O_RDONLY))) \
	X(pthread_join, nothing, put_byte, \
		({ pthread_t t; pthread_create(&t, 0, ended, 0); pthread_join(t, 0); })) \
	/* that end with EINTR by nature: a handler wakes them */ \
	X(pause, unblocked, put_signal, pause()) \
	X(sigsuspend, caught, put_signal, sigsuspend(&empty)) \
	/* that end by time */ \
	X(timed_nanosleep, nothing, 0, nanosleep(&near, 0)) \
	X(timed_clock_nanosleep, nothing, 0, clock_nanosleep(CLOCK_MONOTONIC, 0, &near, 0)) \
	X(timed_absolute, nothing, 0, \
		({ struct timespec t = after(SHORT); clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, 0); })) \
	X(timed_poll, nothing, 0, ({ POLLED; poll(&p, 1, SHORT); })) \
	X(timed_ppoll, nothing, 0, ({ POLLED; ppoll(&p, 1, &near, 0); })) \
	X(timed_select, nothing, 0, ({ SELECTED; struct timeval t = {0, SHORT * 1000}; \
		select(fd[0] + 1, &s, 0, 0, &t); })) \
	X(timed_futex, nothing, 0, syscall(SYS_futex, &word, FUTEX_WAIT, 0, &near, 0, 0)) \
	X(timed_timer, alarmed, 0, read(fd[0], page, 8)) \
	/* and whose time begins anew */ \
	X(again_epoll_wait, epoll, 0, epoll_wait(other, &event, 1, SHORT)) \
	X(again_sigtimedwait, nothing, 0, sigtimedwait(&usr2, 0, &near)) \
	X(again_semtimedop, semaphores, 0, semtimedop(id, &take, 1, &near))

static void (*wake)(void);
static void *waker(void *unused) {
	if (read(0, byte + 1, 1) == 1 && wake) wake();
	return 0;
}

int main(int argc, char **argv) {
	long result = -1;
	int number = 0, interrupted = 0;
	pthread_t thread;
	struct timespec begun, end;
	struct sigaction act = {.sa_handler = handle};
	sigset_t all, before;
	sigemptyset(&usr2);
	sigaddset(&usr2, SIGUSR2);
	sigprocmask(SIG_BLOCK, &usr2, 0);
	sigaction(SIGUSR1, &act, 0);
	act.sa_flags = SA_RESTART;
	sigaction(SIGHUP, &act, 0);
	sigfillset(&all);
#define X(case_, prepare_, wake_, call_) \
	if (strcmp(argv[1], #case_) == 0) { \
		clock_gettime(CLOCK_MONOTONIC, &begun); /* before a timer runs */ \
		prepare_(); \
		wake = wake_; \
		/* Signals are the first thread's. */ \
		pthread_sigmask(SIG_BLOCK, &all, &before); \
		pthread_create(&thread, 0, waker, 0); \
		pthread_sigmask(SIG_SETMASK, &before, 0); \
		printf("ready %d\n", getpid()); \
		fflush(stdout); \
		do { \
			errno = 0; \
			result = call_; \
			number = errno; \
		} while (result == -1 && number == EINTR && !by_handler && ++interrupted < 99999); \
	}
	CASES
	clock_gettime(CLOCK_MONOTONIC, &end);
	FILE *schedstat = fopen("/proc/self/schedstat", "r"); /* of the first thread */
	unsigned long long ran = 0, delayed = 0; /* ns: with a processor, and waiting for one */
	if (!schedstat || fscanf(schedstat, "%llu %llu", &ran, &delayed) != 2) delayed = 0;
	if (is_queue) msgctl(id, IPC_RMID, 0);
	else if (id > -1) semctl(id, 0, IPC_RMID);
	printf("result %ld errno %d interrupted %d handled %d ms %ld delayed %llu\n", result, number,
		interrupted, handled,
		(end.tv_sec - begun.tv_sec) * 1000 + (end.tv_nsec - begun.tv_nsec) / 1000000,
		delayed / 1000000);
	return 0;
}
