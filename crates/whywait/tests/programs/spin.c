/*
 * Loops, each chosen by its first argument: some that spin for nothing, and some that only look
 * like it. Ends when its standard input does.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long turns;

/* Prints how many turns there were, at the end. */
static void *wait_for_end(void *unused)
{
	char byte;

	(void)unused;
	while (read(0, &byte, 1) > 0)
		;
	printf("turns %lu\n", turns);
	fflush(stdout);
	_exit(0);
}

/* Two ends of a connection. */
static void connection(int ends[2])
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	if (bind(listener, (void *)&address, size) || listen(listener, 8) ||
	    getsockname(listener, (void *)&address, &size))
		exit(1);
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(ends[0], (void *)&address, size))
		exit(1);
	ends[1] = accept(listener, 0, 0);
}

static int registered(int fd, uint32_t events, uint64_t data)
{
	struct epoll_event event = {.events = events, .data.u64 = data};
	int epoll = epoll_create1(0);

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event))
		exit(1);
	return epoll;
}

/* Polls for ever and does nothing with what is ready. */
static void ignore(int epoll)
{
	struct epoll_event ready[4];

	for (;;) {
		epoll_wait(epoll, ready, 4, -1);
		turns++;
	}
}

static int timer(long ns)
{
	struct itimerspec every = {{0, ns}, {0, ns}};
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);

	timerfd_settime(fd, 0, &every, 0);
	return fd;
}

/* Keeps the other end full of bytes. */
static void *feed(void *end)
{
	char bytes[512] = {0};

	for (;;) {
		if (send(*(int *)end, bytes, sizeof(bytes), 0) <= 0)
			exit(1);
		usleep(100);
	}
}

/* A process that ends with this one. */
static pid_t child(void)
{
	pid_t pid = fork();

	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static volatile double sum;

static void compute(long us)
{
	struct timespec begun, now;

	clock_gettime(CLOCK_MONOTONIC, &begun);
	do {
		for (int i = 0; i < 1000; i++)
			sum += i * 1.5;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while ((now.tv_sec - begun.tv_sec) * 1000000 + (now.tv_nsec - begun.tv_nsec) / 1000 < us);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	struct epoll_event ready[4];
	pthread_t thread;
	int ends[2];
	uint64_t count;

	pthread_create(&thread, 0, wait_for_end, 0);
	connection(ends);
	puts("ready");
	fflush(stdout);
	if (!strcmp(what, "armed-write")) {
		/* A number of the program's own, not the descriptor. */
		ignore(registered(ends[1], EPOLLIN | EPOLLOUT, 0x1234567800000000));
	} else if (!strcmp(what, "hang-up")) {
		struct linger at_once = {1, 0};

		setsockopt(ends[0], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
		close(ends[0]);
		ignore(registered(ends[1], 0, ends[1]));
	} else if (!strcmp(what, "timer")) {
		ignore(registered(timer(1000000), EPOLLIN, 5));
	} else if (!strcmp(what, "eventfd")) {
		ignore(registered(eventfd(1, 0), EPOLLIN, 5));
	} else if (!strcmp(what, "poll")) {
		for (;;) {
			struct pollfd fds[2] = {{ends[0], POLLIN, 0}, {ends[1], POLLOUT, 0}};

			poll(fds, 2, -1);
			turns++;
		}
	} else if (!strcmp(what, "select")) {
		for (;;) {
			fd_set set;

			FD_ZERO(&set);
			FD_SET(ends[1], &set);
			select(ends[1] + 1, 0, &set, 0, 0);
			turns++;
		}
	} else if (!strcmp(what, "rearm-edge")) {
		int epoll = registered(ends[1], EPOLLOUT | EPOLLET, ends[1]);

		for (;;) {
			struct epoll_event event = {.events = EPOLLOUT | EPOLLET, .data.u64 = ends[1]};

			epoll_wait(epoll, ready, 4, -1);
			epoll_ctl(epoll, EPOLL_CTL_MOD, ends[1], &event);
			turns++;
		}
	} else if (!strcmp(what, "busy-poll")) {
		/* Deliberate: it does not wait, and it does receive. */
		int epoll = registered(ends[1], EPOLLIN, ends[1]);
		char bytes[4096];

		pthread_create(&thread, 0, feed, &ends[0]);
		for (;;) {
			if (epoll_wait(epoll, ready, 4, 0) > 0 && recv(ends[1], bytes, sizeof(bytes), 0) <= 0)
				return 1;
			turns++;
		}
	} else if (!strcmp(what, "timer-work")) {
		int fd = timer(1000000), epoll = registered(fd, EPOLLIN, fd);

		for (;;) {
			epoll_wait(epoll, ready, 4, -1);
			if (read(fd, &count, sizeof(count)) != sizeof(count))
				return 1;
			compute(300);
			turns++;
		}
	} else if (!strcmp(what, "timeout-work")) {
		int epoll = registered(ends[1], EPOLLIN, ends[1]);

		for (;;) {
			epoll_wait(epoll, ready, 4, 1);
			compute(500);
			turns++;
		}
	} else if (!strcmp(what, "writes")) {
		/* Writable again and again, and each time it writes. */
		int epoll = registered(ends[1], EPOLLOUT, ends[1]);
		char bytes[4096] = {0};

		if (!child()) {
			while (recv(ends[0], bytes, sizeof(bytes), 0) > 0)
				;
			return 0;
		}
		close(ends[0]);
		for (;;) {
			epoll_wait(epoll, ready, 4, -1);
			if (send(ends[1], bytes, sizeof(bytes), MSG_NOSIGNAL) <= 0)
				return 1;
			turns++;
		}
	} else if (!strcmp(what, "echo")) {
		/* A healthy server under as much load as it takes. */
		int epoll = registered(ends[1], EPOLLIN, ends[1]);
		char bytes[64] = {0};
		ssize_t size;

		if (!child()) {
			close(ends[1]);
			while (send(ends[0], bytes, sizeof(bytes), MSG_NOSIGNAL) > 0 &&
			       recv(ends[0], bytes, sizeof(bytes), 0) > 0)
				;
			return 0;
		}
		close(ends[0]);
		for (;;) {
			epoll_wait(epoll, ready, 4, -1);
			if ((size = recv(ends[1], bytes, sizeof(bytes), 0)) <= 0 ||
			    send(ends[1], bytes, size, MSG_NOSIGNAL) <= 0)
				return 1;
			turns++;
		}
	} else if (!strcmp(what, "expensive")) {
		/*
		 * Two connections, one of which asks for what takes ten times as long; and a third
		 * that ends soon.
		 */
		int more[2], last[2], epoll = registered(ends[1], EPOLLIN, ends[1]);
		struct epoll_event event = {.events = EPOLLIN};
		char bytes[64] = {0};
		unsigned long asked = 0;

		connection(more);
		connection(last);
		if (!child()) {
			close(ends[1]);
			close(more[1]);
			close(last[1]);
			for (;; asked++) {
				int *end = asked % 2 ? more : ends;

				if (asked == 1500)
					close(last[0]);
				if (send(*end, bytes, sizeof(bytes), MSG_NOSIGNAL) <= 0 ||
				    recv(*end, bytes, sizeof(bytes), 0) <= 0)
					return 0;
				if (asked < 1500 &&
				    (send(last[0], bytes, sizeof(bytes), MSG_NOSIGNAL) <= 0 ||
				     recv(last[0], bytes, sizeof(bytes), 0) <= 0))
					return 0;
			}
		}
		close(ends[0]);
		close(more[0]);
		close(last[0]);
		event.data.u64 = more[1];
		epoll_ctl(epoll, EPOLL_CTL_ADD, more[1], &event);
		event.data.u64 = last[1];
		epoll_ctl(epoll, EPOLL_CTL_ADD, last[1], &event);
		sleep(1); /* until somebody watches */
		for (;;) {
			int fd = (epoll_wait(epoll, ready, 1, -1), (int)ready[0].data.u64);
			ssize_t size = recv(fd, bytes, sizeof(bytes), 0);

			if (size <= 0) {
				close(fd);
				continue;
			}
			compute(fd == more[1] ? 1000 : fd == last[1] ? 300 : 100);
			if (send(fd, bytes, size, MSG_NOSIGNAL) <= 0)
				return 1;
			turns++;
		}
	} else if (!strcmp(what, "compute")) {
		int epoll = registered(ends[1], EPOLLIN, ends[1]);

		for (;;) {
			compute(20000);
			epoll_wait(epoll, ready, 4, 0);
			turns++;
		}
	} else if (!strcmp(what, "left")) {
		/* Goes round by itself, and leaves what is ready for later. */
		int fd = eventfd(1, 0), epoll = registered(fd, EPOLLIN, fd);

		for (;;) {
			compute(20);
			epoll_wait(epoll, ready, 4, 0);
			turns++;
		}
	} else if (!strcmp(what, "eventfd-edge")) {
		/* As runtimes wake their pollers: edge-triggered, and never read. */
		int fd = eventfd(0, 0), epoll = registered(fd, EPOLLIN | EPOLLET, fd);

		if (!child()) {
			for (count = 1;; usleep(50))
				if (write(fd, &count, sizeof(count)) < 0)
					return 0;
		}
		for (;;) {
			epoll_wait(epoll, ready, 4, -1);
			compute(40);
			turns++;
		}
	}
	return 2;
}
