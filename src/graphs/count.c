#include "graphs/count.h"
#include "graphs/create.h"
#include "sinks/count.h"
#include "sp_error.h"
#include <stdlib.h>

struct sp_placement sp_count_place(const struct sp_placement *like, int processes, int r)
{
    struct sp_placement p = *like;

    p.world.size = processes * p.pipelines;
    p.world.rank = r * p.pipelines + p.pipeline;
    sp_placement_find_local(&p);
    p.first_worker = 0;
    p.workers = p.n_local;
    return p;
}

/* Takes the steps as train/run/step.c does; buffers are reported before the last update. Stops
 * after a step that makes no new buffer, because later steps make none either. */
static void walk(struct sp_graph *g, const struct sp_count_steps *steps,
                 const struct sp_update *updates)
{
    const struct sp_update hp = {.factor = 1};
    int n = steps->n < SP_COUNT_STEADY ? steps->n : SP_COUNT_STEADY;
    size_t made = 0;

    for (int k = 0; k < n; k++) {
        bool ahead = steps->ahead && k < n - 1;

        if (k == 0 || !steps->ahead)
            sp_step_begin(g, NULL, (uint64_t)k);
        sp_step_rest(g, ahead ? &hp : updates, ahead && steps->clips);
        if (!steps->ahead && g->cfg.sink->bytes == made)
            break;
        made = g->cfg.sink->bytes;
        if (k < n - 1)
            sp_step_update_submit(g, &hp, ahead && steps->clips);
        if (ahead)
            sp_step_begin(g, NULL, (uint64_t)k + 1);
    }
}

struct sp_count sp_count_of_stage(const struct sp_graph *g, const struct sp_stage *st)
{
    const struct sp_sink *sink = g->cfg.sink;
    size_t scratch = sp_count_scratch(sink), made = sink->bytes - scratch;
    int64_t buffers = (int64_t)sp_stage_buffer_bytes(st), stashed = st->meter[g->turn].peak_bytes;

    for (int k = 0; k < g->place.n_local; k++)
        made -= sp_stage_buffer_bytes(&g->stages[k]);
    return (struct sp_count){.fixed = (int64_t)made,
                             .buffers = buffers,
                             .scratch = (int64_t)scratch,
                             .sent = (int64_t)st->bytes_sent[g->turn],
                             .stashed = stashed,
                             .beside = buffers - stashed};
}

int sp_count_whole(const struct sp_graph_config *cfg, const struct sp_placement *place,
                   int processes, const struct sp_count_steps *steps, struct sp_count *count)
{
    struct sp_update *updates =
        cfg->plan->family->facts.stashes
            ? calloc((size_t)sp_updates(&cfg->plan->layout), sizeof *updates)
            : NULL;
    int err = 0;

    if (cfg->plan->family->facts.stashes && !updates)
        return sp_error(ENOMEM, "no memory to count buffers");
    for (int r = 0; !err && r < processes; r++) {
        const struct sp_placement p = sp_count_place(place, processes, r);
        struct sp_graph_config own = *cfg;
        struct sp_sink sink;
        struct sp_graph g;

        sp_count_begin(&sink);
        own.sink = &sink;
        err = sp_graph_create(&own, &p, &g);
        if (!err) {
            walk(&g, steps, updates);
            for (int k = 0; k < p.n_local; k++)
                count[p.first_local + k] = sp_count_of_stage(&g, &g.stages[k]);
        }
        sp_graph_destroy(&g);
    }
    free(updates);
    return err;
}

int sp_count_stages(const struct sp_graph_config *cfg, const struct sp_placement *place,
                    int processes, const struct sp_count_steps *steps, struct sp_count *count)
{
    int err = 1;

    if (processes == place->stages && steps->n > SP_COUNT_STEADY && !steps->ahead)
        err = sp_count_by_classes(cfg, place, count);
    return err <= 0 ? err : sp_count_whole(cfg, place, processes, steps, count);
}
