#include "parity/compare.h"
#include "parity/formula.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int failures;

void fail_case(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    printf("FAIL: ");
    vprintf(format, args);
    printf("\n");
    va_end(args);
    failures++;
}

/* ---- numbers -------------------------------------------------------------------------- */

static double relative(double x, double reference)
{
    return x == reference ? 0 : fabs(x - reference) / fabs(reference);
}

/* max|a - b| / max|b|: infinite when only b is zero everywhere, NaN when either holds a NaN. */
static double array_distance(const float *a, const float *b, size_t n)
{
    double most = 0, size = 0;

    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);

        if (isnan(d))
            return NAN;
        most = fmax(most, d);
        size = fmax(size, fabs((double)b[i]));
    }
    return most == 0 ? 0 : most / size;
}

static size_t begin_of(const struct result *r, enum sp_block_kind kind, int layer)
{
    for (int i = 0; i < r->blocks; i++)
        if (r->block[i].kind == kind && r->block[i].layer == layer)
            return r->block[i].at;
    must(ENOENT, "block");
    return 0;
}

/* Tensor by tensor: a small one must not hide behind a large one. */
static double compare_field(const char *what, const char *name, enum sp_field field,
                            const struct setup *s, const struct result *r, const struct result *one,
                            double bar)
{
    double worst = 0;

    if (r->n != one->n || !r->field[field] || !one->field[field]) {
        fail_case("%s: %zu %s, one stage has %zu", what, r->n, name, one->n);
        return NAN;
    }
    for (int i = 0; i < s->params.n; i++) {
        const struct sp_parameter *t = &s->params.tensors[i];
        size_t at = begin_of(one, t->block, t->layer) + t->offset;
        double d = array_distance(r->field[field] + at, one->field[field] + at,
                                  (size_t)t->rows * (size_t)t->cols);

        if (!(d <= bar))
            fail_case("%s: %s of %s differ by %.3g", what, name, t->name, d);
        worst = fmax(worst, d);
    }
    return worst;
}

struct distance compare_results(const char *what, const struct setup *s, const struct result *r,
                                const struct result *one, struct bars bars)
{
    struct distance d = {0};

    for (int k = 0; k < r->steps; k++) {
        double loss = relative(r->loss[k], one->loss[k]), norm = relative(r->norm[k], one->norm[k]);
        double bar = k > 0 ? bars.updated : bars.first;

        if (!(loss <= bar && norm <= bar))
            fail_case("%s, step %d: loss %.9g norm %.9g, one stage has %.9g %.9g", what, k,
                      r->loss[k], r->norm[k], one->loss[k], one->norm[k]);
        d.losses = fmax(d.losses, fmax(loss, norm));
    }
    d.gradients = compare_field(what, "gradients", SP_FIELD_G, s, r, one, bars.first);
    if (bars.weights > 0)
        d.weights = compare_field(what, "weights", SP_FIELD_W, s, r, one, bars.weights);
    return d;
}

/* ---- bytes ---------------------------------------------------------------------------- */

/* Activations of a micro-batch on all layers, GPT-2 style: 16bshL numbers. */
static double micro_batch_bytes(const struct setup *s)
{
    return 4.0 * 16 * s->shape.rows * s->model.hidden * s->model.layers;
}

static void check_stage(const struct parity_case *c, const struct setup *s, const struct result *r,
                        int stage)
{
    const struct stage_result *st = &r->stage[stage];
    bool ahead = s->args.post_validation;
    bool exact = !s->plan.paired && !s->offloads && !ahead && !strcmp(s->args.scheduler, "strict");
    double kept = (double)st->peak / micro_batch_bytes(s);

    if (exact ? st->peak != st->planned_peak : st->peak > st->planned_peak)
        fail_case("%s: stage %d has a peak of %lld bytes, %lld are planned", c->options, stage,
                  (long long)st->peak, (long long)st->planned_peak);
    if (st->left != st->evicted || st->returned != st->fetched)
        fail_case("%s: stage %d evicted %lld and fetched %lld bytes, its actions say %lld and %lld",
                  c->options, stage, (long long)st->left, (long long)st->returned,
                  (long long)st->evicted, (long long)st->fetched);
    if (st->lowered >= 0 && st->sent != st->lowered)
        fail_case("%s: stage %d sent %lld bytes, its actions say %lld", c->options, stage,
                  (long long)st->sent, (long long)st->lowered);
    if (s->offloads ? st->buffers > st->planned_buffers : st->buffers != st->planned_buffers)
        fail_case("%s: stage %d has buffers of %lld bytes, %lld are planned", c->options, stage,
                  (long long)st->buffers, (long long)st->planned_buffers);
    if (c->kept > 0 && fabs(kept - c->kept) > 0.1)
        fail_case("%s: stage %d keeps %.3f micro-batches, not %.3g", c->options, stage, kept,
                  c->kept);
    for (int k = c->flat_from; c->flat_from && k < r->steps; k++)
        if (r->buffers[k][stage] != r->buffers[c->flat_from - 1][stage])
            fail_case("%s: the buffers of stage %d change in step %d", c->options, stage, k);
}

void check_memory(const struct parity_case *c, const struct setup *s, const struct result *r)
{
    int64_t least = r->stage[0].peak, most = least;

    if (r->alive)
        fail_case("%s: activations are alive after a step", c->options);
    if (r->undone < c->undone[0] || r->undone > c->undone[1])
        fail_case("%s: %d steps are undone, not %d to %d", c->options, r->undone, c->undone[0],
                  c->undone[1]);
    for (int i = 0; i < r->stages; i++) {
        check_stage(c, s, r, i);
        least = r->stage[i].peak < least ? r->stage[i].peak : least;
        most = r->stage[i].peak > most ? r->stage[i].peak : most;
    }
    if (c->kept > 0 && (double)most > 1.05 * (double)least)
        fail_case("%s: peaks from %lld to %lld bytes", c->options, (long long)least,
                  (long long)most);
}

void check_wire(const struct parity_case *c, const struct setup *s, const struct result *r,
                int processes)
{
    int64_t want[MOST_STAGES];

    if (c->wire == WIRE_ANY || processes != r->stages)
        return;
    wire_bytes(c->wire, s, want);
    for (int i = 0; i < r->stages; i++)
        if (r->stage[i].sent != want[i])
            fail_case("%s: stage %d sends %lld bytes, the formula says %lld", c->options, i,
                      (long long)r->stage[i].sent, (long long)want[i]);
    if (c->wire != WIRE_RING)
        return;
    ring_messages(s, want);
    for (int i = 0; i < r->stages; i++)
        if (r->stage[i].messages != want[i])
            fail_case("%s: stage %d sends %lld messages, the formula says %lld", c->options, i,
                      (long long)r->stage[i].messages, (long long)want[i]);
}

/* Statistics and log-sum-exps stay in f32. */
void check_halves(const char *what, const struct result *low, const struct result *full)
{
    double sent[2] = {0}, held[2] = {0};

    for (int i = 0; i < low->stages; i++) {
        sent[0] += (double)low->stage[i].sent;
        sent[1] += (double)full->stage[i].sent;
        held[0] += (double)low->stage[i].peak;
        held[1] += (double)full->stage[i].peak;
    }
    if (!(sent[1] > 0 && sent[0] >= sent[1] / 2 && sent[0] < 0.53 * sent[1]))
        fail_case("%s: %.0f bytes are sent, %.0f in f32", what, sent[0], sent[1]);
    if (!(held[1] > 0 && held[0] >= held[1] / 2 && held[0] < 0.53 * held[1]))
        fail_case("%s: %.0f bytes are held, %.0f in f32", what, held[0], held[1]);
}

/* ---- files ---------------------------------------------------------------------------- */

void result_save(const struct result *r, const char *path)
{
    FILE *f = fopen(path, "wb");
    bool whole = f && fwrite(r, sizeof *r, 1, f) == 1;

    for (int i = 0; whole && i < FIELDS; i++)
        whole = fwrite(r->field[i], sizeof **r->field, r->n, f) == r->n;
    must(!whole || fclose(f) ? EIO : 0, path);
}

void result_load(struct result *r, const char *path)
{
    FILE *f = fopen(path, "rb");
    bool whole = f && fread(r, sizeof *r, 1, f) == 1;

    for (int i = 0; whole && i < FIELDS; i++) {
        r->field[i] = malloc(r->n * sizeof **r->field);
        whole = r->field[i] && fread(r->field[i], sizeof **r->field, r->n, f) == r->n;
    }
    must(!whole || fclose(f) ? EIO : 0, path);
}

void check_bits(const char *what, const char *key, uint64_t bits)
{
    FILE *f = fopen(key, "r");
    unsigned long long before = 0;

    if (f) {
        if (fscanf(f, "%llx", &before) != 1 || before != bits)
            fail_case("%s: another run of it has other bits (%llx, not %llx)", what,
                      (unsigned long long)bits, before);
    } else {
        f = fopen(key, "w");
        must(!f || fprintf(f, "%llx\n", (unsigned long long)bits) < 0 ? EIO : 0, key);
    }
    must(fclose(f) ? EIO : 0, key);
}
