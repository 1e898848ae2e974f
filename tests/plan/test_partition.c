/* Partitions of layers: lists, and the balanced partition against every partition there is. */
#include "policies/common.h"
#include "policies/families/activations.h"
#include "plan/cost/layer_costs.h"
#include "plan/partition.h"
#include <math.h>

#define MOST 64

static uint64_t seed = 1;

static int random_int(int from, int to)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return from + (int)((seed >> 33) % (uint64_t)(to - from + 1));
}

/* ---- lists ------------------------------------------------------------------------------ */

TEST(lists)
{
    static const struct {
        const char *text, *says;
    } bad[] = {{"", "'' is not a number of layers"},
               {"3,,2", "'' is not a number of layers"},
               {"3,2,3,", "'' is not a number of layers"},
               {"3,-1,4,2", "'-1' is not a number"},
               {"3,+1,2,2", "'+1' is not a number"},
               {"3, 1,2,2", "' 1' is not a number"},
               {"3,2x,2,1", "'2x' is not a number"},
               {"99999999999999999999,1,1,1", "'99999999999999999999' is not a number"},
               {"3,5", "has 2 counts, the schedule 4 stages and chunks"},
               {"1,1,1,1,4", "has 5 counts, the schedule 4"},
               {"3,2,2,2", "deals out 9 layers, the model has 8"}};
    int counts[4] = {0};

    assert_int_equal(sp_partition_parse("0,8,0,0", 8, 4, counts), 0);
    assert_memory_equal(counts, ((int[]){0, 8, 0, 0}), sizeof counts);
    assert_int_equal(sp_partition_parse("3,2,2,1", 8, 4, counts), 0);
    assert_memory_equal(counts, ((int[]){3, 2, 2, 1}), sizeof counts);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct capture c;

        assert_says(&c, sp_partition_parse(bad[i].text, 8, 4, counts), -EINVAL, bad[i].says,
                    bad[i].text);
    }
    assert_memory_equal(counts, ((int[]){3, 2, 2, 1}), sizeof counts);
}

/* ---- every partition there is ----------------------------------------------------------- */

/* Bytes by the table of a stage's layers in all its chunks. */
struct table {
    const struct sp_layout *lay;
    int64_t fixed[MOST], layer[MOST]; /* by stage */
};

static int64_t bytes_of(void *arg, int stage, const int *counts)
{
    const struct table *t = arg;
    int64_t sum = t->fixed[stage];

    for (int c = 0; c < t->lay->chunks; c++)
        sum += counts[sp_global_stage(t->lay, stage, c)] * t->layer[stage];
    return sum;
}

struct figures {
    double worst, squares, spread;
    int64_t bytes; /* of the stage that holds most */
};

/* Sets us[stages] to the times of the stages under counts. */
static void stage_times(const struct sp_balance *b, const int *counts, double *us)
{
    int globals = sp_globals(b->lay), at = 0;

    memset(us, 0, (size_t)b->lay->stages * sizeof *us);
    for (int g = 0; g < globals; g++) {
        double t = (g == 0 ? b->first_us : 0) + (g == globals - 1 ? b->last_us : 0);

        for (int l = at; l < at + counts[g]; l++)
            t += b->layer_us[l];
        for (int pipe = 0; pipe < sp_pipes(b->lay); pipe++) {
            int stage = sp_chunk_owner(b->lay, pipe, g).stage;

            us[stage] += b->slow ? t * b->slow[stage] : t;
        }
        at += counts[g];
    }
}

static struct figures measure(const struct sp_balance *b, const int *counts)
{
    struct figures fig = {0};
    double us[MOST];

    stage_times(b, counts, us);
    for (int s = 0; s < b->lay->stages; s++) {
        int64_t bytes = b->bytes ? b->bytes(b->arg, s, counts) : 0;

        fig.worst = fmax(fig.worst, us[s]);
        fig.squares += us[s] * us[s];
        fig.bytes = bytes > fig.bytes ? bytes : fig.bytes;
    }
    for (int g = 0; g < sp_globals(b->lay); g++)
        fig.spread += counts[g] * counts[g];
    return fig;
}

struct brute {
    const struct sp_balance *b;
    int counts[MOST], best[MOST];
    struct figures fig;  /* of best; worst INFINITY: nothing fits */
    int64_t least_bytes; /* the smallest limit that works */
};

/* Tries partitions with more layers on the first stages first, so that the first of equal ones
 * counts. */
static void try_all(struct brute *x, int g, int left)
{
    int G = sp_globals(x->b->lay);
    struct figures f;

    if (g < G - 1) {
        for (int k = left - (G - 1 - g); k >= 1; k--) {
            x->counts[g] = k;
            try_all(x, g + 1, left - k);
        }
        return;
    }
    x->counts[g] = left;
    f = measure(x->b, x->counts);
    x->least_bytes = f.bytes < x->least_bytes ? f.bytes : x->least_bytes;
    if (x->b->bytes && f.bytes > x->b->limit_bytes)
        return;
    if (f.worst < x->fig.worst ||
        (f.worst <= x->fig.worst && (f.squares < x->fig.squares ||
                                     (f.squares <= x->fig.squares && f.spread < x->fig.spread)))) {
        x->fig = f;
        memcpy(x->best, x->counts, sizeof x->best);
    }
}

static struct brute best_of_all(const struct sp_balance *b)
{
    struct brute x = {.b = b, .fig = {.worst = INFINITY}, .least_bytes = INT64_MAX};

    try_all(&x, 0, b->layers);
    return x;
}

/* Whole numbers, so that the sums of both sides are exact and ties are ties. */
static void random_times(int layers, bool equal, double *layer_us, struct sp_balance *b)
{
    int range = random_int(0, 1) ? 3 : 1000, same = random_int(1, range);

    for (int l = 0; l < layers; l++)
        layer_us[l] = equal ? same : random_int(1, range);
    b->layers = layers;
    b->layer_us = layer_us;
    b->first_us = random_int(0, range);
    b->last_us = random_int(0, 2 * range);
}

TEST(chain)
{
    int fitted = 0, refused = 0;

    for (int i = 0; i < 1500; i++) {
        int p = random_int(1, 5), L = p + random_int(0, 6), counts[MOST] = {0};
        struct sp_layout lay = layout(p, 8);
        struct table t = {.lay = &lay};
        struct sp_balance b = {.lay = &lay};
        double layer_us[MOST], slow[MOST];
        struct brute want;
        struct capture c;
        int ret;

        random_times(L, random_int(0, 3) == 0, layer_us, &b);
        b.slow = i % 3 ? NULL : slow;
        for (int s = 0; s < p; s++) {
            slow[s] = random_int(1, 4);
            t.fixed[s] = random_int(0, 100);
            t.layer[s] = random_int(1, 100);
        }
        if (i % 2) {
            b.bytes = bytes_of;
            b.arg = &t;
            b.limit_bytes = random_int(50, 400);
        }
        want = best_of_all(&b);
        ret = CAPTURED(&c, sp_partition_balanced(&b, counts));
        if (isfinite(want.fig.worst)) {
            assert_int_equal(ret, 0);
            assert_memory_equal(counts, want.best, (size_t)p * sizeof *counts);
            fitted++;
            continue;
        }
        assert_int_equal(ret, -EINVAL);
        assert_non_null(strstr(c.text, "would do"));
        assert_int_equal(counts[0], 0);
        b.limit_bytes = want.least_bytes;
        assert_int_equal(sp_partition_balanced(&b, counts), 0);
        b.limit_bytes--;
        assert_says(&c, sp_partition_balanced(&b, counts), -EINVAL, "would do", "a byte less");
        refused++;
    }
    print_message("%d partitions equal to the best of all, %d refused as none fits\n", fitted,
                  refused);
}

/* ---- several chunks a stage ------------------------------------------------------------- */

typedef int (*placement)(const struct sp_layout *lay, int stage, int chunk);

TEST(chunks)
{
    static const struct {
        const char *name;
        placement place;
        int pipes;
    } kinds[] = {
        {"loop", NULL, 1}, {"wave", sp_place_wave, 1}, {"both ways", sp_place_both_ways, 2}};

    for (size_t kind = 0; kind < 3; kind++) {
        int best = 0, cases = 0, limited = 0;
        double most = 1;

        for (int i = 0; i < 300; i++) {
            struct sp_layout lay = layout(random_int(2, kinds[kind].pipes == 2 ? 6 : 3), 8);
            int even[MOST], counts[MOST], L, G, ret;
            bool equal = i % 3 == 0;
            struct table t = {.lay = &lay};
            struct sp_balance b = {.lay = &lay};
            struct sp_map *map;
            struct figures got, of_even;
            double layer_us[MOST], slow[MOST];
            struct brute want;
            struct capture c;
            char why[256];

            lay.chunks = 2;
            assert_int_equal(sp_map_create(&lay, kinds[kind].pipes, kinds[kind].place, NULL, &map,
                                           why, sizeof why),
                             0);
            lay.map = map;
            G = sp_globals(&lay);
            L = G + random_int(0, 5);
            random_times(L, equal, layer_us, &b);
            for (int s = 0; s < lay.stages; s++)
                slow[s] = random_int(1, 4);
            b.slow = i % 2 ? NULL : slow;
            for (int g = 0, first; g < G; g++)
                sp_partition(L, G, g, &first, &even[g]);
            of_even = measure(&b, even);
            want = best_of_all(&b);
            assert_int_equal(sp_partition_balanced(&b, counts), 0);
            got = measure(&b, counts);
            assert_true(got.worst <= of_even.worst && got.worst >= want.fig.worst);
            if (equal && !b.slow && kinds[kind].pipes == 1)
                assert_true(got.worst <= want.fig.worst);
            best += got.worst <= want.fig.worst;
            most = fmax(most, got.worst / want.fig.worst);
            cases++;

            for (int s = 0; s < lay.stages; s++) {
                t.fixed[s] = random_int(0, 100);
                t.layer[s] = random_int(1, 100);
            }
            b.bytes = bytes_of;
            b.arg = &t;
            b.limit_bytes = measure(&b, even).bytes; /* even fits */
            assert_int_equal(sp_partition_balanced(&b, counts), 0);
            got = measure(&b, counts);
            assert_true(got.bytes <= b.limit_bytes && got.worst <= of_even.worst);
            b.limit_bytes = random_int(20, 600);
            ret = CAPTURED(&c, sp_partition_balanced(&b, counts));
            if (!ret)
                assert_true(measure(&b, counts).bytes <= b.limit_bytes);
            else
                assert_non_null(strstr(c.text, "was found that fits"));
            limited += ret == 0;
            sp_map_destroy(map);
        }
        print_message("%s: %d of %d as good as the best of all, the others at most %.3f times; %d "
                      "of %d fit a random limit\n",
                      kinds[kind].name, best, cases, most, limited, cases);
    }
}

/* With equal layers one pipe can be filled one layer at a time, each to the least loaded stage. */
TEST(equal_layers)
{
    double gain = 0;

    for (int i = 0; i < 60; i++) {
        struct sp_layout lay = layout(random_int(2, 8), 8);
        int even[MOST], counts[MOST], G, L;
        double layer_us[200], load[8] = {0}, want = 0;
        struct sp_balance b = {.lay = &lay};
        struct sp_map *map;
        char why[256];

        lay.chunks = random_int(2, 4);
        G = lay.stages * lay.chunks;
        L = G + random_int(0, 100);
        assert_int_equal(
            sp_map_create(&lay, 1, i % 2 ? sp_place_wave : NULL, NULL, &map, why, sizeof why), 0);
        lay.map = map;
        random_times(L, true, layer_us, &b);
        b.last_us = random_int(0, 20) * layer_us[0];
        for (int g = 0; g < G; g++)
            load[sp_chunk_owner(&lay, 0, g).stage] +=
                layer_us[0] + (g == 0 ? b.first_us : 0) + (g == G - 1 ? b.last_us : 0);
        for (int l = G; l < L; l++) {
            int least = 0;

            for (int s = 1; s < lay.stages; s++)
                least = load[s] < load[least] ? s : least;
            load[least] += layer_us[0];
        }
        for (int s = 0; s < lay.stages; s++)
            want = fmax(want, load[s]);
        for (int g = 0, first; g < G; g++)
            sp_partition(L, G, g, &first, &even[g]);
        assert_int_equal(sp_partition_balanced(&b, counts), 0);
        assert_true(measure(&b, counts).worst == want);
        gain += 1 - want / measure(&b, even).worst;
        sp_map_destroy(map);
    }
    print_message(
        "60 interleaved partitions of equal layers as good as can be, %.1f %% better than "
        "even on average\n",
        100 * gain / 60);
}

/* ---- a model ---------------------------------------------------------------------------- */

TEST(models)
{
    static const struct {
        const char *name;
        int stages, seq;
    } runs[] = {{"gpt2-124m", 4, 1024}, {"gpt3-7b", 8, 32768}, {"llama3-405b", 16, 131072}};

    for (size_t i = 0; i < 3; i++) {
        struct sp_layout lay = layout(runs[i].stages, 16);
        double layer_us[128], even_worst;
        int even[MOST], counts[MOST];
        struct sp_balance b = {.lay = &lay, .layer_us = layer_us};
        static struct sp_machine machine;
        struct sp_layer_costs costs;
        struct sp_shape sh;
        struct sp_model m;

        assert_int_equal(sp_model_load(runs[i].name, &m), 0);
        sp_shape_init(&sh, &m, 1, runs[i].seq, 16);
        assert_int_equal(sp_machine_load(SP_MACHINE_DEFAULT, &machine), 0);
        sp_layer_costs_estimate(&machine, &sh, &costs);
        assert_true(costs.pre_fwd_us > 0 && costs.attn_fwd_us > 0 && costs.post_fwd_us > 0);
        assert_true(costs.bwd_us + costs.wgrad_us > sp_layer_fwd_us(&costs));
        assert_true(costs.recompute_us[SP_RECOMPUTE_NONE] <= 0);
        for (int j = 1; j < SP_RECOMPUTE_MODES; j++)
            assert_true(costs.recompute_us[j] > costs.recompute_us[j - 1]);
        assert_true(costs.recompute_us[SP_RECOMPUTE_FULL] < sp_layer_fwd_us(&costs));
        b.layers = m.layers;
        b.first_us = costs.embed_fwd_us + costs.embed_bwd_us;
        b.last_us = costs.head_us;
        for (int l = 0; l < m.layers; l++)
            layer_us[l] = sp_layer_fwd_us(&costs) + sp_layer_bwd_us(&costs, SP_RECOMPUTE_NONE);
        for (int s = 0, first; s < lay.stages; s++)
            sp_partition(m.layers, lay.stages, s, &first, &even[s]);
        even_worst = measure(&b, even).worst;
        assert_int_equal(sp_partition_balanced(&b, counts), 0);
        assert_true(measure(&b, counts).worst <= even_worst);
        print_message("%s, %d stages, %d tokens: last stage %d layers instead of %d, slowest "
                      "stage %.3f of even\n",
                      m.name, lay.stages, runs[i].seq, counts[lay.stages - 1], even[lay.stages - 1],
                      measure(&b, counts).worst / even_worst);
    }
}
