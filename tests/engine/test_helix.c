/*
 * Runs HelixPipe: both ways of the QKV product, every recomputation, uneven layers, fewer workers
 * than stages, small windows. Loss, norms and gradients must be those of one stage. Two runs give
 * the same bits, however the stages are placed.
 */
#include "policies/families/attention_parallel/attention_parallel.h"
#include "engine/graph_run.h"
#include "policies/plan_create.h"

TEST(every_mode)
{
    static const char *const schedules[] = {"helix:qkv=weights",
                                            "helix:qkv=activations",
                                            "helix:fold=1,qkv=weights",
                                            "helix:fold=1,qkv=activations",
                                            "helix:fold=3,qkv=weights,tail=reverse",
                                            "helix:ship=attention",
                                            "helix:fold=1,ship=attention",
                                            "helix:qkv=published",
                                            "helix:fold=1,bounded,qkv=weights",
                                            "helix:fold=1,bounded,ship=attention"};
    static const int folds[] = {2, 2, 1, 1, 3, 2, 1, 2, 1, 1};
    static const struct {
        int stages, layers;
    } sizes[] = {{1, 2}, {2, 2}, {2, 5}, {3, 3}, {3, 4}, {4, 7}};
    int runs = 0;

    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            int p = sizes[k].stages, fold = folds[i];
            int pick = (int)(i + k);
            struct setting set = {.llama = pick % 2,
                                  .tied = pick % 3 != 1,
                                  .workers = 1 + pick % 4,
                                  .ready = i < 8 && pick % 5 == 4, /* may hold more than a loop */
                                  .window = pick % 4 == 3,
                                  .recompute = (enum sp_recompute)(pick % 3)};

            check_named(schedules[i], p, p * fold * (i < 8 ? 1 + pick % 2 : 3), sizes[k].layers,
                        set);
            runs++;
        }
    print_message("%d plans, %d steps each, gradients within %.1e\n", runs, STEPS, worst);
}

/* The bits must not depend on how many stages share a worker. */
TEST(same_bits)
{
    static const struct setting sets[] = {
        {.llama = true, .workers = 4, .recompute = SP_RECOMPUTE_NO_ATTENTION},
        {.llama = true, .workers = 1, .recompute = SP_RECOMPUTE_NO_ATTENTION},
        {.llama = true, .workers = 2, .window = 1, .recompute = SP_RECOMPUTE_NO_ATTENTION}};

    check_bits("helix", 4, 8, 5, sets, 3);
}

/*
 * Weights are shipped if a micro-batch's share of them is smaller than the keys and values they
 * replace. With hidden 24, keys and values are 48 numbers a token, against 72 x 24 weights for two
 * micro-batches (equal at 18 tokens), or 12 against 36 x 24 if one key head serves all queries. One
 * micro-batch needs twice the tokens.
 */
TEST(chooses_what_to_ship)
{
    static const struct {
        int seq, kv_heads, micro_batches;
        enum sp_shipment what;
    } table[] = {{18, 4, 4, SP_SHIP_ACTIVATIONS}, {19, 4, 4, SP_SHIP_QKV},
                 {36, 4, 2, SP_SHIP_ACTIVATIONS}, {37, 4, 2, SP_SHIP_QKV},
                 {36, 1, 4, SP_SHIP_ACTIVATIONS}, {37, 1, 4, SP_SHIP_QKV}};
    static const struct {
        const char *name;
        enum sp_shipment what;
    } said[] = {{"helix:qkv=activations", SP_SHIP_ACTIVATIONS},
                {"helix:fold=1,qkv=weights", SP_SHIP_QKV},
                {"helix:fold=1,qkv=published", SP_SHIP_QKV},
                {"helix:ship=attention", SP_SHIP_ATTENTION}};
    struct sp_plan plan;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sp_layout lay = layout(2, table[i].micro_batches);
        struct sp_model m = model_of(2, true, false);
        struct sp_shape sh;

        lay.layers = 2;
        m.kv_heads = table[i].kv_heads;
        m.positions = 4096;
        sp_shape_init(&sh, &m, 1, table[i].seq, table[i].micro_batches);
        assert_int_equal(sp_plan_create("helix", &lay, &plan), 0);
        assert_int_equal(sp_shipment(&plan, &sh), table[i].what);
        sp_plan_destroy(&plan);
        for (size_t k = 0; k < sizeof said / sizeof *said; k++) {
            assert_int_equal(sp_plan_create(said[k].name, &lay, &plan), 0);
            assert_int_equal(sp_shipment(&plan, &sh), said[k].what);
            assert_int_equal(sp_ships_each_time(&plan), k == 2);
            sp_plan_destroy(&plan);
        }
    }
}

TEST_FIXTURE(make_data, close_data)
