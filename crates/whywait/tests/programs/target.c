/*
 * Programs to watch, each chosen by its first argument. Those that wait for standard input end when
 * it does.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static char **rest;

static void say(const char *text)
{
	puts(text);
	fflush(stdout);
}

__attribute__((noinline)) static void wait_for_input(void)
{
	char byte;

	while (read(0, &byte, 1) > 0)
		;
}

/* Answers each line with the same line. */
static void *echo(void *unused)
{
	char line[4096];

	while (fgets(line, sizeof(line), stdin)) {
		fputs(line, stdout);
		fflush(stdout);
	}
	exit(0);
}

static void *become(void *unused)
{
	usleep(20000);
	execv(rest[0], rest);
	perror("execv");
	exit(1);
}

static void *sleeper(void *unused)
{
	pause();
	return 0;
}

/* Sleeps in a futex of its own, for ever. */
static void *parked(void *own)
{
	sem_wait(own);
	return 0;
}

__attribute__((noinline)) int nap_in_the_child(int milliseconds)
{
	usleep(milliseconds * 1000);
	__asm__ volatile("" ::: "memory");
	return milliseconds;
}

/* Some 40 KiB of stack below the call that waits. */
__attribute__((noinline)) static int deep(int depth)
{
	volatile char frame[512];

	frame[0] = depth;
	if (depth == 0)
		wait_for_input();
	else
		deep(depth - 1);
	return frame[0];
}

/* The secret is in a file, so that no command line has it, and all over the stack. */
__attribute__((noinline)) static void secret(const char *path)
{
	volatile char stack[16384];
	char bytes[32];
	FILE *file = fopen(path, "r");

	if (!file || fread(bytes, 1, sizeof(bytes), file) != sizeof(bytes))
		exit(1);
	fclose(file);
	for (size_t at = 0; at < sizeof(stack); at++)
		stack[at] = bytes[at % sizeof(bytes)];
	say("ready");
	wait_for_input();
	exit(stack[0] == bytes[0] ? 0 : 1);
}

__attribute__((noinline)) int block_the_loop(void)
{
	usleep(300000);
	__asm__ volatile("" ::: "memory");
	return 1;
}

/* A server with one thread that answers each line, and stops for a while when it is asked to. */
static int loop(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(address);
	int epoll = epoll_create1(0), listener = socket(AF_INET, SOCK_STREAM, 0);
	struct epoll_event event = { .events = EPOLLIN, .data.fd = listener };
	char line[256];

	if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 16) ||
	    getsockname(listener, (struct sockaddr *)&address, &size))
		return 1;
	epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
	event.data.fd = 0;
	epoll_ctl(epoll, EPOLL_CTL_ADD, 0, &event);
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);
	while (epoll_wait(epoll, &event, 1, -1) == 1) {
		int fd = event.data.fd;
		ssize_t n;

		if (fd == listener) {
			event.data.fd = accept(listener, 0, 0);
			event.events = EPOLLIN;
			epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event);
			continue;
		}
		/* Standard input is watched for its end. */
		n = fd ? recv(fd, line, sizeof(line), 0) : read(fd, line, sizeof(line));
		if (n <= 0) {
			if (!fd)
				return 0;
			close(fd);
			continue;
		}
		if (line[0] == 's')
			block_the_loop();
		if (fd && send(fd, line, n, 0) != n)
			return 1;
	}
	return 1;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	pthread_t thread;

	rest = argv + 2;
	if (!strcmp(what, "echo")) {
		echo(0);
	} else if (!strcmp(what, "echo-without-first-thread")) {
		/* The process goes on without the thread that it began with. */
		pthread_create(&thread, 0, echo, 0);
		pthread_exit(0);
	} else if (!strcmp(what, "exec-in-thread")) {
		pthread_create(&thread, 0, become, 0);
		pause();
	} else if (!strcmp(what, "named")) {
		prctl(PR_SET_NAME, rest[0]);
		say("ready");
		wait_for_input();
	} else if (!strcmp(what, "child-naps")) {
		usleep(150000);
		if (fork() == 0)
			return nap_in_the_child(300) == 0;
		wait(0);
	} else if (!strcmp(what, "deep")) {
		say("ready");
		deep(80);
	} else if (!strcmp(what, "threads") || !strcmp(what, "parked")) {
		void *(*how)(void *) = what[0] == 'p' ? parked : sleeper;
		sem_t *own = calloc(atoi(rest[0]), sizeof(*own));
		pthread_attr_t small;

		pthread_attr_init(&small);
		pthread_attr_setstacksize(&small, 65536);
		for (int n = atoi(rest[0]); n > 0; n--)
			if (pthread_create(&thread, &small, how, own + n - 1))
				exit(1);
		say("ready");
		wait_for_input();
		_exit(0);
	} else if (!strcmp(what, "loop")) {
		return loop();
	} else if (!strcmp(what, "secret")) {
		secret(rest[0]);
	} else {
		return 2;
	}
	return 0;
}
