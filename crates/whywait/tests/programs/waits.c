/*
 * Waits for many things at once, each in a thread that has the wait's name. All end when the main
 * thread says so, or by themselves soon after.
 *
 *   waits FOLDER
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = 60, FILE_BYTES = 1 << 22 };

static char buffer[1 << 20];
static char path[4096], folder[2048];
static struct sockaddr_in tcp, udp;
static struct sockaddr_un backlog;
static int pipe_read[2], pipe_write[2], event, polled[2], selected[2], epolled[2];
static int listener, full_listener, udp_socket, locked;
static int tcp_read[2], tcp_write[2], unix_read[2], unix_write[2];

static void pause_ms(int ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
	nanosleep(&t, NULL);
}

static int ok(int result, const char *what)
{
	if (result < 0)
		err(1, "%s", what);
	return result;
}

/* A byte comes, as everywhere below where nothing else is said. */
static void read_from(int fd)
{
	ok(read(fd, buffer, 8), "read");
}

/* Until the buffer is full, and then until the other end goes away. */
static void fill(int fd)
{
	while (write(fd, buffer, sizeof(buffer)) > 0)
		;
}

static void do_pipe_read(void) { read_from(pipe_read[0]); }
static void do_pipe_write(void) { fill(pipe_write[1]); }
static void do_eventfd(void) { read_from(event); }
static void do_tcp_read(void) { read_from(tcp_read[0]); }
static void do_tcp_write(void) { fill(tcp_write[0]); }
static void do_udp(void) { ok(recv(udp_socket, buffer, 8, 0), "recv"); }
static void do_unix_read(void) { read_from(unix_read[0]); }
static void do_unix_write(void) { fill(unix_write[0]); }
static void do_accept(void) { ok(accept(listener, NULL, NULL), "accept"); }
static void do_sleep(void) { pause_ms(WAIT_MS); }

static void do_connect(void)
{
	/* Refused when the listener goes away. */
	int fd = ok(socket(AF_UNIX, SOCK_STREAM, 0), "socket");
	connect(fd, (struct sockaddr *)&backlog, sizeof(backlog));
}

static void do_timerfd(void)
{
	struct itimerspec t = {.it_value.tv_nsec = WAIT_MS * 1000000L};
	int fd = ok(timerfd_create(CLOCK_MONOTONIC, 0), "timerfd_create");
	ok(timerfd_settime(fd, 0, &t, NULL), "timerfd_settime");
	read_from(fd);
}

static void do_inotify(void)
{
	int fd = ok(inotify_init(), "inotify_init");
	ok(inotify_add_watch(fd, folder, IN_CREATE), "inotify_add_watch");
	ok(read(fd, buffer, 4096), "read");
}

static void do_poll(void)
{
	struct pollfd fd = {polled[0], POLLIN, 0};
	ok(poll(&fd, 1, -1), "poll");
}

static void do_select(void)
{
	fd_set set;
	FD_ZERO(&set);
	FD_SET(selected[0], &set);
	ok(select(selected[0] + 1, &set, NULL, NULL, NULL), "select");
}

static void do_epoll(void)
{
	struct epoll_event e = {.events = EPOLLIN};
	int fd = ok(epoll_create1(0), "epoll_create1");
	ok(epoll_ctl(fd, EPOLL_CTL_ADD, epolled[0], &e), "epoll_ctl");
	ok(epoll_wait(fd, &e, 1, -1), "epoll_wait");
}

static void do_flock(void)
{
	int fd = ok(open(path, O_RDWR), "open");
	ok(flock(fd, LOCK_EX), "flock");
}

static void do_child(void)
{
	pid_t child = ok(fork(), "fork");
	if (!child) {
		pause_ms(WAIT_MS);
		_exit(0);
	}
	ok(waitpid(child, NULL, 0), "waitpid");
}

static void do_vfork(void)
{
	pid_t child = ok(vfork(), "vfork");
	if (!child) {
		pause_ms(WAIT_MS);
		_exit(0);
	}
	ok(waitpid(child, NULL, 0), "waitpid");
}

static void do_fsync(void)
{
	char name[4096];
	snprintf(name, sizeof(name), "%s/synced", folder);
	int fd = ok(open(name, O_RDWR | O_CREAT, 0600), "open");
	for (int i = 0; i < FILE_BYTES; i += sizeof(buffer))
		ok(write(fd, buffer, sizeof(buffer)), "write");
	ok(fsync(fd), "fsync");
	/* Its pages are clean now, and can be forgotten: touching them reads the file. */
	ok(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), "fadvise");
	prctl(PR_SET_NAME, "fault");
	volatile char *map = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	madvise((void *)map, FILE_BYTES, MADV_RANDOM);
	for (int i = 0; i < FILE_BYTES; i += FILE_BYTES / 64)
		(void)map[i];
}

static const struct wait {
	const char *name;
	void (*wait)(void);
} waits[] = {
	{"pipe-read", do_pipe_read}, {"pipe-write", do_pipe_write}, {"eventfd", do_eventfd},
	{"timerfd", do_timerfd}, {"inotify", do_inotify}, {"poll", do_poll},
	{"select", do_select}, {"epoll", do_epoll}, {"accept", do_accept},
	{"connect", do_connect}, {"tcp-read", do_tcp_read}, {"tcp-write", do_tcp_write},
	{"udp", do_udp}, {"unix-read", do_unix_read}, {"unix-write", do_unix_write},
	{"flock", do_flock}, {"sleep", do_sleep}, {"child", do_child}, {"vfork", do_vfork},
	{"fsync", do_fsync},
};
enum { WAITS = sizeof(waits) / sizeof(waits[0]) };

static void *waiter(void *argument)
{
	const struct wait *wait = argument;
	prctl(PR_SET_NAME, wait->name);
	wait->wait();
	return NULL;
}

static void tcp_pair(int pair[2])
{
	socklen_t length = sizeof(tcp);
	int fd = ok(socket(AF_INET, SOCK_STREAM, 0), "socket");
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	ok(bind(fd, (struct sockaddr *)&any, sizeof(any)), "bind");
	ok(listen(fd, 8), "listen");
	ok(getsockname(fd, (struct sockaddr *)&tcp, &length), "getsockname");
	pair[0] = ok(socket(AF_INET, SOCK_STREAM, 0), "socket");
	ok(connect(pair[0], (struct sockaddr *)&tcp, sizeof(tcp)), "connect");
	pair[1] = ok(accept(fd, NULL, NULL), "accept");
	listener = fd;
}

static void prepare(void)
{
	signal(SIGPIPE, SIG_IGN);
	ok(pipe(pipe_read), "pipe");
	ok(pipe(pipe_write), "pipe");
	ok(pipe(polled), "pipe");
	ok(pipe(selected), "pipe");
	ok(pipe(epolled), "pipe");
	event = ok(eventfd(0, 0), "eventfd");
	tcp_pair(tcp_read);
	tcp_pair(tcp_write);
	ok(socketpair(AF_UNIX, SOCK_STREAM, 0, unix_read), "socketpair");
	ok(socketpair(AF_UNIX, SOCK_STREAM, 0, unix_write), "socketpair");

	socklen_t length = sizeof(udp);
	udp = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	udp_socket = ok(socket(AF_INET, SOCK_DGRAM, 0), "socket");
	ok(bind(udp_socket, (struct sockaddr *)&udp, sizeof(udp)), "bind");
	ok(getsockname(udp_socket, (struct sockaddr *)&udp, &length), "getsockname");

	/* A name that is not in the file system: paths of folders may be too long for one that is. */
	backlog.sun_family = AF_UNIX;
	snprintf(backlog.sun_path + 1, sizeof(backlog.sun_path) - 1, "whywait-%d", getpid());
	full_listener = ok(socket(AF_UNIX, SOCK_STREAM, 0), "socket");
	ok(bind(full_listener, (struct sockaddr *)&backlog, sizeof(backlog)), "bind");
	ok(listen(full_listener, 0), "listen");
	int first = ok(socket(AF_UNIX, SOCK_STREAM, 0), "socket");
	ok(connect(first, (struct sockaddr *)&backlog, sizeof(backlog)), "connect");

	locked = ok(open(path, O_RDWR | O_CREAT, 0600), "open");
	ok(flock(locked, LOCK_EX), "flock");
}

static void finish(void)
{
	char name[4096];
	char word[8] = {1};
	ok(write(pipe_read[1], word, 8), "write");
	ok(write(polled[1], word, 8), "write");
	ok(write(selected[1], word, 8), "write");
	ok(write(epolled[1], word, 8), "write");
	ok(write(event, word, 8), "write");
	ok(write(tcp_read[1], word, 8), "write");
	ok(write(unix_read[1], word, 8), "write");
	ok(sendto(udp_socket, word, 8, 0, (struct sockaddr *)&udp, sizeof(udp)), "sendto");
	int fd = ok(socket(AF_INET, SOCK_STREAM, 0), "socket");
	ok(connect(fd, (struct sockaddr *)&tcp, sizeof(tcp)), "connect");
	close(pipe_write[0]);
	shutdown(tcp_write[1], SHUT_RDWR);
	close(tcp_write[1]);
	close(unix_write[1]);
	close(full_listener);
	flock(locked, LOCK_UN);
	snprintf(name, sizeof(name), "%s/created", folder);
	ok(open(name, O_WRONLY | O_CREAT, 0600), "open");
}

int main(int argc, char **argv)
{
	pthread_t threads[WAITS];
	if (argc != 2)
		errx(2, "usage: waits FOLDER");
	snprintf(folder, sizeof(folder), "%s", argv[1]);
	snprintf(path, sizeof(path), "%s/locked", folder);
	prepare();
	for (int i = 0; i < WAITS; i++)
		pthread_create(&threads[i], NULL, waiter, (void *)&waits[i]);
	pause_ms(WAIT_MS);
	finish();
	for (int i = 0; i < WAITS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
