/*
 * Counts a plan by classes of actions, with one process per stage. Actions that differ only in
 * their micro-batch take, give back and send the same. So the graphs of all stages run, in the
 * order of submission, only the actions of a few micro-batches in which every class occurs, and
 * record what each action does to the pools. Then all actions of a step are played several times
 * from these records. If no micro-batch can be left out of a step, the graphs run a shorter step
 * instead; or all actions run, and each is a class of its own.
 */
#include "graphs/count_records.h"
#include "graphs/create.h"
#include "policies/families/aligned/slots.h"
#include "policies/plan_create.h"
#include "sinks/count.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>

/* A class of actions: how often it occurs in the step under examination, and how often it was seen
 * so far; the records of its first action, its last one and those between, -1: none yet. */
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
    uint64_t *number;    /* [classes of ops of the plan] */
    struct seen *action; /* [n] in the order of submission */
    int n, room;
};

/* The actions that the graphs run: those of some micro-batches of the whole step in which every
 * class occurs; those of a step with fewer micro-batches; or all of the whole step. */
enum acts { SOME, FEWER, ALL };

struct walk {
    const struct sp_graph_config *cfg;
    const struct sp_placement *place;
    enum acts how;
    struct step whole;
    struct step few;   /* a step with fewer micro-batches */
    struct step *acts; /* the one of them that the graphs run */
    int stages;
    struct sp_sink *sink;   /* [stages] */
    struct sp_graph *graph; /* [stages] */
    bool *sampled;          /* [micro-batches of `acts`] */
    struct sp_recorder recorder;

    struct class *class;
    int classes, room;
    int *table; /* [mask + 1] classes by key, -1: none */
    unsigned mask;

    struct step *looks;  /* the step under examination */
    int unit, n;         /* the unit being lowered: its place in the order, its ops */
    bool weights_travel; /* from stage to stage: an op has them only if those before it ran */
    bool lacks;          /* a class does not occur in `acts` */
    int at;              /* the action under way, in the order */
};

/* ---- classes --------------------------------------------------------------------------------- */

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

/* The class of the op of micro-batch mb in the unit that is being lowered, -1: of the unit's first
 * op. Messages that belong to the unit differ by it. */
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

/* Doubles the table before it is half full. */
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

/* ---- the actions of a step ------------------------------------------------------------------- */

/* If only some micro-batches run, an action without a micro-batch gets no class: it happens
 * once. */
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
    /* weights of attention travel with a micro-batch; their gradients may also leave at the end */
    w->weights_travel |=
        a->kind == SP_ACTION_SEND && !step->lowering->plan->family->facts.parts &&
        (mb < 0 || (a->tensor.kind >= SP_TENSOR_W && a->tensor.kind <= SP_TENSOR_BLOCK));
}

/* The record of the next action of a class. The first action and the last one have their own
 * records, because they begin and end tensors that live as long as the class has actions. */
static int *next_record(struct class *c)
{
    int at = c->at++;

    return &c->by[at == 0 ? 0 : at == c->occurs - 1 ? 1 : 2];
}

/* Gives each action its record. In the step that the graphs run, the first action of a kind gets a
 * new record, and its micro-batch must run. */
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
                w->sampled[a->mb] = true; /* shared weights name their owner, which may be beyond */
        }
        a->record = *record;
        w->lacks |= *record < 0;
    }
}

/* Numbers the classes of ops; the numbers are the same in steps that differ only in
 * micro-batches. */
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

/* ---- recorded -------------------------------------------------------------------------------- */

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

/* Records on all stages a function that runs outside the actions; returns the record. */
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

/* Runs and records the actions. Returns the records of the whole step, to be freed: the one before
 * the first action, those of all actions, the one after the last action. */
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

/* ---- all of it ------------------------------------------------------------------------------- */

/* Creates the graph of a stage for a step. */
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

/* Creates the graphs that run, with everything that they allocate before the first step. */
static int create_graphs(struct walk *w)
{
    int err = 0;

    for (int s = 0; !err && s < w->stages; s++)
        err = create_graph(w, w->acts, s, &w->sink[s], &w->graph[s]);
    if (!err)
        sp_recorder_start(&w->recorder, w->graph, w->stages);
    return err;
}

/* Counts what a graph with all micro-batches allocates before the first step. */
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

/* 0 or -errno after one line; 1: the effect of an action does not depend on its class alone. `few`:
 * with FEWER, the step of fewer micro-batches, else NULL. */
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
    if (!err && (how == FEWER || cfg->evictions)) /* pools that free made more than is in use */
        err = count_fixed(&w, count);
    destroy(&w);
    return err;
}

/* Counts with the shortest step that has every class. Without slices its period is the number of
 * stages, after which a schedule repeats itself. With slices it has slots all of whose neighbours
 * exist, and which are neither the first nor the last such slots. */
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

/* Says whether micro-batches can be left out of a step. They cannot if shards are gathered for the
 * ops that run, if two overlapping ops are submitted together, or if ops of a slot read what others
 * left. */
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

    /* eviction is planned op by op; a step that updates after each micro-batch needs the updates */
    if (plan->evictions || plan->parking || plan->family->facts.stashes)
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

int sp_count_by_actions(const struct sp_graph_config *cfg, const struct sp_placement *place,
                        struct sp_count *count)
{
    struct sp_lowering lowering;
    int err;

    if (sp_lowering_create(cfg->plan, NULL, place->stages, &lowering))
        return sp_error(ENOMEM, "no memory to count a step");
    err = count_with(ALL, cfg, place, &lowering, NULL, count);
    sp_lowering_destroy(&lowering);
    return err == 1 ? sp_error(EINVAL, "internal: tensors of a step stay alive") : err;
}
