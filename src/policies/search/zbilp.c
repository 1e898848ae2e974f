/*
 * Zero-bubble search: the integer program of the paper (section 3), with GLPK, on a window of the
 * order, which is all of it if it is small.
 *
 * The ops that start in [t0, t1) are free; those before keep their times, those after their order.
 * Variables: the start x of each free op, and y = 1 if a comes before b for two of one stage whose
 * order is not decided. Minimise T:
 *
 *   x_b >= x_a + cost_a (+ comm)                  b needs what a sends, or must follow it
 *   x_b >= x_a + cost_a - M (1 - y), and the converse with y
 *   T >= x_a + tail_a                             the longest way from the start of a to an end
 *
 * with head_a <= x_a <= T0 - tail_a, T0 the best known, from all that must come before a and after
 * it: that decides most orders beforehand and keeps every M small. The memory needs no row of its
 * own, as F k must follow W k-limit. What comes out is played before it is believed.
 */
#include "config.h"
#include "policies/search/zbwindow.h"

#ifdef HAVE_GLPK
#include <errno.h>
#include <glpk.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WHOLE_OPS = 72,     /* an order of so few is one window */
    WINDOW_OPS = 48,    /* free at once otherwise, about */
    MOST_OPS = 120,     /* more are not tried */
    NODES = 400,        /* of the tree of a window */
    STEPS_PER_ROW = 30, /* of the budget, for a node */
};

struct program {
    struct sp_zb_window w;
    unsigned char *words, *trial; /* [p][n] */
    double most;                  /* T must be below it */
    int binaries, rows;
    long long end;                     /* of the budget */
    long long nodes, most_nodes, stop; /* of the tree */
    glp_prob *lp;
};

/* lower <= sum of value[j] x[column[j]], j = 1 .. n */
static void add_row(struct program *g, double lower, int n, const int *column, const double *value)
{
    int row = glp_add_rows(g->lp, 1);

    g->rows = row;
    glp_set_row_bnds(g->lp, row, GLP_LO, lower, 0);
    glp_set_mat_row(g->lp, row, n, column, value);
}

/* x_b >= x_a + time */
static void add_after(struct program *g, int a, int b, double time)
{
    add_row(g, time, 2, (int[]){0, 2 + b, 2 + a}, (double[]){0, 1, -1});
}

/* Two ops of a stage, in the order that is decided by now, or by a binary; false: neither fits. */
static bool add_pair(struct program *g, int a, int b)
{
    const struct sp_zb_op *x = &g->w.ops[a], *y = &g->w.ops[b];
    bool a_first = x->head + x->cost + y->tail <= g->most;
    bool b_first = y->head + y->cost + x->tail <= g->most;
    int column;
    double big;

    if (!a_first && !b_first)
        return false;
    if (a_first != b_first) {
        add_after(g, a_first ? a : b, a_first ? b : a, a_first ? x->cost : y->cost);
        return true;
    }
    column = glp_add_cols(g->lp, 1);
    glp_set_col_kind(g->lp, column, GLP_BV);
    g->binaries++;
    /* when a is not first it may start as late as most - tail, and b as early as its head */
    big = x->cost + g->most - x->tail - y->head;
    add_row(g, x->cost - big, 3, (int[]){0, 2 + b, 2 + a, column}, (double[]){0, 1, -1, -big});
    big = y->cost + g->most - y->tail - x->head;
    add_row(g, y->cost, 3, (int[]){0, 2 + a, 2 + b, column}, (double[]){0, 1, -1, big});
    return true;
}

/* Columns: 1 is T, 2 + a the start of op a, then the binaries. False: T cannot be below `most`. */
static bool build(struct program *g, double least)
{
    if (least > g->most)
        return false;
    glp_set_obj_dir(g->lp, GLP_MIN);
    glp_add_cols(g->lp, 1 + g->w.n);
    glp_set_obj_coef(g->lp, 1, 1);
    glp_set_col_bnds(g->lp, 1, GLP_DB, fmin(least, g->most - 1e-9 * g->most), g->most);
    for (int a = 0; a < g->w.n; a++) {
        double latest = g->most - g->w.ops[a].tail;

        if (latest < g->w.ops[a].head)
            return false;
        glp_set_col_bnds(g->lp, 2 + a, latest > g->w.ops[a].head ? GLP_DB : GLP_FX,
                         g->w.ops[a].head, latest);
        add_row(g, g->w.ops[a].tail, 2, (int[]){0, 1, 2 + a}, (double[]){0, 1, -1});
    }
    for (int a = 0; a < g->w.n; a++) {
        for (int b = 0; b < g->w.n; b++) {
            double time = a == b ? -1 : sp_zb_follows(g->w.zb, &g->w.ops[a], &g->w.ops[b]);

            if (time >= 0)
                add_after(g, a, b, time);
            else if (a < b && g->w.ops[a].s == g->w.ops[b].s &&
                     !sp_zb_implied(g->w.zb, &g->w.ops[b], &g->w.ops[a]) && !add_pair(g, a, b))
                return false;
        }
    }
    return true;
}

static void count_nodes(glp_tree *tree, void *arg)
{
    struct program *g = arg;
    int total;

    glp_ios_tree_size(tree, NULL, NULL, &total);
    g->nodes = total;
    if (total >= g->stop)
        glp_ios_terminate(tree);
}

/* Writes the free ops into the words in the order of their solved starts. */
static void apply(struct program *g)
{
    struct sp_zb *zb = g->w.zb;

    memcpy(g->trial, g->words, (size_t)zb->p * (size_t)zb->n);
    for (int begin = 0, end; begin < g->w.n; begin = end) {
        for (end = begin; end < g->w.n && g->w.ops[end].s == g->w.ops[begin].s; end++)
            g->w.ops[end].head = glp_mip_col_val(g->lp, 2 + end);
        for (int a = begin; a < end; a++) {
            int before = 0;
            const struct sp_zb_op *x = &g->w.ops[a];

            for (int b = begin; b < end; b++) {
                const struct sp_zb_op *y = &g->w.ops[b];

                before += b != a && (sp_zb_implied(zb, y, x) ||
                                     (!sp_zb_implied(zb, x, y) &&
                                      (y->head < x->head || (y->head <= x->head && b < a))));
            }
            g->trial[x->s * zb->n + g->w.ops[begin].i + before] = (unsigned char)x->pass;
        }
    }
}

static bool legal(const struct program *g)
{
    for (int s = 0; s < g->w.zb->p; s++) {
        if (!sp_zb_legal(g->w.zb, g->trial + s * g->w.zb->n))
            return false;
    }
    return true;
}

/* Solves one window; true if the words are better for it. */
static bool solve(struct program *g, struct sp_zb_score *score)
{
    struct sp_zb *zb = g->w.zb;
    struct sp_zb_score next = {.first = -1};
    bool better = false;
    double least = 0;
    glp_iocp parm;

    g->most = score->first * (1 - 1e-7);
    if (!sp_zb_window(&g->w, &least))
        return false;
    g->lp = glp_create_prob();
    g->binaries = g->rows = 0;
    if (build(g, least)) {
        glp_init_iocp(&parm);
        parm.msg_lev = GLP_MSG_OFF;
        parm.presolve = GLP_ON;
        parm.cb_func = count_nodes;
        parm.cb_info = g;
        g->nodes = 1;
        g->stop = (g->w.zb->budget - g->end) / ((long long)g->rows * STEPS_PER_ROW);
        g->stop = g->stop < g->most_nodes ? g->stop : g->most_nodes;
        glp_intopt(g->lp, &parm);
        zb->budget -= g->nodes * g->rows * STEPS_PER_ROW;
        if (glp_mip_status(g->lp) == GLP_OPT || glp_mip_status(g->lp) == GLP_FEAS) {
            apply(g);
            if (legal(g))
                next = sp_zb_play(zb, g->trial);
            better = sp_zb_better(&next, score);
        }
    }
    glp_delete_prob(g->lp);
    if (better) {
        memcpy(g->words, g->trial, (size_t)zb->p * (size_t)zb->n);
        *score = next;
    }
    return better;
}

/* Windows from the last to the first, each with half of the one before; again while it helps. */
static void solve_all(struct program *g, struct sp_zb_score *score)
{
    struct sp_zb *zb = g->w.zb;
    int ops = zb->p * zb->n;
    bool better = true;
    double wide;

    if (ops <= WHOLE_OPS) {
        g->w.t0 = -1;
        g->w.t1 = INFINITY;
        /* T below `most` is found, or there is none, or the nodes are spent */
        for (g->most_nodes = 50LL * NODES; zb->budget > g->end && solve(g, score);)
            ;
        return;
    }
    g->most_nodes = NODES;
    while (better && zb->budget > g->end) {
        better = false;
        sp_zb_play(zb, g->words);
        wide = WINDOW_OPS * (zb->span ? score->second : score->first) / ops;
        for (double t = (zb->span ? score->second : score->first) - wide;
             t > -wide && zb->budget > g->end; t -= wide / 2) {
            g->w.t0 = t;
            g->w.t1 = t + wide;
            better |= solve(g, score);
        }
    }
}

int sp_zb_ilp(struct sp_zb *zb, long long steps, unsigned char *words, struct sp_zb_score *score)
{
    size_t size = (size_t)zb->p * (size_t)zb->n;
    struct program g = {.w = {.zb = zb, .words = words}, .words = words, .end = zb->budget - steps};
    int said = glp_term_out(GLP_OFF), ret = 0;

    g.w.ops_cap = size < MOST_OPS ? (int)size : MOST_OPS;
    g.w.ops = calloc((size_t)g.w.ops_cap, sizeof *g.w.ops);
    g.w.tail = malloc(size * sizeof *g.w.tail);
    g.trial = malloc(size);
    if (g.w.tail && g.trial && g.w.ops)
        solve_all(&g, score);
    else
        ret = -ENOMEM;
    free(g.w.ops);
    free(g.w.tail);
    free(g.trial);
    glp_term_out(said);
    return ret;
}

#else

int sp_zb_ilp(struct sp_zb *zb, long long steps, unsigned char *words, struct sp_zb_score *score)
{
    (void)zb;
    (void)steps;
    (void)words;
    (void)score;
    return 0;
}

#endif
