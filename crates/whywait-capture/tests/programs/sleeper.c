/*
 * Sleeps of some 2 ms, by turns on a condition and in a read from a socket; another thread of the
 * program ends each.
 */
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given = PTHREAD_COND_INITIALIZER;
static int tickets;
static int ends[2];

__attribute__((noinline)) static void wait_for_ticket(void)
{
	pthread_mutex_lock(&lock);
	while (!tickets)
		pthread_cond_wait(&given, &lock);
	tickets--;
	pthread_mutex_unlock(&lock);
}

__attribute__((noinline)) static int wait_for_byte(void)
{
	char byte;

	return recv(ends[0], &byte, 1, 0) == 1;
}

static void *sleeper(void *rounds)
{
	for (long i = 0; i < (long)rounds; i++) {
		wait_for_ticket();
		if (!wait_for_byte())
			return 0;
	}
	return rounds;
}

int main(void)
{
	long rounds = 300;
	pthread_t thread;
	void *done;

	if (getchar() == EOF || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) ||
	    pthread_create(&thread, 0, sleeper, (void *)rounds))
		return 1;
	for (long i = 0; i < rounds; i++) {
		usleep(2000);
		pthread_mutex_lock(&lock);
		tickets++;
		pthread_cond_signal(&given);
		pthread_mutex_unlock(&lock);
		usleep(2000);
		if (send(ends[1], "x", 1, 0) != 1)
			return 1;
	}
	pthread_join(thread, &done);
	puts("done");
	fflush(stdout);
	getchar();
	return !done;
}
