#include "policies/plan_create.h"
#include "policies/load/csv.h"
#include "policies/load/guarded_call.h"
#include "policies/order_book.h"
#include "policies/registry.h"
#include "policies/lowering/traffic.h"
#include "policies/simulation/verify.h"
#include "sp_suggest.h"
#include "sp_error.h"
#include "policies/families/families.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sp_schedule_refuse(const char *name, int length)
{
    const struct sp_schedule_def *def;
    char typed[64], names[512] = "", meant[128];
    struct sp_suggestion suggestion = {.typed = typed};

    snprintf(typed, sizeof typed, "%.*s", length, name);
    for (int i = 0; (def = sp_schedule_at(i)); i++) {
        size_t used = strlen(names);

        snprintf(names + used, sizeof names - used, " %s", def->name);
        sp_suggest(&suggestion, def->name, (int)strlen(def->name));
    }
    sp_suggest_text(&suggestion, "", meant, sizeof meant);
    return sp_error(EINVAL, "no schedule '%s'%s %shere are:%s csv:FILE", typed,
                    *meant ? meant : ";", *meant ? "T" : "t", names);
}

/* Checks the item at `at` of the options, "key=value" or a flag: it must be known, and given
 * once. */
static int check_option(const struct sp_schedule_def *def, const char *options, const char *at)
{
    int item = (int)strcspn(at, ","), key = (int)strcspn(at, "=,");
    bool flag = key == item;

    if (!def->options && !def->flags)
        return sp_error(EINVAL, "schedule %s takes no options, not '%s'", def->name, options);
    if (!flag && sp_list_has(def->flags, at, (size_t)key))
        return sp_error(EINVAL, "schedule %s: option '%.*s' takes no value", def->name, key, at);
    if (key == 0 || key == item - 1 || (flag && sp_list_has(def->options, at, (size_t)key)))
        return sp_error(EINVAL, "schedule %s: option '%.*s' is not of the form key=value",
                        def->name, item, at);
    if (!sp_list_has(flag ? def->flags : def->options, at, (size_t)key))
        return sp_error(EINVAL, "schedule %s has no option '%.*s'; it has: %s%s%s", def->name, key,
                        at, def->options ? def->options : "", def->options && def->flags ? "," : "",
                        def->flags ? def->flags : "");
    for (const char *other = options; other < at; other += strcspn(other, ",") + 1) {
        if ((int)strcspn(other, "=,") == key && !strncmp(other, at, (size_t)key))
            return sp_error(EINVAL, "schedule %s: option '%.*s' is given twice", def->name, key,
                            at);
    }
    return 0;
}

/* "key=value,flag,..." */
static int check_options(const struct sp_schedule_def *def, const char *options)
{
    for (const char *at = options; *at;) {
        int ret = check_option(def, options, at);

        if (ret)
            return ret;
        at += strcspn(at, ",");
        if (*at == ',' && !*++at)
            return sp_error(EINVAL, "schedule %s: options '%s' end in a comma", def->name, options);
    }
    return 0;
}

static int check_size(const char *name, int value)
{
    if (value >= 1 && value <= SP_MAX_SIZE)
        return 0;
    return sp_error(EINVAL, "%s: %d is not in 1 .. %d", name, value, SP_MAX_SIZE);
}

static int check_sizes(const struct sp_layout *lay, const struct sp_family *family)
{
    uint64_t per_mb, ops, stages = family->facts.one_line ? 1 : (uint64_t)lay->stages;

    if (check_size("stages", lay->stages) || check_size("micro-batches", lay->micro_batches) ||
        check_size("chunks", lay->chunks) || check_size("slices", lay->slices))
        return -EINVAL;
    if (lay->layers < 0)
        return sp_error(EINVAL, "layers: %d is negative", lay->layers);
    /* F, B and W; each factor is at most 2^16, so three of them and a 3 fit */
    per_mb = 3 * stages * (uint64_t)lay->chunks * (uint64_t)lay->slices;
    ops = per_mb > SP_MAX_OPS ? per_mb : per_mb * (uint64_t)lay->micro_batches;
    if (ops > SP_MAX_OPS)
        return sp_error(EINVAL,
                        "%d stages, %d micro-batches, %d chunks and %d slices make more than %d "
                        "ops; make one of them smaller",
                        lay->stages, lay->micro_batches, lay->chunks, lay->slices, SP_MAX_OPS);
    return 0;
}

/* Every global stage needs a layer, unless a list says otherwise. */
static int check_layers(const struct sp_layout *lay, const struct sp_family *family)
{
    int each = sp_globals(lay) / lay->stages; /* chunks of a pipe */

    if (lay->layers == 0 || sp_globals(lay) <= lay->layers ||
        (lay->lists_layers && family->facts.layers == SP_LAYERS_MAYBE_NONE))
        return 0;
    if (family->facts.one_line)
        return sp_error(EINVAL,
                        "%d chunks are more than the %d layers of the model; use --chunks %d",
                        lay->chunks, lay->layers, lay->layers);
    if (lay->layers / each >= 1)
        return sp_error(EINVAL,
                        "%d stages of %d chunk(s) need %d layers, the model has %d; use at most %d "
                        "stages",
                        lay->stages, each, sp_globals(lay), lay->layers, lay->layers / each);
    return sp_error(EINVAL, "%d chunks per stage are more than the %d layers of the model", each,
                    lay->layers);
}

/* Indexes and verifies the programs. */
static int finish(struct sp_plan *plan)
{
    char why[512] = "";
    int ret = sp_plan_index(plan);

    if (ret)
        return ret;
    ret = sp_verify(plan, why, sizeof why);
    ret = ret ? ret : sp_plan_check_traffic(plan, why, sizeof why);
    if (ret == -ENOMEM)
        return sp_error(ENOMEM, "no memory to verify %d ops", sp_plan_ops(plan));
    return ret ? sp_error(-ret, "schedule %s: %s", plan->def->name, why) : 0;
}

/* Moves the new plan to the caller, or destroys it if `ret` is an error. */
static int hand_over(struct sp_plan *made, int ret, struct sp_plan *plan)
{
    if (ret) {
        sp_plan_destroy(made);
        return ret;
    }
    *plan = *made;
    plan->layout.options = plan->options;
    plan->layout.costs = NULL;
    return 0;
}

/* Sets the schedule's family, or the variant that replaces it with the options of the layout. */
static int choose_family(struct sp_plan *p)
{
    p->family = sp_family_find(p->def->family);
    if (p->family)
        p->family = sp_family_variant(p->family, &p->layout);
    else
        return sp_error(EINVAL, "schedule %s: no graph family '%s'", p->def->name, p->def->family);
    if (p->layout.vocabulary_parallel && !p->family->insert_ops)
        return sp_error(EINVAL,
                        "schedule %s%s%s: --vocabulary-parallel is for schedules of one line of "
                        "stages that layers are dealt out to; leave it out",
                        p->def->name, *p->options ? ":" : "", p->options);
    return 0;
}

/* Lets the family insert the ops that the schedule does not list. */
static int insert_ops(struct sp_plan *p)
{
    char why[512] = "";
    int ret = p->family->insert_ops ? p->family->insert_ops(p, why, sizeof why) : 0;

    if (ret == -ENOMEM)
        return sp_error(ENOMEM, "no memory for an order of %d ops", sp_plan_ops(p));
    return ret ? sp_error(-ret, "schedule %s: %s", p->def->name, why) : 0;
}

/* "csv:FILE": the file gives sizes, placement and programs. */
static int create_from_csv(const char *path, const struct sp_layout *lay, struct sp_plan *plan)
{
    struct sp_plan p = {
        .layout = *lay, .def = &sp_schedule_csv, .family = sp_family_find(sp_schedule_csv.family)};
    const char *slash = strrchr(path, '/');
    int ret = sp_csv_read(path, &p);

    p.layout.options = "";
    ret = ret ? ret : choose_family(&p);
    ret = ret ? ret : sp_call_check(&p);
    snprintf(p.options, sizeof p.options, "%s", slash ? slash + 1 : path);
    p.layout.options = p.options;
    ret = ret ? ret : check_layers(&p.layout, p.family);
    ret = ret ? ret : insert_ops(&p);
    return hand_over(&p, ret ? ret : finish(&p), plan);
}

/* The schedule's chunks; if it names none and has one line of stages, every layer is a chunk. */
static int default_chunks(const struct sp_plan *p)
{
    if (p->def->default_chunks > 0 || !p->family->facts.one_line)
        return p->def->default_chunks;
    return p->layout.layers > 0 ? p->layout.layers : p->layout.stages;
}

/* Makes the programs, or takes them from the book. */
static int emit(struct sp_plan *p, struct sp_order_book *book)
{
    bool takes = book && sp_order_book_takes(p);
    int ret = takes ? sp_order_book_find(book, p) : 0;

    if (ret == -ENOMEM)
        return sp_error(ENOMEM, "no memory for the programs of %d stages", p->layout.stages);
    if (ret)
        return 0;
    ret = sp_call_emit(p);
    if (!ret && takes)
        sp_order_book_add(book, p);
    return ret;
}

int sp_plan_create_by(struct sp_order_book *book, const char *schedule, const struct sp_layout *lay,
                      struct sp_plan *plan)
{
    struct sp_plan p = {.layout = *lay, .def = sp_schedule_find(schedule)};
    size_t name = strcspn(schedule, ":");
    const char *options = schedule[name] ? schedule + name + 1 : "";
    int ret;

    if (!strncmp(schedule, "csv:", 4))
        return create_from_csv(schedule + 4, lay, plan);
    if (!p.def)
        return sp_schedule_refuse(schedule, (int)(name < 60 ? name : 60));
    if (strlen(options) >= sizeof p.options)
        return sp_error(EINVAL, "schedule %s: options of %zu characters, at most %zu", p.def->name,
                        strlen(options), sizeof p.options - 1);
    ret = check_options(p.def, options);
    if (ret)
        return ret;
    strcpy(p.options, options);
    p.layout.options = p.options;
    ret = choose_family(&p);
    if (ret)
        return ret;
    if (p.layout.chunks == 0)
        p.layout.chunks = default_chunks(&p);
    ret = check_sizes(&p.layout, p.family);
    if (ret)
        return ret;
    ret = sp_call_check(&p);
    ret = ret ? ret : sp_call_place(&p);
    if (ret)
        return ret;
    p.layout.map = p.map;
    ret = check_layers(&p.layout, p.family);
    ret = ret ? ret : emit(&p, book);
    ret = ret ? ret : insert_ops(&p);
    return hand_over(&p, ret ? ret : finish(&p), plan);
}

int sp_plan_create(const char *schedule, const struct sp_layout *lay, struct sp_plan *plan)
{
    return sp_plan_create_by(NULL, schedule, lay, plan);
}

int sp_plan_create_like(const struct sp_plan *plan, int micro_batches, struct sp_plan *like)
{
    char schedule[sizeof plan->options + 80];
    struct sp_layout lay = plan->layout;
    bool quiet;
    int err;

    if (plan->def == &sp_schedule_csv || sp_schedule_owner(plan->def))
        return -EINVAL;
    snprintf(schedule, sizeof schedule, "%s%s%s", plan->def->name, *plan->options ? ":" : "",
             plan->options);
    lay.micro_batches = micro_batches;
    lay.map = NULL;
    quiet = sp_error_quiet(true);
    err = sp_plan_create(schedule, &lay, like);
    sp_error_quiet(quiet);
    if (err)
        return err;
    err = sp_plan_choose_like(like, plan);
    if (err)
        sp_plan_destroy(like);
    return err;
}
