/*
 * Two threads hand a byte to and fro through two pipes, so often as the argument says. Each works
 * for a moment before it hands the byte on, so that the other sleeps in read() meanwhile. Prints
 * how often the two slept of their own accord.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define WORK_NS 30000

static int there[2], back[2];
static long rounds;

static long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000L + now.tv_nsec;
}

static long play(int from, int to, int begins)
{
	struct rusage usage;
	char byte = 'x';

	if (begins && write(to, &byte, 1) != 1)
		exit(1);
	for (long i = 0; i < rounds; i++) {
		long until;

		if (read(from, &byte, 1) != 1)
			exit(1);
		if (begins && i == rounds - 1)
			break;
		for (until = now_ns() + WORK_NS; now_ns() < until;)
			;
		if (write(to, &byte, 1) != 1)
			exit(1);
	}
	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

static void *other(void *slept)
{
	*(long *)slept = play(there[0], back[1], 0);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	long mine, its;

	rounds = argc > 1 ? atol(argv[1]) : 0;
	if (pipe(there) || pipe(back) || pthread_create(&thread, NULL, other, &its))
		return 1;
	mine = play(back[0], there[1], 1);
	pthread_join(thread, NULL);
	printf("slept %ld\n", mine + its);
	return 0;
}
