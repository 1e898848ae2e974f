#include "plan/partition.h"
#include "plan/cost/layer_costs.h"
#include "policies/families/activations.h"
#include "sp_error.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists of counts ------------------------------------------------------------------------ */

int sp_counts_parse(const char *text, const struct sp_counts *want, int *counts)
{
    int *read = calloc((size_t)want->n, sizeof *read);
    const char *at = text;
    int64_t sum = 0;
    int n = 0, ret = -EINVAL;

    SP_NEED(read, "no memory for %d counts", want->n);
    for (;; at++) {
        int len = (int)strcspn(at, ",");
        char *end;
        long v = strtol(at, &end, 10);

        if (end != at + len || *at < '0' || *at > '9' || v < want->least || v > INT_MAX) {
            sp_error(EINVAL, "%s '%s': '%.*s' is not a number of %s, %d or more", want->option,
                     text, len, at, want->unit, want->least);
            goto out;
        }
        if (n < want->n)
            read[n] = (int)v;
        n++;
        sum += v;
        at += len;
        if (!*at)
            break;
    }
    if (n != want->n)
        sp_error(EINVAL, "%s '%s' has %d counts, the schedule %d %s to fill", want->option, text, n,
                 want->n, want->parts);
    else if (sum != want->total)
        sp_error(EINVAL, "%s '%s' deals out %lld %s, %s has %d", want->option, text, (long long)sum,
                 want->unit, want->whole, want->total);
    else
        ret = 0;
    if (!ret)
        memcpy(counts, read, (size_t)want->n * sizeof *counts);
out:
    free(read);
    return ret;
}

/* ---- comparing partitions -------------------------------------------------------------- */

struct work {
    const struct sp_balance *b;
    int globals, pipes, layers;
    int64_t *prefix;     /* [layers+1] rounded time of all layers before each */
    int64_t first, last; /* rounded */
    int64_t *load;       /* [stages] times of the current partition */
    int64_t *bytes;      /* [stages][layers+1] of a chain under a limit; NULL: no limit */
};

/* Smaller is better; the first difference decides. */
struct score {
    int64_t excess;  /* bytes above the limit on the worst stage */
    int64_t worst;   /* time of the slowest stage */
    int64_t squares; /* of the times of the stages */
    int64_t spread;  /* squares of the counts */
};

static int compare(const struct score *a, const struct score *b)
{
    int64_t x[] = {a->excess, a->worst, a->squares, a->spread};
    int64_t y[] = {b->excess, b->worst, b->squares, b->spread};

    for (int i = 0; i < 4; i++) {
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    }
    return 0;
}

/* Time of global stage g on `stage` with the layers `first` .. `first+count-1`. */
static int64_t time_of(const struct work *w, int stage, int g, int first, int count)
{
    int64_t t = w->prefix[first + count] - w->prefix[first] + (g == 0 ? w->first : 0) +
                (g == w->globals - 1 ? w->last : 0);

    return w->b->slow ? llround((double)t * w->b->slow[stage]) : t;
}

/* Scores everything but the excess. */
static struct score score_times(struct work *w, const int *counts)
{
    int p = w->b->lay->stages, at = 0;
    struct score sc = {0};

    memset(w->load, 0, (size_t)p * sizeof *w->load);
    for (int g = 0; g < w->globals; g++) {
        for (int pipe = 0; pipe < w->pipes; pipe++) {
            int stage = sp_chunk_owner(w->b->lay, pipe, g).stage;

            w->load[stage] += time_of(w, stage, g, at, counts[g]);
        }
        sc.spread += (int64_t)counts[g] * counts[g];
        at += counts[g];
    }
    for (int s = 0; s < p; s++) {
        sc.worst = w->load[s] > sc.worst ? w->load[s] : sc.worst;
        sc.squares += w->load[s] * w->load[s];
    }
    return sc;
}

static int64_t excess(const struct work *w, const int *counts)
{
    int64_t most = 0;

    for (int s = 0; w->b->bytes && s < w->b->lay->stages; s++) {
        int64_t over = w->b->bytes(w->b->arg, s, counts) - w->b->limit_bytes;

        most = over > most ? over : most;
    }
    return most;
}

static void even(const struct work *w, int *counts)
{
    for (int g = 0, first; g < w->globals; g++)
        sp_partition(w->layers, w->globals, g, &first, &counts[g]);
}

/* ---- a chain of stages: exact ---------------------------------------------------------- */

typedef int64_t (*chain_value)(const struct work *w, int g, int first, int count);

/* INT64_MAX: impossible. */
static int64_t chain_time(const struct work *w, int g, int first, int count)
{
    if (w->bytes &&
        w->bytes[(size_t)g * (size_t)(w->layers + 1) + (size_t)count] > w->b->limit_bytes)
        return INT64_MAX;
    return time_of(w, sp_chunk_owner(w->b->lay, 0, g).stage, g, first, count);
}

static int64_t chain_bytes(const struct work *w, int g, int first, int count)
{
    (void)first;
    return w->bytes[(size_t)g * (size_t)(w->layers + 1) + (size_t)count];
}

/* Returns the smallest possible largest value of a global stage; INT64_MAX: impossible.
 * best[layers+1] is scratch. */
static int64_t chain_minmax(const struct work *w, chain_value value, int64_t *best)
{
    int G = w->globals, L = w->layers;

    /* best[i]: the result for the stages from g on with the layers from i on */
    for (int i = 0; i <= L; i++)
        best[i] = i == L ? 0 : INT64_MAX;
    for (int g = G - 1; g >= 0; g--) {
        for (int i = g; i <= L - (G - g); i++) { /* ascending: best[i + k] is still of g + 1 */
            int64_t least = INT64_MAX;

            for (int k = 1; i + k <= L - (G - 1 - g); k++) {
                int64_t v = value(w, g, i, k);

                v = best[i + k] > v ? best[i + k] : v;
                least = v < least ? v : least;
            }
            best[i] = least;
        }
    }
    return best[0];
}

struct rest {
    int64_t squares, spread; /* squares INT64_MAX: impossible */
};

/* Finds the partition with the smallest squares, then spread, among those in which no global stage
 * takes longer than `worst`; of equal ones, that with more layers on the first stages. */
static void chain_even(const struct work *w, int64_t worst, int *counts)
{
    int G = w->globals, L = w->layers;
    size_t row = (size_t)L + 1;
    struct rest *best = malloc(((size_t)G + 1) * row * sizeof *best);
    short *take = malloc((size_t)G * row * sizeof *take);

    SP_NEED(best && take, "no memory to partition %d layers", L);
    for (size_t i = 0; i < ((size_t)G + 1) * row; i++)
        best[i] = (struct rest){INT64_MAX, 0};
    best[(size_t)G * row + (size_t)L] = (struct rest){0, 0};
    for (int g = G - 1; g >= 0; g--) {
        for (int i = g; i <= L - (G - g); i++) {
            struct rest *b = &best[(size_t)g * row + (size_t)i];

            for (int k = L - (G - 1 - g) - i; k >= 1; k--) {
                const struct rest *n = &best[((size_t)g + 1) * row + (size_t)(i + k)];
                int64_t v = chain_time(w, g, i, k), squares, spread;

                if (v > worst || n->squares == INT64_MAX)
                    continue;
                squares = v * v + n->squares;
                spread = (int64_t)k * k + n->spread;
                if (squares < b->squares || (squares == b->squares && spread < b->spread)) {
                    *b = (struct rest){squares, spread};
                    take[(size_t)g * row + (size_t)i] = (short)k;
                }
            }
        }
    }
    for (int g = 0, i = 0; g < G; i += counts[g++])
        counts[g] = take[(size_t)g * row + (size_t)i];
    free(best);
    free(take);
}

/* Tabulates the bytes of every stage with every count; the other stages share the rest. */
static void tabulate_bytes(struct work *w)
{
    int G = w->globals, L = w->layers;
    int *counts = calloc((size_t)G, sizeof *counts);

    w->bytes = malloc((size_t)G * ((size_t)L + 1) * sizeof *w->bytes);
    SP_NEED(counts && w->bytes, "no memory to partition %d layers", L);
    for (int g = 0; g < G; g++) {
        for (int k = 1; k <= L - (G - 1); k++) {
            for (int other = 0, first; other < G; other++) {
                if (other != g)
                    sp_partition(L - k, G - 1, other - (other > g), &first, &counts[other]);
            }
            counts[g] = G > 1 ? k : L;
            w->bytes[(size_t)g * ((size_t)L + 1) + (size_t)k] =
                w->b->bytes(w->b->arg, sp_chunk_owner(w->b->lay, 0, g).stage, counts);
        }
    }
    free(counts);
}

static int refuse(const struct work *w, const char *what, int64_t least)
{
    const double MiB = 1024 * 1024;

    return sp_error(EINVAL,
                    "memory limit %.2f MiB: no partition of %d layers over %d stages %s; %.2f MiB "
                    "would do",
                    (double)w->b->limit_bytes / MiB, w->layers, w->b->lay->stages, what,
                    ceil(100 * (double)least / MiB) / 100);
}

/* Balances global stages as a chain, each on a stage of its own. */
static int balance_chain(struct work *w, int *counts)
{
    int64_t *best = malloc(((size_t)w->layers + 1) * sizeof *best), worst;
    int ret = 0;

    SP_NEED(best, "no memory to partition %d layers", w->layers);
    worst = chain_minmax(w, chain_time, best);
    if (worst == INT64_MAX)
        ret = refuse(w, "fits", chain_minmax(w, chain_bytes, best));
    else
        chain_even(w, worst, counts);
    free(best);
    return ret;
}

/* ---- several chunks a stage: one layer at a time --------------------------------------- */

/* Always makes the best move of a single layer between global stages, while the score gets
 * better. */
static struct score improve(struct work *w, int *counts)
{
    struct score now = score_times(w, counts);
    int from, to;

    now.excess = excess(w, counts);
    do {
        struct score best = now;

        from = to = -1;
        for (int a = 0; a < w->globals; a++) {
            for (int b = 0; counts[a] > 1 && b < w->globals; b++) {
                struct score sc;

                if (a == b)
                    continue;
                counts[a]--;
                counts[b]++;
                sc = score_times(w, counts);
                if (best.excess > 0 || compare(&sc, &best) < 0) /* counting bytes may take long */
                    sc.excess = excess(w, counts);
                if (compare(&sc, &best) < 0) {
                    best = sc;
                    from = a;
                    to = b;
                }
                counts[a]++;
                counts[b]--;
            }
        }
        if (from >= 0) {
            counts[from]--;
            counts[to]++;
        }
        now = best;
    } while (from >= 0);
    return now;
}

static int balance_chunks(struct work *w, int *counts)
{
    int *other = calloc((size_t)w->globals, sizeof *other), ret;
    struct score a, b;

    SP_NEED(other, "no memory to partition %d layers", w->layers);
    ret = balance_chain(w, other);
    if (!ret) {
        even(w, counts);
        a = improve(w, counts);
        b = improve(w, other);
        if (compare(&b, &a) < 0) {
            a = b;
            memcpy(counts, other, (size_t)w->globals * sizeof *counts);
        }
        if (a.excess)
            ret = refuse(w, "was found that fits", w->b->limit_bytes + a.excess);
    }
    free(other);
    return ret;
}

/* ---- entry ----------------------------------------------------------------------------- */

/* Scales times by a power of two and rounds them to integers. Their sum is at most 2^30, whichever
 * stages they are on, so that squares fit and whole numbers stay exact. */
static void round_times(struct work *w)
{
    double total = w->b->first_us + w->b->last_us, slowest = 1, scale;
    int exponent;

    for (int l = 0; l < w->layers; l++)
        total += w->b->layer_us[l];
    for (int s = 0; w->b->slow && s < w->b->lay->stages; s++)
        slowest = fmax(slowest, w->b->slow[s]);
    frexp(slowest * total, &exponent);
    scale = ldexp(1, 30 - exponent);
    w->first = llround(w->b->first_us * scale);
    w->last = llround(w->b->last_us * scale);
    w->prefix[0] = 0;
    for (int l = 0; l < w->layers; l++)
        w->prefix[l + 1] = w->prefix[l] + llround(w->b->layer_us[l] * scale);
}

bool sp_partition_is_list(const char *text)
{
    return strpbrk(text, "0123456789") != NULL;
}

int sp_partition_parse(const char *text, int layers, int globals, int *counts)
{
    struct sp_counts want = {.option = "partition",
                             .unit = "layers",
                             .whole = "the model",
                             .parts = "stages and chunks",
                             .total = layers,
                             .n = globals};

    return sp_counts_parse(text, &want, counts);
}

int sp_partition_balanced(const struct sp_balance *b, int *counts)
{
    struct work w = {
        .b = b, .globals = sp_globals(b->lay), .pipes = sp_pipes(b->lay), .layers = b->layers};
    int *found, ret;

    if (w.layers < w.globals || w.layers > SHRT_MAX)
        return sp_error(EINVAL, "%d layers cannot be dealt out to %d stages and chunks", w.layers,
                        w.globals);
    w.prefix = malloc(((size_t)w.layers + 1) * sizeof *w.prefix);
    w.load = malloc((size_t)b->lay->stages * sizeof *w.load);
    found = calloc((size_t)w.globals, sizeof *found);
    SP_NEED(w.prefix && w.load && found, "no memory to partition %d layers", w.layers);
    round_times(&w);
    if (w.pipes == 1 && w.globals == b->lay->stages) {
        if (b->bytes)
            tabulate_bytes(&w);
        ret = balance_chain(&w, found);
    } else {
        ret = balance_chunks(&w, found);
    }
    if (!ret)
        memcpy(counts, found, (size_t)w.globals * sizeof *counts);
    free(w.bytes);
    free(w.prefix);
    free(w.load);
    free(found);
    return ret;
}

int sp_partition_at_costs(const struct sp_plan *plan, int layers,
                          const struct sp_layer_costs *costs, enum sp_recompute mode,
                          const struct sp_balance *limits, int *counts)
{
    double *layer_us = malloc((size_t)layers * sizeof *layer_us);
    struct sp_balance b = *limits;
    int err;

    SP_NEED(layer_us, "no memory for the times of %d layers", layers);
    for (int l = 0; l < layers; l++)
        layer_us[l] = sp_layer_fwd_us(costs) + sp_layer_bwd_us(costs, mode);
    b.lay = &plan->layout;
    b.layers = layers;
    b.layer_us = layer_us;
    b.first_us = costs->embed_fwd_us + costs->embed_bwd_us;
    b.last_us = plan->layout.vocabulary_parallel ? 0 : costs->head_us;
    err = sp_partition_balanced(&b, counts);
    free(layer_us);
    return err;
}

int sp_partition_on_machine(const struct sp_plan *plan, const struct sp_shape *sh,
                            const struct sp_machine *machine, int devices, enum sp_recompute mode,
                            int *counts)
{
    int stages = plan->layout.stages, err;
    double *slow = calloc((size_t)stages, sizeof *slow);
    const struct sp_balance limits = {.slow = slow};
    struct sp_layer_costs costs;

    SP_NEED(slow, "no memory for the speeds of %d stages", stages);
    sp_layer_costs_estimate(machine, sh, &costs);
    sp_layer_slowness(machine, sh, devices, stages, slow);
    err = sp_partition_at_costs(plan, sh->model.layers, &costs, mode, &limits, counts);
    free(slow);
    return err;
}
