/* Sends a netlink request per port every interval, takes its reply, and stores the records that the sampler stores.
 *
 * netlink INTERVAL_NS SECONDS FAMILY TRANSMIT_AT RECEIVE_AT REQUEST... prints {"ticks": ..., "cpu_ns": ...}. The values
 * lie at these places of a reply; requests are hexadecimal.
 */
#include <linux/netlink.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

enum { MAX_PORTS = 64, CAPACITY = 512, MAX_REQUEST = 128 };
union request {
    struct nlmsghdr header;
    unsigned char bytes[MAX_REQUEST];
};
static uint64_t ring[MAX_PORTS][CAPACITY][6];
static char reply[65536];

static uint64_t now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int main(int count, char **arguments)
{
    if (count < 7 || count > MAX_PORTS + 6)
        return 2;
    uint64_t interval = strtoull(arguments[1], 0, 10), ticks = 0;
    uint64_t wanted = (uint64_t)(strtod(arguments[2], 0) * 1e9) / interval;
    size_t transmit_at = strtoul(arguments[4], 0, 10), receive_at = strtoul(arguments[5], 0, 10);
    int ports = count - 6, socket_ = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, atoi(arguments[3]));
    static union request requests[MAX_PORTS];
    ssize_t lengths[MAX_PORTS] = {0};
    for (int port = 0; port < ports; port++)
        for (size_t place = 0; place < MAX_REQUEST && 2 * place < strlen(arguments[port + 6]); place++)
            sscanf(arguments[port + 6] + 2 * place, "%2hhx", &requests[port].bytes[place]);
    prctl(PR_SET_TIMERSLACK, 1);
    uint64_t deadline = now(CLOCK_MONOTONIC) / interval * interval, cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    uint32_t sequence = 0;
    while (ticks < wanted) {
        deadline += interval;
        struct timespec until = {(time_t)(deadline / 1000000000u), (long)(deadline % 1000000000u)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, 0);
        for (int port = 0; port < ports; port++) {
            uint64_t *record = ring[port][ticks % CAPACITY];
            requests[port].header.nlmsg_seq = ++sequence;
            record[0] = record[2] = now(CLOCK_MONOTONIC);
            if (send(socket_, &requests[port], requests[port].header.nlmsg_len, 0) < 0)
                return 3;
            record[1] = now(CLOCK_MONOTONIC);
            ssize_t length = recv(socket_, reply, sizeof reply, 0);
            struct nlmsghdr *header = (struct nlmsghdr *)reply;
            if (length < (ssize_t)receive_at + 8 || header->nlmsg_seq != sequence || header->nlmsg_type == NLMSG_ERROR)
                return 4;
            if (lengths[port] && lengths[port] != length)
                return 5;
            lengths[port] = length;
            memcpy(&record[3], reply + transmit_at, 8);
            memcpy(&record[4], reply + receive_at, 8);
            record[5] = ticks;
        }
        ticks++;
    }
    printf("{\"ticks\": %llu, \"cpu_ns\": %llu}\n", (unsigned long long)ticks,
        (unsigned long long)(now(CLOCK_PROCESS_CPUTIME_ID) - cpu));
    return 0;
}
