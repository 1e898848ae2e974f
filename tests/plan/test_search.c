/*
 * The search for layouts: SPPO's heuristics kept, the best of all it may try found, limits of memory, steps of
 * very many micro-batches, what pulls the number of slices up and down.
 */
#include "plan/machine/fields.h"
#include "plan/memory.h"
#include "plan/predict.h"
#include "plan/search/bounds.h"
#include "plan/search/search.h"
#include "plan/search/trial.h"
#include "plan/slices.h"
#include "policies/common.h"
#include <math.h>

static struct sp_model model;
static struct sp_machine machine;

static int load(void **state)
{
    (void)state;
    return sp_machine_load("h100-ib", &machine) || sp_model_load("gpt3-1.3b", &model);
}

static struct sp_search request(const char *schedule, int seq, int per_node)
{
    model.positions = 1 << 20;
    machine.devices_per_node = per_node;
    return (struct sp_search){.schedule = schedule,
                              .model = &model,
                              .dtype = SP_BF16,
                              .seq = seq,
                              .sequences = 1,
                              .batch = 1,
                              .every = 1,
                              .machine = &machine,
                              .nodes = 1,
                              .memory = INT64_MAX / 64};
}

TEST(heuristics)
{
    static const int seqs[] = {2048, 16384, 131072, 1 << 20};
    int layouts = 0;

    for (int per_node = 1; per_node <= 8; per_node *= 2)
        for (size_t q = 0; q < sizeof seqs / sizeof *seqs; q += (size_t)test_every(2)) {
            struct sp_search want = request("sppo", seqs[q], per_node);
            struct sp_found best[64];
            int n = sp_search(&want, best, 64, 64);

            assert_true(n > 0);
            layouts += n;
            for (int i = 0; i < n; i++) {
                const struct sp_found *f = &best[i];
                double tokens = (double)seqs[q] / f->slices;

                assert_int_equal(f->devices * f->context * f->data * f->stages, per_node);
                assert_true(tokens <= SP_TOKENS_MOST || f->slices == 256);
                assert_true(tokens >= SP_TOKENS_LEAST - 1 || f->slices <= f->stages);
                assert_true(f->fits && f->step_ms > 0 && f->memory > 0);
                assert_int_equal(f->trains, f->devices * f->slices <= SP_MAX_SLICES);
                assert_true(i == 0 || f->tokens_per_s <= best[i - 1].tokens_per_s * (1 + 1e-2));
            }
        }
    printf("[          ] %d layouts\n", layouts);
}

/* No other number of slices, and no other stages, are faster than the first. */
TEST(best_of_all)
{
    struct sp_search want = request("sppo", 65536, 8), one;
    struct sp_found best, other;
    int tried = 0;

    assert_int_equal(sp_search(&want, &best, 1, 1), 1);
    for (int p = 1; p <= 8; p *= 2)
        for (int n = 4; n <= 10; n++) {
            if (65536.0 / n < SP_TOKENS_LEAST && n > p)
                continue;
            one = want;
            one.stages = p;
            one.slices = n;
            assert_int_equal(sp_search(&one, &other, 1, 1), 1);
            assert_true(other.stages == p && other.slices == n);
            assert_true(best.tokens_per_s >= other.tokens_per_s * (1 - 1e-2));
            tried++;
        }
    assert_true(tried > 20);
}

/* With free tasks as many slices as may be; with tasks that take as long as slices, as few. */
TEST(slices)
{
    struct sp_search want = request("sppo", 131072, 4);
    struct sp_machine kept = machine;
    struct sp_found best;

    want.stages = 4;
    machine.rates.launch_s = 0;
    machine.node.bandwidth = 1e18;
    assert_int_equal(sp_search(&want, &best, 1, 1), 1);
    assert_true(best.slices > 16);
    machine.rates.launch_s = 10;
    assert_int_equal(sp_search(&want, &best, 1, 1), 1);
    assert_int_equal(best.slices, 131072 / SP_TOKENS_MOST);
    machine = kept;
}

/* Steps that are extrapolated, of one stage that never waits and of several: no bubble is below nothing. */
TEST(bubbles)
{
    static const char *const schedules[] = {"helix:ship=attention", "1f1b", "gpipe"};
    struct sp_found best[64];

    for (size_t k = 0; k < sizeof schedules / sizeof *schedules; k++)
        for (int stages = 1; stages <= 4; stages *= 2) {
            struct sp_search want = request(schedules[k], 4096, 8);
            int n;

            want.sequences = 64;
            want.stages = stages;
            want.devices = 8 / stages;
            want.memory = 1 << 30;
            want.any_recompute = want.any_offload = true;
            n = sp_search(&want, best, 64, 64);
            for (int i = 0; i < n; i++)
                if (!(best[i].bubble >= 0 && best[i].bubble <= 1) || !isfinite(best[i].step_ms))
                    fail_msg("%s on %d stages: bubble %g of %g ms", best[i].schedule, stages,
                             best[i].bubble, best[i].step_ms);
        }
}

/* Every number of a machine at either bound: times stay finite. */
TEST(extremes)
{
    struct sp_machine kept = machine;
    struct sp_found best[64];
    int tried = 0;

    for (const struct sp_machine_field *f = sp_machine_fields; f->path; f++)
        for (int end = 0; end < 2; end++) {
            struct sp_search want = request(NULL, 512, 2);
            double bound = end ? f->bounds.max : f->bounds.min;
            char *at = (char *)&machine + f->at;
            struct sp_curve *c = (struct sp_curve *)at;
            int n;

            if (f->kind == SP_FIELD_REAL)
                *(double *)at = bound;
            else if (f->kind == SP_FIELD_CURVE)
                *c = (struct sp_curve){.n = 1, .at[0] = {1, bound}};
            else
                continue;
            want.sequences = 4;
            want.stages = 2;
            want.devices = 1;
            n = sp_search(&want, best, 64, 64);
            assert_true(n > 0);
            for (int i = 0; i < n; i++)
                if (!isfinite(best[i].step_ms) || !(best[i].bubble >= 0 && best[i].bubble <= 1))
                    fail_msg("%s %g: %s takes %g ms, bubble %g", f->path, bound, best[i].schedule,
                             best[i].step_ms, best[i].bubble);
            machine = kept;
            tried++;
        }
    assert_true(tried > 30);
}

TEST(memory)
{
    struct sp_search want = request("sppo", 16384, 4);
    struct sp_found none, full, best[64];
    int n;

    want.stages = 4;
    assert_int_equal(sp_search(&want, &none, 1, 1), 1);
    want.offload = SP_OFFLOAD_FULL;
    assert_int_equal(sp_search(&want, &full, 1, 1), 1);
    assert_true(full.memory < none.memory);
    want.memory = (none.memory + full.memory) / 2;
    want.offload = SP_OFFLOAD_NONE;
    assert_int_equal(sp_search(&want, best, 1, 1), 1);
    assert_true(!best[0].fits || best[0].slices > none.slices);
    want.offload = SP_OFFLOAD_ADAPTIVE;
    n = sp_search(&want, best, 64, 64);
    assert_true(n >= 1 && best[0].fits);
    want.any_recompute = want.any_offload = true;
    n = sp_search(&want, best, 64, 64);
    assert_true(n >= 1 && best[0].fits && best[0].memory <= want.memory);
    want.memory = 1 << 20;
    assert_int_equal(sp_search(&want, best, 1, 1), 1);
    assert_true(!best[0].fits && best[0].memory > 1 << 20);
}

/* Less memory makes more layers compute again, one by one, and the step longer; in the end all do. */
TEST(recompute)
{
    struct sp_search want = request("1f1b", 8192, 8);
    struct sp_found f, last = {.memory = INT64_MAX};
    int by_layer = 0, fit = 0;

    want.stages = 8;
    want.sequences = 16;
    want.any_recompute = true;
    want.balanced = SP_SEARCH_WITHOUT; /* which makes room as well */
    want.memory = INT64_MAX / 64;
    for (; fit < 400; fit++) {
        assert_int_equal(sp_search(&want, &f, 1, 1), 1);
        if (!f.fits)
            break;
        assert_true(f.memory <= want.memory && f.memory < last.memory);
        assert_true(fit == 0 ? f.recompute == SP_RECOMPUTE_NONE && !f.by_layer
                             : f.recompute != SP_RECOMPUTE_NONE && f.step_ms > last.step_ms);
        by_layer += f.by_layer;
        last = f;
        want.memory = f.memory - 1;
    }
    assert_true(by_layer > 4 && fit > by_layer && fit < 400);
    assert_int_equal(last.recompute, SP_RECOMPUTE_FULL);
}

/* The predicted step of a plan with a process for each stage; destroys the plan. */
static double predicted(struct sp_plan *plan, const struct sp_shape *shape,
                        const struct sp_machine *on)
{
    const struct sp_predict_request r = {
        .plan = plan, .shape = shape, .terms = {.machine = on, .devices = 1, .every = 1}};
    struct sp_prediction p;
    double step_ms;

    plan->processes = plan->layout.stages;
    assert_int_equal(sp_predict(&r, &p), 0);
    step_ms = p.step_ms;
    sp_prediction_destroy(&p);
    sp_plan_destroy(plan);
    return step_ms;
}

static double simulated_whole(const struct sp_search *want, const struct sp_layout *lay)
{
    struct sp_shape shape;
    struct sp_plan plan;

    assert_int_equal(sp_plan_create(want->schedule, lay, &plan), 0);
    sp_shape_init(&shape, want->model, 1, want->seq, lay->micro_batches);
    sp_shape_cut(&shape, 0, sp_machine_head_rows(want->machine, want->model));
    shape.dtype = want->dtype;
    if (lay->slices > 1)
        assert_int_equal(sp_plan_cut(&plan, &shape, NULL, NULL), 0);
    return predicted(&plan, &shape, want->machine);
}

/* A step of many micro-batches from two of fewer is what simulating all of it gives. */
TEST(many_micro_batches)
{
    static const struct {
        const char *schedule;
        int slices;
    } cases[] = {{"1f1b", 1}, {"gpipe", 1},   {"interleaved", 1}, {"zb1p", 1},
                 {"zbv", 1},  {"helix", 1},   {"weipipe", 1},     {"wzb1", 1},
                 {"fsdp", 1}, {"seq1f1b", 8}, {"sppo", 8},        {"dualpipev", 1}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sp_search want = request(cases[i].schedule, 8192, 4);
        struct sp_layout lay = {.stages = 4,
                                .micro_batches = 64,
                                .slices = cases[i].slices,
                                .layers = model.layers,
                                .options = ""};
        struct sp_found f = {.stages = 4,
                             .devices = 1,
                             .context = 1,
                             .data = 1,
                             .batch = 1,
                             .micro_batches = 64,
                             .slices = cases[i].slices,
                             .dtype = want.dtype};
        double whole;

        snprintf(f.schedule, sizeof f.schedule, "%s", cases[i].schedule);
        want.sequences = 64;
        assert_int_equal(sp_trial(&want, NULL, INFINITY, &f), 0);
        whole = simulated_whole(&want, &lay);
        if (fabs(f.step_ms / whole - 1) > 2e-3)
            fail_msg("%s: %g ms, simulated whole %g", cases[i].schedule, f.step_ms, whole);
    }
}

/* Members of one node divide the heads, or as many as can; those of several nodes only within a node, if
 * whole sequences then take less time. */
TEST(members_divide_heads)
{
    static struct sp_machine h100;
    struct sp_search want = request("1f1b", 65536, 8);
    struct sp_found f = {.stages = 1,
                         .devices = 1,
                         .context = 8,
                         .data = 1,
                         .batch = 1,
                         .micro_batches = 1,
                         .slices = 1,
                         .dtype = SP_BF16};
    static struct sp_model seven, tiny;
    char text[SP_METHOD_TEXT];
    int ulysses;

    assert_int_equal(sp_machine_load("h100-ib", &h100), 0);
    assert_int_equal(sp_model_load("gpt3-7b", &seven), 0);
    assert_int_equal(sp_model_load("llama-tiny", &tiny), 0);
    want.machine = &h100;
    want.model = &seven;
    assert_int_equal(sp_search_ulysses(&want, &f), 8);
    f.context = 16;
    ulysses = sp_search_ulysses(&want, &f);
    print_message("gpt3-7b, 2 nodes: %s\n", sp_method_text(16, ulysses, text));
    assert_true(ulysses > 1 && ulysses <= 8);
    f.slices = 4;
    assert_int_equal(sp_search_ulysses(&want, &f), 16);
    f.slices = 1;
    want.model = &tiny; /* 4 heads */
    f.context = 8;
    assert_int_equal(sp_search_ulysses(&want, &f), 4);
    assert_string_equal(sp_method_text(8, 4, text), "ulysses=4,ring");
    assert_string_equal(sp_method_text(8, 8, text), "ulysses");
    assert_string_equal(sp_method_text(8, 1, text), "ring");
}

/* ---- layers dealt out by time ----------------------------------------------------------------- */

/* The step of 1f1b on two stages with so many layers on the first one. */
static double step_of(const struct sp_search *want, const struct sp_found *f, int first)
{
    struct sp_layout lay = {.stages = 2,
                            .micro_batches = f->micro_batches,
                            .chunks = 1,
                            .slices = 1,
                            .layers = model.layers,
                            .options = ""};
    const int counts[] = {first, model.layers - first};
    struct sp_shape shape;
    struct sp_plan plan;

    sp_found_shape(want, f, false, &shape);
    assert_int_equal(sp_plan_create("1f1b", &lay, &plan), 0);
    assert_int_equal(sp_plan_partition(&plan, counts), 0);
    return predicted(&plan, &shape, sp_search_machine(want, f));
}

static const struct sp_found *find_balanced(const struct sp_found *best, int n)
{
    for (int i = 0; i < n; i++)
        if (best[i].balanced)
            return &best[i];
    fail_msg("no layout deals its layers out by time");
    return NULL;
}

/* On one machine whose head is heavy, and on nodes of two kinds: as fast as the best of all partitions, 2 % apart at most,
 * as what is balanced are stages and what counts are steps. */
TEST(balanced)
{
    static const char *const machines[] = {"h100-ib", "h100-ib:1,a800-ib:1", "h100-ib:1,h20-ib:1"};
    struct sp_model usual = model;

    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        struct sp_machine order[SP_MACHINE_ORDERS];
        struct sp_search want = request("1f1b", 4096, 8);
        struct sp_found best[16];
        const struct sp_found *f;
        double least = INFINITY, even, had;
        int n, first;

        assert_int_equal(sp_machine_load(machines[i], &machine), 0);
        model.vocab = i ? usual.vocab : 500000;
        want.nodes = 2;
        want.stages = 2;
        want.tensor = 8;
        want.context = 1;
        want.data = 1;
        want.sequences = 16;
        want.vocabulary = SP_SEARCH_WITHOUT;
        want.order = order;
        want.orders = sp_machine_orders(&machine, order);
        n = sp_search(&want, best, 16, 16);
        assert_true(n > 0);
        f = find_balanced(best, n);
        assert_int_equal(sscanf(f->layers, "%d", &first), 1);
        had = step_of(&want, f, first);
        assert_true(fabs(f->step_ms / had - 1) < 1e-9);
        even = step_of(&want, f, model.layers / 2);
        for (int k = 1; k < model.layers; k++)
            least = fmin(least, step_of(&want, f, k));
        if (!(had <= 1.02 * least && had < 0.97 * even))
            fail_msg("%s: %s takes %g ms, the best %g, even %g", machines[i], f->layers, had, least,
                     even);
        model = usual;
    }
    assert_int_equal(sp_machine_load("h100-ib", &machine), 0);
}

/* No bound is above the step of what was found, on nodes of several kinds either. */
TEST(bounds_of_kinds)
{
    struct sp_machine order[SP_MACHINE_ORDERS];
    struct sp_search want = request(NULL, 4096, 8);
    struct sp_found best[64];
    int n;

    assert_int_equal(sp_machine_load("h100-ib:1,a800-ib:1", &machine), 0);
    want.nodes = 2;
    want.batch = 0;
    want.sequences = 16;
    want.order = order;
    want.orders = sp_machine_orders(&machine, order);
    n = sp_search(&want, best, 64, 64);
    assert_true(n > 20);
    for (int i = 0; i < n; i++)
        assert_true(sp_bound_step(&want, &best[i]) <= best[i].step_ms);
    assert_int_equal(sp_machine_load("h100-ib", &machine), 0);
}

TEST_FIXTURE(load, NULL)
