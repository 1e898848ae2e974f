#include "train/calibrate/quality.h"
#include "sp_error.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const double tolerance = 0.05; /* of a median */
/* The most that threads may wait for their cores, as a part of the time: in a sample that counts, and in all samples. */
static const double most_waited = 0.05, most_waited_in_all = 0.1;

/* ---- the samples of a figure ---------------------------------------------------------------- */

static void note_fastest(struct sp_steady *s, double sample)
{
    if (s->n + s->disturbed == 0 || sample < s->fastest)
        s->fastest = sample;
}

void sp_steady_add(struct sp_steady *s, double sample)
{
    int at = s->n;

    note_fastest(s, sample);
    if (s->n == SP_STEADY_MOST)
        return;
    for (s->n++; at > 0 && s->sorted[at - 1] > sample; at--)
        s->sorted[at] = s->sorted[at - 1];
    s->sorted[at] = sample;
}

void sp_steady_disturbed(struct sp_steady *s, double sample)
{
    note_fastest(s, sample);
    s->disturbed++;
}

void sp_steady_take(struct sp_steady *s, double took_s, double waited_s, int calls)
{
    s->took_s += took_s;
    s->waited_s += waited_s;
    if (waited_s <= most_waited * took_s)
        sp_steady_add(s, took_s / calls);
    else
        sp_steady_disturbed(s, took_s / calls);
}

double sp_steady_value(const struct sp_steady *s)
{
    return s->sorted[(s->n - 1) / 2];
}

double sp_steady_doubt(const struct sp_steady *s)
{
    return 1 - s->sorted[(s->n - 1) / 4] / sp_steady_value(s);
}

bool sp_steady_spoilt(const struct sp_steady *s)
{
    return s->n < SP_STEADY_LEAST;
}

bool sp_steady_reached(const struct sp_steady *s)
{
    return s->n >= SP_STEADY_LEAST && sp_steady_doubt(s) <= tolerance;
}

/* ---- all figures ------------------------------------------------------------------------------ */

static void insert_worst(struct sp_quality *q, const char *what, double doubt)
{
    int at = SP_QUALITY_WORST;

    for (; at > 0 && q->worst[at - 1].doubt < doubt; at--)
        if (at < SP_QUALITY_WORST)
            q->worst[at] = q->worst[at - 1];
    if (at == SP_QUALITY_WORST)
        return;
    snprintf(q->worst[at].what, SP_QUALITY_TEXT, "%s", what);
    q->worst[at].doubt = doubt;
}

void sp_quality_add_shared(struct sp_quality *q, const char *what, const struct sp_steady *s)
{
    bool steady = sp_steady_reached(s);

    q->figures++;
    q->unsteady += !steady;
    if (!steady && s->n > 0)
        insert_worst(q, what, sp_steady_doubt(s));
}

void sp_quality_add(struct sp_quality *q, const char *what, const struct sp_steady *s)
{
    sp_quality_add_shared(q, what, s);
    q->took_s += s->took_s;
    q->waited_s += s->waited_s;
    if (!*q->spoilt && sp_steady_spoilt(s))
        snprintf(q->spoilt, SP_QUALITY_TEXT, "%s", what);
}

void sp_quality_text(const struct sp_quality *q, char *text, size_t n)
{
    size_t at = (size_t)snprintf(text, n, "%d of %d figures did not get steady within 5 %%",
                                 q->unsteady, q->figures);

    for (int i = 0; i < SP_QUALITY_WORST && q->worst[i].doubt > 0 && at < n; i++)
        at += (size_t)snprintf(text + at, n - at, "%s%s by %.0f %%", i ? ", " : ": ",
                               q->worst[i].what, 100 * q->worst[i].doubt);
}

int sp_quality_check(const struct sp_quality *q)
{
    static const char advice[] = "other programs seem to use this machine; calibrate again when "
                                 "they do not";

    if (q->waited_s > most_waited_in_all * q->took_s)
        return sp_error(EBUSY, "calibrate: threads waited for a core %.0f %% of the time: %s",
                        100 * q->waited_s / q->took_s, advice);
    if (*q->spoilt)
        return sp_error(EBUSY, "calibrate: %s: it was disturbed whenever it was timed: %s",
                        q->spoilt, advice);
    return 0;
}

/* ---- rates -------------------------------------------------------------------------------- */

/* The slowest and the fastest clock of a core. Operations and bytes of a cycle: a multiplication
 * and an addition on each of two of the widest vectors, tiles of bf16, three accesses to the
 * first cache. */
static const double slow_hz = 1e9, fast_hz = 7e9, vector_flops = 64, tile_flops = 2048,
                    cache_bytes = 192, part = 1e-3;

struct bounds {
    double least, most;
};

static int check_curve(const char *what, const struct sp_curve *c, struct bounds b)
{
    for (int i = 0; i < c->n; i++)
        if (!(c->at[i].rate >= b.least && c->at[i].rate <= b.most))
            return sp_error(ERANGE,
                            "calibrate: %s: calls of %.0e got %.3g a second, which is not between "
                            "%.3g and %.3g, as devices have it: calibrate again when nothing else "
                            "runs",
                            what, c->at[i].size, c->at[i].rate, b.least, b.most);
    return 0;
}

static double fastest(const struct sp_curve *c)
{
    double most = 0;

    for (int i = 0; i < c->n; i++)
        most = fmax(most, c->at[i].rate);
    return most;
}

/* Small calls do not fill a GPU, so only the fastest point of each curve is compared. */
static int check_gpu(const char *what, const struct sp_curve *c, double best)
{
    struct sp_curve top = {1, {{c->at[c->n - 1].size, fastest(c)}}};

    return check_curve(what, &top, (struct bounds){part * best, 1e18});
}

/* Checks all figures of a type: products, attention in both directions with its pairs, memory. */
static int check_type(const struct sp_rates *r, enum sp_dtype t, double best)
{
    const double flops = t == SP_BF16 ? tile_flops : vector_flops;
    const struct {
        const char *what;
        const struct sp_curve *c;
        double least, most; /* of a cycle of one thread */
    } curves[] = {
        {"products", &r->matmul[t], vector_flops, flops},
        {"attention", &r->attention[t][SP_ATTENTION_FORWARD], vector_flops, flops},
        {"backward of attention", &r->attention[t][SP_ATTENTION_BACKWARD], vector_flops, flops},
        {"pairs of attention", &r->pairs[t][SP_ATTENTION_FORWARD], 1, vector_flops},
        {"pairs of backward of attention", &r->pairs[t][SP_ATTENTION_BACKWARD], 1, vector_flops},
        {"memory", &r->memory[t], cache_bytes / 3, cache_bytes},
    };
    int err = 0;

    for (size_t i = 0; i < sizeof curves / sizeof *curves && !err; i++) {
        char what[64];

        snprintf(what, sizeof what, "%s in %s", curves[i].what, sp_dtype_name(t));
        if (r->threads)
            err = check_curve(what, curves[i].c,
                              (struct bounds){part * slow_hz * curves[i].least,
                                              fast_hz * curves[i].most * r->threads});
        else if (i < 3)
            err = check_gpu(what, curves[i].c, best);
    }
    return err;
}

int sp_quality_check_rates(const struct sp_rates *r)
{
    const struct sp_curve *fp8 = &r->matmul[SP_FP8];
    const double best = fmax(fastest(&r->matmul[SP_F32]), fastest(&r->matmul[SP_BF16]));
    int err = check_type(r, SP_F32, best);

    err = err ? err : check_type(r, SP_BF16, best);
    err = err || !fp8->n ? err : check_gpu("products in fp8", fp8, best);
    if (!err && !(r->launch_s > 1e-8 && r->launch_s < 1e-2))
        err = sp_error(ERANGE,
                       "calibrate: a task takes %.3g s, which is not between 1e-08 and 0.01: "
                       "calibrate again when nothing else runs",
                       r->launch_s);
    return err;
}
