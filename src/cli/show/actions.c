/* The lowered program of `show --actions`, and the bytes that `show --model` derives from it. */
#include "cli/show/show.h"
#include "plan/memory.h"
#include "policies/lowering/lowering.h"
#include "sp_error.h"
#include <stdlib.h>

enum { SUBJECT = SP_TENSOR_TEXT + 2 };

/* Prints the subject of an action: an op; "U" and the gradients of ops outside the program; or a
 * tensor. */
static void print_subject(const struct sp_plan *plan, const struct sp_action *a, char text[SUBJECT])
{
    char *at = text;

    if (a->index >= 0 && (a->kind == SP_ACTION_RUN || a->kind == SP_ACTION_EXCHANGE)) {
        sp_op_print(&a->op, plan->layout.slices > 1, text);
        return;
    }
    if (a->kind == SP_ACTION_RUN)
        at += sprintf(text, "U ");
    sp_tensor_print(plan, &a->tensor, at);
}

/* Exchanges of parameters between pipelines have names of their own. */
static const char *name_of(const struct sp_action *a)
{
    if (a->kind == SP_ACTION_EXCHANGE && a->tensor.kind == SP_TENSOR_BLOCK)
        return sp_action_name(SP_ACTION_GATHER);
    if (a->kind == SP_ACTION_EXCHANGE && a->tensor.kind == SP_TENSOR_GRADIENT)
        return sp_action_name(SP_ACTION_SCATTER);
    return sp_action_name(a->kind);
}

static bool is_message(const struct sp_action *a)
{
    return a->kind == SP_ACTION_SEND || a->kind == SP_ACTION_RECV;
}

/* RUN and FREE have no bytes. */
static bool is_sized(const struct sp_action *a)
{
    return is_message(a) || a->members || a->devices || a->eviction;
}

static int no_memory(const struct sp_show *show)
{
    return sp_error(ENOMEM, "show: no memory for the actions of %d stages",
                    show->plan->layout.stages);
}

/* Emits the actions of one step. */
static int lower_step(const struct sp_show *show,
                      void (*emit)(void *arg, const struct sp_action *action), void *arg)
{
    return sp_lower_step(show->lowering, emit, arg) ? no_memory(show) : 0;
}

int sp_show_lower(struct sp_show *show, struct sp_lowering *lowering)
{
    if (!show->shape && !show->actions)
        return 0;
    if (sp_lowering_create(show->plan, show->shape, show->plan->layout.stages, lowering))
        return no_memory(show);
    lowering->recompute = show->recompute.mode;
    lowering->every = show->recompute.every;
    show->lowering = lowering;
    return 0;
}

/* ---- text ---------------------------------------------------------------------------------- */

struct text {
    const struct sp_show *show;
    FILE *out;
    int stage;
};

static void print_action(void *arg, const struct sp_action *a)
{
    struct text *t = arg;
    char subject[SUBJECT];

    if (a->stage != t->stage || a->op_part > 0)
        return;
    print_subject(t->show->plan, a, subject);
    fprintf(t->out, "%-8s %-14s", name_of(a), subject);
    if (is_message(a))
        fprintf(t->out, " %s %-5d", a->kind == SP_ACTION_SEND ? "to  " : "from", a->peer);
    else if (a->devices)
        fprintf(t->out, " of %-8d", a->devices);
    else if (a->members == t->show->plan->layout.stages)
        fprintf(t->out, " with all  ");
    else if (a->members)
        fprintf(t->out, " with");
    for (int k = 0; a->members < t->show->plan->layout.stages && k < a->members; k++)
        fprintf(t->out, " %d", a->member[k]);
    if (t->show->shape && is_sized(a))
        fprintf(t->out, " %14lld bytes", (long long)a->bytes);
    putc('\n', t->out);
}

int sp_show_actions_text(const struct sp_show *show, FILE *out)
{
    struct text t = {.show = show, .out = out};
    int err = 0;

    for (; !err && t.stage < show->plan->layout.stages; t.stage++) {
        fprintf(out, "\nactions of stage %d\n", t.stage);
        err = lower_step(show, print_action, &t);
    }
    return err;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

struct lists {
    const struct sp_show *show;
    json_t *stages;
};

static json_t *partner(const struct sp_action *a)
{
    json_t *group;

    if (is_message(a))
        return json_integer(a->peer);
    if (a->devices)
        return json_pack("{s:i}", "devices", a->devices);
    if (!a->members)
        return json_null();
    group = json_array();
    for (int k = 0; k < a->members; k++)
        json_array_append_new(group, json_integer(a->member[k]));
    return group;
}

static void add_action(void *arg, const struct sp_action *a)
{
    struct lists *lists = arg;
    bool sized = lists->show->shape && is_sized(a);
    char subject[SUBJECT];

    if (a->op_part > 0) /* belongs to an op that is already listed */
        return;
    print_subject(lists->show->plan, a, subject);
    json_array_append_new(json_array_get(lists->stages, (size_t)a->stage),
                          json_pack("[s,s,o,o]", name_of(a), subject, partner(a),
                                    sized ? json_integer(a->bytes) : json_null()));
}

static json_t *array_of_stages(const struct sp_show *show)
{
    json_t *stages = json_array();

    for (int s = 0; s < show->plan->layout.stages; s++)
        json_array_append_new(stages, json_array());
    return stages;
}

int sp_show_actions_json(const struct sp_show *show, json_t *root)
{
    struct lists lists = {.show = show, .stages = array_of_stages(show)};

    json_object_set_new(root, "actions", lists.stages);
    return lower_step(show, add_action, &lists);
}

static json_t *memory_of(const struct sp_show *show, int stage, const struct sp_memory *m)
{
    int64_t optimizer = sp_memory_optimizer(show->plan, show->shape, stage);

    return json_pack("{s:I,s:I,s:I,s:I,s:I}", "parameters", (json_int_t)(m->states - optimizer),
                     "optimizer", (json_int_t)optimizer, "activations", (json_int_t)m->activations,
                     "workspace", (json_int_t)m->workspace, "total", (json_int_t)sp_memory_sum(m));
}

int sp_show_memory_json(const struct sp_show *show, json_t *root)
{
    struct sp_memory *m = calloc((size_t)show->plan->layout.stages, sizeof *m);
    json_t *memory = json_array();
    int err;

    SP_NEED(m, "no memory for what %d stages hold", show->plan->layout.stages);
    err = sp_show_memory(show, m);
    for (int s = 0; !err && s < show->plan->layout.stages; s++)
        json_array_append_new(memory, memory_of(show, s, &m[s]));
    json_object_set_new(root, "memory_bytes", memory);
    free(m);
    return err;
}
