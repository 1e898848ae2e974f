/* The rates of devices: chooses the calls that a curve is measured with, and makes the rounds
 * over all of them. */
#include "sinks/starpu/cuda.h"
#include "sp_error.h"
#include "train/calibrate/rates.h"
#include "transport/transport.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double sp_measured(double x)
{
    char text[32];

    snprintf(text, sizeof text, "%.3e", x);
    return strtod(text, NULL);
}

/* ---- figures ------------------------------------------------------------------------------ */

enum {
    CALLS = 7,
    POINTS = (SP_DTYPES + SP_ELEMENTS * (1 + SP_ATTENTION_PASSES)) * SP_CURVE_POINTS
};

/* A point is the time that calls of about one size take together. */
struct point {
    struct sp_curve *curve;
    struct sp_curve *pairs; /* for attention with heads of two widths; NULL: not attention */
    struct sp_figure call[CALLS];
    int calls;
};

struct figures {
    struct sp_bench *bench;
    int points;
    struct point point[POINTS];
    struct sp_steady task;
};

static int add_call(struct figures *f, const struct sp_timed_call *call, size_t spread,
                    const char *what)
{
    struct point *p = &f->point[f->points - 1];
    struct sp_figure *figure = &p->call[p->calls++];
    int threads = f->bench->place.gpus ? 0 : f->bench->place.threads;

    figure->call = *call;
    figure->spread = spread;
    if (threads)
        snprintf(figure->what, sizeof figure->what, "%s in %s with %d thread%s", what,
                 sp_dtype_name(call->dtype), threads, threads > 1 ? "s" : "");
    else
        snprintf(figure->what, sizeof figure->what, "%s in %s", what, sp_dtype_name(call->dtype));
    figure->worker = calloc((size_t)f->bench->place.workers, sizeof *figure->worker);
    if (!figure->worker)
        return sp_error(ENOMEM, "calibrate: no memory for samples");
    sp_bench_show(f->bench, "%s", figure->what);
    sp_bench_turn(f->bench, figure);
    return 0;
}

static void begin_point(struct figures *f, struct sp_curve *c, struct sp_curve *pairs)
{
    f->point[f->points++] = (struct point){.curve = c, .pairs = pairs};
}

/* The longest call of the last point, by its fastest samples, because a disturbed moment must
 * not end a curve. */
static double longest_call_s(const struct figures *f)
{
    const struct point *p = &f->point[f->points - 1];
    double s = 0;

    for (int i = 0; i < p->calls; i++)
        for (int w = 0; w < f->bench->place.workers; w++)
            s = fmax(s, p->call[i].worker[w].fastest);
    return s;
}

/* True if calls that are `times` larger may be timed: the first always, others as long as they
 * are short enough. */
static bool goes_on(const struct figures *f, const struct sp_curve *c, double times)
{
    int n = 0;

    for (int i = 0; i < f->points; i++)
        n += f->point[i].curve == c;
    return !n || (n < SP_CURVE_POINTS && times * longest_call_s(f) <= f->bench->longest_s);
}

/* A step comes back to a tensor after using some tens of its size of other memory; a small
 * model's caches keep that much. So calls take turns in so many times the memory of one call, or
 * in so much memory as makes caches keep no more than they keep of a large model's step. */
enum { PRODUCTS = 16, PASSES = 64, SPREAD_BYTES = 256 << 20 };

static size_t spread(double bytes, int times)
{
    return (size_t)fmin(times * bytes, SPREAD_BYTES);
}

static size_t spread_of(const struct sp_timed_call *call)
{
    return spread((double)sp_timed_bytes(call, NULL), PRODUCTS);
}

/* ---- the workers of a figure ------------------------------------------------------------------- */

/* The mean of the workers. Without undisturbed samples: the most that it takes. */
static double mean_s(const struct sp_bench *b, const struct sp_figure *f)
{
    double sum = 0;

    for (int w = 0; w < b->place.workers; w++)
        sum += f->worker[w].n ? sp_steady_value(&f->worker[w]) : f->worker[w].fastest;
    return sum / b->place.workers;
}

/* True if the samples of all workers make a figure. */
static bool is_known(const struct sp_bench *b, const struct sp_figure *f)
{
    for (int w = 0; w < b->place.workers; w++)
        if (sp_steady_spoilt(&f->worker[w]))
            return false;
    return true;
}

/* True if they are steady, or as many as there may be. */
static bool is_reached(const struct sp_bench *b, const struct sp_figure *f)
{
    for (int w = 0; w < b->place.workers; w++)
        if (!sp_steady_reached(&f->worker[w]) && f->worker[w].n < SP_STEADY_MOST)
            return false;
    return true;
}

/* The worker that knows least about a figure stands for all. */
static void judge(struct sp_bench *b, const struct sp_figure *f)
{
    const struct sp_steady *least = &f->worker[0];

    for (int w = 1; w < b->place.workers; w++) {
        const struct sp_steady *s = &f->worker[w];
        bool few = s->n < SP_STEADY_LEAST;

        if (few || (least->n >= SP_STEADY_LEAST && sp_steady_doubt(s) > sp_steady_doubt(least)))
            least = s;
    }
    sp_quality_add(b->quality, f->what, least);
}

/* ---- products ----------------------------------------------------------------------------- */

/* The nearest multiple of the tile that kernels compute at a time. */
static int in_tiles(double x, int tile)
{
    int n = (int)round(x / tile) * tile;

    return n > tile ? n : tile;
}

/* The products of a layer with four times as many tokens as it is wide: a square one, and the
 * forward, input gradient and weight gradient of those that widen fourfold and narrow again. */
static int add_products(struct figures *f, enum sp_dtype dtype, double most, struct sp_curve *c)
{
    static const struct {
        enum sp_timed_kernel kernel;
        int in, out;
        const char *what;
    } kinds[CALLS] = {
        {SP_TIME_LINEAR, 2, 2, "square product"},
        {SP_TIME_LINEAR, 1, 4, "widening product"},
        {SP_TIME_LINEAR_DX, 1, 4, "input gradient of a widening product"},
        {SP_TIME_LINEAR_DW, 1, 4, "weight gradient of a widening product"},
        {SP_TIME_LINEAR, 4, 1, "narrowing product"},
        {SP_TIME_LINEAR_DX, 4, 1, "input gradient of a narrowing product"},
        {SP_TIME_LINEAR_DW, 4, 1, "weight gradient of a narrowing product"},
    };
    int err = 0;

    for (double flops = 1e6; !err && flops <= 1.01 * most && goes_on(f, c, 10); flops *= 10) {
        int wide = in_tiles(cbrt(flops / 32), flops < 5e6 ? 32 : 64); /* widths that models have */

        begin_point(f, c, NULL);
        for (int i = 0; i < CALLS && !err; i++) {
            const struct sp_timed_call call = {
                kinds[i].kernel, dtype, .rows = in_tiles(flops / 8 / wide / wide, 16),
                .in = kinds[i].in * wide, .out = kinds[i].out * wide};
            char text[80];

            snprintf(text, sizeof text, "%s of %.0e operations", kinds[i].what, flops);
            err = add_call(f, &call, spread_of(&call), text);
        }
    }
    return err;
}

/* ---- attention ---------------------------------------------------------------------------- */

/* On cores, heads have two widths: for narrow ones a pair's cost apart from its operations is
 * the larger part. */
static int add_attention(struct figures *f, enum sp_dtype dtype, enum sp_attention_pass pass,
                         double most, struct sp_rates *r)
{
    const char *what = pass == SP_ATTENTION_FORWARD ? "attention" : "backward of attention";
    const bool gpu = f->bench->place.gpus;
    struct sp_curve *c = &r->attention[dtype][pass];
    struct sp_timed_call call = {
        .kernel = pass == SP_ATTENTION_FORWARD ? SP_TIME_ATTENTION : SP_TIME_ATTENTION_BWD,
        .dtype = dtype,
        .rows = gpu ? 128 : 64,
        .heads = gpu ? 16 : 6, /* rows are no power of two: such rows collide in caches */
        .head_dim = gpu ? 128 : 64};
    int err = 0;

    for (; !err && sp_timed_work(&call) <= most && goes_on(f, c, 4); call.rows *= 2) {
        struct sp_timed_call narrow = call;
        char text[80];

        narrow.head_dim = 16;
        begin_point(f, c, gpu ? NULL : &r->pairs[dtype][pass]);
        snprintf(text, sizeof text, "%s of %d tokens", what, call.rows);
        err = add_call(f, &call, spread_of(&call), text);
        if (err || gpu)
            continue;
        snprintf(text, sizeof text, "%s of %d tokens, narrow heads", what, call.rows);
        err = add_call(f, &narrow, spread_of(&narrow), text);
    }
    return err;
}

/* ---- memory ------------------------------------------------------------------------------- */

/* bf16 times norms and activations, the larger part of a layer's memory traffic; the optimizer's
 * numbers are f32. */
static int add_memory(struct figures *f, enum sp_dtype dtype, double most, struct sp_curve *c)
{
    enum { KERNELS = 4, IN_BF16 = 2 };
    const int kinds = dtype == SP_F32 ? KERNELS : IN_BF16;
    static const struct {
        enum sp_timed_kernel kernel;
        const char *what;
    } kernels[KERNELS] = {{SP_TIME_NORM, "norm"},
                          {SP_TIME_GELU, "GELU"},
                          {SP_TIME_ADD, "addition"},
                          {SP_TIME_ADAMW, "AdamW"}};
    int err = 0;

    for (double bytes = 1e5; !err && bytes <= 1.01 * most && goes_on(f, c, 10); bytes *= 10) {
        begin_point(f, c, NULL);
        for (int i = 0; i < kinds && !err; i++) {
            struct sp_timed_call call = {.kernel = kernels[i].kernel,
                                         .dtype = dtype,
                                         .rows = 1,
                                         .in = bytes < 1e6 ? 256 : 1024};
            char text[64];

            call.rows = (int)fmax(1, round(bytes / sp_timed_work(&call)));
            snprintf(text, sizeof text, "%s of %.0e bytes", kernels[i].what, bytes);
            err = add_call(f, &call, spread(bytes, PASSES), text);
        }
    }
    return err;
}

/* ---- rounds ------------------------------------------------------------------------------- */

/* The first turn of all figures, which finds the sizes that there is time for. */
static int find_sizes(struct figures *f, const struct sp_effort *e, struct sp_rates *r)
{
    const struct sp_placement *pl = &f->bench->place;
    const bool fp8 = pl->gpus && sp_cuda_multiplies_fp8(pl->gpu[0]);
    const int types = fp8 ? SP_DTYPES : SP_ELEMENTS;
    int err = 0;

    for (int t = 0; t < types && !err; t++)
        err = add_products(f, (enum sp_dtype)t, e->product_flops, &r->matmul[t]);
    for (int i = 0; i < SP_ELEMENTS * SP_ATTENTION_PASSES && !err; i++)
        err =
            add_attention(f, (enum sp_dtype)(i / SP_ATTENTION_PASSES),
                          (enum sp_attention_pass)(i % SP_ATTENTION_PASSES), e->attention_flops, r);
    for (int t = 0; t < SP_ELEMENTS && !err; t++)
        err = add_memory(f, (enum sp_dtype)t, e->memory_bytes, &r->memory[t]);
    if (!err)
        sp_measure_task(f->bench, &f->task);
    return err;
}

struct round {
    bool each;   /* all figures, not only those that are not steady */
    double ends; /* no turn begins after that time */
    bool steady; /* all figures were steady before; `known`: all were figures at all */
    bool known;
};

static void take_turns(struct figures *f, struct round *r)
{
    bool task = sp_steady_reached(&f->task) || f->task.n == SP_STEADY_MOST;

    r->steady = task;
    r->known = !sp_steady_spoilt(&f->task);
    for (int i = 0; i < f->points; i++)
        for (int k = 0; k < f->point[i].calls; k++) {
            struct sp_figure *figure = &f->point[i].call[k];
            bool reached = is_reached(f->bench, figure);

            if ((r->each || !reached) && sp_bench_now_s() < r->ends)
                sp_bench_turn(f->bench, figure);
            r->steady = r->steady && reached;
            r->known = r->known && is_known(f->bench, figure);
        }
    if (r->each || !task)
        sp_measure_task(f->bench, &f->task);
}

/* While figures are spoilt, rounds go on for so many times the usual time. */
enum { PERSISTENCE = 4 };

/* All processes make the same number of rounds, each at the same time: rank 0 says when to stop. */
static void make_rounds(struct figures *f, const struct sp_effort *e)
{
    const double start = sp_bench_now_s();
    int more = 1;

    for (int round = 1; more; round++) {
        struct round r = {.each = round < SP_STEADY_LEAST,
                          .ends = start + PERSISTENCE * e->seconds};
        double spent;

        sp_bench_show(f->bench, "round %d over %d sizes", round + 1, f->points);
        sp_transport_barrier();
        take_turns(f, &r);
        spent = sp_bench_now_s() - start;
        more = (r.each || (!r.steady && spent < e->seconds) || !r.known) &&
               spent < PERSISTENCE * e->seconds;
        sp_transport_share(&more, sizeof more);
    }
}

/* ---- results --------------------------------------------------------------------------------- */

static void add_point(struct sp_curve *c, double size, double rate)
{
    c->at[c->n].size = sp_measured(size);
    c->at[c->n++].rate = sp_measured(rate);
}

/* Splits times of heads of two widths: the part that grows with the width is operations, the
 * rest is a pair's cost. Each gets at least a hundredth. */
static void take_pairs(struct sp_bench *b, const struct point *p)
{
    const struct sp_timed_call *wide = &p->call[0].call, *narrow = &p->call[1].call;
    double heads = wide->heads, work = sp_timed_work(wide) / heads;
    double pairs = 0.5 * wide->rows * (wide->rows + 1.0);
    double s = mean_s(b, &p->call[0]) / heads, less = mean_s(b, &p->call[1]) / heads;
    double part = (s - less) / (wide->head_dim - narrow->head_dim) * wide->head_dim;

    part = fmin(0.99 * s, fmax(0.01 * s, part));
    add_point(p->curve, work, work / part);
    add_point(p->pairs, pairs, pairs / (s - part));
}

static void take_point(struct sp_bench *b, const struct point *p)
{
    double work = 0, seconds = 0;

    for (int i = 0; i < p->calls; i++) {
        work += sp_timed_work(&p->call[i].call);
        seconds += mean_s(b, &p->call[i]);
        judge(b, &p->call[i]);
    }
    if (p->pairs)
        take_pairs(b, p);
    else
        add_point(p->curve, work / p->calls, work / seconds);
}

static void forget(struct figures *f)
{
    for (int i = 0; i < f->points; i++)
        for (int k = 0; k < f->point[i].calls; k++)
            free(f->point[i].call[k].worker);
    free(f);
}

int sp_measure_rates(struct sp_bench *b, const struct sp_effort *effort, struct sp_rates *r)
{
    struct figures *f = calloc(1, sizeof *f);
    int err;

    if (!f)
        return sp_error(ENOMEM, "calibrate: no memory for figures");
    *r = (struct sp_rates){.threads = b->place.gpus ? 0 : b->place.threads};
    f->bench = b;
    sp_transport_barrier();
    err = find_sizes(f, effort, r);
    if (!err) {
        make_rounds(f, effort);
        for (int i = 0; i < f->points; i++)
            take_point(b, &f->point[i]);
        r->launch_s = sp_measured(sp_steady_value(&f->task));
        sp_quality_add(b->quality, "cost of a task", &f->task);
        err = b->place.world.rank == 0 && !b->rough ? sp_quality_check(b->quality) : 0;
        sp_transport_share(&err, sizeof err);
    }
    forget(f);
    return err;
}
