/* A chosen layout: taken over as options, sent to other processes, described in words. */
#include "policies/registry.h"
#include "sp_text.h"
#include "train/layout_auto.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void sp_layout_auto_take(const struct sp_auto_choice *choice, struct sp_layout_args *l,
                         struct sp_group_args *groups, struct sp_auto_texts *texts)
{
    const struct sp_found *f = &choice->found;
    const struct sp_schedule_def *def = sp_schedule_find(f->schedule);
    bool adapipe = def && !strcmp(def->name, "adapipe");
    char recompute[SP_RECOMPUTE_TEXT];

    snprintf(texts->schedule, sizeof texts->schedule, "%s", f->schedule);
    snprintf(texts->recompute, sizeof texts->recompute, "%s", sp_found_recompute(f, recompute));
    l->schedule = texts->schedule;
    l->stages = f->stages;
    l->micro_batches = f->micro_batches;
    l->stages_set = l->micro_batches_set = true;
    l->micro_batch_size = f->batch;
    l->chunks = def && def->default_chunks > 0 ? f->chunks : l->chunks;
    l->slices = f->slices;
    l->recompute = adapipe ? NULL : texts->recompute;
    l->offload = sp_offload_name(f->offload);
    l->vocabulary_parallel = f->vocabulary;
    if (adapipe || f->by_layer || f->offload != SP_OFFLOAD_NONE)
        l->memory_limit = (uint64_t)choice->memory; /* the limit it was planned within */
    if (f->context > 1 && groups->context_parallel != f->context)
        groups->context_method = sp_method_text(f->context, choice->ulysses, texts->method);
    groups->data_parallel = f->data;
    groups->context_parallel = f->context;
    groups->tensor_parallel = f->devices;
    groups->zero = f->zero;
}

void sp_auto_choice_pack(const struct sp_auto_choice *c, char text[SP_AUTO_TEXT])
{
    const struct sp_found *f = &c->found;

    snprintf(text, SP_AUTO_TEXT, "%s %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %lld",
             f->schedule, f->stages, f->devices, f->context, f->micro_batches, f->batch, f->chunks,
             f->slices, f->vocabulary, (int)f->recompute, f->every, f->by_layer, (int)f->offload,
             f->data, f->zero, c->ulysses, c->layouts, (long long)c->memory);
}

int sp_auto_choice_unpack(const char *text, struct sp_auto_choice *c)
{
    int vocabulary, recompute, by_layer, offload;
    struct sp_found f = {.fits = true, .trains = true};
    long long memory;

    *c = (struct sp_auto_choice){.layouts = 0};
    if (sscanf(text, "%63s %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %lld", f.schedule,
               &f.stages, &f.devices, &f.context, &f.micro_batches, &f.batch, &f.chunks, &f.slices,
               &vocabulary, &recompute, &f.every, &by_layer, &offload, &f.data, &f.zero,
               &c->ulysses, &c->layouts, &memory) != 18)
        return -EINVAL;
    f.vocabulary = vocabulary;
    f.by_layer = by_layer;
    f.recompute = (enum sp_recompute)recompute;
    f.offload = (enum sp_offload_mode)offload;
    c->found = f;
    c->memory = memory;
    return 0;
}

bool sp_auto_same(const struct sp_auto_choice *a, const struct sp_auto_choice *b)
{
    char of_a[SP_AUTO_TEXT], of_b[SP_AUTO_TEXT];
    struct sp_auto_choice x = *a, y = *b;

    x.layouts = y.layouts = 0;
    x.memory = y.memory = 0; /* the machine's, if nobody gave it */
    sp_auto_choice_pack(&x, of_a);
    sp_auto_choice_pack(&y, of_b);
    return !strcmp(of_a, of_b);
}

/* Appends to a text as far as there is room. */
static void add(char text[SP_AUTO_TEXT], const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void add(char text[SP_AUTO_TEXT], const char *format, ...)
{
    size_t used = strlen(text);
    va_list ap;

    va_start(ap, format);
    vsnprintf(text + used, SP_AUTO_TEXT - used, format, ap);
    va_end(ap);
}

void sp_auto_choice_name(const struct sp_auto_choice *c, char text[SP_AUTO_TEXT])
{
    const struct sp_found *f = &c->found;
    const struct sp_schedule_def *def = sp_schedule_find(f->schedule);
    char recompute[SP_RECOMPUTE_TEXT];

    *text = '\0';
    add(text, "%s on %s", f->schedule, SP_COUNT(f->stages, "stage"));
    if (def && def->default_chunks > 0 && f->chunks != def->default_chunks)
        add(text, " of %s", SP_COUNT(f->chunks, "chunk"));
    if (f->data > 1)
        add(text, " in each of %d pipelines", f->data);
    if (f->devices > 1)
        add(text, ", %d-fold tensor parallel", f->devices);
    if (f->context > 1)
        add(text, ", %d-fold context parallel", f->context);
    if (f->zero)
        add(text, ", zero %d", f->zero);
    add(text, ", %s of %d", SP_COUNT(f->micro_batches, "micro-batch"), f->batch);
    if (f->slices > 1)
        add(text, ", %d slices", f->slices);
    if (f->vocabulary)
        add(text, ", vocabulary parallel");
    add(text, ", recompute %s", sp_found_recompute(f, recompute));
    if (f->offload != SP_OFFLOAD_NONE)
        add(text, ", offload %s", sp_offload_name(f->offload));
}

/* Adds the next best layout, by its differences from the chosen one. */
static void add_next(const struct sp_auto_choice *c, double step_ms, char text[SP_AUTO_TEXT])
{
    const struct sp_found *f = &c->found, *n = &c->next;

    add(text, "next best %s", n->schedule);
    if (n->stages != f->stages || !strcmp(n->schedule, f->schedule))
        add(text, " on %s", SP_COUNT(n->stages, "stage"));
    add(text, " %.4g ms, %+.0f %%", n->step_ms / f->step_ms * step_ms,
        round(100 * (n->step_ms / f->step_ms - 1)) + 0.0); /* not -0 */
}

void sp_auto_choice_reason(const struct sp_auto_choice *c, double step_ms, char text[SP_AUTO_TEXT])
{
    *text = '\0';
    if (c->next.step_ms > 0)
        add_next(c, step_ms, text);
    else
        add(text, "no other layout is faster");
    add(text, "; chosen among %s in %.1f s", SP_COUNT(c->layouts, "layout"), c->took_s);
    if (c->cut_short)
        add(text, ", which was all the time");
}
