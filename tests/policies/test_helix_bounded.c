/*
 * HelixPipe with bounded memory: orders are legal by the oracle, no stage ever holds more than a
 * loop and a quarter, and no order takes longer than its loops one after the other.
 */
#include "policies/helix.h"

static const struct sp_part_costs costs = {.pre = 1, .attn = 3, .post = 2, .backward = 2};

/* The most parts whose activations a stage holds; the first block has none. */
static int held(const struct oracle *h, int s)
{
    const struct sp_program *prog = &h->plan->programs[s];
    int live = 0, most = 0;

    for (int k = 0; k < prog->n; k++) {
        const struct sp_op *op = &prog->ops[k];

        if (op->part == SP_ATTN || op->chunk > 0)
            live += op->pass == SP_F ? 1 : -1;
        most = live > most ? live : most;
    }
    return most;
}

/* The makespan of m micro-batches, one loop if m is that of a loop; most[s]: the most parts that
 * stage s holds. */
static double alone(const char *schedule, int fold, int p, int L, int m, int *most)
{
    struct sp_plan plan;
    struct oracle h;
    double makespan;

    helix_legal(schedule, fold, helix_layout(p, L, m), &plan, &h);
    helix_play(&h, &costs, 0);
    makespan = h.makespan;
    for (int s = 0; s < p; s++)
        most[s] = held(&h, s);
    oracle_done(&plan, &h);
    return makespan;
}

/* Checks full loops and then one of `rest` micro-batches. Returns how much of the loops' bubbles is
 * filled. */
static double check(int fold, int p, int L, int loops, int rest)
{
    int most[HELIX_STAGES], ignored[HELIX_STAGES], m = p * fold * loops + rest;
    char schedule[48];
    struct sp_plan plan;
    struct oracle h;
    double one, in_turn, filled;

    snprintf(schedule, sizeof schedule, "helix:fold=%d,tail=reverse", fold);
    one = alone(schedule, fold, p, L, p * fold, most);
    in_turn = loops * one + (rest ? alone(schedule, fold, p, L, rest, ignored) : 0);
    snprintf(schedule, sizeof schedule, "helix:fold=%d,bounded", fold);
    helix_legal(schedule, fold, helix_layout(p, L, m), &plan, &h);
    helix_play(&h, &costs, 0);
    for (int s = 0; s < p; s++)
        if (held(&h, s) > most[s] + most[s] / 4)
            fail_msg("%s p=%d L=%d m=%d: stage %d holds %d parts, a loop is %d", schedule, p, L, m,
                     s, held(&h, s), most[s]);
    if (h.makespan > in_turn + 1e-9)
        fail_msg("%s p=%d L=%d m=%d takes %g, loops in turn %g", schedule, p, L, m, h.makespan,
                 in_turn);
    filled = loops * (one - h.busy[0] / loops) > 1e-9
                 ? (in_turn - h.makespan) / (in_turn - h.busy[0])
                 : 0;
    oracle_done(&plan, &h);
    return filled;
}

TEST(bounded)
{
    double sum = 0;
    int plans = 0;

    for (int p = 1; p <= 6; p++)
        for (int L = p; L <= 13; L++)
            for (int fold = 1; fold <= 3; fold++)
                for (int loops = 1; loops <= 5; loops += 2)
                    for (int rest = 0; rest < p * fold; rest += 1 + p * fold / 2) {
                        sum += check(fold, p, L, loops, rest);
                        plans++;
                    }
    print_message("%d plans, %.0f %% of the bubbles of their loops are filled\n", plans,
                  100 * sum / plans);
    assert_true(sum > 0.1 * plans);
}
