// A server whose requests sleep in a function with a name of its own, and its load.
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) static void look_it_up(void)
{
	struct timespec pause = { .tv_nsec = 20 * 1000 * 1000 };

	nanosleep(&pause, NULL);
	// It is no tail call.
	__asm__ volatile("");
}

static int serve(struct sockaddr_in *address)
{
	int yes = 1;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	char request[64];

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(listener, (struct sockaddr *)address, sizeof(*address)) || listen(listener, 16)) {
		perror("listen");
		return 1;
	}
	puts("ready");
	fflush(stdout);
	for (;;) {
		int connection = accept(listener, NULL, NULL);

		while (read(connection, request, sizeof(request)) > 0) {
			look_it_up();
			if (write(connection, "ok\n", 3) != 3)
				break;
		}
		close(connection);
	}
}

static int load(struct sockaddr_in *address)
{
	int connection = socket(AF_INET, SOCK_STREAM, 0);
	char answer[64];

	if (connect(connection, (struct sockaddr *)address, sizeof(*address))) {
		perror("connect");
		return 1;
	}
	while (write(connection, "go\n", 3) == 3 && read(connection, answer, sizeof(answer)) > 0)
		;
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};

	if (argc != 3) {
		fprintf(stderr, "usage: %s serve|load PORT\n", argv[0]);
		return 2;
	}
	address.sin_port = htons(atoi(argv[2]));
	return strcmp(argv[1], "serve") ? load(&address) : serve(&address);
}
