/* A wall clock that is wrong by so many seconds, for one process: preload it and set rink_shift_s.

   Everything that reads CLOCK_REALTIME sees the shift, gRPC's core too; monotonic clocks are left
   alone. Waits until a point of wall-clock time are shifted back, since the kernel's own clock is
   right: on a machine whose clock is wrong, both are wrong alike. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

volatile long rink_shift_s = 0;

#define NEXT(name) \
    static __typeof__(name) *next; \
    if (!next) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static int is_wall(clockid_t clock) {
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

/* Points of wall-clock time lie after 2001; those of other clocks do not. */
static const struct timespec *back(const struct timespec *at, struct timespec *room) {
    if (!at || at->tv_sec < 1000000000L) return at;
    *room = *at;
    room->tv_sec -= rink_shift_s;
    return room;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    NEXT(clock_gettime);
    int failed = next(clock, now);
    if (!failed && is_wall(clock)) now->tv_sec += rink_shift_s;
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    NEXT(gettimeofday);
    int failed = next(now, zone);
    if (!failed) now->tv_sec += rink_shift_s;
    return failed;
}

time_t time(time_t *now) {
    NEXT(time);
    time_t shifted = next(NULL) + rink_shift_s;
    if (now) *now = shifted;
    return shifted;
}

int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *at) {
    NEXT(pthread_cond_timedwait);
    struct timespec room;
    return next(c, m, back(at, &room));
}

int sem_timedwait(sem_t *s, const struct timespec *at) {
    NEXT(sem_timedwait);
    struct timespec room;
    return next(s, back(at, &room));
}

long syscall(long number, ...) {
    static long (*next)(long, ...);
    if (!next) next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
    long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    struct timespec room;
    if (number == SYS_futex && (b & FUTEX_CLOCK_REALTIME))
        d = (long)back((const struct timespec *)d, &room);
    return next(number, a, b, c, d, e, f);
}
