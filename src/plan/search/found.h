/* What a search of layouts is asked, what it finds, and the sizes that a layout means. Pure. */
#ifndef SP_FOUND_H
#define SP_FOUND_H

#include "model/shape.h"
#include "offload/eviction.h"
#include "plan/machine/machine.h"
#include "policies/plan.h"
#include <string.h>

enum { SP_TOKENS_LEAST = 6554, SP_TOKENS_MOST = 16384 };

/* The least tokens of a part where slices are shared out. */
enum { SP_TOKENS_OF_PART = 4 };

/* What devices of a stage share: parameters, and tokens of all but products and attention; tokens alone; or some of
 * them the one, and such groups the other. */
enum sp_search_group { SP_SEARCH_TENSOR, SP_SEARCH_CONTEXT, SP_SEARCH_BOTH };

/* A search tries layouts with something and without; only with it; only without. */
enum sp_search_choice { SP_SEARCH_EITHER, SP_SEARCH_WITH, SP_SEARCH_WITHOUT };

struct sp_found;

struct sp_search {
    const char *schedule; /* "NAME[:options]"; NULL: all */
    const struct sp_model *model;
    enum sp_dtype dtype;
    bool any_dtype; /* or the other one */
    int seq;
    int sequences;                    /* of a step, of all pipelines */
    int batch;                        /* of a micro-batch; 0: any */
    int stages;                       /* 0: any; with `devices`, as many as there are */
    int devices;                      /* of a stage; 0: any */
    enum sp_search_group group;       /* what they share */
    int tensor, context;              /* of these, that share parameters, and tokens; 0: any */
    int data;                         /* pipelines side by side; 0: any */
    enum sp_search_choice zero;       /* the optimizer's state is shared out */
    enum sp_search_choice vocabulary; /* is cut over all stages */
    enum sp_search_choice balanced;   /* layers are dealt out by what stages take, not evenly */
    int chunks;                       /* 0: what the schedule wants, and more */
    int slices;                       /* 0: any */
    const char *cut;                  /* --partition-slices; NULL: the schedule's */
    bool any_recompute, any_offload;  /* otherwise these: */
    enum sp_recompute recompute;
    int every;
    enum sp_offload_mode offload;
    const struct sp_machine *machine;
    const struct sp_machine
        *order; /* [orders] the same with its kinds of nodes in other orders, itself first */
    int orders; /* 0, 1: in none */
    int nodes;
    int64_t memory; /* bytes of a device; 0: what the machine has, less `reserve` */
    double reserve; /* the part of a device's memory that the runtime and the system keep */
    bool simulated; /* layouts that train does not run count too */
    /* Asked now and then, with how many layouts were tried and the best of them (NULL: none yet), whether to go on; if
     * not, the best so far is what there is. NULL: to the end. */
    bool (*go_on)(void *arg, int tried, const struct sp_found *best);
    void *go_on_arg;
};

/* Layers of each stage and chunk, as --partition has them: longer lists are not tried. */
enum { SP_PARTITION_TEXT = 400 };

struct sp_found {
    char schedule[64];
    int stages, devices; /* of each, that share parameters, and tokens of the rest */
    int context;         /* that share the tokens of sequences: by heads where these suffice */
    int data;            /* pipelines side by side */
    int order;           /* of the kinds of nodes */
    bool zero; /* which share the optimizer's state out, as devices do that share tokens */
    int micro_batches, batch, chunks, slices;
    enum sp_dtype dtype;
    bool vocabulary; /* --vocabulary-parallel */
    bool balanced;   /* layers are not dealt out evenly, but: */
    char layers[SP_PARTITION_TEXT];
    enum sp_recompute recompute;
    int every;
    bool
        by_layer; /* --recompute auto: layers chose one by one; those that do compute again do it in this mode */
    enum sp_offload_mode offload;
    double step_ms, bubble;
    double stall_ms;     /* of step_ms, waiting for what left memory */
    double tokens_per_s; /* of a device */
    int64_t memory;      /* of the fullest device, bytes */
    int64_t host;        /* of the fullest node, of what left */
    bool fits, trains;   /* trains: `starpipe train` can run it */
    bool whole;          /* predicted from all its micro-batches, as `show` does it */
};

static inline bool sp_found_same_grid(const struct sp_found *a, const struct sp_found *b)
{
    return a->stages == b->stages && a->devices == b->devices && a->context == b->context &&
           a->data == b->data;
}

/* Whether schedules are the same but for their options. */
static inline bool sp_found_same_family(const struct sp_found *a, const struct sp_found *b)
{
    size_t length = strcspn(a->schedule, ":");

    return length == strcspn(b->schedule, ":") && !strncmp(a->schedule, b->schedule, length);
}

/* The nodes in the order in which a layout has them. */
static inline const struct sp_machine *sp_search_machine(const struct sp_search *want,
                                                         const struct sp_found *f)
{
    return want->orders > 1 ? &want->order[f->order] : want->machine;
}

/* Bytes that a layout may take of a device: of the least of them; and of one of that machine. */
int64_t sp_search_limit(const struct sp_search *want);
int64_t sp_search_limit_of(const struct sp_search *want, const struct sp_machine *machine);

/* Whether keys and values go around the devices that share tokens, as these cannot share the heads out. */
bool sp_search_rings(const struct sp_search *want, const struct sp_found *f);

/* The first of n that fits and that train runs; NULL: none. */
const struct sp_found *sp_search_recommended(const struct sp_found *best, int n);

/* Processes that train it, a device each. */
int sp_found_processes(const struct sp_found *f);

/* The sizes that one device of a layout has; `apart`: that all devices of a stage have that share parameters, in a model as it is. */
void sp_found_shape(const struct sp_search *want, const struct sp_found *f, bool apart,
                    struct sp_shape *shape);

#endif
