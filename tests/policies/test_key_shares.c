/*
 * Slices that several stages compute: the keys that each stage has, the bytes sent for it, and the
 * memory a stage uses for others, against closed forms.
 */
#include "policies/common.h"
#include "policies/families/multiplexed/key_shares.h"
#include "graphs/count.h"
#include "plan/memory.h"
#include "policies/lowering/lowering.h"

enum { SEQ = 7200, BATCH = 2, MOST = 9 }; /* a slice of it can be cut in up to 6 parts */

static void plan_of(int p, int n, int m, struct sp_plan *plan)
{
    struct sp_layout lay = layout_of(p, m, 1, n);

    lay.layers = 2 * p;
    make_plan_of("sppo:multiplex", lay, plan);
}

static void tokens_of(const struct sp_plan *plan, int g, int part, int *first, int *len)
{
    struct sp_op op = {.chunk = g, .slice = (unsigned short)part};

    sp_plan_op_tokens(plan, SEQ, &op, first, len);
}

/* ---- who has which keys ----------------------------------------------------------------------- */

/* The shares of a part's keys follow each other and make up the part; there are none if the owner
 * keeps it. */
static void check_part(const struct sp_plan *plan, int g, int part, int *given)
{
    int first, len, at;

    tokens_of(plan, g, part, &first, &len);
    at = first;
    for (int s = 0; s < g; s++) {
        int from, n;

        sp_key_share(plan, SEQ, g, part, s, &from, &n);
        assert_true(n == 0 || from == at);
        at += n;
        given[s] += n;
    }
    assert_int_equal(at, part < sp_first_kept_part(plan, SEQ, g) ? first + len : first);
}

/* The tokens before the shared slices: each assisting stage has equally many, the owner the rest,
 * about as many. */
static void check_shares(const struct sp_plan *plan, int g)
{
    int given[MOST] = {0}, before = sp_parts_before_right(&plan->layout, g), all = 0, first, len;
    int kept = 0, longest = 0;

    for (int r = 0; r < before; r++) {
        check_part(plan, g, r, given);
        tokens_of(plan, g, r, &first, &len);
        all += len;
        longest = len > longest ? len : longest;
    }
    for (int s = 0; s < g; s++) {
        assert_in_range(given[s], given[0], given[0] + 1);
        kept += given[s];
    }
    assert_true(2 * abs((all - kept) * (g + 1) - all) <= (longest + 1) * (g + 1));
}

/* For every part of a shared slice, its stages together have each of the keys before it once. */
static int check_queries(const struct sp_plan *plan, int g)
{
    const struct sp_layout *lay = &plan->layout;
    int parts = 0;

    for (int part = 0; part < sp_parts_of(lay, g); part++) {
        struct sp_slice_part at = sp_part_at(lay, g, part);
        int first, len, keys = 0;

        if (!sp_slice_is_shared(lay, g, at.slice))
            continue;
        for (int i = 0; i < at.of; i++)
            keys += sp_keys_for(plan, SEQ, g, part, at.stage - at.part + i);
        tokens_of(plan, g, part, &first, &len);
        assert_int_equal(keys, first);
        parts++;
    }
    return parts;
}

TEST(all_keys_once)
{
    int parts = 0;

    for (int p = 2; p <= MOST; p++)
        for (int n = p > 3 ? p - 1 : 2; n <= 14; n++) {
            struct sp_plan plan;

            plan_of(p, n, 1, &plan);
            for (int g = 0; g < p; g++) {
                check_shares(&plan, g);
                parts += check_queries(&plan, g);
            }
            sp_plan_destroy(&plan);
        }
    printf("[          ] %d parts\n", parts);
    assert_true(parts > 10000);
}

/* ---- who has how much to do ------------------------------------------------------------------- */

/* The work of an assisting stage; `token`: the cost of a token, `pair`: that of a query with a
 * key. */
static double work_of(const struct sp_plan *plan, int g, int part, int helper, double token,
                      double pair)
{
    int first, len, of = sp_part_at(&plan->layout, g, part).of;
    int begin = part - sp_part_at(&plan->layout, g, part).part;
    double work;

    tokens_of(plan, g, begin + helper, &first, &len);
    work = token * len + pair * 0.5 * len * len; /* its own part */
    for (int i = 0; i < of; i++) {
        int stage = sp_part_at(&plan->layout, g, begin + helper).stage;

        tokens_of(plan, g, begin + i, &first, &len);
        work += pair * len * sp_keys_for(plan, SEQ, g, begin + i, stage);
    }
    return work;
}

/* Parts are balanced both if a token costs as much as its attention and if attention is nearly
 * all. */
TEST(parts_are_balanced)
{
    static const double tokens[] = {SEQ / 2, 64};
    double worst = 0;

    for (int p = 2; p <= 8; p++)
        for (size_t c = 0; c < 2; c++) {
            struct sp_plan plan;
            int n = 4 * p, len[4 * MOST], slice = SEQ / n;
            double share[4 * MOST];

            plan_of(p, n, 1, &plan);
            for (int k = 0; k < n; k++) {
                len[k] = k < n - 1 ? slice : SEQ - (n - 1) * slice;
                share[k] = 1.0 / n;
            }
            assert_int_equal(sp_plan_slices(&plan, len, share), 0);
            assert_int_equal(plan.family->shared->cut(&plan, 1, tokens[c], 1), 0);
            for (int g = 0; g < p; g++)
                for (int part = 0; part < sp_parts_of(&plan.layout, g);) {
                    int of = sp_part_at(&plan.layout, g, part).of;
                    double most = 0, sum = 0;

                    for (int i = 0; i < of; i++) {
                        double work = work_of(&plan, g, part, i, tokens[c], 1);

                        most = work > most ? work : most;
                        sum += work;
                    }
                    worst = most * of / sum > worst ? most * of / sum : worst;
                    part += of;
                }
            sp_plan_destroy(&plan);
        }
    printf("[          ] at most %.3f of the mean\n", worst);
    assert_true(worst < 1.25);
}

/* ---- the order -------------------------------------------------------------------------------- */

/* The parts of a slice are submitted one after the other, and no op before one that it waits
 * for. */
TEST(slices_are_units)
{
    for (int p = 2; p <= 7; p++)
        for (int n = p > 3 ? p - 1 : 2; n <= 12; n += 2) {
            struct sp_plan plan;
            struct sp_lowering l;

            plan_of(p, n, 2, &plan);
            assert_int_equal(sp_lowering_create(&plan, NULL, p, &l), 0);
            for (int i = 0, of; i < l.n; i += of) {
                const struct sp_op *op = sp_lowering_op(&l, i);
                struct sp_slice_part first = sp_part_at(&plan.layout, op->chunk, op->slice);

                of = plan.family->lowers->unit(&l, i);
                assert_int_equal(of, first.of);
                for (int k = i; k < i + of; k++) {
                    const struct sp_op *part = sp_lowering_op(&l, k);
                    struct sp_dep deps[SP_MAX_DEPS];
                    int waits = sp_run_deps(&plan, l.order[k].stage, part, deps);

                    assert_true(
                        part->chunk == op->chunk && part->mb == op->mb && part->pass == op->pass &&
                        sp_part_at(&plan.layout, op->chunk, part->slice).slice == first.slice);
                    for (int d = 0; d < waits; d++)
                        assert_true(sp_lowering_position(&l, deps[d].stage, &deps[d].op) < i);
                }
            }
            sp_lowering_destroy(&l);
            sp_plan_destroy(&plan);
        }
}

/* ---- what is sent and held -------------------------------------------------------------------- */

static void tiny_shape(int p, int m, struct sp_model *model, struct sp_shape *shape)
{
    *model = tiny(2 * p, false);
    model->positions = SEQ;
    sp_shape_init(shape, model, BATCH, SEQ, m);
}

struct count {
    const struct sp_plan *plan;
    const struct sp_shape *shape;
    int64_t keys, gradients; /* bytes of shares sent */
    int64_t weights, sums;   /* bytes of blocks sent */
    int64_t exchanged[2];    /* forward, backward: bytes sent within ops */
    int64_t now[MOST], most; /* shares of keys that a stage has */
    int blocks[MOST][MOST], most_owners;
    int forward;
};

static void count_owners(struct count *c, int stage)
{
    int owners = 0;

    for (int g = 0; g < c->plan->layout.stages; g++)
        owners += c->blocks[stage][g] > 0;
    c->most_owners = owners > c->most_owners ? owners : c->most_owners;
}

static void count_action(void *arg, const struct sp_action *a)
{
    struct count *c = arg;
    const struct sp_tensor_id *t = &a->tensor;
    bool share = t->kind == SP_TENSOR_KV && t->block;

    if (a->kind == SP_ACTION_RUN && a->index >= 0) {
        c->forward = a->op.pass == SP_F;
        assert_true(a->op.chunk == a->stage || c->blocks[a->stage][a->op.chunk] > 0);
    }
    if (a->kind == SP_ACTION_SEND && t->kind == SP_TENSOR_BLOCK && a->stage != t->mb)
        assert_true(c->blocks[a->stage][t->mb] > 0); /* a stage that forwards it has it */
    if (a->kind == SP_ACTION_SEND && a->during)
        c->exchanged[!c->forward] += a->bytes;
    else if (a->kind == SP_ACTION_SEND && share)
        c->keys += a->bytes;
    else if (a->kind == SP_ACTION_SEND && t->kind == SP_TENSOR_DKV && t->block)
        c->gradients += a->bytes;
    else if (a->kind == SP_ACTION_SEND && t->kind == SP_TENSOR_BLOCK)
        c->weights += a->bytes;
    else if (a->kind == SP_ACTION_SEND && t->kind == SP_TENSOR_GRADIENT)
        c->sums += a->bytes;
    if (a->kind == SP_ACTION_RECV && share) {
        c->now[a->stage] += a->bytes;
        c->most = c->now[a->stage] > c->most ? c->now[a->stage] : c->most;
    } else if (a->kind == SP_ACTION_FREE && share && a->stage != t->at) {
        c->now[a->stage] -= sp_tensor_bytes(c->plan, c->shape, t);
    } else if (t->kind == SP_TENSOR_BLOCK && a->stage != t->mb) {
        c->blocks[a->stage][t->mb] += (a->kind == SP_ACTION_RECV) - (a->kind == SP_ACTION_FREE);
        count_owners(c, a->stage);
    }
}

/*
 * Slices of one length, T tokens. Stage g sends its assisting stages keys of B tokens, once, and
 * gets as many gradients; each of them has B/g. Weights of each stage go to all others for the
 * forward and for the backward; those of the last stage go once, as no other op is between the two.
 * Sums are sent back once.
 */
TEST(bytes_and_memory)
{
    for (int p = 2; p <= 6; p++) {
        int n = 2 * p, T = SEQ / n;
        struct sp_model model;
        int64_t layer = 0, keys = 0, weights = 0, sums = 0, most = 0, rows = 0;
        struct sp_shape shape;
        struct sp_plan plan;
        struct sp_lowering l;
        struct count c = {.plan = &plan, .shape = &shape};

        tiny_shape(p, 1, &model, &shape);
        plan_of(p, n, 1, &plan);
        for (int i = 0; i < SP_LAYER_BLOCKS; i++)
            layer += (int64_t)sp_block_elements(&model, sp_layer_block(i));
        for (int g = 0; g < p; g++) {
            int given = (n - g) * T * g / (g + 1);
            int64_t token = (int64_t)2 * BATCH * shape.kv_width * (int64_t)sizeof(float);
            int64_t blocks = 2 * layer;

            given = (given + (T - 1) / 2) / T * T; /* to the nearest border of slices */
            if (g == 0)
                blocks += (int64_t)(sp_block_elements(&model, SP_BLOCK_TOKENS) +
                                    sp_block_elements(&model, SP_BLOCK_POSITIONS));
            if (g == p - 1)
                blocks += (int64_t)(sp_block_elements(&model, SP_BLOCK_NORM) +
                                    sp_block_elements(&model, SP_BLOCK_HEAD));
            keys += given * token;
            most += g ? given / g * token : 0; /* of stage 0, at the end */
            weights += (g == p - 1 ? 1 : 2) * (p - 1) * blocks * (int64_t)sizeof(float);
            sums += (p - 1) * blocks * (int64_t)sizeof(float);
            /* queries sent to others; those of the first left slice go only to stages whose keys
             * precede them */
            rows += BATCH * T *
                    ((int64_t)g * g + (int64_t)(p - 1 - g) * (p - 1 - g) -
                     (g < p - 1 ? (p - 1 - g) / 2.0 : 0));
        }
        assert_int_equal(sp_lowering_create(&plan, &shape, p, &l), 0);
        assert_int_equal(sp_lower_step(&l, count_action, &c), 0);
        printf("[          ] p=%d: %lld bytes of keys, %lld of weights, %lld of queries\n", p,
               (long long)c.keys, (long long)c.weights, (long long)c.exchanged[0]);
        assert_int_equal(c.keys, keys);
        assert_int_equal(c.gradients, keys);
        assert_int_equal(c.most, most);
        /* in both layers q to them, o and its statistics back; q, o, do and statistics, and dq */
        assert_int_equal(c.exchanged[0], 2 * rows * (2 * 24 + 4) * 4);
        assert_int_equal(c.exchanged[1], 2 * rows * (4 * 24 + 4) * 4);
        assert_int_equal(c.weights, weights);
        assert_int_equal(c.sums, sums);
        assert_true(c.most_owners <= 2);
        sp_lowering_destroy(&l);
        sp_plan_destroy(&plan);
    }
}

/* However many micro-batches follow each other, a stage has weights of at most two others, and its
 * memory stays the same. */
TEST(micro_batches)
{
    static const int layouts[][2] = {{2, 2}, {4, 3}, {4, 8}, {6, 5}, {8, 7}, {8, 10}};

    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (int apart = 0; apart < 2; apart++) {
            struct sp_count held[2][MOST];

            for (int more = 0; more < 2; more++) {
                struct count c = {0};
                struct sp_model model;
                struct sp_shape shape;
                struct sp_plan plan;
                struct sp_lowering l;

                plan_of(layouts[i][0], layouts[i][1], more ? 5 : 2, &plan);
                tiny_shape(layouts[i][0], more ? 5 : 2, &model, &shape);
                plan.processes = apart ? layouts[i][0] : 1;
                c.plan = &plan;
                c.shape = &shape;
                assert_int_equal(sp_lowering_create(&plan, &shape, layouts[i][0], &l), 0);
                assert_int_equal(sp_lower_step(&l, count_action, &c), 0);
                assert_true(c.most_owners <= 2);
                assert_int_equal(sp_memory_count(&plan, &shape, SP_RECOMPUTE_NONE, 1, held[more]),
                                 0);
                sp_lowering_destroy(&l);
                sp_plan_destroy(&plan);
            }
            for (int s = 0; s < layouts[i][0]; s++)
                if (held[0][s].buffers != held[1][s].buffers)
                    fail_msg("p=%d n=%d apart=%d: stage %d has buffers of %lld bytes, %lld with "
                             "more",
                             layouts[i][0], layouts[i][1], apart, s, (long long)held[0][s].buffers,
                             (long long)held[1][s].buffers);
        }
}
