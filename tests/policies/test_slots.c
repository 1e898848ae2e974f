/*
 * SlimPipe over a grid of sizes: stages run in step; the shared attention and its bytes are
 * compared with closed forms and independent counts; memory and time with the published ones.
 */
#include "model/model.h"
#include "policies/families/activations.h"
#include "policies/families/aligned/assist.h"
#include "graphs/count.h"
#include "plan/memory.h"
#include "policies/play.h"

/* Calls fn for sizes of all kinds. */
static void each_size(void (*fn)(const struct sp_layout *lay))
{
    for (int p = 1; p <= 6; p++)
        for (int v = 1; v <= 3; v++)
            for (int m = 1; m <= 4; m++)
                for (int n = 1; n <= 13; n++) {
                    struct sp_layout lay = layout_of(p, m, v, n);

                    if (v == 1 || n % p == 0)
                        fn(&lay);
                }
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* A slot has one pass; each op of a stage is in one slot, in which the stage before is one slice
 * further. */
static void slots_of(const struct sp_layout *lay)
{
    int ops = 0;

    for (int slot = 0; slot < sp_slots(lay); slot++) {
        int pass = -1;

        for (int s = 0; s < lay->stages; s++) {
            struct sp_op op;

            if (!sp_slot_op(lay, s, slot, &op))
                continue;
            assert_true(pass < 0 || pass == op.pass);
            pass = op.pass;
            assert_int_equal(sp_slot_of(lay, s, &op), slot);
            ops++;
        }
    }
    assert_int_equal(ops, 2 * lay->stages * lay->micro_batches * lay->chunks * lay->slices);
}

/* Each stage holds nv + 2(p-1-s) slices of chunks, and the step takes (m + (p-1)/(nv))(f + b + w). */
static void published_of(const struct sp_layout *lay)
{
    const struct sp_costs costs = {.f = 1, .b = 1.25, .w = 0.75};
    int p = lay->stages, m = lay->micro_batches, each = lay->slices * lay->chunks;
    static const enum sp_channel kinds[] = {SP_PAIRED, SP_RUN};
    struct sp_plan plan;

    make_plan_of("slimpipe", *lay, &plan);
    for (int i = 0; i < 2; i++) {
        struct sp_times times;

        play_plan(&plan, &costs, kinds[i], &times);
        assert_float_equal(times.makespan, (m + (p - 1.0) / each) * 3, 1e-9);
        for (int s = 0; s < p; s++) {
            int held = each + 2 * (p - 1 - s);

            assert_int_equal(times.peak_live[s], held < m * each ? held : m * each);
        }
        sp_times_destroy(&times);
    }
    sp_plan_destroy(&plan);
}

TEST(slots)
{
    each_size(slots_of);
}

TEST(published)
{
    each_size(published_of);
}

/* ---- what is shared -------------------------------------------------------------------------- */

/* All keys before a slice are read once, by its stage or an assisting one. No stage reads more than
 * one slice of keys more than another, and each owner keeps the latest ones. */
static void shared_of(const struct sp_layout *lay)
{
    for (int slot = 0; slot < sp_slots(lay); slot++) {
        struct sp_assist assist[SP_SLOT_STAGES];
        int load[SP_SLOT_STAGES], given[SP_SLOT_STAGES] = {0}, n, at = 0;
        int least = INT32_MAX, most = -1;

        for (int s = 0; s < lay->stages; s++) {
            struct sp_op op;

            load[s] = sp_slot_op(lay, s, slot, &op) ? op.slice : -1;
            at += load[s] >= 0;
        }
        n = sp_slot_assist(lay, slot, assist);
        assert_true(n == 0 || n < at);
        for (int k = 0; k < n; k++) {
            assert_true(load[assist[k].owner] >= 0 && load[assist[k].helper] >= 0);
            assert_int_equal(assist[k].keys.first, given[assist[k].owner]);
            assert_true(assist[k].keys.n > 0);
            given[assist[k].owner] += assist[k].keys.n;
        }
        for (int s = 0; s < lay->stages; s++) {
            int sum = load[s] - given[s];

            if (load[s] < 0)
                continue;
            assert_true(given[s] <= load[s]);
            for (int k = 0; k < n; k++)
                sum += assist[k].helper == s ? assist[k].keys.n : 0;
            least = sum < least ? sum : least;
            most = sum > most ? sum : most;
        }
        assert_true(most < 0 || most - least <= 1);
    }
}

TEST(shared)
{
    each_size(shared_of);
}

/* If the stages are at slices i, i-1, ..., i-p+1 of one micro-batch, half of them give away 1, 2,
 * ... slices of keys. */
TEST(shared_in_the_middle)
{
    for (int p = 2; p <= 12; p++) {
        struct sp_layout lay = layout_of(p, 2, 1, 3 * p);
        struct sp_assist assist[SP_SLOT_STAGES];
        int n = sp_slot_assist(&lay, 2 * p, assist), half = p / 2, moved = 0;

        for (int k = 0; k < n; k++)
            moved += assist[k].keys.n;
        assert_int_equal(moved, p % 2 ? half * (half + 1) / 2 : half * (half - 1) / 2);
    }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

enum { P = 4, N = 8, M = 2, LAYERS = 8, SEQ = 64, BATCH = 2 };

/* The keys that an assisting stage has: by owner, stage and slice, the chunk and micro-batch; -1:
 * none. */
struct shared {
    int now[P][P][N], before[P][P][N];
};

/* Notes the keys given in a slot; *came, *went: the slices of keys that are new and those that are
 * no longer there. */
static void note(struct shared *shared, const struct sp_assist *assist, int n,
                 const struct sp_layout *lay, int slot, int *came, int *went)
{
    memcpy(shared->before, shared->now, sizeof shared->now);
    memset(shared->now, -1, sizeof shared->now);
    for (int k = 0; k < n; k++)
        for (int j = assist[k].keys.first; j < assist[k].keys.first + assist[k].keys.n; j++) {
            struct sp_op op;

            assert_true(sp_slot_op(lay, assist[k].owner, slot, &op));
            shared->now[assist[k].owner][assist[k].helper][j] = op.mb * lay->chunks + op.chunk;
        }
    for (int i = 0; i < P * P * N; i++) {
        int now = shared->now[i / N / P][i / N % P][i % N];
        int before = shared->before[i / N / P][i / N % P][i % N];

        *came += now >= 0 && now != before;
        *went += before >= 0 && now != before;
    }
}

/* The additional bytes sent with the exchange, in each layer: q, and o with statistics in a
 * forward; q, o, its statistics, do and dq in a backward; k and v of the keys that an assisting
 * stage gets, and their gradients once it is done with them. */
static void bytes_of(int v)
{
    static const char *const schedules[] = {"slimpipe", "slimpipe:exchange=off"};
    struct sp_layout lay = layout_of(P, M, v, N);
    struct sp_count counted[2][P];
    int64_t expected = 0, more = 0, q, kv, lse;
    struct sp_assist assist[SP_SLOT_STAGES];
    static struct shared shared[2]; /* of forwards, of backwards */
    struct sp_model model;
    struct sp_shape shape;

    lay.layers = LAYERS;
    assert_int_equal(sp_model_load("llama-tiny", &model), 0);
    sp_shape_init(&shape, &model, BATCH, SEQ, M);
    shape.dtype = SP_BF16;
    q = 2 * BATCH * SEQ / N * shape.q_width;
    kv = 2 * BATCH * SEQ / N * shape.kv_width;
    lse = 4 * BATCH * SEQ / N * model.heads;
    for (int i = 0; i < 2; i++) {
        struct sp_plan plan;

        make_plan_of(schedules[i], lay, &plan);
        plan.processes = P;
        assert_int_equal(sp_memory_count(&plan, &shape, SP_RECOMPUTE_NONE, 1, counted[i]), 0);
        sp_plan_destroy(&plan);
    }
    for (int s = 0; s < P; s++)
        more += counted[0][s].sent - counted[1][s].sent;
    memset(shared, -1, sizeof shared);
    for (int slot = 0; slot < sp_slots(&lay); slot++) {
        int first = N * v + P - 1, pass = slot >= first && (slot - first) % 2 == 0 ? SP_B : SP_F;
        int came = 0, went = 0, n = sp_slot_assist(&lay, slot, assist);

        note(&shared[pass == SP_B], assist, n, &lay, slot, &came, &went);
        expected += n * (pass == SP_F ? 2 * q + lse : 4 * q + lse) + came * kv;
        expected += pass == SP_B ? went * kv : 0;
    }
    assert_int_equal(more, expected * LAYERS / P / v);
}

TEST(bytes)
{
    bytes_of(1);
    bytes_of(2);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The first stage keeps 1 + 2(p-1)/(nv) times the activations of a micro-batch; 1F1B keeps p
 * times. */
TEST(memory)
{
    static const int sizes[][4] = {{2, 4, 1, 8}, {4, 4, 1, 16}, {4, 8, 2, 8}, {8, 2, 1, 64}};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int p = sizes[i][0], v = sizes[i][2], n = sizes[i][3];
        struct sp_layout lay = layout_of(p, sizes[i][1], v, n), whole = layout(p, sizes[i][1]);
        struct sp_model model;
        struct sp_plan slim, plain;
        struct sp_shape shape;
        int64_t one, held, kept;

        assert_int_equal(sp_model_load("gpt-tiny", &model), 0);
        model.layers = lay.layers = whole.layers = p * v;
        sp_shape_init(&shape, &model, 1, 8 * n, 1);
        make_plan_of("slimpipe", lay, &slim);
        make_plan_of("1f1b", whole, &plain);
        one = sp_stash_of_op(&plain, &shape, SP_RECOMPUTE_NONE, 1, 0, &plain.programs[0].ops[0]);
        held = sp_stash_peak(&slim, &shape, SP_RECOMPUTE_NONE, 1, 0);
        kept = sp_stash_peak(&plain, &shape, SP_RECOMPUTE_NONE, 1, 0);
        assert_int_equal(held * n * v, one * (n * v + 2 * (p - 1)));
        assert_int_equal(kept, one * (p < sizes[i][1] ? p : sizes[i][1]));
        sp_plan_destroy(&slim);
        sp_plan_destroy(&plain);
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

TEST(refusals)
{
    const struct refusal table[] = {
        {"slimpipe:exchange=some", layout_of(4, 2, 1, 8), "use exchange=on or exchange=off"},
        {"slimpipe", layout_of(4, 2, 2, 6),
         "groups of 4, the stages, which 6 are not; use --slices 8"},
        {"slimpipe:exchange=off", layout_of(3, 2, 2, 4), "use --slices 6"},
        {"slimpipe", layout_of(61, 2, 1, 61), "at most 60 stages, not 61"},
    };

    assert_no_plans(table);
}
