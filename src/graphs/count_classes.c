/*
 * The count of a plan by classes, with a process a stage. Actions that differ in their micro-batch alone take, give back and
 * send the same. So the graphs of all stages do, in the order of submission, what belongs to a few micro-batches in which every
 * class of actions occurs, and what each did to the pools is recorded. Then all actions of a step are played with these
 * records, some times over. Where a micro-batch cannot be left out of a step, the graphs are those of a step of fewer; or all
 * actions act, and each is of a class of its own.
 */
#include "graphs/count_records.h"
#include "graphs/create.h"
#include "policies/families/aligned/slots.h"
#include "policies/plan_create.h"
#include "sinks/count.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

/* Actions of a class: how often they are in the step that is looked at, and how often so far; and the records of the first one,
 * of the last one, and of those between, -1: none yet. */
struct class
{
    uint64_t key;
    int occurs, at, by[3];
};

/* An action: its class (-1: none, it happens once), its micro-batch (-1: none), and its record. */
struct seen {
    int class, mb, record;
};

/* A step as actions. */
struct step {
    struct sp_lowering *lowering;
    uint64_t *number;    /* [classes] of the plan's classes of ops */
    struct seen *action; /* [n] in the order of submission */
    int n, room;
};

/* What acts: micro-batches of the whole step in which every class occurs; all of a step of fewer; or all of the whole one. */
enum acts { SOME, FEWER, ALL };

struct walk {
    const struct sp_graph_config *cfg;
    const struct sp_placement *place;
    enum acts how;
    struct step whole;
    struct step few;   /* of fewer micro-batches */
    struct step *acts; /* the one of them that the graphs do */
    int stages;
    struct sp_sink *sink;   /* [stages] */
    struct sp_graph *graph; /* [stages] */
    bool *sampled;          /* [micro-batches of `acts`] */
    struct sp_recorder recorder;

    struct class *class;
    int classes, room;
    int *table; /* [mask + 1] classes by key, -1: none */
    unsigned mask;

    struct step *looks;  /* is looked at */
    int unit, n;         /* ops of the unit of it that is lowered: place in the order, how many */
    bool weights_travel; /* from stage to stage: ops have them only if those before have run */
    bool lacks;          /* a class that `acts` has not */
    int at;              /* the action under way, in the order */
};

/* ---- classes ----------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t more)
{
    hash = (hash ^ more) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static bool runs_op(const struct sp_action *a)
{
    return a->kind == SP_ACTION_RUN && a->index >= 0;
}

/* The micro-batch that an action belongs to; -1: none. */
static int mb_of(const struct sp_action *a)
{
    return runs_op(a) ? a->op.mb : a->tensor.mb;
}

static uint64_t class_of(const struct step *step, int stage, int index)
{
    return step->number[sp_op_classes_of(&step->lowering->plan->classes, stage)[index]];
}

/* The class of the op of a micro-batch in the unit that is lowered, by which messages that belong to it differ; -1: of its
 * first op. */
static uint64_t unit_class(const struct walk *w, int mb)
{
    const struct sp_lowering *l = w->looks->lowering;

    for (int k = w->unit; k < w->unit + w->n; k++)
        if (mb < 0 || sp_lowering_op(l, k)->mb == mb)
            return class_of(w->looks, l->order[k].stage, l->order[k].index);
    return 0;
}

static uint64_t key_of(const struct walk *w, const struct sp_action *a)
{
    const struct sp_tensor_id *t = &a->tensor;
    uint64_t key = mix(0xcbf29ce484222325u, (uint64_t)a->kind << 32 | (uint64_t)a->stage);

    if (runs_op(a)) {
        key = mix(mix(key, class_of(w->looks, a->stage, a->index)), (uint64_t)a->op_part);
        return a->op.overlap ? mix(key, class_of(w->looks, a->stage, a->index + 1)) : key;
    }
    key = mix(key, (uint64_t)t->kind << 32 | (uint64_t)t->block << 16 | (uint64_t)a->home);
    key = mix(key, (uint64_t)t->slice << 32 | (uint64_t)(unsigned)t->at);
    key = mix(mix(key, (uint64_t)(unsigned)a->peer), unit_class(w, t->mb));
    return w->how == FEWER ? mix(key, unit_class(w, -1)) : key;
}

static int *place_of(struct walk *w, uint64_t key)
{
    unsigned at = (unsigned)(key ^ key >> 32) & w->mask;

    while (w->table[at] >= 0 && w->class[w->table[at]].key != key)
        at = (at + 1) & w->mask;
    return &w->table[at];
}

/* Twice as large, before it is half full. */
static void grow_table(struct walk *w)
{
    if (2 * (unsigned)w->classes <= w->mask)
        return;
    w->mask = 2 * w->mask + 1;
    free(w->table);
    w->table = malloc(((size_t)w->mask + 1) * sizeof *w->table);
    SP_NEED(w->table, "no memory to count a step");
    memset(w->table, -1, ((size_t)w->mask + 1) * sizeof *w->table);
    for (int i = 0; i < w->classes; i++)
        *place_of(w, w->class[i].key) = i;
}

static int find_class(struct walk *w, uint64_t key)
{
    int *at;

    grow_table(w);
    at = place_of(w, key);
    if (*at < 0) {
        w->class = sp_count_grow(w->class, w->classes, &w->room, sizeof *w->class);
        w->class[w->classes] = (struct class){.key = key, .by = {-1, -1, -1}};
        *at = w->classes++;
    }
    return *at;
}

/* ---- the actions of a step --------------------------------------------------------------------- */

/* What belongs to no micro-batch is of no class where some micro-batches act: it happens once. */
static void look(void *arg, const struct sp_action *a)
{
    struct walk *w = arg;
    struct step *step = w->looks;
    int mb = mb_of(a);
    bool once = w->how == ALL || (w->how == SOME && mb < 0);

    if (a->kind == SP_ACTION_EXCHANGE)
        return;
    step->action = sp_count_grow(step->action, step->n, &step->room, sizeof *step->action);
    step->action[step->n++] =
        (struct seen){.class = once ? -1 : find_class(w, key_of(w, a)), .mb = mb};
    /* those of attention go with its micro-batch, their gradients at the end as well */
    w->weights_travel |=
        a->kind == SP_ACTION_SEND && !step->lowering->plan->family->facts.parts &&
        (mb < 0 || (a->tensor.kind >= SP_TENSOR_W && a->tensor.kind <= SP_TENSOR_BLOCK));
}

/* The record of the next action of a class: the first one and the last one differ from those between them, as they begin and end
 * what is there as long as the class has actions. */
static int *next_record(struct class *c)
{
    int at = c->at++;

    return &c->by[at == 0 ? 0 : at == c->occurs - 1 ? 1 : 2];
}

/* Gives each action its record: of those that act a new one where it is the first of its kind, in the order of submission, and
 * the micro-batch that it belongs to has to act. */
static void number_actions(struct walk *w, struct step *step)
{
    for (int i = 0; i < w->classes; i++)
        w->class[i].occurs = w->class[i].at = 0;
    for (struct seen *a = step->action; a < step->action + step->n; a++)
        if (a->class >= 0)
            w->class[a->class].occurs++;
    for (struct seen *a = step->action; a < step->action + step->n; a++) {
        int once = -1, *record = a->class >= 0 ? next_record(&w->class[a->class]) : &once;

        if (*record < 0 && step == w->acts) {
            *record = sp_recorder_add(&w->recorder);
            if (a->mb >= 0 && a->mb < step->lowering->plan->layout.micro_batches)
                w->sampled[a->mb] = true; /* lent weights name their owner, which may be beyond */
        }
        a->record = *record;
        w->lacks |= *record < 0;
    }
}

/* Numbers for the classes of ops, the same in steps that differ in their micro-batches alone. */
static void number_classes(struct step *step)
{
    const struct sp_plan *plan = step->lowering->plan;
    const struct sp_op_classes *classes = &plan->classes;
    const struct sp_op_source source = {.family = plan->family,
                                        .lay = &plan->layout,
                                        .programs = plan->programs,
                                        .deferred = plan->deferred};
    int stages = plan->layout.stages;

    step->number = malloc(((size_t)classes->first[stages] + 1) * sizeof *step->number);
    SP_NEED(step->number, "no memory to count a step");
    for (int s = 0; s < stages; s++)
        for (int c = classes->first[s]; c < classes->first[s + 1]; c++)
            step->number[c] =
                sp_op_class_number(&source, s, &plan->programs[s].ops[classes->example[c]]);
}

static void look_at_step(struct walk *w, struct step *step)
{
    struct sp_lowering *l = step->lowering;

    number_classes(step);
    w->looks = step;
    SP_NEED(!sp_lower_begin(l, look, w), "no memory to count a step");
    for (w->unit = 0; w->unit < l->n; w->unit += w->n) {
        w->n = sp_lowering_unit(l, w->unit);
        sp_lower_ops(l, w->unit);
    }
    w->n = 0;
    sp_lower_end(l);
    number_actions(w, step);
}

/* ---- recorded ---------------------------------------------------------------------------------- */

static void act(void *arg, const struct sp_action *a)
{
    struct walk *w = arg;
    bool all = a->kind == SP_ACTION_GATHER || a->kind == SP_ACTION_SCATTER;
    int mb = mb_of(a), record;

    if (a->kind == SP_ACTION_EXCHANGE)
        return;
    record = w->acts->action[w->at++].record;
    if (w->how == SOME && mb >= 0 && !w->sampled[mb])
        return;
    for (int s = all ? 0 : a->stage; s < (all ? w->stages : a->stage + 1); s++) {
        sp_recorder_begin(&w->recorder, s);
        sp_step_act(&w->graph[s], a);
        sp_recorder_end(&w->recorder, record);
    }
    sp_recorder_know(&w->recorder, record);
}

/* What all stages do outside the actions; returns the record. */
static int each_stage(struct walk *w, void (*f)(struct sp_graph *g))
{
    int record = sp_recorder_add(&w->recorder);

    for (int s = 0; s < w->stages; s++) {
        sp_recorder_begin(&w->recorder, s);
        f(&w->graph[s]);
        sp_recorder_end(&w->recorder, record);
    }
    return record;
}

static void prepare(struct sp_graph *g)
{
    sp_step_prepare(g, NULL, 0);
}

/* Records what acts, and returns the records of the whole step: of what comes before the first action, of all actions, of what
 * comes after the last one. To be freed. */
static int *record_step(struct walk *w)
{
    int *step = malloc(((size_t)w->whole.n + 2) * sizeof *step), n = 0;

    SP_NEED(step, "no memory to count a step");
    /* the turn of a step begins with it, and so do its meters */
    for (int s = 0; s < w->stages; s++)
        w->graph[s].turn = 0;
    step[n++] = each_stage(w, prepare);
    SP_NEED(!sp_lower_step(w->acts->lowering, act, w), "no memory to count a step");
    for (int i = 0; i < w->whole.n; i++)
        step[n++] = w->whole.action[i].record;
    step[n++] = each_stage(w, sp_step_conclude);
    return step;
}

/* ---- all of it --------------------------------------------------------------------------------- */

/* The graph of a stage, for a step. */
static int create_graph(const struct walk *w, const struct step *step, int stage,
                        struct sp_sink *sink, struct sp_graph *g)
{
    const struct sp_placement p = sp_count_place(w->place, w->stages, stage);
    struct sp_graph_config own = *w->cfg;

    sp_count_begin(sink);
    own.sink = sink;
    own.plan = step->lowering->plan;
    own.lowering = step->lowering;
    return sp_graph_create(&own, &p, g);
}

/* The graphs that act, with what all of them make before the first step. */
static int create_graphs(struct walk *w)
{
    int err = 0;

    for (int s = 0; !err && s < w->stages; s++)
        err = create_graph(w, w->acts, s, &w->sink[s], &w->graph[s]);
    if (!err)
        sp_recorder_start(&w->recorder, w->graph, w->stages);
    return err;
}

/* What is made before the first step, of all micro-batches. */
static int count_fixed(const struct walk *w, struct sp_count *count)
{
    int err = 0;

    for (int s = 0; !err && s < w->stages; s++) {
        struct sp_sink sink;
        struct sp_graph g;

        err = create_graph(w, &w->whole, s, &sink, &g);
        if (!err)
            count[s].fixed = sp_count_of_stage(&g, g.stages).fixed;
        sp_graph_destroy(&g);
    }
    return err;
}

static void destroy(struct walk *w)
{
    for (int s = 0; w->graph && s < w->stages; s++)
        if (w->graph[s].cfg.sink)
            sp_graph_destroy(&w->graph[s]);
    sp_recorder_stop(&w->recorder);
    free(w->sink);
    free(w->graph);
    free(w->sampled);
    free(w->class);
    free(w->whole.number);
    free(w->whole.action);
    free(w->few.number);
    free(w->few.action);
    free(w->table);
}

/* 0 or -errno after one line; 1: what an action does does not depend on its class alone. `few`: the step of fewer micro-batches,
 * where that acts. */
static int count_with(enum acts how, const struct sp_graph_config *cfg,
                      const struct sp_placement *place, struct sp_lowering *whole,
                      struct sp_lowering *few, struct sp_count *count)
{
    size_t stages = (size_t)place->stages;
    struct walk w = {.cfg = cfg,
                     .place = place,
                     .how = how,
                     .whole.lowering = whole,
                     .few.lowering = few,
                     .stages = place->stages,
                     .mask = 1023};
    int err;

    w.acts = few ? &w.few : &w.whole;
    w.sink = calloc(stages, sizeof *w.sink);
    w.graph = calloc(stages, sizeof *w.graph);
    w.sampled = calloc((size_t)cfg->plan->layout.micro_batches, sizeof *w.sampled);
    w.table = malloc(((size_t)w.mask + 1) * sizeof *w.table);
    SP_NEED(w.sink && w.graph && w.sampled && w.table, "no memory to count a step");
    memset(w.table, -1, ((size_t)w.mask + 1) * sizeof *w.table);
    err = create_graphs(&w);
    if (!err) {
        whole->shape = w.acts->lowering->shape = &w.graph->shape;
        look_at_step(&w, w.acts);
    }
    if (!err && how == FEWER)
        look_at_step(&w, &w.whole);
    if (!err && how == SOME)
        err = w.weights_travel;
    err = err ? err : w.lacks;
    if (!err) {
        int *step = record_step(&w);

        err = w.recorder.differs || !sp_recorder_play(&w.recorder, step, w.whole.n + 2, count);
        free(step);
    }
    if (!err && how == FEWER)
        err = count_fixed(&w, count);
    destroy(&w);
    return err;
}

/* In a step of as few micro-batches as have every class: some of stages, in which a schedule repeats itself; or, of slices, in slots
 * all of whose neighbours are there, and which are neither the first nor the last such ones. */
static int count_with_fewer(const struct sp_graph_config *cfg, const struct sp_placement *place,
                            struct sp_lowering *whole, struct sp_count *count)
{
    const struct sp_layout *lay = &cfg->plan->layout;
    bool slices = lay->slices > 1;
    int err = 1, n;

    for (int period = slices ? 3 + 2 * sp_slots_reach(lay) : lay->stages; err == 1; period *= 2) {
        struct sp_plan plan;
        struct sp_lowering few;

        n = period + (slices ? 0 : lay->micro_batches % period);
        if (2 * n > lay->micro_batches)
            break;
        err = sp_plan_create_like(cfg->plan, n, &plan);
        if (err == -EINVAL)
            err = 1;
        if (err)
            continue;
        SP_NEED(!sp_lowering_create(&plan, NULL, place->stages, &few), "no memory to count a step");
        err = count_with(FEWER, cfg, place, whole, &few, count);
        sp_lowering_destroy(&few);
        sp_plan_destroy(&plan);
    }
    return err;
}

/* Shards are gathered for ops that run; two ops that overlap are submitted together; ops of a slot read what others of it left:
 * no micro-batch can be left out. */
static bool can_leave_out(const struct sp_plan *plan)
{
    return !plan->family->facts.sharded && !plan->paired && !plan->family->facts.shares_attention;
}

int sp_count_by_classes(const struct sp_graph_config *cfg, const struct sp_placement *place,
                        struct sp_count *count)
{
    const struct sp_plan *plan = cfg->plan;
    struct sp_lowering lowering;
    int err = 1;

    /* what leaves memory is planned op by op; a step that updates after each micro-batch must be given the updates */
    if (plan->evictions || plan->family->facts.stashes)
        return 1;
    if (sp_lowering_create(plan, NULL, place->stages, &lowering))
        return sp_error(ENOMEM, "no memory to count a step");
    if (can_leave_out(plan))
        err = count_with(SOME, cfg, place, &lowering, NULL, count);
    if (err == 1)
        err = count_with_fewer(cfg, place, &lowering, count);
    if (err == 1)
        err = count_with(ALL, cfg, place, &lowering, NULL, count);
    sp_lowering_destroy(&lowering);
    return err;
}
