/*
 * The oracle's knowledge of HelixPipe. A micro-batch goes through a chain of 2L+1 links: block 0,
 * attention of layer 0, block 1, ..., attention of layer L-1, block L. The forward of a link waits
 * for that of the link before it, its backward for that of the link behind it and for its own
 * forward.
 */
#ifndef SP_TESTS_HELIX_H
#define SP_TESTS_HELIX_H

#include "policies/oracle.h"

#define HELIX_STAGES 8
#define HELIX_FOLDS 3

static inline struct sp_layout helix_layout(int p, int L, int m)
{
    struct sp_layout lay = layout(p, m);

    lay.layers = L;
    return lay;
}

static inline void helix_plan(const char *schedule, int p, int L, int m, struct sp_plan *plan)
{
    make_plan_of(schedule, helix_layout(p, L, m), plan);
}

/* "helix:fold=F,tail=published", "helix:fold=F,tail=reverse" */
static inline const char *helix_name(int fold, bool reverse)
{
    static char text[2][32];

    snprintf(text[reverse], sizeof text[0], "helix:fold=%d,tail=%s", fold,
             reverse ? "reverse" : "published");
    return text[reverse];
}

/* Returns true if a micro-batch is of a last loop that is not full. */
static inline bool helix_is_rest(const struct oracle *h, int mb)
{
    return mb >= h->m - h->m % (h->p * h->fold);
}

/* The stage that computes a link of a micro-batch. */
static inline int helix_stage(const struct oracle *h, int mb, int link)
{
    if (link % 2)
        return (link / 2 + (helix_is_rest(h, mb) ? mb : mb / h->fold) + 1) % h->p;
    return link == 2 * h->L ? 0 : link / 2 % h->p;
}

static inline int helix_number(const struct oracle *h, int pass, int mb, int link)
{
    return ((pass == SP_B) * h->m + mb) * (2 * h->L + 1) + link;
}

static inline int helix_link(const struct sp_op *op)
{
    return op->part == SP_ATTN ? 2 * op->chunk + 1 : 2 * op->chunk;
}

static inline int helix_id(const struct oracle *h, int stage, const struct sp_op *op)
{
    int link = helix_link(op);

    if ((op->part != SP_ATTN && op->part != SP_BLOCK) || (op->pass != SP_F && op->pass != SP_B) ||
        op->mb < 0 || op->mb >= h->m || op->slice || link < 0 || link > 2 * h->L ||
        helix_stage(h, op->mb, link) != stage)
        return -1;
    return helix_number(h, op->pass, op->mb, link);
}

static inline int helix_waits(const struct oracle *h, int stage, const struct sp_op *op,
                              struct oracle_wait out[ORACLE_WAITS])
{
    int link = helix_link(op), waits = op->pass == SP_F ? link - 1 : link + 1, n = 0;

    if (op->pass == SP_B)
        out[n++] = (struct oracle_wait){stage, h->place[helix_number(h, SP_F, op->mb, link)]};
    if (waits >= 0 && waits <= 2 * h->L)
        out[n++] = (struct oracle_wait){helix_stage(h, op->mb, waits),
                                        h->place[helix_number(h, op->pass, op->mb, waits)]};
    return n;
}

/* Blocks at the ends are half a block; a backward computes blocks again. */
static inline double helix_cost(const struct oracle *h, const struct sp_costs *costs, int stage,
                                const struct sp_op *op)
{
    const struct sp_part_costs *c = &costs->parts;
    int link = helix_link(op);
    double pre = link < 2 * h->L ? c->pre : 0, post = link > 0 ? c->post : 0;

    (void)stage;
    if (link % 2)
        return op->pass == SP_F ? c->attn : c->backward * c->attn;
    return (pre + post) * (op->pass == SP_F ? 1 : c->backward + c->again);
}

/* Micro-batches that share a slot have channels of their own: by mb mod streams. */
static inline int helix_channel(const struct oracle *h, const struct sp_op *op)
{
    int turn = (helix_is_rest(h, op->mb) ? op->mb / h->p : op->mb) % h->streams;

    return (op->pass == SP_B) * HELIX_FOLDS + turn;
}

static inline int helix_live(const struct oracle *h, int stage, const struct sp_op *op)
{
    (void)h;
    (void)stage;
    return op->pass == SP_F ? 1 : -1;
}

static inline void helix_create(const struct sp_plan *plan, int fold, struct oracle *h)
{
    static const struct oracle_family family = {.id = helix_id,
                                                .waits = helix_waits,
                                                .cost = helix_cost,
                                                .channel = helix_channel,
                                                .live = helix_live};
    int ids = 2 * plan->layout.micro_batches * (2 * plan->layout.layers + 1);

    *h = (struct oracle){
        .family = &family, .ids = ids, .required = ids, .fold = fold, .streams = fold};
    assert_true(plan->layout.stages <= HELIX_STAGES && fold <= HELIX_FOLDS);
    oracle_create(plan, h);
}

/* Plays complete programs. */
static inline void helix_play(struct oracle *h, const struct sp_part_costs *c, double comm)
{
    struct sp_costs costs = {.comm = comm, .parts = *c};

    assert_true(oracle_play(h, &costs, false, 0));
}

/* Makes a plan that the oracle finds legal. */
static inline void helix_legal(const char *schedule, int fold, struct sp_layout lay,
                               struct sp_plan *plan, struct oracle *h)
{
    make_plan_of(schedule, lay, plan);
    helix_create(plan, fold, h);
    assert_int_equal(oracle_judge(h), 0);
}

#endif
