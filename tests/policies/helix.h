/*
 * An independent model of HelixPipe, against which tests compare the schedule, the verifier and the
 * list simulation. A micro-batch goes through a chain of 2L+1 links: block 0, attention of layer 0,
 * block 1, ..., attention of layer L-1, block L. The forward of a link waits for that of the link
 * before it, its backward for that of the link behind it; the last link's backward waits for its
 * own forward. The model uses tables, and rounds over all stages until nothing moves; it calls
 * nothing of src/policies.
 */
#ifndef SP_TESTS_HELIX_H
#define SP_TESTS_HELIX_H

#include "policies/common.h"
#include "policies/plan_create.h"

/* Bits for the errors of a program. */
enum {
    HELIX_FOREIGN = 1, /* an op that no schedule of the family has there */
    HELIX_TWICE = 2,   /* an op appears twice */
    HELIX_MISSING = 4, /* an op does not appear */
    HELIX_EARLY = 8,   /* before an op of its stage that it waits for */
    HELIX_STUCK = 16,  /* deadlock */
    HELIX_TURN = 32    /* messages of a channel are taken in another order than sent */
};

#define HELIX_STAGES 8
#define HELIX_FOLDS 3

struct helix {
    const struct sp_plan *plan;
    int p, m, L, fold;
    int streams; /* channels of a pair of stages and direction: micro-batches by mb mod streams */
    int *place;  /* [F, B][mb][link] in the program of its stage, -1: none */
    /* results of the last play: */
    double *start[HELIX_STAGES], *end[HELIX_STAGES];
    double makespan, busy[HELIX_STAGES];
    int peak[HELIX_STAGES], messages;
};

static inline struct sp_layout helix_layout(int p, int L, int m)
{
    struct sp_layout lay = layout(p, m);

    lay.layers = L;
    return lay;
}

static inline void helix_plan(const char *schedule, int p, int L, int m, struct sp_plan *plan)
{
    struct sp_layout lay = helix_layout(p, L, m);

    if (sp_plan_create(schedule, &lay, plan))
        fail_msg("%s p=%d L=%d m=%d", schedule, p, L, m);
}

/* "helix:fold=F,tail=published", "helix:fold=F,tail=reverse" */
static inline const char *helix_name(int fold, bool reverse)
{
    static char text[2][32];

    snprintf(text[reverse], sizeof text[0], "helix:fold=%d,tail=%s", fold,
             reverse ? "reverse" : "published");
    return text[reverse];
}

/* The stage that computes a link of a micro-batch. */
static inline int helix_stage(const struct helix *h, int mb, int link)
{
    if (link % 2 && mb >= h->m - h->m % (h->p * h->fold)) /* a last loop that is not full */
        return (link / 2 + mb + 1) % h->p;
    if (link % 2)
        return (link / 2 + mb / h->fold + 1) % h->p;
    return link == 2 * h->L ? 0 : link / 2 % h->p;
}

static inline int *helix_place(const struct helix *h, int pass, int mb, int link)
{
    return &h->place[((pass == SP_B) * h->m + mb) * (2 * h->L + 1) + link];
}

/* The link of an op, -1 if there is no such op on the stage. */
static inline int helix_link(const struct helix *h, int stage, const struct sp_op *op)
{
    int link = op->part == SP_ATTN ? 2 * op->chunk + 1 : 2 * op->chunk;

    if ((op->part != SP_ATTN && op->part != SP_BLOCK) || (op->pass != SP_F && op->pass != SP_B) ||
        op->mb < 0 || op->mb >= h->m || op->slice || link < 0 || link > 2 * h->L ||
        helix_stage(h, op->mb, link) != stage)
        return -1;
    return link;
}

/* The link of the same pass that an op waits for; -1: none (a backward then waits for its
 * forward). */
static inline int helix_waits(const struct helix *h, int pass, int link)
{
    if (pass == SP_F)
        return link - 1;
    return link < 2 * h->L ? link + 1 : -1;
}

/* The stage from which an op gets a message, -1: none. */
static inline int helix_from(const struct helix *h, int pass, int mb, int link)
{
    int waits = helix_waits(h, pass, link), from = waits < 0 ? -1 : helix_stage(h, mb, waits);

    return from == helix_stage(h, mb, link) ? -1 : from;
}

static inline void helix_create(const struct sp_plan *plan, int fold, struct helix *h)
{
    *h = (struct helix){.plan = plan,
                        .p = plan->layout.stages,
                        .m = plan->layout.micro_batches,
                        .L = plan->layout.layers,
                        .fold = fold,
                        .streams = fold};
    assert_true(h->p <= HELIX_STAGES && fold <= HELIX_FOLDS);
    h->place = malloc(sizeof(int) * (size_t)(2 * h->m * (2 * h->L + 1)));
    assert_non_null(h->place);
    for (int s = 0; s < h->p; s++) {
        h->start[s] = calloc(2 * (size_t)plan->programs[s].n + 1, sizeof(double));
        assert_non_null(h->start[s]);
        h->end[s] = h->start[s] + plan->programs[s].n;
    }
}

static inline void helix_destroy(struct helix *h)
{
    free(h->place);
    for (int s = 0; s < h->p; s++)
        free(h->start[s]);
}

/* Finds the place of every op; returns FOREIGN, TWICE and MISSING. */
static inline int helix_index(struct helix *h)
{
    int ops = 2 * h->m * (2 * h->L + 1), wrong = 0;

    memset(h->place, -1, sizeof(int) * (size_t)ops);
    for (int s = 0; s < h->p; s++) {
        for (int k = 0; k < h->plan->programs[s].n; k++) {
            const struct sp_op *op = &h->plan->programs[s].ops[k];
            int link = helix_link(h, s, op), *place;

            if (link < 0) {
                wrong |= HELIX_FOREIGN;
                continue;
            }
            place = helix_place(h, op->pass, op->mb, link);
            if (*place >= 0)
                wrong |= HELIX_TWICE;
            else
                *place = k;
        }
    }
    for (int i = 0; i < ops; i++)
        wrong |= h->place[i] < 0 ? HELIX_MISSING : 0;
    return wrong;
}

/* Returns EARLY and TURN. */
static inline int helix_order(const struct helix *h)
{
    int wrong = 0;

    for (int s = 0; s < h->p; s++) {
        int last[HELIX_STAGES][2][HELIX_FOLDS]; /* place in its sender of the last message taken */

        memset(last, -1, sizeof last);
        for (int k = 0; k < h->plan->programs[s].n; k++) {
            const struct sp_op *op = &h->plan->programs[s].ops[k];
            int link = helix_link(h, s, op), waits = helix_waits(h, op->pass, link);
            int from = helix_from(h, op->pass, op->mb, link);
            int at = waits < 0 ? -1 : *helix_place(h, op->pass, op->mb, waits);

            if (op->pass == SP_B && *helix_place(h, SP_F, op->mb, link) > k)
                wrong |= HELIX_EARLY;
            if (waits >= 0 && from < 0 && at > k)
                wrong |= HELIX_EARLY;
            if (from >= 0) {
                bool full = op->mb < h->m - h->m % (h->p * h->fold);
                int turn = (full ? op->mb : op->mb / h->p) % h->streams;
                int *before = &last[from][op->pass == SP_B][turn];

                wrong |= at >= 0 && at < *before ? HELIX_TURN : 0;
                *before = at;
            }
        }
    }
    return wrong;
}

/* Cost of an op: blocks at the ends are half a block; a backward computes blocks again. */
static inline double helix_cost(const struct helix *h, const struct sp_part_costs *c, int pass,
                                int link)
{
    double pre = link < 2 * h->L ? c->pre : 0, post = link > 0 ? c->post : 0;

    if (link % 2)
        return pass == SP_F ? c->attn : c->backward * c->attn;
    return (pre + post) * (pass == SP_F ? 1 : c->backward + c->again);
}

/* Runs the next op of a stage if it can. */
static inline bool helix_step(struct helix *h, const struct sp_part_costs *c, double comm, int s,
                              int pc[])
{
    const struct sp_op *op = &h->plan->programs[s].ops[pc[s]];
    double start = pc[s] > 0 ? h->end[s][pc[s] - 1] : 0;
    int link, waits, from;

    if (pc[s] == h->plan->programs[s].n)
        return false;
    link = helix_link(h, s, op);
    waits = helix_waits(h, op->pass, link);
    from = helix_from(h, op->pass, op->mb, link);
    if (op->pass == SP_B && *helix_place(h, SP_F, op->mb, link) >= pc[s])
        return false;
    if (waits >= 0) {
        int src = helix_stage(h, op->mb, waits), at = *helix_place(h, op->pass, op->mb, waits);
        double there;

        if (at >= pc[src])
            return false;
        there = h->end[src][at] + (from >= 0 ? comm : 0);
        start = there > start ? there : start;
    }
    h->messages += from >= 0;
    h->start[s][pc[s]] = start;
    h->end[s][pc[s]] = start + helix_cost(h, c, op->pass, link);
    h->busy[s] += helix_cost(h, c, op->pass, link);
    h->makespan = h->end[s][pc[s]] > h->makespan ? h->end[s][pc[s]] : h->makespan;
    pc[s]++;
    return true;
}

/* Plays complete programs; true if all come to their end. */
static inline bool helix_play(struct helix *h, const struct sp_part_costs *c, double comm)
{
    int pc[HELIX_STAGES] = {0}, left = 0;
    bool moved = true;

    h->makespan = 0;
    h->messages = 0;
    memset(h->busy, 0, sizeof h->busy);
    while (moved) {
        moved = false;
        for (int s = 0; s < h->p; s++) {
            while (helix_step(h, c, comm, s, pc))
                moved = true;
        }
    }
    for (int s = 0; s < h->p; s++) {
        int live = 0;

        left += h->plan->programs[s].n - pc[s];
        h->peak[s] = 0;
        for (int k = 0; k < h->plan->programs[s].n; k++) {
            live += h->plan->programs[s].ops[k].pass == SP_F ? 1 : -1;
            h->peak[s] = live > h->peak[s] ? live : h->peak[s];
        }
    }
    return left == 0;
}

/* Returns all errors of the programs; 0: they are legal. */
static inline int helix_judge(struct helix *h)
{
    static const struct sp_part_costs unit = {.pre = 1, .attn = 1, .post = 1, .backward = 2};
    int wrong = helix_index(h);

    if (!(wrong & HELIX_FOREIGN))
        wrong |= helix_order(h);
    if (!(wrong & ~HELIX_TURN) && !helix_play(h, &unit, 0))
        wrong |= HELIX_STUCK;
    return wrong;
}

#endif
