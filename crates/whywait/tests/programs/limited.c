/*
 * Serves itself over TCP: four threads answer, each 25 ms of CPU time later, what four others ask
 * 10 ms after the answer before. That is more than two CPUs can do, and each request is more than a
 * cgroup with a limit of 0.2 CPUs may use in a period of 100 ms: all of them wait for the
 * next one, whatever else the machine does. Says "ready" and goes on until it is ended.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS 4

static struct sockaddr_in address = { .sin_family = AF_INET };

static long cpu_us(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

__attribute__((noinline)) static void render(void)
{
	long until = cpu_us() + 25000;

	while (cpu_us() < until)
		;
}

static void *answer(void *socket)
{
	int connection = (int)(long)socket;
	char request[16];

	while (read(connection, request, sizeof(request)) > 0) {
		render();
		if (write(connection, "done", 4) < 0)
			break;
	}
	return 0;
}

static void *ask(void *unused)
{
	int connection = socket(AF_INET, SOCK_STREAM, 0);
	struct timespec pause = { .tv_nsec = 10 * 1000 * 1000 };
	char answer[16];

	if (connect(connection, (struct sockaddr *)&address, sizeof(address)))
		return unused;
	while (write(connection, "page", 4) > 0 && read(connection, answer, sizeof(answer)) > 0)
		nanosleep(&pause, 0);
	return unused;
}

int main(void)
{
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t length = sizeof(address);
	pthread_t thread;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, CONNECTIONS) ||
	    getsockname(listener, (struct sockaddr *)&address, &length))
		return 1;
	for (int i = 0; i < CONNECTIONS; i++)
		pthread_create(&thread, 0, ask, 0);
	for (int i = 0; i < CONNECTIONS; i++)
		pthread_create(&thread, 0, answer, (void *)(long)accept(listener, 0, 0));
	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
