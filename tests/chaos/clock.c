/* Shifts the wall clock of a process by CHAOS_CLOCK seconds; what CLOCK_MONOTONIC tells stays. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long shift(void) {
    const char *seconds = getenv("CHAOS_CLOCK");
    return seconds ? atol(seconds) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *result) {
    static int (*original)(clockid_t, struct timespec *);
    static long seconds;
    if (!original) {
        seconds = shift();
        original = dlsym(RTLD_NEXT, "clock_gettime");
    }
    int status = original(clock, result);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        result->tv_sec += seconds;
    return status;
}

int gettimeofday(struct timeval *restrict result, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int status = clock_gettime(CLOCK_REALTIME, &now);
    if (status == 0 && result) {
        result->tv_sec = now.tv_sec;
        result->tv_usec = now.tv_nsec / 1000;
    }
    return status;
}

time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}
