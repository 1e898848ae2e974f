/* Functions that a build which reads no tokenizers has as well. */
#include "model/tokenizer/tokenizer.h"
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
    if (ids->n == ids->room && !ids->failed) {
        size_t room = ids->room ? 2 * ids->room : 64;
        uint32_t *grown = realloc(ids->id, room * sizeof *grown);

        ids->failed = !grown;
        if (grown) {
            ids->id = grown;
            ids->room = room;
        }
    }
    if (!ids->failed)
        ids->id[ids->n++] = id;
    return !ids->failed;
}

void sp_ids_free(struct sp_ids *ids)
{
    free(ids->id);
    *ids = (struct sp_ids){0};
}
