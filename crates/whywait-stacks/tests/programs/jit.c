// Sleeps in code that it has made itself, and names in the map for perf.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// push %rbp; mov %rsp, %rbp; call *%rdi; pop %rbp; ret
static const unsigned char CODE[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};

static void sleep_long(void) { pause(); }

int main(void) {
  char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
  memcpy(memory, CODE, sizeof CODE);
  char name[64];
  snprintf(name, sizeof name, "/tmp/perf-%d.map", (int)getpid());
  FILE *map = fopen(name, "w");
  fprintf(map, "%lx %zx calls_what_sleeps\n", (unsigned long)memory, sizeof CODE);
  fclose(map);
  ((void (*)(void (*)(void)))(void *)memory)(sleep_long);
  return 0;
}
