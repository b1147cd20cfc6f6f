/* The same reads as the ibpulse sampler, in C: what the sampler's cost and lateness are measured against.
 *
 *   reference INTERVAL_NS PHASE_NS SECONDS RING TRANSMIT RECEIVE [TRANSMIT RECEIVE ...]
 *
 * At every wall-clock multiple of the interval (plus a phase, so that it can run beside a sampler without waking at
 * the same instants) it reads each file with pread on a held descriptor, reads the clock around each read, and stores
 * one record of six words per port into a mapped file. A tick that would begin more than half an interval late is
 * skipped and counted. At the end it prints one JSON object. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { RECORD_WORDS = 6, HISTORY_SECONDS = 300, READ_BYTES = 24, CLOCK_TRIES = 5 };
static const int64_t NS = 1000000000;

struct port {
    int transmit, receive;
    uint64_t *records;
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static int64_t now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * NS + t.tv_nsec;
}

/* Wall clock minus monotonic clock, from the tightest of some tries. */
static int64_t wall_offset_ns(void)
{
    int64_t best_width = INT64_MAX, best = 0;
    for (int i = 0; i < CLOCK_TRIES; i++) {
        int64_t before = now_ns(CLOCK_MONOTONIC);
        int64_t wall = now_ns(CLOCK_REALTIME);
        int64_t width = now_ns(CLOCK_MONOTONIC) - before;
        if (width < best_width) {
            best_width = width;
            best = wall - before - width / 2;
        }
    }
    return best;
}

static void sleep_until(int64_t deadline_ns)
{
    struct timespec t = {deadline_ns / NS, deadline_ns % NS};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

static uint64_t read_counter(int descriptor)
{
    char text[READ_BYTES + 1];
    ssize_t length = pread(descriptor, text, READ_BYTES, 0);
    if (length <= 0)
        die("pread");
    text[length] = '\0';
    return strtoull(text, NULL, 10);
}

static int64_t read_ports(const struct port *ports, int count, int64_t tick, int64_t capacity)
{
    int64_t first = now_ns(CLOCK_MONOTONIC), before = first;
    for (int i = 0; i < count; i++) {
        uint64_t *record = ports[i].records + tick % capacity * RECORD_WORDS;
        record[0] = before;
        record[3] = read_counter(ports[i].transmit);
        record[1] = now_ns(CLOCK_MONOTONIC);
        record[4] = read_counter(ports[i].receive);
        record[2] = before = now_ns(CLOCK_MONOTONIC);
        record[5] = tick;
    }
    return first;
}

static int open_counter(const char *path)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        die(path);
    return descriptor;
}

static struct port *open_ports(char **paths, int count, const char *ring, int64_t capacity)
{
    size_t words = (size_t)capacity * RECORD_WORDS;
    int file = open(ring, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || posix_fallocate(file, 0, count * words * sizeof(uint64_t)))
        die(ring);
    uint64_t *map = mmap(NULL, count * words * sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    struct port *ports = calloc(count, sizeof *ports);
    if (map == MAP_FAILED || !ports)
        die("memory");
    for (int i = 0; i < count; i++)
        ports[i] = (struct port){open_counter(paths[2 * i]), open_counter(paths[2 * i + 1]), map + i * words};
    return ports;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t percentile(const int64_t *sorted, int64_t count, double part)
{
    return count ? sorted[(int64_t)(part * (count - 1) + 0.5)] : 0;
}

static double seconds_of(struct timeval t)
{
    return t.tv_sec + t.tv_usec / 1e6;
}

int main(int argc, char **argv)
{
    if (argc < 7 || argc % 2 == 0) {
        fprintf(stderr, "usage: %s INTERVAL_NS PHASE_NS SECONDS RING TRANSMIT RECEIVE ...\n", argv[0]);
        return 2;
    }
    int64_t interval = atoll(argv[1]), phase = atoll(argv[2]), wanted = atof(argv[3]) * NS / interval;
    int64_t capacity = HISTORY_SECONDS * NS / interval;
    int count = (argc - 5) / 2;
    struct port *ports = open_ports(argv + 5, count, argv[4], capacity);
    int64_t *lateness = calloc(wanted + 1, sizeof *lateness);
    if (!lateness)
        die("memory");
    if (prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL))
        die("PR_SET_TIMERSLACK");

    int64_t offset = wall_offset_ns() - phase;
    int64_t first = (now_ns(CLOCK_MONOTONIC) + offset) / interval + 1, tick = first, kept = 0;
    struct rusage begun, ended;
    getrusage(RUSAGE_SELF, &begun);
    int64_t cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    while (tick < first + wanted) {
        int64_t deadline = tick * interval - offset;
        sleep_until(deadline);
        if (now_ns(CLOCK_MONOTONIC) - deadline <= interval / 2) {
            lateness[kept++] = read_ports(ports, count, tick, capacity) - deadline;
        }
        int64_t next = (now_ns(CLOCK_MONOTONIC) + offset) / interval + 1;
        tick = next > tick ? next : tick + 1;
    }
    cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    getrusage(RUSAGE_SELF, &ended);

    qsort(lateness, kept, sizeof *lateness, ascending);
    printf("{\"ticks\": %ld, \"missed\": %ld, \"cpu_ns_per_tick\": %.0f, ", (long)kept, (long)(wanted - kept),
           kept ? (double)cpu / kept : 0.0);
    printf("\"user_seconds\": %.6f, \"system_seconds\": %.6f, ", seconds_of(ended.ru_utime) - seconds_of(begun.ru_utime),
           seconds_of(ended.ru_stime) - seconds_of(begun.ru_stime));
    printf("\"lateness_ns\": {\"p50\": %ld, \"p99\": %ld, \"p99.9\": %ld, \"max\": %ld}}\n",
           (long)percentile(lateness, kept, 0.5), (long)percentile(lateness, kept, 0.99),
           (long)percentile(lateness, kept, 0.999), (long)percentile(lateness, kept, 1.0));
    return 0;
}
