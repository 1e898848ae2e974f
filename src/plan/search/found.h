/* The request of a search for layouts, its results, and the sizes that follow from a layout.
 * Pure. */
#ifndef SP_FOUND_H
#define SP_FOUND_H

#include "model/shape.h"
#include "offload/eviction.h"
#include "plan/machine/machine.h"
#include "policies/plan.h"
#include <string.h>

enum { SP_TOKENS_LEAST = 6554, SP_TOKENS_MOST = 16384 };

/* The least tokens of a part if stages share slices. */
enum { SP_TOKENS_OF_PART = 4 };

/* The devices of a stage share parameters, and with them the tokens of everything but products and
 * attention; or tokens alone; or both, as groups that share parameters inside groups that share
 * tokens. */
enum sp_search_group { SP_SEARCH_TENSOR, SP_SEARCH_CONTEXT, SP_SEARCH_BOTH };

/* A search tries layouts with and without a feature; only with it; only without it. */
enum sp_search_choice { SP_SEARCH_EITHER, SP_SEARCH_WITH, SP_SEARCH_WITHOUT };

/* In struct sp_search: pipelines share the update or not. */
enum { SP_SEARCH_ZERO = -1 };

struct sp_found;

struct sp_search {
    const char *schedule; /* "NAME[:options]"; NULL: all */
    const struct sp_model *model;
    enum sp_dtype dtype;
    bool any_dtype; /* the search may use the other one too */
    int seq;
    int sequences;                    /* of a step, over all pipelines */
    int batch;                        /* of a micro-batch; 0: any */
    int stages;                       /* 0: any; if `devices` is given, as many as there are */
    int devices;                      /* of a stage; 0: any */
    enum sp_search_group group;       /* what they may share */
    int tensor, context;              /* of a stage that share parameters, and tokens; 0: any */
    int data;                         /* pipelines side by side; 0: any */
    int zero;                         /* of --zero; SP_SEARCH_ZERO: 0 or 1 */
    enum sp_search_choice vocabulary; /* all stages share the vocabulary */
    enum sp_search_choice balanced;   /* layers are dealt out by stages' times, not evenly */
    int chunks;                       /* 0: the schedule's default, and more */
    int slices;                       /* 0: any */
    const char *cut;                  /* --partition-slices; NULL: the schedule's */
    bool states_evicted;              /* --offload-optimizer */
    enum sp_update_device optimizer;  /* --optimizer-device */
    bool any_recompute, any_offload;  /* otherwise the next three: */
    enum sp_recompute recompute;
    int every;
    enum sp_offload_mode offload;
    const struct sp_machine *machine;
    const struct sp_machine *order; /* [orders] with its nodes in several orders, itself first */
    int orders;                     /* 0, 1: no others */
    int nodes;
    int64_t memory; /* bytes of a device; 0: the machine's, less `reserve` */
    double reserve; /* the part of a device's memory that the runtime and the system keep */
    bool simulated; /* also layouts that train cannot run */
    /* Called now and then with the number of layouts tried and best[n] of them, the best first.
     * If it returns false, the search stops and the best so far is the result. NULL: search to the
     * end. */
    bool (*go_on)(void *arg, int tried, const struct sp_found *best, int n);
    void *go_on_arg;
};

/* Layers of each stage and chunk, as --partition has them: longer lists are not tried. */
enum { SP_PARTITION_TEXT = 400 };

struct sp_found {
    char schedule[64];
    int stages, devices; /* of each stage that share parameters, and tokens of the rest */
    int context;         /* that share the tokens of sequences: by heads if these suffice */
    int data;            /* pipelines side by side */
    int order;           /* index into the orders of the kinds of nodes */
    int zero; /* what pipelines, and devices that share tokens, share (struct sp_shape) */
    int micro_batches, batch, chunks, slices;
    enum sp_dtype dtype;
    bool vocabulary; /* --vocabulary-parallel */
    bool balanced;   /* layers are not dealt out evenly, but as `layers` says */
    char layers[SP_PARTITION_TEXT];
    enum sp_recompute recompute;
    int every;
    bool by_layer; /* --recompute auto: layers that recompute do so in mode `recompute` */
    enum sp_offload_mode offload;
    double step_ms, bubble;
    double stall_ms;     /* part of step_ms that waits for evictions and fetches */
    double tokens_per_s; /* of a device */
    int64_t memory;      /* of the fullest device, bytes */
    int64_t host;        /* bytes of evicted tensors on the fullest node */
    bool fits, trains;   /* trains: `starpipe train` can run it */
    bool whole;          /* predicted from all its micro-batches, as `show` does */
};

static inline bool sp_found_same_grid(const struct sp_found *a, const struct sp_found *b)
{
    return a->stages == b->stages && a->devices == b->devices && a->context == b->context &&
           a->data == b->data;
}

/* True if schedules are the same except for their options. */
static inline bool sp_found_same_family(const struct sp_found *a, const struct sp_found *b)
{
    size_t length = strcspn(a->schedule, ":");

    return length == strcspn(b->schedule, ":") && !strncmp(a->schedule, b->schedule, length);
}

/* The machine with its nodes in the order that a layout uses. */
static inline const struct sp_machine *sp_search_machine(const struct sp_search *want,
                                                         const struct sp_found *f)
{
    return want->orders > 1 ? &want->order[f->order] : want->machine;
}

/* Bytes that a layout may use: of the smallest device; and of a device of that machine. */
int64_t sp_search_limit(const struct sp_search *want);
int64_t sp_search_limit_of(const struct sp_search *want, const struct sp_machine *machine);

/* How many of the devices that share tokens divide the heads: as many as can; if they are on several
 * nodes, those within a node if that takes less time. */
int sp_search_ulysses(const struct sp_search *want, const struct sp_found *f);
/* --context-method for that: "ulysses=2,ring". */
enum { SP_METHOD_TEXT = 32 };
const char *sp_method_text(int context, int ulysses, char text[SP_METHOD_TEXT]);

/* The first of n layouts that fits and that train can run; NULL: none. */
const struct sp_found *sp_search_recommended(const struct sp_found *best, int n);

/* Processes that train it, one a device. */
int sp_found_processes(const struct sp_found *f);

/* Sets the sizes of one device of a layout; with `apart`, those of all devices of a stage that
 * share parameters together, in an undivided model. */
void sp_found_shape(const struct sp_search *want, const struct sp_found *f, bool apart,
                    struct sp_shape *shape);

#endif
