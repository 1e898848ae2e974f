#include "model/documents.h"
#include "sp_grow.h"
#include <errno.h>
#include <stdlib.h>

int sp_documents_create(struct sp_documents *d, int sequences)
{
    *d = (struct sp_documents){0};
    d->first = calloc((size_t)sequences + 1, sizeof *d->first);
    return d->first ? 0 : -ENOMEM;
}

void sp_documents_destroy(struct sp_documents *d)
{
    free(d->first);
    free(d->start);
    *d = (struct sp_documents){0};
}

static int add_start(struct sp_documents *d, int n, int start)
{
    if (!sp_grow(&d->start, (size_t)n + 1, &d->room, sizeof *d->start))
        return -ENOMEM;
    d->start[n] = start;
    return 0;
}

int sp_documents_read(struct sp_documents *d, int b, const int32_t *tokens, int n, int separator)
{
    int at = d->first[b], err = add_start(d, at++, 0);

    for (int i = 0; !err && i < n - 1; i++)
        if (tokens[i] == separator)
            err = add_start(d, at++, i + 1);
    d->first[b + 1] = at;
    return err;
}

/* The document of sequence b that has a position: the last one that does not begin after it. */
static int document_at(const struct sp_documents *d, int b, int position)
{
    int low = d->first[b], high = d->first[b + 1] - 1;

    while (low < high) {
        int middle = (low + high + 1) / 2;

        if (d->start[middle] <= position)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* From where the last segment ended: the next sequence, the next run. */
static bool go_to_next(const struct sp_shape *sh, const struct sp_documents *d,
                       struct sp_segment *s)
{
    struct sp_tokens_run run = sp_shape_run(sh, s->run);

    if (s->len == 0) { /* none yet */
        s->first = run.first;
        return true;
    }
    s->first += s->len * sh->stride;
    if (d && s->first < run.first + run.len * sh->stride)
        return true;
    if (d && s->sequence < sh->batch - 1) {
        s->sequence++;
        s->first = run.first;
        return true;
    }
    if (s->run == sp_shape_runs(sh) - 1)
        return false;
    s->run++;
    s->sequence = 0;
    s->first = sp_shape_run(sh, s->run).first;
    return true;
}

bool sp_segment_next(const struct sp_shape *sh, const struct sp_documents *d, struct sp_segment *s)
{
    struct sp_tokens_run run;
    int end, at;

    if (!go_to_next(sh, d, s))
        return false;
    run = sp_shape_run(sh, s->run);
    end = run.first + run.len * sh->stride;
    s->row = run.row;
    s->sequences = sh->batch;
    s->position = s->first;
    if (d) {
        at = document_at(d, s->sequence, s->first);
        s->row +=
            (size_t)s->sequence * (size_t)run.len + (size_t)((s->first - run.first) / sh->stride);
        s->sequences = 1;
        s->position = s->first - d->start[at];
        if (at + 1 < d->first[s->sequence + 1] && d->start[at + 1] < end)
            end = d->start[at + 1];
    }
    s->len = (end - s->first + sh->stride - 1) / sh->stride;
    return true;
}
