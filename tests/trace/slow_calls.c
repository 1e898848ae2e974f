/* Preloaded: every write of a tensor to the disk takes SLOW_WRITE_US more, every task SLOW_SUBMIT_US more to be
 * submitted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct starpu_task;
int starpu_task_submit(struct starpu_task *task);

static void rest(const char *name)
{
    const char *slow = getenv(name);
    long us = slow ? atol(slow) : 0;
    struct timespec time = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};

    if (us)
        nanosleep(&time, NULL);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t offset)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
    rest("SLOW_WRITE_US");
    return real(fd, data, n, offset);
}

int starpu_task_submit(struct starpu_task *task)
{
    static int (*real)(struct starpu_task *);

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "starpu_task_submit");
    rest("SLOW_SUBMIT_US");
    return real(task);
}
