/* Preloaded: after FAIL_AFTER calls of pwrite the disk is full. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/types.h>

static int calls;

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);
    const char *after = getenv("FAIL_AFTER");

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
    if (after && __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) > atoi(after)) {
        errno = ENOSPC;
        return -1;
    }
    return real(fd, data, n, at);
}

ssize_t pwrite64(int fd, const void *data, size_t n, off_t at)
{
    return pwrite(fd, data, n, at);
}
