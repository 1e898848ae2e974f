/*
 * Fuzz target: an index of shards. The shards are two files in memory; a descriptor's number is the
 * name of a file in /proc/self/fd. Whatever the bytes, opening either fails or gives tensors with
 * distinct names that can be read from files of that directory.
 */
#define _GNU_SOURCE /* memfd_create */
#include "fuzz.h"
#include "model/files/safetensors.h"
#include <sys/mman.h>

/* "201" holds a and b, "202" holds c. */
enum { INDEX = 200, ONE, TWO };

#define ENTRY(NAME, BEGIN, END)                                                                    \
    "\"" NAME "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" #BEGIN "," #END "]}"

static void make_file(int fd, const char *header, size_t data_bytes)
{
    uint64_t n = strlen(header);
    int made = memfd_create("fuzz", 0);
    static const char data[8];

    if (made < 0 || dup2(made, fd) != fd)
        abort();
    close(made);
    if (!header[0])
        return;
    if (pwrite(fd, &n, 8, 0) != 8 || pwrite(fd, header, n, 8) != (ssize_t)n ||
        pwrite(fd, data, data_bytes, 8 + (off_t)n) != (ssize_t)data_bytes)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int made;
    struct sp_st_file st;

    fuzz_silence();
    if (!made++) {
        make_file(INDEX, "", 0);
        make_file(ONE, "{" ENTRY("a", 0, 4) "," ENTRY("b", 4, 8) "}", 8);
        make_file(TWO, "{" ENTRY("c", 0, 4) "}", 4);
    }
    if (ftruncate(INDEX, 0) || pwrite(INDEX, data, size, 0) != (ssize_t)size)
        abort();
    if (sp_st_open_index("/proc/self/fd/200", &st))
        return 0;
    fuzz_accepted++;
    if (st.n < 1 || st.n > 3 || st.n_shards < 1 || st.n_shards > 2)
        abort();
    for (int i = 0; i < st.n; i++) {
        const struct sp_st_entry *e = &st.entries[i];
        float x = 1;

        if (e->shard < 0 || e->shard >= st.n_shards || sp_st_find(&st, e->name) != e)
            abort();
        if (strcmp(sp_st_path(&st, e), *e->name == 'c' ? "/proc/self/fd/202" : "/proc/self/fd/201"))
            abort();
        if (sp_st_read(&st, e, &x) || x != 0)
            abort();
    }
    sp_st_close(&st);
    return 0;
}

#ifndef SP_LIBFUZZER

static const char both[] =
    "{'metadata':{'total_size':12},'weight_map':{'a':'201','b':'201','c':'202'}}";
static const char one[] = "{'weight_map':{'a':'201','b':'201'}}";

int main(int argc, char **argv)
{
    const struct fuzz_seed seeds[] = {fuzz_json(both), fuzz_json(one)};

    return fuzz_main(argc, argv, seeds, sizeof seeds / sizeof seeds[0], 60000);
}

#endif
