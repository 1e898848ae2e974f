#include "train/calibrate/curves.h"
#include "train/calibrate/rates.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

double sp_measured(double x)
{
    char text[32];

    snprintf(text, sizeof text, "%.3e", x);
    return strtod(text, NULL);
}

/* What calls of one size take together is a point. */
struct point {
    int calls;
    double work, seconds;
};

static void time_call(struct sp_bench *b, const struct sp_timed_call *call, size_t spread,
                      struct point *p)
{
    p->calls++;
    p->work += sp_timed_work(call);
    p->seconds += sp_bench_time(b, call, spread);
}

static void add_point(struct sp_curve *c, const struct point *p)
{
    c->at[c->n].size = sp_measured(p->work / p->calls);
    c->at[c->n++].rate = sp_measured(p->work / p->seconds);
}

/* Whether a call of that size may be timed: the first always, others as long as they are short enough. */
static bool goes_on(const struct sp_bench *b, const struct sp_curve *c, double size, double most)
{
    return !c->n || (c->n < SP_CURVE_POINTS && size <= most * 1.01 &&
                     size / c->at[c->n - 1].rate <= b->longest_s);
}

/* Between two uses of a weight or an activation a step touches much else: calls take turns in so much memory,
 * of which caches keep no more than they do of a step's. */
enum { COLD_BYTES = 64 << 20 };

/* ---- products ----------------------------------------------------------------------------- */

/* Sides of products, of which kernels like whole tiles. */
static int side(double x)
{
    int n = (int)round(x / 16) * 16;

    return n > 16 ? n : 16;
}

/* A square one, and those of a layer that widens fourfold: forward, input gradient, weight gradient. */
void sp_measure_products(struct sp_bench *b, enum sp_dtype dtype, double most, struct sp_curve *c)
{
    c->n = 0;
    for (double flops = 1e6; goes_on(b, c, flops, most); flops *= 10) {
        int square = side(cbrt(flops / 2)), narrow = side(cbrt(flops / 8));
        const struct sp_timed_call calls[] = {
            {SP_TIME_LINEAR, dtype, .rows = square, .in = square, .out = square},
            {SP_TIME_LINEAR, dtype, .rows = narrow, .in = narrow, .out = 4 * narrow},
            {SP_TIME_LINEAR_DX, dtype, .rows = narrow, .in = narrow, .out = 4 * narrow},
            {SP_TIME_LINEAR_DW, dtype, .rows = narrow, .in = narrow, .out = 4 * narrow},
        };
        struct point p = {0};

        sp_bench_show(b, "products in %s, %.0e operations", sp_dtype_name(dtype), flops);
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
            time_call(b, &calls[i], COLD_BYTES, &p);
        add_point(c, &p);
    }
}

/* ---- attention ---------------------------------------------------------------------------- */

void sp_measure_attention(struct sp_bench *b, enum sp_dtype dtype, enum sp_attention_pass pass,
                          double most, struct sp_curve *c)
{
    struct sp_timed_call call = {
        .kernel = pass == SP_ATTENTION_FORWARD ? SP_TIME_ATTENTION : SP_TIME_ATTENTION_BWD,
        .dtype = dtype,
        .rows = b->place.gpus ? 128 : 64,
        .heads = b->place.gpus ? 16 : 6, /* rows of no power of two: these collide in caches */
        .head_dim = b->place.gpus ? 128 : 64};

    c->n = 0;
    for (; goes_on(b, c, sp_timed_work(&call), most); call.rows *= 4) {
        struct point p = {0};

        sp_bench_show(b, "attention in %s, %s, %d tokens", sp_dtype_name(dtype),
                      pass == SP_ATTENTION_FORWARD ? "forward" : "backward", call.rows);
        time_call(b, &call, COLD_BYTES, &p);
        add_point(c, &p);
    }
}

/* ---- memory ------------------------------------------------------------------------------- */

/* A step comes back to a tensor when it has been to some tens of its size: calls take turns in as many, of
 * at most so much memory. */
enum { TENSORS = 64, SPREAD_BYTES = 256 << 20 };

void sp_measure_memory(struct sp_bench *b, double most, struct sp_curve *c)
{
    static const enum sp_timed_kernel kernels[] = {SP_TIME_NORM, SP_TIME_ADD, SP_TIME_GELU,
                                                   SP_TIME_ADAMW};

    c->n = 0;
    for (double bytes = 1e5; goes_on(b, c, bytes, most); bytes *= 10) {
        size_t spread = (size_t)fmin(TENSORS * bytes, SPREAD_BYTES);
        struct point p = {0};

        sp_bench_show(b, "memory, calls of %.0e bytes", bytes);
        for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
            struct sp_timed_call call = {.kernel = kernels[i],
                                         .dtype = b->place.gpus ? SP_BF16 : SP_F32,
                                         .rows = 1,
                                         .in = bytes < 1e6 ? 256 : 1024};

            call.rows = (int)fmax(1, round(bytes / sp_timed_work(&call)));
            time_call(b, &call, spread, &p);
        }
        add_point(c, &p);
    }
}
