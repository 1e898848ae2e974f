/* The exact messages of the verifier on programs given as text. Broken programs of all schedules
 * are in test_mutations.c. */
#include "policies/common.h"
#include "policies/simulation/channels.h"
#include "policies/simulation/listsim.h"
#include "policies/simulation/verify.h"
#include "policies/simulation/times.h"

/* The plan is refused with the message; NULL: it is legal. */
static void expect(struct sp_plan *plan, const char *want)
{
    char why[512] = "";

    assert_int_equal(sp_plan_index(plan), 0);
    if (sp_verify(plan, why, sizeof why) != (want ? -EINVAL : 0))
        fail_msg("'%s', not '%s'", why, want ? want : "");
    assert_string_equal(why, want ? want : "");
}

/* The same for programs as text. */
static void expect_of(struct sp_layout lay, const char *const *lines, const char *want)
{
    struct sp_plan plan;

    write_plan(lay, lines, &plan);
    expect(&plan, want);
    sp_plan_destroy(&plan);
}

/* The same on a placement of a family. */
static void expect_placed(const char *const *lines, int micro_batches, const char *family,
                          int (*place)(const struct sp_layout *lay, int stage, int chunk),
                          const char *want)
{
    const struct sp_schedule_def def = {.layerwise.global_stage = place};
    struct sp_plan plan;
    char why[256] = "";

    write_plan(layout_of(2, micro_batches, 2, 1), lines, &plan);
    plan.family = sp_family_find(family);
    assert_int_equal(plan.family->place(&plan.layout, &def, &plan.map, why, sizeof why), 0);
    plan.layout.map = plan.map;
    expect(&plan, want);
    sp_plan_destroy(&plan);
}

/* Each kind of channel refuses the programs that only it blocks, and names the op that every
 * blocked stage waits for. */
TEST(names_what_blocks)
{
    static const char *const crossed[] = {"F0 B0 F1 B1", "F0 F1 B0 B1"};
    static const char *const turned[] = {"F0 F1 B1 B0", "F1 F0 B1 B0"};

    expect_of(layout(2, 2), crossed,
              "order: deadlock with unbounded channels: stage 0 at B0.0 waits for B0.0 of stage 1; "
              "stage 1 at F1.0 waits for F1.0 of stage 0");
    expect_of(layout(2, 2), turned,
              "order: deadlock with first-in-first-out channels: stage 0 at B1.0 waits for B1.0 of "
              "stage 1; stage 1 at F1.0 waits for the message of F0.0 from stage 0 to stage 1 to "
              "be taken first");
}

/* Channels with room for one message are classified, not demanded: breadth-first needs more. */
TEST(counts_buffers)
{
    static const char *const wide[] = {"F0 F1 F2 F0.1 F1.1 F2.1 B2.1 B1.1 B0.1 B2 B1 B0",
                                       "F0 F1 F2 F0.1 F1.1 F2.1 B2.1 B1.1 B0.1 B2 B1 B0"};
    static const char *const crossed[] = {"F0 B0 F1 B1", "F0 F1 B0 B1"};
    static const char *const tied[] = {"F0 F1 F2 F3 B0 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3",
                                       "F0 B0 F1 B1 F2 B2 F3 B3"};
    struct sp_layout lay = {.stages = 2, .micro_batches = 3, .chunks = 2, .slices = 1};
    static const struct sp_costs unit = {.f = 1, .b = 1, .w = 1};
    char why[512] = "";
    struct sp_plan plan;
    struct sp_times t;
    int buffers = -1;

    /* stage 0 runs on to chunk 1 only after its 3 of chunk 0: stage 1 sends the first too early */
    write_plan(lay, wide, &plan);
    assert_int_equal(sp_verify(&plan, why, sizeof why), 0);
    assert_int_equal(sp_listsim(&plan, &unit, SP_RENDEZVOUS, &t, why, sizeof why), -EDEADLK);
    assert_string_equal(why,
                        "deadlock with rendezvous channels: stage 0 at F2.0 waits for the "
                        "message of F1.0 from stage 0 to stage 1 to be taken first; stage 1 at "
                        "F1.0 waits for the message of F0.0 from stage 1 to stage 0 to be "
                        "taken first");
    assert_int_equal(sp_listsim_buffers(&plan, &buffers), 0);
    assert_int_equal(buffers, 2);
    sp_plan_destroy(&plan);

    write_plan(layout(2, 2), crossed, &plan);
    assert_int_equal(sp_listsim_buffers(&plan, &buffers), -EDEADLK);
    assert_int_equal(buffers, 2); /* set only on success */
    sp_plan_destroy(&plan);

    /* stage 0 takes B0 after F3, for which F2 must be taken: F2&B1 is too late for that, F2 not */
    write_plan(layout(3, 4), tied, &plan);
    assert_int_equal(sp_listsim_buffers(&plan, &buffers), 0);
    assert_int_equal(buffers, 0);
    plan.programs[1].ops[3].overlap = 1;
    assert_int_equal(sp_plan_index(&plan), 0);
    assert_int_equal(sp_verify(&plan, why, sizeof why), 0);
    assert_int_equal(sp_listsim_buffers(&plan, &buffers), 0);
    assert_int_equal(buffers, 2);
    sp_plan_destroy(&plan);

    make_plan("1f1b", 4, 8, &plan);
    assert_int_equal(sp_listsim_buffers(&plan, &buffers), 0);
    assert_int_equal(buffers, 0);
    assert_int_equal(sp_listsim(&plan, &unit, SP_RENDEZVOUS, &t, why, sizeof why), 0);
    sp_times_destroy(&t);
    sp_plan_destroy(&plan);
}

/* Messages sent are counted against messages taken. */
TEST(messages_left)
{
    struct sp_channels ch;
    struct sp_plan plan;
    int ids;

    make_plan("1f1b", 2, 3, &plan);
    ids = plan.family->ids(&plan.layout);
    assert_int_equal(sp_channels_create(&plan, ids, &ch), 0);
    assert_int_equal(ch.n, 2);
    assert_int_equal(ch.n_messages, 6);
    assert_int_equal(sp_channels_most(&ch), 3);
    for (int i = 0; i < 6; i++) {
        int left = sp_channels_left(&ch);

        assert_true(left >= 0 && ch.channels[left].taken < ch.channels[left].sent);
        sp_channels_take(&ch, i / 3, 0);
    }
    assert_int_equal(sp_channels_left(&ch), -1);
    sp_channels_destroy(&ch);
    sp_plan_destroy(&plan);
}

static int forgetful_deps(const struct sp_layout *lay, int stage, const struct sp_op *op,
                          struct sp_dep out[SP_MAX_DEPS])
{
    static int asked;
    int n = sp_family_find("layerwise")->deps(lay, stage, op, out);

    /* the messages are listed first: a later query returns no waits */
    return ++asked > 4 && op->pass == SP_F ? 0 : n;
}

/* A family whose ops wait for fewer messages than it sends is found out. */
TEST(sent_but_not_taken)
{
    static const char *const lines[] = {"F0 B0", "F0 B0"};
    static const struct sp_costs unit = {.f = 1, .b = 1, .w = 1};
    struct sp_family family = *sp_family_find("layerwise");
    char why[256] = "";
    struct sp_plan plan;
    struct sp_times t;

    write_plan(layout(2, 1), lines, &plan);
    family.deps = forgetful_deps;
    plan.family = &family;
    assert_int_equal(sp_listsim(&plan, &unit, SP_FIFO, &t, why, sizeof why), -EINVAL);
    assert_string_equal(why, "stage 0 sends 1 messages to stage 1, which takes 0");
    sp_plan_destroy(&plan);
}

/* Marks an op as overlapping with the next. */
static void overlap(struct sp_plan *plan, int stage, int index)
{
    plan->programs[stage].ops[index].overlap = 1;
}

TEST(overlapped_pairs)
{
    static const char *const lines[] = {"F0 F1 B0 B1", "F0 B0 F1 B1"};
    static const char *const early[] = {"F0 F1 B0 B1", "F0 F1 B0 B1"};
    static const struct {
        int stage, index, other; /* other: a second overlap, -1: none */
        const char *why;
    } table[] = {
        {0, 1, -1, NULL},
        {1, 3, -1, "order: stage 1: B1.0 at position 3 overlaps with the next op, but is the last"},
        {0, 0, -1,
         "order: stage 0: F0.0 at position 0 overlaps with F1.0, not a forward and then a "
         "backward"},
        {0, 2, -1,
         "order: stage 0: B0.0 at position 2 overlaps with B1.0, not a forward and then a "
         "backward"},
        {1, 1, -1,
         "order: stage 1: B0.0 at position 1 overlaps with F1.0, not a forward and then a "
         "backward"},
        {1, 0, -1, "order: stage 1: F0.0 at position 0 overlaps with B0.0, which waits for it"},
        {0, 1, 2,
         "order: stage 0: F1.0 at position 1 overlaps with B0.0, which overlaps too: only two can"},
    };
    struct sp_plan plan;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        write_plan(layout(2, 2), lines, &plan);
        overlap(&plan, table[i].stage, table[i].index);
        if (table[i].other >= 0)
            overlap(&plan, table[i].stage, table[i].other);
        expect(&plan, table[i].why);
        assert_true(plan.paired);
        sp_plan_destroy(&plan);
    }
    /* one by one they go, but B0 comes back from stage 1 only after its F1 */
    write_plan(layout(2, 2), early, &plan);
    expect(&plan, NULL);
    overlap(&plan, 0, 1);
    expect(&plan, "order: deadlock of overlapped pairs: stage 0 at F1.0&B0.0 waits for B0.0 of "
                  "stage 1; stage 1 at F1.0 waits for F1.0 of stage 0");
    sp_plan_destroy(&plan);
}

/* Two stages, each the first of one model and the last of the other. */
TEST(both_ways)
{
    static const char *const good[] = {"F0 F1.1 B1.1 B0", "F1.1 F0 B0 B1.1"};
    static const char *const strange[] = {"F0 F1.1 B1.1 B0", "F1.1 F0.1 B0 B1.1"};
    static const char *const stuck[] = {"F1.1 F0 B1.1 B0", "F0 F1.1 B0 B1.1"};

    expect_placed(good, 2, "bidirectional", sp_place_both_ways, NULL);
    expect_placed(strange, 2, "bidirectional", sp_place_both_ways,
                  "order: stage 1: F0.1 does not exist (micro-batch 0 goes through chunk 0)");
    expect_placed(stuck, 2, "bidirectional", sp_place_both_ways,
                  "order: deadlock with unbounded channels: stage 0 at F1.1 waits for F1.1 of "
                  "stage 1; stage 1 at F0.0 waits for F0.0 of stage 0");
}

/* On stage 1, chunk 0 is global stage 1 and chunk 1 the next. */
TEST(v_placement)
{
    static const char *const good[] = {"F0 F0.1 B0.1 W0.1 B0 W0", "F0 F0.1 B0.1 B0 W0.1 W0"};
    static const char *const loop[] = {"F0 F0.1 B0.1 B0", "F0.1 F0 B0 B0.1"};

    expect_placed(good, 1, "layerwise", sp_place_wave, NULL);
    expect_placed(loop, 1, "layerwise", sp_place_wave,
                  "order: stage 1: F0.1 at position 0 comes before its F0.0");
}

/* Memory is in micro-batches of a whole stage, whatever the chunks and slices. */
TEST(memory_limit)
{
    static const char *const lines[] = {"F0 F1 F0.1 F1.1 B0.1 B1.1 B0 B1",
                                        "F0 F1 F0.1 B0.1 F1.1 B1.1 B0 B1"};
    struct sp_layout lay = {.stages = 2, .micro_batches = 2, .chunks = 2, .slices = 1};
    struct sp_plan plan;

    lay.memory = 2;
    write_plan(lay, lines, &plan);
    expect(&plan, NULL);
    plan.layout.memory = 1.75;
    expect(&plan, "order: stage 0 holds activations of 2 micro-batches at once, more than the 1.75 "
                  "allowed");
    plan.layout.memory = 1.4;
    expect(&plan, "order: stage 0 holds activations of 2 micro-batches at once, more than the 1.4 "
                  "allowed");
    sp_plan_destroy(&plan);

    lay = layout(4, 8);
    lay.memory = 4;
    make_plan_of("1f1b", lay, &plan);
    sp_plan_destroy(&plan);
    lay.memory = 3;
    assert_no_plan("1f1b", lay,
                   "starpipe: schedule 1f1b: order: stage 0 holds activations of 4 micro-batches "
                   "at once, more than the 3 allowed\n");
}

/* W and R: each optional, at most once, in their place. */
TEST(optional_ops)
{
    static const struct {
        const char *line, *why;
    } table[] = {
        {"F0 B0 W0 F1 B1", NULL},
        {"F0 R0 B0 W0 F1 R1 B1 W1", NULL},
        {"F0 W0 B0 F1 B1", "order: stage 0: W0.0 at position 1 comes before its B0.0"},
        {"F0 B0 W0 F1 B1 W0", "order: stage 0: W0.0 appears twice (positions 2 and 5)"},
        {"R0 F0 B0 F1 B1", "order: stage 0: R0.0 at position 0 comes before its F0.0"},
        {"F0 B0 R0 F1 B1", "order: stage 0: R0.0 at position 2 comes after its B0.0"},
        {"F0 B0 F1 B1 W2", "order: stage 0: W2.0 does not exist (2 micro-batches)"},
        {"", "order: stage 0: F0.0 is missing"},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        expect_of(layout(1, 2), &table[i].line, table[i].why);
}

/* Slices of a sequence go forward in order and backward in reverse. */
TEST(slices_in_order)
{
    static const struct {
        const char *line, *why;
    } table[] = {
        {"F0s0 F0s1 F0s2 B0s2 B0s1 B0s0", NULL},
        {"F0s0 F0s2 F0s1 B0s2 B0s1 B0s0",
         "order: stage 0: F0s2 at position 1 comes before its F0s1"},
        {"F0s0 F0s1 F0s2 B0s2 B0s0 B0s1",
         "order: stage 0: B0s0 at position 4 comes before its B0s1"},
        /* on the last stage a backward needs the loss, so the whole sequence */
        {"F0s0 F0s1 B0s1 F0s2 B0s2 B0s0",
         "order: stage 0: B0s1 at position 2 comes before its F0s2"},
        {"F0s0 F0s1 F0s2 B0s2 B0s1", "order: stage 0: B0s0 is missing"},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        expect_of(layout_of(1, 1, 1, 3), &table[i].line, table[i].why);
}
