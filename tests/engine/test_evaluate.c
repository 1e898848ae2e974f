/*
 * An evaluation between two steps must leave no trace, in every family: weights, moments and
 * gradients stay, and the next step has the same bits as without it.
 */
#include "engine/graph_run.h"
#include "graphs/inference/inference.h"

/* Values of all blocks. */
struct values {
    int n;
    float at[MOST];
};

static struct values before[4], after[4]; /* by field */
static double evaluated;                  /* loss */

static int keep(void *arg, enum sp_block_kind kind, int layer, const float *w, size_t n)
{
    struct values *v = arg;

    (void)kind, (void)layer;
    assert_true((size_t)v->n + n <= MOST);
    memcpy(v->at + v->n, w, n * sizeof *w);
    v->n += (int)n;
    return 0;
}

static void keep_state(struct sp_graph *g, struct values v[4])
{
    for (int field = 0; field < 4; field++) {
        v[field].n = 0;
        assert_int_equal(sp_checkpoint_each(g, (enum sp_field)field, keep, &v[field]), 0);
    }
}

static void assert_same_state(void)
{
    for (int field = 0; field < 4; field++) {
        assert_true(before[field].n > 0);
        assert_int_equal(before[field].n, after[field].n);
        assert_memory_equal(before[field].at, after[field].at,
                            sizeof(float) * (size_t)before[field].n);
    }
}

/* Runs the first step's tokens without an update; returns loss and norm. */
static void try_step(struct sp_graph *g, struct values state[4], double figures[2])
{
    struct sp_step_report r;

    assert_int_equal(sp_step_report_create(g, &r), 0);
    sp_step_gradients(g, &data, 0, &r);
    figures[0] = r.loss;
    figures[1] = r.grad_norm;
    sp_step_report_destroy(g, &r);
    keep_state(g, state);
    sp_checkpoint_clear(g, SP_FIELD_G);
}

static void evaluate(struct sp_graph *g, int k)
{
    double without[2], with[2], loss;

    if (k != 1) /* once there are moments */
        return;
    keep_state(g, before);
    assert_int_equal(sp_evaluate(g, &data, 2, &loss), 0);
    keep_state(g, after);
    assert_same_state();
    try_step(g, before, without);
    assert_int_equal(sp_evaluate(g, &data, 1, &evaluated), 0);
    try_step(g, after, with);
    assert_same_state();
    assert_memory_equal(without, with, sizeof with);
    assert_true(evaluated == with[0]);
}

static void check(const char *schedule, int slices, struct setting set)
{
    struct sp_layout lay = layout(4, 8);
    struct run run;

    set.workers = 2;
    set.before = evaluate;
    lay.layers = 9;
    lay.chunks = 0;
    lay.slices = slices;
    if (slices > 1) {
        set.seq = 28;
        set.cut = "length";
    }
    run_plan(new_plan(schedule, &lay, &set), &set, &run);
    printf("[          ] %s: trained on at %.9f, evaluated after that %.9f\n", schedule,
           run.loss[0], evaluated);
    assert_true(evaluated < run.loss[0]);
}

TEST(families)
{
    static const char *const whole[] = {"1f1b",  "zb1p",    "interleaved", "chimera",
                                        "helix", "weipipe", "wzb2",        "fsdp"};

    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        check(whole[i], 1, (struct setting){.tied = i % 2});
    check("sppo", 3, (struct setting){.tied = true});
    check("sppo:multiplex", 4, (struct setting){.llama = true});
}

/* An evaluation also fetches evicted tensors. */
TEST(offload)
{
    check("1f1b", 1, (struct setting){.offload = SP_OFFLOAD_FULL});
}

TEST_FIXTURE(make_data, close_data)
