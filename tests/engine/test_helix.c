/*
 * HelixPipe run for real: both ways of the QKV product, every recomputation, uneven layers, fewer
 * workers than stages, small windows; loss, norms and gradients of one stage. Two runs are the same
 * bits, and so is whatever places the stages differently.
 */
#include "engine/graph_run.h"

static void run_helix(const char *schedule, int stages, int mbs, int layers, struct setting set,
                      struct run *run)
{
    struct sp_layout lay = layout(stages, mbs);
    struct sp_plan plan;

    lay.layers = layers;
    assert_int_equal(sp_plan_create(schedule, &lay, &plan), 0);
    run_plan(&plan, &set, run);
    sp_plan_destroy(&plan);
}

/* Runs it, against one stage. */
static void check(const char *schedule, int stages, int mbs, int layers, struct setting set)
{
    struct setting plain = {
        .llama = set.llama, .tied = set.tied, .workers = 1, .batch = set.batch, .seq = set.seq};
    struct run run, one;
    char what[160];

    snprintf(what, sizeof what, "%s, %d stages, %d micro-batches, %d layers, recompute %d",
             schedule, stages, mbs, layers, set.recompute);
    run_helix("1f1b", 1, mbs, layers, plain, &one);
    run_helix(schedule, stages, mbs, layers, set, &run);
    compare(&run, &one, what);
    free(run.gradients);
    free(one.gradients);
}

static void every_mode(void **state)
{
    static const char *const schedules[] = {
        "helix:qkv=weights", "helix:qkv=activations", "helix:fold=1,qkv=weights",
        "helix:fold=1,qkv=activations", "helix:fold=3,qkv=weights,tail=reverse"};
    static const struct {
        int stages, layers;
    } sizes[] = {{1, 2}, {2, 2}, {2, 5}, {3, 3}, {3, 4}, {4, 7}};
    int runs = 0;

    (void)state;
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            int p = sizes[k].stages, fold = i < 2 ? 2 : i < 4 ? 1 : 3;
            int pick = (int)(i + k);
            struct setting set = {.llama = pick % 2,
                                  .tied = pick % 3 != 1,
                                  .workers = 1 + pick % 4,
                                  .ready = pick % 5 == 4,
                                  .window = pick % 4 == 3,
                                  .recompute = (enum sp_recompute)(pick % 3)};

            check(schedules[i], p, p * fold * (1 + pick % 2), sizes[k].layers, set);
            runs++;
        }
    print_message("%d plans, %d steps each, gradients within %.1e\n", runs, STEPS, worst);
}

/* Whether stages share workers or not, nothing but time may change. */
static void same_bits(void **state)
{
    static const struct setting sets[] = {{.llama = true, .workers = 4},
                                          {.llama = true, .workers = 1},
                                          {.llama = true, .workers = 2, .window = 1}};
    struct run first, run;

    (void)state;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        struct setting set = sets[i];

        set.recompute = SP_RECOMPUTE_NO_ATTENTION;
        run_helix("helix", 4, 8, 5, set, i == 0 ? &first : &run);
        if (i == 0)
            continue;
        assert_int_equal(run.n, first.n);
        assert_memory_equal(run.gradients, first.gradients, sizeof(float) * (size_t)first.n);
        assert_memory_equal(run.loss, first.loss, sizeof run.loss);
        assert_memory_equal(run.norm, first.norm, sizeof run.norm);
        free(run.gradients);
    }
    free(first.gradients);
}

/* The smaller of the two: hidden 24, so 48 numbers a token of keys and values against 72 x 24 weights
 * (as many at 36 tokens), or 12 against 36 x 24 where one head of them serves all queries. */
static void chooses_what_to_ship(void **state)
{
    static const struct {
        int seq, kv_heads;
        bool weights;
    } table[] = {{36, 4, false}, {37, 4, true}, {72, 1, false}, {73, 1, true}};
    struct sp_layout lay = layout(2, 4);
    struct sp_plan plan;

    (void)state;
    lay.layers = 2;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sp_model m = model_of(2, true, false);
        struct sp_shape sh;
        int64_t T, shipped, whole;

        m.kv_heads = table[i].kv_heads;
        m.positions = 4096;
        sp_shape_init(&sh, &m, 1, table[i].seq, 4, 0, 0);
        assert_int_equal(sp_plan_create("helix", &lay, &plan), 0);
        T = sh.rows;
        shipped = T * m.hidden + (int64_t)sp_block_elements(&m, SP_BLOCK_QKV);
        whole = T * (sh.q_width + sh.kv_width);
        assert_true(sp_ships_weights(&plan, &sh) == (shipped < whole));
        assert_true(sp_ships_weights(&plan, &sh) == table[i].weights);
        sp_plan_destroy(&plan);
        assert_int_equal(sp_plan_create("helix:qkv=activations", &lay, &plan), 0);
        assert_false(sp_ships_weights(&plan, &sh));
        sp_plan_destroy(&plan);
        assert_int_equal(sp_plan_create("helix:fold=2,qkv=weights", &lay, &plan), 0);
        assert_true(sp_ships_weights(&plan, &sh));
        sp_plan_destroy(&plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mode),
        cmocka_unit_test(same_bits),
        cmocka_unit_test(chooses_what_to_ship),
    };

    return cmocka_run_group_tests(tests, make_data, close_data);
}
