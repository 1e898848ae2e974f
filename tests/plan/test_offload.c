/*
 * The offload planner: random plans, sizes, rates and limits against memory counted slot by slot,
 * the promises that a run relies on, the smallest limit to the byte, the paper's recursion.
 */
#include "policies/common.h"
#include "offload/host.h"
#include "plan/offload/offload.h"
#include "plan/slices.h"
#include "policies/plan_create.h"
#include <errno.h>
#include <math.h>

static uint64_t seed = 11;

static int below(int n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (int)((seed >> 33) % (uint64_t)n);
}

static double part(void)
{
    return below(1 << 20) / (double)(1 << 20);
}

static struct sp_shape shape_of(int layers, int seq, int batch, bool llama)
{
    struct sp_model m = {.name = "test",
                         .arch = llama ? SP_ARCH_LLAMA : SP_ARCH_GPT2,
                         .layers = layers,
                         .hidden = 24,
                         .heads = 4,
                         .kv_heads = llama ? 2 : 4,
                         .head_dim = 6,
                         .mlp = 35,
                         .vocab = 61,
                         .positions = seq};
    struct sp_shape sh;

    sp_shape_init(&sh, &m, batch, seq, 1);
    return sh;
}

/* ---- what must hold of any plan --------------------------------------------------------- */

/* Counts the bytes in memory in a slot, unit by unit. */
static int64_t count(const struct sp_eviction_plan *a, int slot, bool all)
{
    int64_t sum = all ? a->also[slot] : 0;

    for (int i = 0; i < a->n_units; i++) {
        const struct sp_unit *u = &a->units[i];

        if (slot < u->made || slot > u->freed)
            continue;
        sum += u->stays + (slot > u->made && slot <= u->used ? u->head : 0);
        sum += slot < u->keys_gone || slot >= u->keys_back ? u->keys : 0;
        for (int k = 0; k < SP_UNIT_TENSORS; k++) {
            bool there = !(u->late >> k & 1) || slot > u->made;
            bool evicted = (u->out >> k & 1) && slot >= u->gone && slot < u->back;

            there &= k != SP_UNIT_HEAD || slot <= u->used;
            sum += there && !evicted ? u->bytes[k] : 0;
        }
    }
    return sum;
}

static void check(const struct sp_eviction_plan *a, int64_t limit)
{
    int64_t peak = 0, kept = 0, bytes = 0, gates = 0, returns = 0;

    for (int s = 0; s < a->n_slots; s++) {
        int64_t now = count(a, s, true), units = count(a, s, false);

        assert_true(a->also[s] >= 0 && a->seconds[s] > 0);
        assert_true(!limit || now <= limit);
        peak = now > peak ? now : peak;
        kept = units > kept ? units : kept;
        for (int i = a->gates[s]; i >= 0; i = a->next_gate[i], gates++)
            assert_true(a->units[i].out && a->units[i].gone == s);
        for (int i = a->returns[s]; i >= 0; i = a->next_return[i], returns++)
            assert_true(a->units[i].out && a->units[i].back == s);
    }
    assert_true(peak == a->peak && kept == a->peak_kept);
    for (int i = 0; i < a->n_units; i++) {
        const struct sp_unit *u = &a->units[i];

        assert_true(u->made + 1 < u->used && u->used <= u->freed && u->freed < a->n_slots);
        for (int k = 0; k < SP_UNIT_TENSORS; k++)
            assert_true(!(u->out >> k & 1) || u->bytes[k] > 0);
        assert_true(!u->keys || (u->made + 1 < u->keys_gone && u->keys_back <= u->used));
        if (!u->out)
            continue;
        gates--;
        returns--;
        assert_true(u->gone > u->made + 1 && u->gone < u->back && u->back <= u->used);
        assert_true(u->back == u->used || (u->back >= u->ahead && a->returns_allowed[u->back]));
        bytes += sp_unit_leaving(u);
    }
    assert_true(gates == 0 && returns == 0 && bytes == a->bytes);
    assert_true(a->most_evicted <= a->bytes + a->streamed_out);
}

/* ---- random plans ------------------------------------------------------------------------ */

struct
try {
    struct sp_plan plan;
    struct sp_shape sh;
    struct sp_offload_request want;
};

static bool draw_plan(struct try *t)
{
    static const char *const names[] = {"sppo",        "gpipe",    "1f1b",    "seq1f1b", "terapipe",
                                        "interleaved", "zb1p",     "zbv",     "v-min",   "hanayo",
                                        "dualpipev",   "dualpipe", "chimera", "bfs"};
    struct sp_layout lay = layout(1 + below(4), 1 + below(9));
    const char *name = names[below(sizeof names / sizeof *names)];
    bool sliced = !strcmp(name, "sppo") || !strcmp(name, "seq1f1b") || !strcmp(name, "terapipe");
    struct capture said;
    int err;

    lay.layers = 8 + below(9);
    lay.slices = sliced ? 1 + below(8) : 1;
    t->sh = shape_of(lay.layers, 16 + below(300), 1 + below(2), below(2));
    err = CAPTURED(&said, sp_plan_create(name, &lay, &t->plan));
    if (err)
        return false;
    if (lay.slices > 1)
        assert_int_equal(sp_plan_cut(&t->plan, &t->sh, below(2) ? "flops" : "length", NULL), 0);
    t->want = (struct sp_offload_request){.mode = SP_OFFLOAD_FULL,
                                          .keys = below(2) ? SP_KEYS_STAY : SP_KEYS_AUTO,
                                          .recompute = (enum sp_recompute)below(4),
                                          .every = 1,
                                          .speed = {1e-9 * (1 + below(9)), 2e-9}};
    if (t->want.recompute == SP_RECOMPUTE_FULL)
        t->want.every = 1 + below(3);
    return true;
}

/* Tries all limits around the needed one on one stage: refusals are exact to the byte, and limits
 * hold. */
static void limits(struct sp_eviction_plan *a, int64_t none, int64_t full)
{
    const struct sp_tier_rates slow = {1e3, 1e3};
    int64_t least, now;

    for (int i = 0; i < 12; i++) {
        int64_t limit = i == 0   ? full
                        : i == 1 ? full - 1
                        : i == 2 ? none
                                 : (int64_t)(full / 2 + part() * (double)(none - full / 2));
        bool fits;

        limit = limit > 0 ? limit : 1;
        fits = sp_eviction_plan_choose(a, SP_OFFLOAD_ADAPTIVE, limit, slow, &least);
        assert_true(least == full && fits == (limit >= full));
        if (!fits)
            continue;
        check(a, limit);
        assert_true(limit < none || a->bytes == 0); /* no more than is needed */
        now = a->bytes;
        assert_true(sp_eviction_plan_choose(a, SP_OFFLOAD_FULL, limit, slow, &least));
        check(a, limit);
        assert_true(now <= a->bytes);
    }
}

static int planned, left, refused;

TEST(fuzz)
{
    for (int i = 0; i < 600; i += test_every(3)) {
        struct sp_offload o = {0};
        struct try t;

        if (!draw_plan(&t))
            continue;
        assert_int_equal(sp_offload_create(&t.plan, &t.sh, &t.want, &o), 0);
        for (int s = 0; s < t.plan.layout.stages; s++) {
            struct sp_eviction_plan *a = &o.evictions[s];
            int64_t stash = sp_stash_peak(&t.plan, &t.sh, t.want.recompute, t.want.every, s), least,
                    full;
            const struct sp_tier_rates rates = {1 + part() * 1e6, 1 + part() * 1e6};

            check(a, 0);
            full = a->peak;
            left += a->bytes > 0;
            assert_true(sp_eviction_plan_choose(a, SP_OFFLOAD_ADAPTIVE, 0, rates, &least));
            check(a, 0);
            for (int g = 0; g < a->n_groups; g++) /* hidden under the next forward */
                assert_true((double)a->groups[g].leaving <=
                            rates.write * a->groups[g].hides_s * (1 + 1e-12));
            assert_true(sp_eviction_plan_choose(a, SP_OFFLOAD_NONE, 0, rates, &least));
            check(a, 0);
            assert_true(a->bytes == 0);
            /* the stash in whole pages */
            assert_true(a->peak_kept <= stash + (int64_t)a->n_units * 8 * SP_HOST_PAGE);
            assert_true(t.plan.paired || a->streamed_in || a->peak_kept >= stash);
            least = a->peak;
            /* the lowest peak, with everything evicted: all are fetched just before their use */
            sp_eviction_plan_choose(a, SP_OFFLOAD_FULL, 1, rates, &full);
            limits(a, least, full);
            planned++;
        }
        sp_offload_destroy(&o);
        sp_plan_destroy(&t.plan);
    }
    assert_true(planned > 500 / test_every(3) && left > 200 / test_every(3));
    printf("%d stages planned, on %d of them something may leave\n", planned, left);
}

/* ---- refusals ---------------------------------------------------------------------------- */

/* A refusal names the smallest limit that works. */
TEST(smallest)
{
    for (int i = 0; i < 200; i++) {
        struct sp_offload o = {0};
        struct capture said;
        double needs = 0;
        struct try t;
        const char *at;
        int stage = -1, err;

        if (!draw_plan(&t))
            continue;
        t.sh = shape_of(t.sh.model.layers, 2000 + below(20000), 4, below(2));
        if (t.plan.layout.slices > 1)
            assert_int_equal(sp_plan_cut(&t.plan, &t.sh, "flops", NULL), 0);
        t.want.mode = SP_OFFLOAD_ADAPTIVE;
        t.want.limit = 1;
        for (int tries = 0; tries < 2; tries++) { /* of all stages, not of the first */
            capture_begin(&said);
            err = sp_offload_create(&t.plan, &t.sh, &t.want, &o);
            at = strstr(capture_end(&said), "stage ");
            if (!err)
                break;
            assert_int_equal(err, -EINVAL);
            assert_non_null(at);
            assert_int_equal(sscanf(at, "stage %d needs %lf MiB", &stage, &needs), 2);
            t.want.limit = (int64_t)(needs * 1024 * 1024);
            refused++;
        }
        assert_int_equal(err, 0);
        for (int s = 0; s < o.stages; s++)
            assert_true(sp_memory_sum(&o.memory[s]) <= t.want.limit);
        t.want.limit -= 32 * 1024; /* the figure is rounded up to 10 KiB */
        err = CAPTURED(&said, sp_offload_create(&t.plan, &t.sh, &t.want, &o));
        assert_int_equal(err, -EINVAL);
        assert_null(o.evictions);
        sp_plan_destroy(&t.plan);
    }
    assert_true(refused > 100);
}

/* ---- keys and values that leave ---------------------------------------------------------------- */

/* One stage, n slices of 64 tokens each. */
static struct sp_eviction_plan *plan_slices(int n, struct sp_plan *plan, struct sp_shape *sh,
                                            struct sp_offload_request *want, struct sp_offload *o)
{
    struct sp_layout lay = layout(1, 1);

    lay.layers = 8;
    lay.slices = n;
    *sh = shape_of(8, 64 * n, 1, true);
    assert_int_equal(sp_plan_create("sppo", &lay, plan), 0);
    assert_int_equal(sp_plan_cut(plan, sh, "length", NULL), 0);
    assert_int_equal(sp_offload_create(plan, sh, want, o), 0);
    return &o->evictions[0];
}

/* Memory does not grow with the sequence, and they move as often as slices follow. In a layer, in slices:
 *   forwards    streams of slices 0 .. i-2 with slice i; each leaves once
 *   backwards   the last one makes the gradients of those before it, which then come and leave with every other one */
TEST(keys_leave)
{
    struct sp_offload_request want = {.mode = SP_OFFLOAD_FULL, .every = 1, .speed = {1e-9, 2e-9}};
    int64_t peak = 0, staying = 0;

    for (int n = 8; n <= 256; n *= 2) {
        struct sp_offload o = {0};
        struct sp_plan plan;
        struct sp_shape sh, part;
        int64_t in, out, keys;
        struct sp_eviction_plan *a = plan_slices(n, &plan, &sh, &want, &o);

        sp_shape_slice(&sh, 0, 64, &part);
        keys = 8 * (int64_t)sp_host_round(sizeof(float) * 64 * (size_t)part.kv_width);
        in = (n - 1) * (n - 2) / 2 + (n - 1) + (n - 1) * (n - 2) + 2 * (n - 1);
        out = (n - 1) + (n - 1) + (n - 1) * (n - 2) / 2;
        assert_true(a->streamed_in == in * keys && a->streamed_out == out * keys);
        assert_true(!peak || a->peak == peak);
        peak = a->peak;
        want.keys = SP_KEYS_STAY;
        sp_plan_destroy(&plan);
        a = plan_slices(n, &plan, &sh, &want, &o);
        assert_true(a->streamed_in == 0 && a->streamed_out == 0);
        assert_true(n == 8 || a->peak - staying >=
                                  n * keys); /* with their gradients, of twice n / 2 slices */
        staying = a->peak;
        want.keys = SP_KEYS_AUTO;
        sp_offload_destroy(&o);
        sp_plan_destroy(&plan);
    }
}

/* Keys of as few slices leave as the limit requires, those of the last slices. */
TEST(few_keys_leave)
{
    struct sp_offload_request want = {
        .mode = SP_OFFLOAD_ADAPTIVE, .keys = SP_KEYS_STAY, .every = 1, .speed = {1e-9, 2e-9}};
    int64_t before = INT64_MAX, most, least;
    struct sp_offload o = {0};
    struct sp_plan plan;
    struct sp_shape sh;

    most = plan_slices(32, &plan, &sh, &want, &o)->peak;
    sp_plan_destroy(&plan);
    want.mode = SP_OFFLOAD_FULL;
    want.keys = SP_KEYS_LEAVE;
    least = plan_slices(32, &plan, &sh, &want, &o)->peak + sp_memory_sum(&o.memory[0]) -
            o.memory[0].activations;
    most += sp_memory_sum(&o.memory[0]) - o.memory[0].activations;
    want.mode = SP_OFFLOAD_ADAPTIVE;
    want.keys = SP_KEYS_AUTO;
    for (int i = 0; i <= 8; i++) {
        const struct sp_eviction_plan *a;
        bool stays = true;

        sp_plan_destroy(&plan);
        want.limit = least + (most - least) * i / 8;
        a = plan_slices(32, &plan, &sh, &want, &o);
        assert_true(sp_memory_sum(&o.memory[0]) <= want.limit && a->streamed_in <= before);
        assert_true(i < 8 || a->streamed_in == 0);
        for (int u = 0; u < a->n_units; u++) { /* one forward after the other, 8 layers each */
            assert_true(u / 8 == 31 || stays || a->units[u].keys);
            stays &= !a->units[u].keys;
        }
        before = a->streamed_in;
    }
    sp_offload_destroy(&o);
    sp_plan_destroy(&plan);
}

/* ---- the paper's recursion ------------------------------------------------------------------ */

/* M_i = M_(i-1) + A_i - a_(i-1) A_(i-1), a_i A_i the same for slices of equal times. */
TEST(recursion)
{
    struct sp_layout lay = layout(1, 1);
    struct sp_offload_request want = {
        .mode = SP_OFFLOAD_ADAPTIVE, .every = 1, .speed = {1e-9, 2e-9}};
    struct sp_shape sh = shape_of(16, 4096, 1, false);
    struct sp_offload o = {0};
    struct sp_plan plan;

    lay.layers = 16;
    lay.slices = 8;
    assert_int_equal(sp_plan_create("sppo", &lay, &plan), 0);
    assert_int_equal(sp_plan_cut(&plan, &sh, "flops", NULL), 0);
    for (int step = 1; step <= 4; step++) {
        int64_t M = 0, most = 0, unit = 0;
        const struct sp_eviction_plan *a;

        want.rates = (struct sp_tier_rates){step * 1e6, step * 1e6};
        assert_int_equal(sp_offload_create(&plan, &sh, &want, &o), 0);
        a = &o.evictions[0];
        for (int i = 0; i < 8; i++) {
            int64_t A = 0;

            for (int k = a->groups[i].first; k < a->groups[i].first + a->groups[i].n; k++) {
                int64_t one = a->units[k].stays + a->units[k].head;

                for (int tensor = 0; tensor < SP_UNIT_TENSORS; tensor++)
                    one += a->units[k].bytes[tensor];
                unit = one > unit ? one : unit;
                A += one;
            }
            M += A - (i ? a->groups[i - 1].leaving : 0);
            most = M > most ? M : most;
            /* a_i A_i = BW T, less a tensor at most, if that is not all of it */
            if (i < 7 && a->groups[i].leaving < a->groups[i].bytes)
                assert_true((double)a->groups[i].leaving >
                            step * 1e6 * a->groups[i].hides_s - (double)unit);
        }
        assert_true(a->peak_kept >= most && a->peak_kept <= most + unit);
        assert_true(a->groups[7].bytes == 0 && a->groups[7].leaving == 0);
        assert_true(a->groups[0].leaving > 0);
        printf("%.0f MB/s: highest %.2f MiB, by the recursion %.2f\n", 1.0 * step,
               (double)a->peak_kept / 1048576, (double)most / 1048576);
    }
    sp_offload_destroy(&o);
    sp_plan_destroy(&plan);
}
