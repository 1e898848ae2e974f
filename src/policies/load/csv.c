/*
 * A plan of the rows of a CSV: each stage of the file is on one row, which gives the placement;
 * every op must be there once; then the programs.
 */
#include "policies/load/csv.h"
#include "policies/load/csv_rows.h"
#include "sp_error.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_BYTES (512L << 20) /* of a file; SP_MAX_OPS pairs of long numbers are less */

/* What a global stage does for a micro-batch. */
enum { HAS_F = 1, HAS_B = 2, HAS_I = 4, HAS_W = 8 };

const struct sp_schedule_def sp_schedule_csv = {
    .abi = SP_SCHEDULE_ABI,
    .name = "csv",
    .summary = "the order of a file, as torch.distributed.pipelining writes it",
    .source = "the file",
    .family = "layerwise",
    .default_chunks = 1,
};

/* A size of the file against what was asked for. */
static int same(const struct sp_csv_reader *r, const char *option, int is, int wanted)
{
    if (wanted == 0 || wanted == is)
        return 0;
    return sp_error(EINVAL, "%s has %d %s, not %d; leave --%s out", r->name, is, option, wanted,
                    option);
}

/* Rows and stages, whether they make a placement; sets the sizes of the layout. */
static int check_sizes(const struct sp_csv_reader *r, struct sp_layout *lay)
{
    for (int g = 0; g < r->globals; g++) {
        if (r->owner[g] < 0)
            return sp_error(EINVAL, "%s: stage %d of 0 .. %d is on no line", r->name, g,
                            r->globals - 1);
    }
    for (int s = 1; s < r->rows; s++) {
        if (r->row[s].globals != r->row[0].globals)
            return sp_csv_refuse(r, s, 0, "%d stages, line 1 has %d; every rank has as many",
                                 r->row[s].globals, r->row[0].globals);
    }
    if (same(r, "stages", r->rows, lay->stages) ||
        same(r, "micro-batches", r->micro_batches, lay->micro_batches) ||
        same(r, "chunks", r->row[0].globals, lay->chunks) || same(r, "slices", 1, lay->slices))
        return -EINVAL;
    if (3LL * r->globals * r->micro_batches > SP_MAX_OPS)
        return sp_error(EINVAL, "%s: %d stages and %d micro-batches make more than %d ops", r->name,
                        r->globals, r->micro_batches, SP_MAX_OPS);
    lay->stages = r->rows;
    lay->micro_batches = r->micro_batches;
    lay->chunks = r->row[0].globals;
    lay->slices = 1;
    return 0;
}

/* One forward, and one backward: full, or of the input and of the weights. */
static int mark(const struct sp_csv_reader *r, unsigned char *has)
{
    static const char letters[] = "FBIW";

    for (int s = 0; s < r->rows; s++) {
        for (int k = 0; k < r->row[s].n; k++) {
            const struct sp_csv_action *a = &r->row[s].actions[k];
            unsigned char *at = &has[(size_t)a->global * (size_t)r->micro_batches + a->mb];
            int bit = 1 << (strchr(letters, a->letter) - letters);
            int clash = bit == HAS_B ? HAS_I | HAS_W : bit & (HAS_I | HAS_W) ? HAS_B : 0;

            if (*at & bit)
                return sp_csv_refuse(r, s, a->cell, "%d%c%d for the second time", a->global,
                                     a->letter, a->mb);
            if (*at & clash)
                return sp_csv_refuse(r, s, a->cell,
                                     "%d%c%d beside %d%c%d: a backward is B, or I and W", a->global,
                                     a->letter, a->mb, a->global,
                                     *at & HAS_B   ? 'B'
                                     : *at & HAS_I ? 'I'
                                                   : 'W',
                                     a->mb);
            *at = (unsigned char)(*at | bit);
        }
    }
    return 0;
}

static int check_complete(const struct sp_csv_reader *r)
{
    size_t m = (size_t)r->micro_batches;
    unsigned char *has = calloc((size_t)r->globals * m, 1);
    int err;

    if (!has)
        return sp_error(ENOMEM, "no memory for the %lld ops of %s", r->ops, r->name);
    err = mark(r, has);
    for (size_t i = 0; !err && i < (size_t)r->globals * m; i++) {
        char missing = !(has[i] & HAS_F)                       ? 'F'
                       : !(has[i] & (HAS_B | HAS_I))           ? has[i] & HAS_W ? 'I' : 'B'
                       : (has[i] & HAS_I) && !(has[i] & HAS_W) ? 'W'
                                                               : 0;

        if (missing)
            err = sp_csv_refuse(r, r->owner[i / m], 0, "%d%c%d is missing", (int)(i / m), missing,
                                (int)(i % m));
    }
    free(has);
    return err;
}

/* The placement that the rows show, and the programs. */
static int build(const struct sp_csv_reader *r, struct sp_plan *plan)
{
    const struct sp_layout *lay = &plan->layout;
    struct sp_map *map = calloc(1, sizeof *map);
    int *chunks = calloc((size_t)lay->stages, sizeof *chunks); /* of a stage, so far */
    struct sp_program *programs = calloc((size_t)lay->stages, sizeof *programs);
    int *global = calloc((size_t)r->globals, sizeof *global);
    struct sp_chunk_owner *home = calloc((size_t)r->globals, sizeof *home);

    if (!map || !chunks || !programs || !global || !home) {
        free(map);
        free(chunks);
        free(programs);
        free(global);
        free(home);
        return sp_error(ENOMEM, "no memory for the %d stages of %s", r->globals, r->name);
    }
    *map = (struct sp_map){.pipes = 1, .globals = r->globals, .global = global, .home = home};
    for (int g = 0; g < r->globals; g++) {
        int s = r->owner[g];

        home[g] = (struct sp_chunk_owner){s, chunks[s]++};
        global[(size_t)s * (size_t)lay->chunks + (size_t)home[g].chunk] = g;
    }
    free(chunks);
    for (int s = 0; s < lay->stages; s++) {
        for (int k = 0; k < r->row[s].n; k++) {
            const struct sp_csv_action *a = &r->row[s].actions[k];
            enum sp_pass pass = a->letter == 'F' ? SP_F : a->letter == 'W' ? SP_W : SP_B;

            sp_program_add_op(&programs[s], (struct sp_op){.pass = (unsigned char)pass,
                                                           .overlap = a->paired,
                                                           .mb = a->mb,
                                                           .chunk = home[a->global].chunk});
        }
    }
    plan->map = map;
    plan->layout.map = map;
    plan->programs = programs;
    return 0;
}

int sp_csv_parse(FILE *in, const char *name, struct sp_plan *plan)
{
    struct sp_csv_reader *r = calloc(1, sizeof *r);
    struct sp_layout lay = plan->layout;
    int err = 0, c;

    if (!r)
        return sp_error(ENOMEM, "no memory to read %s", name);
    r->in = in;
    r->name = name;
    memset(r->owner, -1, sizeof r->owner);
    while (!err && (c = getc(in)) != EOF) {
        ungetc(c, in);
        err = r->rows < SP_MAX_SIZE ? sp_csv_read_row(r)
                                    : sp_error(EINVAL, "%s: more than %d lines", name, SP_MAX_SIZE);
    }
    if (!err && ferror(in))
        err = sp_error(EIO, "cannot read %s: %s", name, strerror(errno));
    if (!err && r->rows == 0)
        err = sp_error(EINVAL, "%s is empty: want a line for each rank", name);
    err = err ? err : check_sizes(r, &lay);
    err = err ? err : check_complete(r);
    if (!err) {
        plan->layout = lay;
        err = build(r, plan);
    }
    for (int s = 0; s < r->rows; s++)
        free(r->row[s].actions);
    free(r->row);
    free(r);
    return err;
}

int sp_csv_read(const char *path, struct sp_plan *plan)
{
    struct stat st;
    FILE *in;
    int err;

    if (!*path)
        return sp_error(EINVAL, "schedule csv: which file? Write csv:FILE");
    if (stat(path, &st))
        return sp_error(EINVAL, "cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return sp_error(EINVAL, "cannot read %s: not a regular file", path);
    if (st.st_size > MAX_BYTES)
        return sp_error(EINVAL, "%s has %lld bytes, an order at most %ld", path,
                        (long long)st.st_size, MAX_BYTES);
    in = fopen(path, "r");
    if (!in)
        return sp_error(EINVAL, "cannot read %s: %s", path, strerror(errno));
    err = sp_csv_parse(in, path, plan);
    fclose(in);
    return err;
}
