#include "graphs/everywhere.h"
#include "graphs/message.h"

/* One block of all stages. */
struct sum {
    struct sp_graph *g;
    enum sp_block_kind kind;
};

static starpu_data_handle_t gradient_of(const struct sum *s, struct sp_stage *st)
{
    return sp_stage_block(st, s->kind, -1)->g;
}

static int64_t tag_of(const struct sum *s, int from, bool total)
{
    return sp_tag(s->g, SP_MSG_TWIN, SP_BLOCK_KINDS + 2 * (int64_t)s->kind + total, from);
}

static void send_on(struct sum *s, struct sp_stage *st, int to, bool total)
{
    if (!sp_graph_stage(s->g, to))
        sp_message_post_block(s->g, st, gradient_of(s, st), to, tag_of(s, st->index, total));
}

/* g += the sum of the stages before. */
static void add_partial(struct sum *s, struct sp_stage *st)
{
    struct sp_stage *before = sp_graph_stage(s->g, st->index - 1);
    struct sp_lane lane = sp_stage_lane(s->g, st, 'T');
    size_t n = sp_stage_block(st, s->kind, -1)->n;
    starpu_data_handle_t theirs;

    lane.layer = -1;
    if (before) {
        sp_sum_insert(&lane, SP_F32, gradient_of(s, st), gradient_of(s, before), false);
        return;
    }
    theirs = sp_pool_get(st->local, n, sizeof(float), "partial gradient");
    sp_message_expect(s->g, &lane, theirs, st->index - 1, tag_of(s, st->index - 1, false));
    sp_sum_insert(&lane, SP_F32, gradient_of(s, st), theirs, false);
    sp_pool_put(theirs);
}

/* g = the sum of all. */
static void take_total(struct sum *s, struct sp_stage *st)
{
    int stages = s->g->place.stages, from = (st->index + stages - 1) % stages;
    struct sp_stage *before = sp_graph_stage(s->g, from);
    struct sp_lane lane = sp_stage_lane(s->g, st, 'T');

    lane.layer = -1;
    if (before)
        sp_copy_insert(&lane, gradient_of(s, before), gradient_of(s, st));
    else
        sp_message_expect(s->g, &lane, gradient_of(s, st), from, tag_of(s, from, true));
}

static bool is_everywhere(struct sp_graph *g, int kind)
{
    const struct sp_block *b = sp_stage_block(&g->stages[0], (enum sp_block_kind)kind, -1);

    return b && b->everywhere;
}

void sp_everywhere_add(struct sp_graph *g, struct sp_stage *st)
{
    int last = g->place.stages - 1;

    if (st->ends_added)
        return;
    st->ends_added = true;
    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++) {
        struct sum s = {.g = g, .kind = (enum sp_block_kind)kind};

        if (!is_everywhere(g, kind))
            continue;
        if (st->index > 0)
            add_partial(&s, st);
        send_on(&s, st, st->index < last ? st->index + 1 : 0, st->index == last);
    }
}

static void take_totals(struct sum *s)
{
    int last = s->g->place.stages - 1;

    for (int k = 0; k < s->g->place.n_local; k++) {
        struct sp_stage *st = &s->g->stages[k];

        if (st->index == last)
            continue;
        take_total(s, st);
        if (st->index < last - 1)
            send_on(s, st, st->index + 1, true);
    }
}

void sp_everywhere_sum(struct sp_graph *g)
{
    for (int k = 0; k < g->place.n_local; k++)
        sp_everywhere_add(g, &g->stages[k]);
    for (int kind = 0; kind < SP_BLOCK_KINDS; kind++)
        if (is_everywhere(g, kind))
            take_totals(&(struct sum){.g = g, .kind = (enum sp_block_kind)kind});
    for (int k = 0; k < g->place.n_local; k++)
        g->stages[k].ends_added = false;
}
