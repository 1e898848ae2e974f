/*
 * Fuzz target: a whole safetensors file. Whatever the bytes, opening it either fails or gives
 * entries that keep their promises: names distinct, data inside the file, disjoint and without
 * holes, sizes that match, every readable tensor readable.
 */
#define _GNU_SOURCE /* memfd_create */
#include "fuzz.h"
#include "model/files/safetensors.h"
#include <sys/mman.h>

/* The input as a file; kept in memory. */
static const char *file_of(const uint8_t *data, size_t size)
{
    static char path[64];
    static int fd = -1;

    if (fd < 0) {
        fd = memfd_create("fuzz", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (fd < 0 || ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    return path;
}

static void check_entry(const struct sp_st_file *st, int i, uint64_t size)
{
    const struct sp_st_entry *e = &st->entries[i];
    uint64_t count = 1, width = !strcmp(e->dtype, "F32") ? 4 : 2;
    float *x;

    if (e->begin > e->end || e->end > size - st->shards[0].data_start || e->ndim < 0 || e->ndim > 8)
        abort();
    if (e->begin != (i ? st->entries[i - 1].end : 0))
        abort();
    if (sp_st_find(st, e->name) != e) /* also: no duplicates */
        abort();
    for (int d = 0; d < e->ndim; d++)
        if (e->shape[d] < 0 || __builtin_mul_overflow(count, (uint64_t)e->shape[d], &count))
            abort();
    if (strcmp(e->dtype, "F32") && strcmp(e->dtype, "F16") && strcmp(e->dtype, "BF16"))
        return;
    if (count != (e->end - e->begin) / width || (e->end - e->begin) % width)
        abort();
    x = malloc(count * sizeof *x + 1);
    if (!x || sp_st_read(st, e, x))
        abort();
    free(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sp_st_file st;

    fuzz_silence();
    if (sp_st_open(file_of(data, size), &st))
        return 0;
    fuzz_accepted++;
    for (int i = 0; i < st.n; i++)
        check_entry(&st, i, size);
    if (st.shards[0].data_start + (st.n ? st.entries[st.n - 1].end : 0) != size)
        abort();
    sp_st_close(&st);
    return 0;
}

#ifndef SP_LIBFUZZER

/* The length of a header is one byte of eight. */
#define SEED(LENGTH, TEXT, DATA) LENGTH "\0\0\0\0\0\0\0" TEXT DATA

static const char one[] =
    SEED("\x38", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}  ",
         "\0\0\x80\x3f\0\0\0\x40");
static const char two[] = SEED("\x70",
                               "{\"h\":{\"dtype\":\"F16\",\"shape\":[1,2],\"data_offsets\":[0,4]},"
                               "\"b\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[4,6]}}   ",
                               "\x01\x3c\x02\x3c\x80\x3f");
static const char meta[] =
    SEED("\x90",
         "{\"__metadata__\":{\"format\":\"pt\"},\"e\":{\"dtype\":\"U8\",\"shape\":[0,3],"
         "\"data_offsets\":[0,0]},\"n\":{\"dtype\":\"NEW\",\"shape\":[9],"
         "\"data_offsets\":[0,3]}}     ",
         "xyz");

int main(int argc, char **argv)
{
    const struct fuzz_seed seeds[] = {
        {one, sizeof one - 1}, {two, sizeof two - 1}, {meta, sizeof meta - 1}};

    return fuzz_main(argc, argv, seeds, sizeof seeds / sizeof seeds[0], 60000);
}

#endif
