/* Preloaded: the wall clock of a process is wrong by the nanoseconds in a file, also after they change. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset_ns;
static int (*read_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("WALL_CLOCK_OFFSET");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *offset_ns, PROT_READ, MAP_SHARED, file, 0);

    if (file >= 0)
        close(file);
    read_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (mapped != MAP_FAILED)
        offset_ns = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    /* other constructors may ask before this one */
    int failed = read_clock ? read_clock(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);

    if (!failed && offset_ns && (clock == CLOCK_REALTIME || clock == CLOCK_TAI)) {
        int64_t at_ns = now->tv_sec * 1000000000LL + now->tv_nsec + *offset_ns;
        now->tv_sec = at_ns / 1000000000LL;
        now->tv_nsec = at_ns % 1000000000LL;
    }
    return failed;
}
