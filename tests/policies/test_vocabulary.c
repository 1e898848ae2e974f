/*
 * Vocabulary parallelism over sizes: the bubble is that of the schedule without a head, stages hold
 * the published number of additional micro-batches, and the bytes of the head's tensors and of the
 * tables agree with closed forms.
 */
#include "model/model.h"
#include "model/tensor_parts.h"
#include "policies/families/ownership.h"
#include "graphs/count.h"
#include "plan/memory.h"
#include "policies/play.h"

static struct sp_layout shared(int p, int m, int n)
{
    struct sp_layout lay = layout_of(p, m, 0, n);

    lay.vocabulary_parallel = 1;
    return lay;
}

/* A plan without and one with a divided head, and their times. */
struct pair {
    struct sp_plan without, with;
    struct sp_times before, after; /* without a head at all; with a share of it on every stage */
};

static bool make_pair(const char *schedule, int p, int m, int n, const struct sp_costs *costs,
                      struct pair *pair)
{
    struct sp_layout lay = shared(p, m, n), whole = lay;
    struct sp_costs no_head = *costs;
    struct capture c;
    int err;

    whole.vocabulary_parallel = 0;
    no_head.head = 0;
    err = CAPTURED(&c, sp_plan_create(schedule, &whole, &pair->without));
    if (err)
        return false;
    make_plan_of(schedule, lay, &pair->with);
    play_plan(&pair->without, &no_head, SP_PAIRED, &pair->before);
    play_plan(&pair->with, costs, SP_PAIRED, &pair->after);
    return true;
}

static void free_pair(struct pair *pair)
{
    played_done(&pair->without, &pair->before);
    played_done(&pair->with, &pair->after);
}

/* The step takes longer only by a stage's ops of the head, and for orders that run few
 * micro-batches ahead by 2 % more at most. A stage holds at most two micro-batches more. */
TEST(no_bubbles)
{
    static const char *const schedules[] = {
        "gpipe", "gpipe:backward=fifo", "1f1b", "interleaved", "bfs", "zb1p", "zb2p"};
    const struct sp_costs costs = {.f = 1, .b = 1, .w = 1, .head = 0.75};
    int pairs = 0;

    for (size_t k = 0; k < sizeof schedules / sizeof *schedules; k++)
        for (int p = 2; p <= 8; p++)
            for (int m = 2 * p; m <= 6 * p; m += 2 * p) {
                struct pair pair;
                double more;

                if (!make_pair(schedules[k], p, m, 1, &costs, &pair))
                    continue;
                pairs++;
                more = pair.after.makespan - pair.before.makespan - m * costs.head / p;
                if (more > (strcmp(schedules[k], "1f1b") ? 0.02 * pair.before.makespan : 1e-9))
                    fail_msg("%s p=%d m=%d: %g longer than its head's ops", schedules[k], p, m,
                             more);
                for (int s = 0; s < p; s++) {
                    int v = pair.with.layout.chunks;

                    assert_in_range(pair.after.peak_live[s], pair.before.peak_live[s],
                                    pair.before.peak_live[s] + 2 * v);
                }
                free_pair(&pair);
            }
    assert_true(pairs > 100);
}

/* 1F1B with two barriers holds p + 2 micro-batches at its first stage (section 6.1 of the paper). */
TEST(memory)
{
    const struct sp_costs costs = {.f = 1, .b = 1, .w = 1, .head = 0.75};

    for (int p = 4; p <= 8; p++) {
        struct pair pair;

        assert_true(make_pair("1f1b", p, 4 * p, 1, &costs, &pair));
        for (int s = 0; s < p; s++)
            assert_int_equal(pair.after.peak_live[s], p - s + 2);
        free_pair(&pair);
    }
}

/* Every schedule also plans with a divided head: some backwards were never split, and heads wait
 * for slices in either order. */
TEST(every_schedule)
{
    static const char *const schedules[] = {
        "naive",  "gpipe", "1f1b",   "interleaved", "bfs",       "zb1p",    "zb2p",     "zbv",
        "v-half", "v-min", "1f1b-v", "hanayo",      "dualpipev", "seq1f1b", "terapipe", "sppo"};
    const struct sp_costs costs = {.f = 1, .b = 1, .w = 1, .head = 0.75};
    int pairs = 0;

    for (size_t k = 0; k < sizeof schedules / sizeof *schedules; k++)
        for (int p = 2; p <= 6; p++)
            for (int m = 1; m <= 3 * p; m += p / 2) {
                bool slices = k >= 13;
                struct pair pair;

                if (!make_pair(schedules[k], p, m, slices ? 4 : 1, &costs, &pair))
                    continue;
                pairs++;
                for (int s = 0; s < p; s++) {
                    int ops = pair.with.programs[s].n - pair.without.programs[s].n;

                    assert_int_equal(ops, 2 * m * (slices ? 4 : 1));
                }
                free_pair(&pair);
            }
    assert_true(pairs > 200);
}

/* ---- bytes and parameters ------------------------------------------------------------------- */

static struct sp_shape shape_of(struct sp_model *model, int layers, int vocab, bool tied, int m)
{
    struct sp_shape sh;

    assert_int_equal(sp_model_load("gpt-tiny", model), 0);
    model->layers = layers;
    model->vocab = vocab;
    model->tied = tied;
    sp_shape_init(&sh, model, 2, 24, m);
    return sh;
}

/*
 * Bytes besides the boundary tensors of 1F1B. For every micro-batch, T h numbers of the head's
 * input go to each other stage and as many of its gradient back, and 2 T statistics from each stage
 * to each other. Once a step, the shares of the embedding go to the stage that embeds, and its
 * gradient to their owners.
 */
TEST(bytes)
{
    for (int p = 2; p <= 6; p++)
        for (int tied = 0; tied < 2; tied++) {
            int m = 2 * p, vocab = 61;
            struct sp_layout lay = shared(p, m, 1);
            struct sp_model model;
            struct sp_shape sh = shape_of(&model, p, vocab, tied, m);
            struct sp_count counted[8];
            int64_t T = 48, h = model.hidden, x = 4 * T * h, share = (vocab + p - 1) / p;
            struct sp_plan plan;

            lay.layers = p;
            make_plan_of("1f1b", lay, &plan);
            plan.processes = p;
            assert_int_equal(sp_memory_count(&plan, &sh, SP_RECOMPUTE_NONE, 1, counted), 0);
            for (int s = 0; s < p; s++) {
                int64_t boundary = m * x * ((s > 0) + (s < p - 1));
                int64_t head = m * (s == p - 1 ? (p - 1) * x : x);
                int64_t statistics = m * (p - 1) * 4 * 2 * T;
                int64_t table = 4 * share * h * (s == 0 ? p - 1 : 1);

                assert_int_equal(counted[s].sent, boundary + head + statistics + table);
            }
            sp_plan_destroy(&plan);
        }
}

struct rows {
    const struct sp_plan *plan;
    const struct sp_model *model;
    int64_t tables; /* elements */
};

static int add_rows(void *arg, enum sp_block_kind kind, int layer)
{
    struct rows *r = arg;

    (void)layer;
    if (kind == SP_BLOCK_TOKENS || kind == SP_BLOCK_HEAD)
        r->tables += (int64_t)sp_block_held(r->plan, r->model, kind);
    return 0;
}

/* Every stage has equally many rows of each table; those of a tied table count once. */
TEST(parameters)
{
    for (int p = 2; p <= 6; p++)
        for (int tied = 0; tied < 2; tied++) {
            struct sp_layout lay = shared(p, p, 1);
            struct sp_model model;
            struct sp_shape sh = shape_of(&model, p, 61, tied, p);
            int64_t each = (61 + p - 1) / p * (int64_t)model.hidden;
            struct sp_plan plan;

            lay.layers = p;
            make_plan_of("1f1b", lay, &plan);
            for (int s = 0; s < p; s++) {
                struct rows r = {&plan, &sh.held, 0};

                sp_stage_each_block(&plan, &sh.held, s, add_rows, &r);
                assert_int_equal(r.tables, (tied ? 1 : 2) * each);
                assert_int_equal(sp_block_first(&plan, &sh.held, SP_BLOCK_TOKENS, s), s * each);
            }
            sp_plan_destroy(&plan);
        }
}

/* ---- refusals --------------------------------------------------------------------------------- */

TEST(refusals)
{
    const struct refusal table[] = {
        {"1f1b", shared(1, 2, 1), "leave out --vocabulary-parallel or use --stages 2"},
        {"1f1b", shared(62, 124, 1), "at most 61 stages, not 62"},
        {"dualpipe", shared(4, 8, 1),
         "schedule dualpipe: --vocabulary-parallel is for schedules of one line"},
        {"fsdp", shared(4, 8, 1), "schedule fsdp: --vocabulary-parallel"},
        {"weipipe", shared(4, 8, 1), "schedule weipipe: --vocabulary-parallel"},
        {"sppo:multiplex", shared(4, 8, 1), "schedule sppo:multiplex: --vocabulary-parallel"},
        {"slimpipe", shared(4, 8, 1), "schedule slimpipe: --vocabulary-parallel"},
    };

    assert_no_plans(table);
}
