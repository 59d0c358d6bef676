/*
 * A job without requests: four threads take turns at a mutex, 20 ms of work each, fifteen times.
 * "idle" does nothing with the mutex: three of the threads wait until the first one has done all of
 * the work.
 */
#include <pthread.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t end = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static int idle, done;

__attribute__((noinline)) static void rebuild_table(void)
{
	struct timespec work = { .tv_nsec = 20 * 1000 * 1000 };

	nanosleep(&work, 0);
}

static void *contend(void *unused)
{
	for (int i = 0; i < 15; i++) {
		pthread_mutex_lock(&table);
		rebuild_table();
		pthread_mutex_unlock(&table);
	}
	return unused;
}

static void *wait_for_the_end(void *unused)
{
	pthread_mutex_lock(&end);
	while (!done)
		pthread_cond_wait(&ended, &end);
	pthread_mutex_unlock(&end);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t threads[3];

	idle = argc > 1 && !strcmp(argv[1], "idle");
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], 0, idle ? wait_for_the_end : contend, 0);
	contend(0);
	pthread_mutex_lock(&end);
	done = 1;
	pthread_cond_broadcast(&ended);
	pthread_mutex_unlock(&end);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], 0);
	return 0;
}
