/*
 * Every schedule there is, run for real on 2 and 4 stages with other sizes than it likes best:
 * loss, norms and gradients of one stage.
 */
#include "engine/graph_run.h"
#include "policies/registry.h"
#include "policies/families/families.h"

enum { LAYERS = 9 };

static int runs;

/* Some layouts are refused. */
static bool accepts(const char *name, const struct sp_layout *lay)
{
    struct capture said;
    struct sp_plan plan;

    if (CAPTURED(&said, sp_plan_create(name, lay, &plan)))
        return false;
    sp_plan_destroy(&plan);
    return true;
}

static void run_schedule(const char *name, struct sp_layout lay, struct setting set)
{
    struct setting plain = plain_setting(&set);
    char what[160];
    struct run run, one;

    lay.layers = LAYERS;
    if (!accepts(name, &lay))
        return;
    snprintf(what, sizeof what, "%s, %d stages, %d micro-batches, %d chunks, %d slices", name,
             lay.stages, lay.micro_batches, lay.chunks, lay.slices);
    run_named("1f1b", 1, lay.micro_batches, LAYERS, plain, &one);
    run_plan(new_plan(name, &lay, &set), &set, &run);
    compare(&run, &one, what);
    runs++;
}

TEST(every_schedule)
{
    static const struct sp_layout layouts[] = {
        {.stages = 2, .micro_batches = 4, .slices = 1},
        {.stages = 4, .micro_batches = 8, .slices = 1},
        {.stages = 3, .micro_batches = 5, .slices = 1},
        {.stages = 2, .micro_batches = 3, .slices = 4},
        {.stages = 4, .micro_batches = 1, .slices = 3},
        {.stages = 2, .micro_batches = 6, .slices = 1, .chunks = 3},
    };
    static const struct setting settings[] = {
        {.tied = true, .workers = 2},
        {.llama = true, .workers = 2, .ready = true, .recompute = SP_RECOMPUTE_NO_ATTENTION},
        {.tied = true, .workers = 3, .recompute = SP_RECOMPUTE_FULL, .window = 1},
        {.llama = true, .tied = true, .workers = 1, .recompute = SP_RECOMPUTE_SELECTIVE},
        {.workers = 2, .recompute = SP_RECOMPUTE_FULL, .every = 2},
    };
    const struct sp_schedule_def *def;

    for (int i = 0; (def = sp_schedule_at(i)); i++) {
        int before = runs;

        if (!sp_schedule_is_synchronous(def->name))
            continue; /* its gradients are of weights in between: test_stashing.c */
        for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) {
            struct setting set = settings[((size_t)i + k) % 5];
            struct sp_layout lay = layouts[k];

            lay.options = "";
            if (sp_family_find(def->family)->facts.parts)
                set.every = 0; /* the input of every layer is kept there */
            if (def->weight_ring.layout != SP_RING_REVERSED &&
                set.recompute == SP_RECOMPUTE_SELECTIVE)
                set.recompute = SP_RECOMPUTE_NONE; /* the weights have gone on before W */
            run_schedule(def->name, lay, set);
        }
        if (runs - before < 2)
            fail_msg("%s ran on %d layouts only", def->name, runs - before);
        printf("[          ] %-12s %d layouts, %d steps each, gradients within %.1e so far\n",
               def->name, runs - before, STEPS, worst);
    }
}

/* Buffers of long slices do not serve short ones: both kinds are planned for. */
TEST(unequal_slices)
{
    int before = runs;

    run_schedule("seq1f1b",
                 (struct sp_layout){.stages = 5, .micro_batches = 6, .slices = 2, .options = ""},
                 (struct setting){.tied = true, .workers = 2, .batch = 1, .seq = 9});
    run_schedule("seq1f1b",
                 (struct sp_layout){.stages = 2, .micro_batches = 3, .slices = 2, .options = ""},
                 (struct setting){.tied = true, .workers = 2, .batch = 1, .seq = 9});
    assert_int_equal(runs, before + 2);
    for (int i = 0; i < 12; i++) {
        static const char *const cuts[] = {"7,1,4,1", "flops", "1,1,1,10"};
        static const char *const names[] = {"sppo", "seq1f1b", "terapipe"};
        int stages = 1 + i % 4;

        run_schedule(names[i % 3],
                     (struct sp_layout){
                         .stages = stages, .micro_batches = 1 + i % 5, .slices = 4, .options = ""},
                     (struct setting){.llama = i % 2,
                                      .tied = i % 3 != 1,
                                      .workers = 1 + i % 3,
                                      .batch = 1 + i % 2,
                                      .seq = 13,
                                      .recompute = (enum sp_recompute)(i / 3),
                                      .cut = cuts[i / 2 % 3]});
    }
    assert_int_equal(runs, before + 14);
}

TEST_FIXTURE(make_data, close_data)
