#include "train/run/draw.h"
#include "sp_error.h"
#include <math.h>
#include <stdbool.h>

int sp_sampling_check(const struct sp_sampling *how, const char *where)
{
    if (how->tokens < 1)
        return sp_error(EINVAL, "%s: %d tokens: want at least one", where, how->tokens);
    if (!(how->temperature >= 0 && isfinite(how->temperature)))
        return sp_error(EINVAL, "%s: a temperature of %g: want 0 or more", where, how->temperature);
    if (how->slices < 0)
        return sp_error(EINVAL, "%s: %d slices: want 0, to choose, or more", where, how->slices);
    if (how->top_k < 0)
        return sp_error(EINVAL, "%s: top_k of %d: want 0, for all tokens, or more", where,
                        how->top_k);
    if (!(how->top_p > 0 && how->top_p <= 1))
        return sp_error(EINVAL, "%s: top_p of %g: want more than 0, at most 1", where, how->top_p);
    return 0;
}

/* ---- the likeliest, one after the other: a heap of tokens ------------------------------------ */

static bool is_likelier(const float *logits, int32_t a, int32_t b)
{
    float one = logits[a], other = logits[b];

    return one > other || (one == other && a < b);
}

static void sink(const float *logits, int32_t *heap, int n, int at)
{
    for (int child; (child = 2 * at + 1) < n; at = child) {
        int32_t token = heap[at];

        if (child + 1 < n && is_likelier(logits, heap[child + 1], heap[child]))
            child++;
        if (!is_likelier(logits, heap[child], token))
            return;
        heap[at] = heap[child];
        heap[child] = token;
    }
}

static void make_heap(const float *logits, int32_t *heap, int n)
{
    for (int i = 0; i < n; i++)
        heap[i] = i;
    for (int i = n / 2 - 1; i >= 0; i--)
        sink(logits, heap, n, i);
}

/* Takes the likeliest of n tokens out of the heap, and puts it behind those that stay. */
static int32_t take_likeliest(const float *logits, int32_t *heap, int n)
{
    int32_t token = heap[0];

    heap[0] = heap[n - 1];
    heap[n - 1] = token;
    sink(logits, heap, n - 1, 0);
    return token;
}

/* ---- a draw ---------------------------------------------------------------------------------- */

static int32_t likeliest(const float *logits, int n)
{
    int32_t best = 0;

    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* The candidates of a draw: tokens 0 .. n-1, or the last n entries of room, likeliest last. */
struct candidates {
    const float *logits;
    const int32_t *room; /* NULL: all tokens in order */
    int all, n;
    double top, temperature;
};

static int32_t candidate(const struct candidates *c, int i)
{
    return c->room ? c->room[c->all - 1 - i] : i;
}

static double weight(const struct candidates *c, int i)
{
    return exp((c->logits[candidate(c, i)] - c->top) / c->temperature);
}

static double sum_weights(const struct candidates *c)
{
    double sum = 0;

    for (int i = 0; i < c->n; i++)
        sum += weight(c, i);
    return sum;
}

static bool is_cut(const struct sp_sampling *how, int all)
{
    return how->top_k && how->top_k < all;
}

/* Takes the `most` likeliest tokens, or fewer if those have `share` of the sum of all weights. */
static void take_candidates(struct candidates *c, const struct sp_sampling *how, int32_t *room)
{
    int most = is_cut(how, c->all) ? how->top_k : c->all;
    double sum = 0, wanted = HUGE_VAL;

    if (most == c->all && how->top_p < 1)
        wanted = how->top_p * sum_weights(c);
    make_heap(c->logits, room, c->all);
    c->room = room;
    c->n = 0;
    while (c->n < most && sum < wanted) {
        take_likeliest(c->logits, room, c->all - c->n);
        sum += weight(c, c->n++);
    }
    if (wanted < HUGE_VAL || how->top_p == 1)
        return;
    wanted = how->top_p * sum;
    sum = 0;
    for (int i = 0; i < c->n; i++) {
        sum += weight(c, i);
        if (sum >= wanted)
            c->n = i + 1;
    }
}

int32_t sp_draw(const float *logits, int n, const struct sp_sampling *how, uint64_t *state,
                int32_t *room)
{
    struct candidates c = {.logits = logits, .all = n, .n = n, .temperature = how->temperature};
    int32_t best = likeliest(logits, n);
    double at;

    if (how->temperature == 0)
        return best;
    c.top = logits[best];
    if (is_cut(how, n) || how->top_p < 1)
        take_candidates(&c, how, room);
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    at = sum_weights(&c) * (double)(*state >> 11) / 9007199254740992.0;
    for (int i = 0; i < c.n; i++) {
        at -= weight(&c, i);
        if (at <= 0)
            return candidate(&c, i);
    }
    return candidate(&c, c.n - 1);
}
