/* Writes a field of all blocks to files: straight from the stages, or from a copy while the next
 * steps run. */
#include "graphs/weights/checkpoint.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

/* A file to which blocks are written, in the order of the model. */
struct writing {
    const struct sp_params *params;
    struct sp_st_writer *out;
    int err;
};

static void begin(struct writing *wr, const struct sp_dir *dir, const char *name,
                  uint64_t shard_bytes, json_t *sums)
{
    wr->err = sp_st_writer_create_in(dir, name, shard_bytes, &wr->out);
    if (!wr->err && sums)
        sp_st_writer_sum(wr->out, sums);
    if (!wr->err)
        wr->err = sp_weights_declare(wr->out, wr->params);
}

static int write_block(void *arg, enum sp_block_kind kind, int layer, const float *w, size_t n)
{
    struct writing *wr = arg;

    (void)n;
    if (!wr->err)
        wr->err = sp_weights_write_block(wr->out, wr->params, kind, layer, w);
    return wr->err;
}

static int end(struct writing *wr)
{
    if (!wr->out)
        return wr->err;
    if (!wr->err)
        return sp_st_writer_finish(wr->out);
    sp_st_writer_abort(wr->out);
    return wr->err;
}

int sp_checkpoint_write(struct sp_graph *g, enum sp_field field, const char *path)
{
    return sp_checkpoint_write_in(g, field, NULL, path, 0, NULL);
}

int sp_checkpoint_write_in(struct sp_graph *g, enum sp_field field, const struct sp_dir *dir,
                           const char *name, uint64_t shard_bytes, json_t *sums)
{
    struct writing wr = {.params = g->cfg.params};

    if (g->place.world.rank == 0)
        begin(&wr, dir, name, shard_bytes, sums);
    sp_checkpoint_each(g, field, write_block, &wr);
    return g->place.world.rank == 0 ? end(&wr) : 0;
}

/* ---- copies ----------------------------------------------------------------------------- */

struct block {
    enum sp_block_kind kind;
    int layer;
    size_t n;
    float *values;
};

struct sp_snapshot {
    const struct sp_params *params;
    int n, room;
    struct block *blocks;
};

static int copy_block(void *arg, enum sp_block_kind kind, int layer, const float *w, size_t n)
{
    struct sp_snapshot *s = arg;
    struct block *b;
    float *values = malloc(n * sizeof *values);

    if (s->n == s->room) {
        int room = s->room ? 2 * s->room : 64;
        struct block *more = realloc(s->blocks, (size_t)room * sizeof *more);

        if (more) {
            s->blocks = more;
            s->room = room;
        }
    }
    if (!values || s->n == s->room) {
        free(values);
        return sp_error(ENOMEM, "no memory for a copy of %zu parameters: leave out --save-async",
                        n);
    }
    memcpy(values, w, n * sizeof *values);
    b = &s->blocks[s->n++];
    b->kind = kind;
    b->layer = layer;
    b->n = n;
    b->values = values;
    return 0;
}

int sp_snapshot_take(struct sp_graph *g, enum sp_field field, struct sp_snapshot **snapshot)
{
    bool here = g->place.world.rank == 0;
    struct sp_snapshot *s = here ? calloc(1, sizeof *s) : NULL;
    int err;

    SP_NEED(s || !here, "no memory for a copy");
    if (here)
        s->params = g->cfg.params;
    err = sp_checkpoint_each(g, field, copy_block, s);
    if (err) {
        sp_snapshot_free(s);
        return err;
    }
    *snapshot = s;
    return 0;
}

int sp_snapshot_write(const struct sp_snapshot *s, const struct sp_dir *dir, const char *name,
                      uint64_t shard_bytes, json_t *sums)
{
    struct writing wr = {.params = s->params};

    begin(&wr, dir, name, shard_bytes, sums);
    for (int i = 0; i < s->n; i++)
        write_block(&wr, s->blocks[i].kind, s->blocks[i].layer, s->blocks[i].values,
                    s->blocks[i].n);
    return end(&wr);
}

void sp_snapshot_free(struct sp_snapshot *s)
{
    for (int i = 0; s && i < s->n; i++)
        free(s->blocks[i].values);
    if (s)
        free(s->blocks);
    free(s);
}
