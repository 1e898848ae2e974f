/* Functions that a build which reads no tokenizers has as well. */
#include "sp_grow.h"
#include "model/tokenizer/stream.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

int sp_tokenizer_open(const char *dir, struct sp_tokenizer **t)
{
    struct sp_dir d;
    int err = sp_dir_open(dir, &d);

    if (err)
        return sp_error(-err, "%s: %s", dir, strerror(-err));
    err = sp_tokenizer_open_in(&d, t);
    if (err == -ENOENT)
        sp_error(ENOENT, "%s has no " SP_TOKENIZER_FILE, dir);
    sp_dir_close(&d);
    return err;
}

bool sp_ids_add(struct sp_ids *ids, uint32_t id)
{
    ids->failed = ids->failed || !sp_grow(&ids->id, ids->n + 1, &ids->room, sizeof *ids->id);
    if (!ids->failed)
        ids->id[ids->n++] = id;
    return !ids->failed;
}

void sp_ids_free(struct sp_ids *ids)
{
    free(ids->id);
    *ids = (struct sp_ids){0};
}

int sp_tokens_write(FILE *f, const uint32_t *ids, size_t n, int width)
{
    enum { BUFFER = 4096 };
    unsigned char bytes[4 * BUFFER] = {0};

    for (size_t i = 0, k; i < n; i += k) {
        k = n - i < BUFFER ? n - i : BUFFER;
        for (size_t j = 0; j < k; j++)
            for (int b = 0; b < width; b++)
                bytes[j * (size_t)width + (size_t)b] = (unsigned char)(ids[i + j] >> 8 * b);
        if (fwrite(bytes, (size_t)width, k, f) != k)
            return -errno;
    }
    return 0;
}
