/*
 * Answers the questions of compare.py about the tokenizer of a directory:
 *
 *     lines DIR FILE FLAGS SKIP   lines of FILE, each behind its length in four bytes: ids and their text, likewise
 *     lines DIR FILE              encodes FILE, and decodes its ids, and prints MB/s of processor time
 */
#include "model/tokenizer/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL;

    if (f && !fseek(f, 0, SEEK_END) && (text = malloc((size_t)ftell(f) + 1))) {
        *n = (size_t)ftell(f);
        rewind(f);
        if (fread(text, 1, *n, f) != *n)
            *n = 0;
    }
    if (f)
        fclose(f);
    return text;
}

static void put(const void *data, size_t n, size_t size)
{
    uint32_t count = (uint32_t)n;

    fwrite(&count, sizeof count, 1, stdout);
    fwrite(data, size, n, stdout);
}

/* The text of all ids, its length in *n; NULL: no memory, or an error that was said. */
static char *decode(const struct sp_tokenizer *t, const struct sp_ids *ids, unsigned flags,
                    size_t *n)
{
    struct sp_decoding d = {.flags = flags};
    struct sp_decode_room room = {0};
    size_t size = 1 << 16, len;
    char *out = malloc(size);

    *n = 0;
    for (size_t i = 0; out && i < ids->n; i++) {
        if (sp_decode(t, &d, ids->id[i], &room, &len)) {
            free(out);
            out = NULL;
            break;
        }
        if (*n + len > size)
            out = realloc(out, size = 2 * (*n + len));
        if (out)
            memcpy(out + *n, room.at, len);
        *n += len;
    }
    sp_decode_room_free(&room);
    return out;
}

static int answer(const struct sp_tokenizer *t, struct sp_encoder *e, const char *text, size_t n,
                  const unsigned flags[2])
{
    struct sp_ids ids = {0};
    uint32_t length;
    int err = 0;

    for (size_t at = 0; !err && at + sizeof length <= n; at += length) {
        size_t m;
        char *said;

        memcpy(&length, text + at, sizeof length);
        at += sizeof length;
        ids.n = 0;
        err = sp_encode(e, text + at, length, flags[0], &ids);
        said = err ? NULL : decode(t, &ids, flags[1], &m);
        if (!said)
            return 1;
        put(ids.id, ids.n, sizeof *ids.id);
        put(said, m, 1);
        free(said);
    }
    sp_ids_free(&ids);
    return err != 0;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int measure(const struct sp_tokenizer *t, struct sp_encoder *e, const char *text, size_t n)
{
    struct sp_ids ids = {0};
    double best = 1e30, begun = 0, took;
    char *said;
    size_t m;

    for (int i = 0; i < 3; i++) {
        ids.n = 0;
        begun = now();
        if (sp_encode(e, text, n, 0, &ids))
            return 1;
        best = now() - begun < best ? now() - begun : best;
    }
    begun = now();
    said = decode(t, &ids, 0, &m);
    took = now() - begun;
    printf("%zu bytes, %zu ids: encoded at %.1f MB/s, decoded at %.1f MB/s\n", n, ids.n,
           (double)n / 1e6 / best, (double)m / 1e6 / took);
    free(said);
    sp_ids_free(&ids);
    return 0;
}

int main(int argc, char **argv)
{
    struct sp_tokenizer *t = NULL;
    struct sp_encoder *e = NULL;
    char *text = NULL;
    size_t n = 0;
    int status = 1;

    if (argc != 3 && argc != 5) {
        fprintf(stderr, "usage: %s DIR FILE [FLAGS SKIP]\n", argv[0]);
        return 2;
    }
    if (!sp_tokenizer_open(argv[1], &t) && (e = sp_encoder_create(t)) &&
        (text = read_file(argv[2], &n))) {
        const unsigned flags[] = {argc == 5 ? (unsigned)atoi(argv[3]) : 0,
                                  argc == 5 ? (unsigned)atoi(argv[4]) : 0};

        status = argc == 5 ? answer(t, e, text, n, flags) : measure(t, e, text, n);
    }
    free(text);
    sp_encoder_destroy(e);
    sp_tokenizer_close(t);
    return status;
}
