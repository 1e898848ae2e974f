/*
 * Preloaded: a file system that lacks, as $POOR_FILES lists, "links" (symbolic ones, as on vfat, with the
 * errno $POOR_ERRNO), "locks" (flock) or "exchange" (of two names, renameat2).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int lacks(const char *what)
{
    const char *list = getenv("POOR_FILES"), *number = getenv("POOR_ERRNO");

    if (!list || !strstr(list, what))
        return 0;
    errno = number ? atoi(number) : EOPNOTSUPP;
    return 1;
}

#define REAL(name) (*(__typeof__(&name))dlsym(RTLD_NEXT, #name))

int symlinkat(const char *target, int dir, const char *name)
{
    return lacks("links") ? -1 : REAL(symlinkat)(target, dir, name);
}

int symlink(const char *target, const char *name)
{
    return lacks("links") ? -1 : REAL(symlink)(target, name);
}

int flock(int fd, int how)
{
    return lacks("locks") ? -1 : REAL(flock)(fd, how);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    if (!lacks("exchange"))
        return REAL(renameat2)(a, from, b, to, flags);
    errno = EINVAL;
    return -1;
}
