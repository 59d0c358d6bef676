/*
 * A consumer that hands each job from a list of redis to processes, through a thread and a pipe.
 *
 *   pool ADDRESS PROCESSES [AHEAD]
 *
 * A thread asks redis for jobs, and puts them into a queue. Another one writes them to a pipe that
 * all processes read. A job sleeps for 40 ms. It is the moment at which it was pushed. What becomes
 * of it is that, when it was taken by a process, and when it was done, in milliseconds of the clock
 * that all processes share: a third thread reads that from another pipe, and pushes it.
 *
 * So many jobs AHEAD, which nobody pushed, are in the queue before it is ready: what becomes of
 * them is not said.
 */
#include <arpa/inet.h>
#include <err.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define ROOM 128
#define JOBS 4096

static int to_workers[2], from_workers[2];
static const char *address;

static char queue[JOBS][ROOM];
static unsigned first, end;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t some = PTHREAD_COND_INITIALIZER;

static double now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static FILE *redis(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	char host[64];
	int port, fd = socket(AF_INET, SOCK_STREAM, 0);
	FILE *stream;

	if (sscanf(address, "%63[^:]:%d", host, &port) != 2)
		errx(1, "an address is HOST:PORT");
	to.sin_port = htons(port);
	inet_pton(AF_INET, host, &to.sin_addr);
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)))
		err(1, "cannot connect to %s", address);
	stream = fdopen(fd, "r+");
	return stream;
}

static void resize_image(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 40000000 }, NULL);
}

static void work(void)
{
	char job[ROOM], done[ROOM];

	while (read(to_workers[0], job, ROOM) == ROOM) {
		double taken = now_ms();

		resize_image();
		memset(done, 0, ROOM);
		snprintf(done, ROOM, "%.50s %.3f %.3f", job, taken, now_ms());
		if (write(from_workers[1], done, ROOM) != ROOM)
			err(1, "cannot answer");
	}
}

static void *hand_on(void *none)
{
	for (;;) {
		char job[ROOM];

		pthread_mutex_lock(&lock);
		while (first == end)
			pthread_cond_wait(&some, &lock);
		memcpy(job, queue[first++ % JOBS], ROOM);
		pthread_mutex_unlock(&lock);
		if (write(to_workers[1], job, ROOM) != ROOM)
			err(1, "cannot hand on");
	}
	return none;
}

static void *push_done(void *none)
{
	FILE *to = redis();
	char done[ROOM], line[ROOM];

	while (read(from_workers[0], done, ROOM) == ROOM) {
		if (done[0] == ' ')
			continue;
		fprintf(to, "RPUSH done \"%s\"\r\n", done);
		fflush(to);
		if (!fgets(line, ROOM, to))
			errx(1, "redis has gone");
	}
	return none;
}

int main(int argc, char **argv)
{
	const char *ready_file = getenv("READY_FILE");
	char line[ROOM];
	pthread_t thread;
	FILE *from, *ready;

	if (argc < 3 || argc > 4 || !ready_file)
		errx(1, "usage: pool ADDRESS PROCESSES [AHEAD], with READY_FILE");
	end = argc == 4 ? atoi(argv[3]) : 0;
	if (end > JOBS)
		errx(1, "no more than %d ahead", JOBS);
	address = argv[1];
	if (pipe(to_workers) || pipe(from_workers))
		err(1, "no pipes");
	for (int left = atoi(argv[2]); left; left--) {
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			close(to_workers[1]);
			work();
			return 0;
		}
	}
	if (pthread_create(&thread, NULL, hand_on, NULL) ||
	    pthread_create(&thread, NULL, push_done, NULL))
		errx(1, "no threads");
	from = redis();
	ready = fopen(ready_file, "w");
	fprintf(ready, "%d %s\n", getpid(), address);
	fclose(ready);
	for (;;) {
		char job[ROOM] = "";

		fprintf(from, "*3\r\n$5\r\nBLPOP\r\n$4\r\njobs\r\n$1\r\n0\r\n");
		fflush(from);
		/* An array of two: each has its length before it. */
		for (int lines = 0; lines < 5; lines++) {
			if (!fgets(line, ROOM, from))
				errx(1, "redis has gone");
			if (lines == 4)
				memcpy(job, line, strcspn(line, "\r\n"));
		}
		pthread_mutex_lock(&lock);
		memcpy(queue[end++ % JOBS], job, ROOM);
		pthread_cond_signal(&some);
		pthread_mutex_unlock(&lock);
	}
}
