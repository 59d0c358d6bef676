/* Programs that are strange to watch: `odd map FILE...`, `odd perf-map`, `odd mappings FOLDER`,
 * `odd names`. Each prints "ready" and then sleeps for 20 ms again and again. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Code that calls its first argument with its second, with a frame of its own. */
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8,
				     0x48, 0x89, 0xf7, 0xff, 0xd0, 0x5d, 0xc3};
typedef void (*calls)(void (*)(long), long);

static void nap(long ms)
{
	struct timespec time = {0, ms * 1000000};
	nanosleep(&time, NULL);
}

static void ready(void)
{
	puts("ready");
	fflush(stdout);
}

static unsigned char *anonymous(void)
{
	unsigned char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(at, code, sizeof(code));
	return at;
}

/* Sleeps within code of files: at 0x800 of each. */
static void map(int count, char **files)
{
	calls found[64];
	int n = 0;
	for (int i = 0; i < count && n < 64; i++) {
		int fd = open(files[i], O_RDONLY);
		char *at = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
		if (fd < 0 || at == MAP_FAILED) {
			perror(files[i]);
			return;
		}
		close(fd);
		found[n++] = (calls)(at + 0x800);
	}
	ready();
	for (int i = 0;; i++)
		found[i % n](nap, 20);
}

/* Has a map of compiled functions of 66 MB, which is written anew all the time. */
static void perf_map(void)
{
	unsigned char *at = anonymous();
	char path[64];
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	FILE *file = fopen(path, "w");
	for (long i = 1; ftell(file) < 66000000; i++)
		fprintf(file, "%lx 1 a\n", i);
	fclose(file);
	ready();
	for (int i = 0; getppid() != 1; i++) {
		((calls)at)(nap, 20);
		if (i % 5 == 0 && truncate(path, 65000000 - i % 7))
			break;
	}
	unlink(path);
}

/* Has as many mappings as it may, of a file with a long path, and code that was never seen. */
static void mappings(const char *folder)
{
	char component[201];
	memset(component, 'd', 200);
	component[200] = 0;
	if (chdir(folder))
		return;
	for (int i = 0; i < 18; i++)
		if (mkdir(component, 0700) || chdir(component))
			return;
	int fd = open("file", O_CREAT | O_RDWR, 0700);
	if (ftruncate(fd, 8192))
		return;
	for (int i = 0; i < 64000; i++) {
		int access = i & 1 ? PROT_READ : PROT_READ | PROT_EXEC;
		if (mmap(NULL, 4096, access, MAP_PRIVATE, fd, 0) == MAP_FAILED)
			break;
	}
	ready();
	for (;;) {
		unsigned char *at = anonymous();
		((calls)at)(nap, 120);
		munmap(at, 4096);
	}
}

#define FUNCTION(name, inner)                        \
	__attribute__((noinline)) void name(void) \
	{                                         \
		inner;                            \
		__asm__ volatile("");             \
	}
/* As the types of C++ are mangled. */
FUNCTION(i, nap(20))
FUNCTION(d, i())
FUNCTION(Pv, d())
FUNCTION(Sa, Pv())
FUNCTION(w, Sa())
FUNCTION(Ss, w())

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	if (!strcmp(what, "map"))
		map(argc - 2, argv + 2);
	if (!strcmp(what, "perf-map"))
		perf_map();
	if (!strcmp(what, "mappings") && argc > 2)
		mappings(argv[2]);
	if (!strcmp(what, "names")) {
		ready();
		for (;;)
			Ss();
	}
	return 1;
}
