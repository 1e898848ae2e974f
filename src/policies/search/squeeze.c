/*
 * The search: an order is replayed forward, then in reverse, then forward again, each time from
 * what the last replay found, by rules that serve some sizes and costs better than others
 * (forward-backward improvement, Li and Willis 1992).
 */
#include "policies/search/squeeze.h"
#include "policies/families/map.h"
#include "policies/search/list_schedule.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN_ORDER, W_LAST, B_F_W, B_FIRST, WAIT, B_F_WAIT, F_B_W, STRICT, GAPS };

static const struct sp_list_rule rules[] = {
    [IN_ORDER] = {.rank = {0, 0, 0}},
    [W_LAST] = {.rank = {0, 0, 1}},
    [B_F_W] = {.rank = {1, 0, 2}},
    [B_FIRST] = {.rank = {1, 0, 1}},
    [WAIT] = {.rank = {0, 0, 1}, .wait = true},
    [B_F_WAIT] = {.rank = {1, 0, 2}, .wait = true},
    [F_B_W] = {.rank = {0, 1, 2}},
    [STRICT] = {.reach = SP_LIST_STRICT},
    [GAPS] = {.reach = SP_LIST_GAPS},
};

/*
 * Chains of rules, the best first: the rule of the first replay, of replays in reverse, and of
 * later forward ones. Chains with gaps make no order worse, and keep a pattern of ops of unlike
 * length. The others together come, on average, within 0.1 % of all combinations, for V patterns of
 * 3 to 10 stages.
 */
static const unsigned char chains[][3] = {
    {STRICT, GAPS, GAPS},           {W_LAST, B_FIRST, IN_ORDER},   {W_LAST, IN_ORDER, IN_ORDER},
    {IN_ORDER, WAIT, F_B_W},        {STRICT, GAPS, IN_ORDER},      {STRICT, IN_ORDER, GAPS},
    {IN_ORDER, GAPS, GAPS},         {B_FIRST, GAPS, GAPS},         {F_B_W, IN_ORDER, IN_ORDER},
    {B_F_WAIT, IN_ORDER, IN_ORDER}, {B_FIRST, B_F_W, IN_ORDER},    {IN_ORDER, B_FIRST, IN_ORDER},
    {W_LAST, F_B_W, F_B_W},         {F_B_W, F_B_W, F_B_W},         {W_LAST, B_F_W, B_F_WAIT},
    {B_F_W, B_F_W, W_LAST},         {B_F_W, F_B_W, F_B_W},         {B_FIRST, B_FIRST, IN_ORDER},
    {IN_ORDER, B_F_W, F_B_W},       {B_FIRST, IN_ORDER, IN_ORDER}, {W_LAST, WAIT, W_LAST},
};

#define N_CHAINS ((int)(sizeof chains / sizeof *chains))
#define ROUNDS 4

/* Bounds that keep a search within some seconds: ops replayed, and, for trimming, ops of the order
 * times stages. */
#define REPLAY_OPS 4000000
#define TRIM_OPS 200000

struct search {
    struct sp_list_schedule *replay;
    double epsilon;
    struct sp_list_result given;
    int *scratch;                     /* [2 stages] */
    struct sp_list_result best, a, b; /* a, b: scratch */
    int chain;                        /* the chain that found the best; -1: none yet */
};

int sp_squeeze_peak(const struct sp_program *prog)
{
    int live = 0, peak = 0, release = SP_B;

    for (int k = 0; k < prog->n; k++) {
        if (prog->ops[k].pass == SP_W)
            release = SP_W;
    }
    for (int k = 0; k < prog->n; k++) {
        live += prog->ops[k].pass == SP_F;
        live -= prog->ops[k].pass == release;
        if (live > peak)
            peak = live;
    }
    return peak;
}

/* Less than 0 if a is better than b, 0 if they are worth the same. */
static int compare(const struct search *s, const struct sp_list_result *a,
                   const struct sp_list_result *b)
{
    double makespan = a->makespan - b->makespan, spans = a->spans - b->spans;

    if (makespan < -s->epsilon || makespan > s->epsilon)
        return makespan < 0 ? -1 : 1;
    if (spans < -s->epsilon || spans > s->epsilon)
        return spans < 0 ? -1 : 1;
    return a->peaks - b->peaks;
}

/* Follows one chain. An order better than the best becomes the best; returns true if one was. */
static bool follow(struct search *s, int chain, const int *limit)
{
    const unsigned char *rule = chains[chain];
    const struct sp_list_result *from = &s->given;
    bool better = false;

    for (int round = 0; round < ROUNDS; round++) {
        const struct sp_list_rule *forward = &rules[rule[round ? 2 : 0]];

        if (!sp_list_schedule_run(s->replay, forward, false, limit, from, &s->a))
            break;
        if (s->chain < 0 || compare(s, &s->a, &s->best) < 0) {
            sp_list_result_copy(s->replay, &s->a, &s->best);
            s->chain = chain;
            better = true;
        }
        if (round == ROUNDS - 1 ||
            !sp_list_schedule_run(s->replay, &rules[rule[1]], true, limit, &s->a, &s->b))
            break;
        from = &s->b;
    }
    return better;
}

/* Lowers the limits of the stages one after the other, as long as an equally good or better order
 * is found, but not below the memory of the given order. */
static void trim(struct search *s, const int *least, int stages, int *limit)
{
    for (int i = 0; i < stages; i++)
        limit[i] = s->best.peak[i] > least[i] ? s->best.peak[i] : least[i];
    for (int i = 0; i < stages; i++) {
        while (limit[i] > least[i]) {
            limit[i]--;
            if (!follow(s, s->chain, limit)) {
                limit[i]++;
                break;
            }
        }
    }
}

/* Tries all chains from an order, or with `as_is` only those whose first replay keeps it. Trims the
 * memory of the best order found. */
static void try_order(struct search *s, const struct sp_program *programs, int stages, bool as_is,
                      const int *limit)
{
    int *least = s->scratch, *lowered = least + stages;
    int ops = sp_list_schedule_first(s->replay, stages), more;
    bool better = false;

    for (int i = 0; i < stages; i++) {
        memcpy(s->given.ops + sp_list_schedule_first(s->replay, i), programs[i].ops,
               (size_t)programs[i].n * sizeof *s->given.ops);
        least[i] = sp_squeeze_peak(&programs[i]);
    }
    more = REPLAY_OPS / (2 * ROUNDS - 1) / (ops + 1);
    for (int c = 0; c < N_CHAINS && c <= more; c++) {
        if (!as_is || chains[c][0] == STRICT)
            better |= follow(s, c, limit);
    }
    if (better && (long long)ops * stages <= TRIM_OPS)
        trim(s, least, stages, lowered);
}

static int create(struct search *s, const struct sp_layout *lay, const struct sp_program *programs)
{
    *s = (struct search){.replay = sp_list_schedule_create(lay, programs), .chain = -1};
    if (!s->replay)
        return -ENOMEM;
    s->epsilon = sp_list_schedule_epsilon(s->replay);
    s->scratch = calloc(2 * (size_t)lay->stages, sizeof *s->scratch);
    return s->scratch && !sp_list_result_create(s->replay, &s->given) &&
                   !sp_list_result_create(s->replay, &s->best) &&
                   !sp_list_result_create(s->replay, &s->a) &&
                   !sp_list_result_create(s->replay, &s->b)
               ? 0
               : -ENOMEM;
}

static void destroy(struct search *s)
{
    sp_list_result_destroy(&s->b);
    sp_list_result_destroy(&s->a);
    sp_list_result_destroy(&s->best);
    free(s->scratch);
    sp_list_result_destroy(&s->given);
    sp_list_schedule_destroy(s->replay);
}

int sp_squeeze(const struct sp_layout *lay, struct sp_program *programs,
               const struct sp_program *other, bool as_is, const int *limit)
{
    struct search s;
    int ret = create(&s, lay, programs);

    if (!ret) {
        try_order(&s, programs, lay->stages, false, limit);
        if (other)
            try_order(&s, other, lay->stages, as_is, limit);
        for (int i = 0; i < lay->stages && s.chain >= 0; i++)
            memcpy(programs[i].ops, s.best.ops + sp_list_schedule_first(s.replay, i),
                   (size_t)programs[i].n * sizeof *programs[i].ops);
    }
    destroy(&s);
    return ret;
}

/* ---- for plugins ------------------------------------------------------------------------------- */

/* Appends the ops of one stage, one micro-batch after the other; chunks in the order of the
 * layers. */
static void add_in_turn(const struct sp_layout *lay, int stage, bool split, struct sp_program *prog)
{
    int v = lay->chunks, order[v];

    for (int c = 0; c < v; c++) {
        int at = c;

        for (;
             at > 0 && sp_global_stage(lay, stage, order[at - 1]) > sp_global_stage(lay, stage, c);
             at--)
            order[at] = order[at - 1];
        order[at] = c;
    }
    for (int mb = 0; mb < lay->micro_batches; mb++) {
        for (int i = 0; i < v; i++)
            sp_program_add(prog, SP_F, mb, order[i]);
        for (int i = v - 1; i >= 0; i--) {
            sp_program_add(prog, SP_B, mb, order[i]);
            if (split)
                sp_program_add(prog, SP_W, mb, order[i]);
        }
    }
}

/* Checks that a program has F and B of each micro-batch and chunk once, in this order, and all W after
 * them or none; `seen` is [SP_R][m][v]. The search relies on it. */
static int check_program(const struct sp_layout *lay, int stage, const struct sp_program *prog,
                         unsigned char *seen, char *why, size_t n)
{
    size_t each = (size_t)lay->micro_batches * (size_t)lay->chunks;
    char text[SP_OP_TEXT];
    int passes = prog->n > 2 * (int)each ? 3 : 2;

    memset(seen, 0, SP_R * each);
    for (int k = 0; k < prog->n; k++) {
        const struct sp_op *op = &prog->ops[k];
        bool known = op->pass < passes && op->part == SP_CHUNK && !op->overlap && !op->slice &&
                     op->mb >= 0 && op->mb < lay->micro_batches && op->chunk >= 0 &&
                     op->chunk < lay->chunks;
        unsigned char *at =
            known
                ? &seen[op->pass * each + (size_t)op->mb * (size_t)lay->chunks + (size_t)op->chunk]
                : NULL;

        if (!known || *at || (op->pass && !at[-(ptrdiff_t)each])) {
            snprintf(
                why, n,
                "gives sp_list_order an order that is not legal: stage %d has %s at position %d",
                stage, sp_op_print(op, 0, text), k);
            return -EINVAL;
        }
        *at = 1;
    }
    if (prog->n == passes * (int)each)
        return 0;
    snprintf(why, n, "gives sp_list_order %d ops on stage %d, not %zu or %zu", prog->n, stage,
             2 * each, 3 * each);
    return -EINVAL;
}

static int check_programs(const struct sp_layout *lay, const struct sp_program *programs,
                          const int *limit, char *why, size_t n)
{
    unsigned char *seen = malloc(SP_R * (size_t)lay->micro_batches * (size_t)lay->chunks);
    int ret = seen ? 0 : -ENOMEM;

    for (int s = 0; s < lay->stages && !ret; s++) {
        int peak;

        ret = check_program(lay, s, &programs[s], seen, why, n);
        peak = ret ? 0 : sp_squeeze_peak(&programs[s]);
        if (!ret && (programs[s].n != programs[0].n || peak > limit[s])) {
            snprintf(why, n,
                     peak > limit[s]
                         ? "holds %d activations of a chunk on stage %d before sp_list_order, more "
                           "than %d"
                         : "gives sp_list_order %d ops on stage %d, unlike the %d of stage 0",
                     peak > limit[s] ? peak : programs[s].n, s,
                     peak > limit[s] ? limit[s] : programs[0].n);
            ret = -EINVAL;
        }
    }
    free(seen);
    return ret;
}

int sp_list_order(const struct sp_layout *lay, const int *limit, int split,
                  struct sp_program *programs, char *why, size_t n)
{
    bool empty = true;
    int *most, ret;

    if (lay->slices != 1 || sp_pipes(lay) != 1 || sp_globals(lay) != lay->stages * lay->chunks) {
        snprintf(why, n, "uses sp_list_order, which wants whole sequences and one pipe of stages");
        return -EINVAL;
    }
    most = calloc((size_t)lay->stages, sizeof *most);
    if (!most)
        return -ENOMEM;
    for (int s = 0; s < lay->stages; s++) {
        most[s] = limit ? limit[s] : INT_MAX;
        empty &= programs[s].n == 0;
    }
    for (int s = 0; s < lay->stages && empty; s++)
        add_in_turn(lay, s, split, &programs[s]);
    ret = check_programs(lay, programs, most, why, n);
    ret = ret ? ret : sp_squeeze(lay, programs, NULL, false, most);
    free(most);
    return ret;
}
