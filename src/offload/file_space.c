#include "offload/file_space.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int insert(struct sp_file_space *f, int i, struct sp_gap gap)
{
    if (f->n == f->cap) {
        int cap = f->cap ? 2 * f->cap : 64;
        struct sp_gap *more = realloc(f->gaps, (size_t)cap * sizeof *more);

        if (!more)
            return -ENOMEM;
        f->gaps = more;
        f->cap = cap;
    }
    memmove(&f->gaps[i + 1], &f->gaps[i], (size_t)(f->n - i) * sizeof *f->gaps);
    f->gaps[i] = gap;
    f->n++;
    return 0;
}

static void erase(struct sp_file_space *f, int i)
{
    memmove(&f->gaps[i], &f->gaps[i + 1], (size_t)(f->n - i - 1) * sizeof *f->gaps);
    f->n--;
}

off_t sp_file_space_take(struct sp_file_space *f, size_t bytes, bool *grows)
{
    off_t at;

    *grows = false;
    for (int i = 0; i < f->n; i++) {
        struct sp_gap *gap = &f->gaps[i];

        if (gap->bytes < bytes)
            continue;
        at = gap->at;
        gap->at += (off_t)bytes;
        gap->bytes -= bytes;
        if (!gap->bytes)
            erase(f, i);
        return at;
    }
    *grows = true;
    at = f->end;
    f->end += (off_t)bytes;
    return at;
}

/* The first gap behind a place. */
static int gap_behind(const struct sp_file_space *f, off_t at)
{
    int low = 0, high = f->n;

    while (low < high) {
        int middle = (low + high) / 2;

        if (f->gaps[middle].at < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int sp_file_space_give(struct sp_file_space *f, off_t at, size_t bytes)
{
    int i = gap_behind(f, at);
    bool follows = i > 0 && f->gaps[i - 1].at + (off_t)f->gaps[i - 1].bytes == at;
    bool precedes = i < f->n && at + (off_t)bytes == f->gaps[i].at;

    if (!follows && !precedes)
        return insert(f, i, (struct sp_gap){at, bytes});
    if (!follows) {
        f->gaps[i].at = at;
        f->gaps[i].bytes += bytes;
        return 0;
    }
    f->gaps[i - 1].bytes += bytes;
    if (precedes) {
        f->gaps[i - 1].bytes += f->gaps[i].bytes;
        erase(f, i);
    }
    return 0;
}
