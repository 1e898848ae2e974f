/* Buffers and messages counted by classes of actions are those of a graph that is submitted whole. */
#include "policies/families/ownership.h"
#include "policies/common.h"
#include "graphs/count.h"

enum { DRAWS = 540 };

static int draw_below(uint64_t *state, int n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int)((*state >> 33) % (uint64_t)n);
}

static const char *const schedules[] = {
    "naive",         "gpipe",    "1f1b",      "pipedream", "pipedream-2bw", "interleaved",
    "bfs",           "zb1p",     "zb2p",      "zbv",       "v-half",        "v-min",
    "chimera",       "hanayo",   "seq1f1b",   "helix",     "helix:fold=1",  "fsdp",
    "terapipe",      "slimpipe", "weipipe",   "wzb1",      "wzb2",          "slimpipe:exchange=off",
    "weipipe-naive", "dualpipe", "dualpipev", "tawpipe"};
enum { SCHEDULES = sizeof schedules / sizeof *schedules };

struct run {
    struct sp_params params;
    struct sp_shape shape;
    struct sp_graph_config cfg;
    struct sp_placement place;
};

/* A run of a plan, drawn: types, recomputation, groups. */
static void draw_run(uint64_t *seed, const struct sp_plan *plan, struct run *r)
{
    static const int groups[][2] = {{1, 1}, {1, 1}, {2, 1}, {1, 2}, {2, 2}}; /* tensor, context */
    const int *group = groups[draw_below(seed, 5)];
    struct sp_model model = tiny(8, draw_below(seed, 2) && plan->layout.stages == 1);
    int groups_of = sp_plan_groups(plan);
    int data = plan->family->facts.stashes ? 1 : 1 + draw_below(seed, 2);
    int tensor = groups_of & SP_GROUP_PARAMETERS ? group[0] : 1;
    int context = groups_of & SP_GROUP_TOKENS ? group[1] : 1;

    assert_int_equal(sp_params_create(&model, &r->params), 0);
    r->cfg = (struct sp_graph_config){.params = &r->params,
                                      .plan = plan,
                                      .shape = &r->shape,
                                      .recompute = (enum sp_recompute)draw_below(seed, 4),
                                      .every = 1};
    sp_shape_init(&r->shape, &model, 1 + draw_below(seed, 2), 24, plan->layout.micro_batches, 0, 0);
    sp_shape_tensor(&r->shape, tensor, draw_below(seed, 2));
    sp_shape_context(&r->shape, context, false);
    sp_shape_share(&r->shape, context * data, data > 1 && draw_below(seed, 2));
    r->shape.dtype = draw_below(seed, 2) ? SP_BF16 : SP_F32;
    r->place =
        (struct sp_placement){.stages = plan->layout.stages, .pipelines = tensor * context * data};
    r->place.world.size = r->place.pipelines * r->place.stages;
}

static void compare(const struct sp_plan *plan, const struct sp_count *classes,
                    const struct sp_count *whole, int draw)
{
    for (int s = 0; s < plan->layout.stages; s++)
        if (classes[s].fixed != whole[s].fixed || classes[s].scratch != whole[s].scratch ||
            classes[s].buffers != whole[s].buffers || classes[s].sent != whole[s].sent ||
            classes[s].stashed != whole[s].stashed ||
            classes[s].beside > whole[s].beside + (int64_t)whole[s].stashed)
            fail_msg(
                "draw %d, %s, %d stages, %d micro-batches: stage %d has buffers of %lld bytes, "
                "by classes %lld; sent %lld, %lld; stashed %lld, %lld",
                draw, plan->def->name, plan->layout.stages, plan->layout.micro_batches, s,
                (long long)whole[s].buffers, (long long)classes[s].buffers,
                (long long)whole[s].sent, (long long)classes[s].sent, (long long)whole[s].stashed,
                (long long)classes[s].stashed);
}

static void test_classes(void **state)
{
    const struct sp_count_steps steps = {.n = SP_COUNT_STEADY};
    uint64_t seed = 51;
    int counted = 0, walked = 0, by[SCHEDULES][2] = {0};

    (void)state;
    for (int i = 0; i < DRAWS; i++) {
        const char *schedule = schedules[i % SCHEDULES];
        int stages = draw_below(&seed, 2) ? 2 : 4, m = 8 << draw_below(&seed, 3);
        struct sp_layout lay = layout(stages, m);
        bool slices = strstr(schedule, "seq") || strstr(schedule, "pipe:") ||
                      strstr(schedule, "tera") || strstr(schedule, "slim");
        struct sp_count classes[4], whole[4];
        bool quiet = sp_error_quiet(true);
        struct sp_plan plan;
        struct run run;
        int err, refused;

        lay.chunks = 0;
        lay.layers = 8;
        lay.slices = slices ? 2 + draw_below(&seed, 3) : 1;
        lay.vocabulary_parallel = !slices && draw_below(&seed, 4) == 0;
        err = sp_plan_create(schedule, &lay, &plan);
        sp_error_quiet(quiet);
        if (err)
            continue;
        draw_run(&seed, &plan, &run);
        sp_error_quiet(true);
        refused = sp_plan_refuse(
            &plan, &(struct sp_train_wish){.recompute = run.cfg.recompute,
                                           .recompute_text = "",
                                           .partition = "even",
                                           .clips = true,
                                           .grouped = run.shape.tensor * run.shape.context > 1});
        sp_error_quiet(quiet);
        if (refused) {
            sp_params_destroy(&run.params);
            sp_plan_destroy(&plan);
            continue;
        }
        err = sp_count_by_classes(&run.cfg, &run.place, classes);
        assert_in_range(err, 0, 1);
        assert_int_equal(sp_count_whole(&run.cfg, &run.place, stages, &steps, whole), 0);
        if (!err)
            compare(&plan, classes, whole, i);
        by[i % SCHEDULES][err]++;
        counted += !err;
        walked += err;
        sp_params_destroy(&run.params);
        sp_plan_destroy(&plan);
    }
    for (int i = 0; i < SCHEDULES; i++)
        print_message("[          ] %-24s %d by classes, %d whole\n", schedules[i], by[i][0],
                      by[i][1]);
    print_message("[          ] %d runs counted by classes, %d submitted whole\n", counted, walked);
    assert_true(counted > 2 * walked);
}

TEST_GROUP(count)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_classes)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
