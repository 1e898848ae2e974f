/*
 * A model laid out over the stages of this process: parameter blocks, activations in flight,
 * accounting. The graph family expands the ops of a program into tasks on these handles.
 */
#ifndef SP_GRAPH_H
#define SP_GRAPH_H

#include "codelets/insert.h"
#include "codelets/task/window.h"
#include "graphs/placement.h"
#include "policies/lowering/tensor.h"
#include "sinks/tensor.h"
#include "policies/families/activations.h"
#include "model/data.h"
#include "model/documents.h"
#include "model/tensor_parts.h"
#include "offload/evicted.h"
#include "offload/mover.h"
#include "policies/lowering/lowering.h"
#include "policies/simulation/index.h"

/*
 * The tensors of a stage that actions name (policies/lowering): those that its ops left for others,
 * those that it received, and those that it keeps for later readers.
 */

struct sp_stored {
    struct sp_tensor_id id;
    int n;
    struct sp_tensor **piece; /* [n] NULL: the model has no such block */
    bool pooled;              /* each is held; otherwise they are a stage's blocks */
    struct sp_stored *next;
};

enum { SP_STORE_LISTS = 64 };

struct sp_store {
    struct sp_stored *list[SP_STORE_LISTS]; /* by hash; each list has the oldest first */
};

/* Adds a tensor. If its pieces are from a pool, the store takes over the caller's hold. A tensor
 * may be in the store more than once: find returns the oldest, drop drops the latest. */
void sp_store_put(struct sp_store *s, const struct sp_tensor_id *id, int n,
                  struct sp_tensor *const *piece, bool pooled);

/* NULL: not in the store. */
const struct sp_stored *sp_store_find(const struct sp_store *s, const struct sp_tensor_id *id);

/* The next entry of the same tensor; NULL: none. */
const struct sp_stored *sp_store_next(const struct sp_stored *t);

/* To be called when the readers of a tensor have been submitted. Does nothing if it is not
 * there. */
void sp_store_drop(struct sp_store *s, const struct sp_tensor_id *id);

void sp_store_clear(struct sp_store *s);

struct sp_disk;

/* The user's choices, fixed for the run. */
struct sp_graph_config {
    struct sp_sink *sink; /* takes the tasks */
    const struct sp_params *params;
    const struct sp_plan *plan;
    const struct sp_shape *shape; /* of a process; the graph copies it */
    bool separates;               /* documents, by this token */
    int separator;
    enum sp_recompute recompute;
    int every;  /* K of every=K, 1 otherwise */
    bool ready; /* scheduler: starpipe-ready */
    int window; /* unfinished ops per local stage; 0: default */
    uint64_t seed;
    bool in_stream; /* one GPU does everything: a task may be queued before the previous one ends */
    const struct sp_eviction_plan
        *evictions;                     /* [stages] which activations leave memory; NULL: none do */
    unsigned tier;                      /* memory node they are evicted to */
    struct sp_disk *disk;               /* behind it, or NULL */
    const struct sp_lowering *lowering; /* shared with other graphs of the plan */
};

/* The buffers that an update writes. All are f32 except the weights, which have the type that
 * products read. */
enum sp_state {
    SP_STATE_MASTER,
    SP_STATE_G,
    SP_STATE_M,
    SP_STATE_V,
    SP_STATE_W, /* the master itself in a run in f32 */
    SP_BLOCK_STATE
};

/* One parameter block on a stage that holds it. */
struct sp_block {
    enum sp_block_kind kind;
    int layer;               /* -1 outside the layers */
    struct sp_tensor *w, *g; /* the buffers that ops read and add to; NULL while a stage has only
                              * its shard (weights/zero.h) */
    size_t first, n;         /* the elements of the block that this process updates */
    struct sp_tensor *state[SP_BLOCK_STATE]; /* the state of those elements */
    struct sp_tensor *spare[SP_BLOCK_STATE]; /* state before the last update made ahead; NULL: none
                                              * yet */
    struct sp_gathered *shared; /* [2] w and g, if each pipeline updates a part of them; NULL: state
                                 * holds all of them, see weights/zero.h */
    bool closed;                /* its norm and update are submitted before the step's end */
    bool counted;               /* included in the norm and in checkpoints: once per replica pair */
};

/* Tensors of some of a slice's tokens, of the heads and the columns of the MLP that this member has.
 * NULL where absent. */
struct sp_heads {
    struct sp_tensor *q, *kv, *o, *lse, *dkv;
    struct sp_tensor *sum;   /* sums o or dq until all parts came (struct sp_attn) */
    struct sp_tensor *u, *g; /* MLP */
    struct sp_tensor *d_o, *dq, *du, *dy, *dr, *n1; /* backward; dy, dr and n1 gathered */
};

/* The stashed and transient tensors of one layer and micro-batch; NULL where absent. */
struct sp_layer_activations {
    struct sp_tensor *x, *pre, *post; /* forward */
    /* With tensor parallelism: the tensors of pre and post; `post` then has only the norm's
     * statistics. */
    struct sp_tensor *n1, *r, *n2;
    struct sp_tensor *dy, *dr; /* backward */
    struct sp_heads own;       /* of all tokens of this member */
    struct sp_heads *heads;    /* [sp_shape_parts] of each part of the tokens, for attention */
    struct sp_heads *shares;   /* [sp_shape_shares] of each share of the tokens, for products */
    /* [2][parts of the tokens] places of evicted keys and values (graphs/offload/streamed_keys.h), then of
     * their gradients, NULL if there are none yet; NULL: in memory */
    struct sp_place **evicted;
    int64_t stashed; /* bytes counted as stashed */
};

/* One end, in this process, of a message to or from another one. */
struct sp_message_record {
    int number; /* the message's number in the step (policies/lowering/action.h) */
    bool sends;
    struct sp_transfer times;
    double (*now_us)(void);
    double *arrived_us; /* arrival time in the receiving op; NULL: none */
};

/* The messages of a stage in a step, in the order of submission. */
struct sp_message_log {
    int n, cap;
    struct sp_message_record *record; /* [cap] */
};

/* A micro-batch, or a slice of it, inside a chunk. */
struct sp_chunk_activations {
    struct sp_tensor *grad; /* gradient of the chunk's output or input, between ops */
    struct sp_tensor *out;  /* last chunk: input of the head */
    struct sp_tensor *norm; /* and its norm's statistics, if all stages split the head */
    struct sp_layer_activations *layers; /* [layers of the chunk] */
};

/* A stage's state for evicted keys and values (graphs/offload/streamed_keys.h). */
struct sp_key_streams {
    struct sp_evicted evicted;
    struct sp_move *own;       /* [units] moves that fetch them; NULL: no eviction */
    struct sp_leave **leaving; /* [n_leaving] evictions under way */
    int n_leaving;
    unsigned begun; /* streamed reads so far */
    /* Used in turns: buffers for keys and values, then those for gradients. */
    struct sp_tensor *buffer[2 * SP_EVICTION_STREAMS];
};

/* The activations that a forward keeps: the layer's, and after the last layer the head's input in
 * the chunk. */
struct sp_kept {
    const struct sp_layer_activations *layer;
    const struct sp_chunk_activations *chunk; /* NULL: not the last layer */
};

struct sp_shards; /* what a worker has gathered, see sharded.c */

struct sp_stage {
    int index;
    int worker;
    int n_blocks;
    struct sp_block *blocks;
    struct sp_pool *local;           /* tensors written and freed here */
    struct sp_pool *boundary;        /* tensors that other stages write or free */
    struct sp_tensor *tally[2];      /* SP_TALLIES doubles; by the step's turn */
    struct sp_meter meter[2];        /* by turn */
    struct sp_meter update_meter[2]; /* by turn, of its tasks on the worker that updates for GPUs */
    struct sp_message_log log[2];    /* by turn */
    struct sp_store store;           /* tensors on their way to or received from other stages */
    struct sp_chunk_activations
        *activations;              /* layerwise: [chunks][micro_batches][slices]; weight-ring and
                                      * sharded: [chunks][rounds] for its own micro-batches */
    struct sp_shards *shards;      /* sharded, vocabulary-parallel */
    struct sp_zero_stage *zero;    /* layers that are whole, --zero 2 and 3; NULL: all are */
    void *own;                     /* what the family keeps of a stage */
    size_t gathered_bytes;         /* buffers of gathered blocks */
    struct sp_mover mover;         /* evicts and fetches activations */
    struct sp_move *moves;         /* [units] */
    struct sp_move_tensor *moved;  /* [units][tensors of one] */
    struct sp_key_streams streams; /* evicted keys and values */
    struct sp_kept *kept;          /* [units] the activations of each */
    struct sp_move *fetches;       /* the next op fetches them, each with its slot */
    struct sp_move *returning;     /* the next task submitted fetches them */
    struct sp_departing *sent;     /* parked tensors that were sent, the first one first */
    int runs;                      /* ops of this step so far, of a run that evicts */
    struct sp_states *states;      /* evicted state of the optimizer; NULL: it is in memory */
    struct sp_move *gradients; /* the next task on the worker that updates for GPUs fetches them */
    double held_us;            /* its worker's sp_order_held_us at the last report */
    uint64_t bytes_sent[2];    /* of the messages submitted in a step, by turn */
    int messages_sent[2];      /* their number */
    struct sp_tensor
        *replica_gradients[2]; /* the last gradients from other replicas, latest first */
};

/* The tokens of a step, handles [micro_batches][slices]: ids on the first stage of a model, targets
 * on the last, NULL elsewhere. When members split the vocabulary: [micro_batches][slices][shares],
 * as rows of this member's part, or -1. When stages do: the targets of all local stages in
 * sequence, as rows of each stage's part, or -1. */
struct sp_tokens {
    struct sp_tensor **ids, **targets;
    int32_t *ids_memory, *targets_memory;
};

/* Describes how a global stage cuts sequences: into the slices of the plan, or into parts of slices
 * (policies/families/multiplexed/multiplex.h). */
struct sp_cut {
    int n;
    struct sp_shape *shapes; /* [n] this process's part of each */
    struct sp_shape *heads;  /* [n] for its attention; NULL: as `shapes` */
    /* [n][n_shares] for products with its part of the parameters; NULL: it has all parameters.
     * n_shares: shares of the tokens of a slice. */
    struct sp_shape *shares;
    int n_shares;
    /* For attention, if tokens are split too: all shares of this process's part; NULL: none. */
    struct sp_cut *joined;
    /* [2] the same slices with the rows of a chunk of the MLP, and with those of the last chunk;
     * only rows and widths count there. NULL: not cut so, or products are not split. */
    struct sp_cut *chunks;
};

/* Slice k for attention over all its tokens: by this member's heads, where heads are split. */
static inline const struct sp_shape *sp_cut_attention(const struct sp_cut *cut, int k)
{
    return cut->heads ? &cut->heads[k] : cut->shares ? &cut->shares[k] : &cut->shapes[k];
}

struct sp_graph_family;
struct sp_op_ctx;

struct sp_graph {
    struct sp_graph_config cfg;
    const struct sp_graph_family *family;
    struct sp_shape shape;
    int losses;            /* per step: 1, or one for each batch that updates within it */
    struct sp_params held; /* of shape.held: where this process's tensors lie in blocks */
    struct sp_cut *cuts;   /* one for all; one per global stage if slices are split */
    int n_cuts;
    struct sp_placement place;
    bool in_stream;
    struct sp_stage *stages;     /* [n_local], stages[k] is stage place.first_local + k */
    struct sp_lowering lowering; /* the plan lowered for the processes that there are */
    struct sp_index places;      /* the place of every op in its program */
    int *records; /* [stages] most messages of a stage in a step, to and from other processes */
    unsigned *worker_order; /* [workers] last position given out */
    struct sp_window *window;
    int64_t step;       /* steps submitted so far */
    uint64_t data_step; /* the data's number of the step being submitted */
    int turn, closing;  /* of the step being submitted, of the last complete one */
    double moved_us;    /* the disk's time at work, at the last report */
    double polled_us;   /* sp_transport_polling_us at the last report */
    double finished_us; /* when the last report came; 0: the next step starts anew */
    double *free_at;    /* [stages] last end of an op on a worker, at its first stage */
    double *ended;      /* [stages] last end of an op of each stage */
    bool begun_ahead;   /* the step after the last report began before that report */
    int submitted;      /* ops of the order submitted in this step */
    /* the update that blocks get as soon as possible, or [losses] one after each batch; NULL:
     * none */
    const struct sp_update *ahead;
    bool beside;                       /* and keep a copy of their state before it */
    struct sp_tokens tokens[2];        /* by turn: a step may begin before the previous one ends */
    struct sp_documents *documents[2]; /* [micro_batches] by turn; NULL: documents are not
                                        * separated */
    void *own;                         /* what the family keeps */
    int64_t exchanges;                 /* exchanges between members so far */
    int32_t
        *row; /* [3][seq] inputs and targets of one sequence; targets as rows of a stage's part */
};

static inline struct sp_stage *sp_graph_stage(struct sp_graph *g, int stage)
{
    return sp_stage_is_local(&g->place, stage) ? &g->stages[stage - g->place.first_local] : NULL;
}

static inline const struct sp_cut *sp_graph_cut(const struct sp_graph *g, int global)
{
    return &g->cuts[g->n_cuts > 1 ? global : 0];
}

/*
 * Pipelines form a grid: tensor-parallel members are next to each other, then context-parallel
 * members, then pipelines with samples of their own. These give the number of context-parallel
 * members and this process's place among each kind:
 */
static inline int sp_graph_members(const struct sp_graph *g)
{
    return g->shape.context;
}

static inline int sp_graph_member(const struct sp_graph *g)
{
    return g->place.pipeline / g->shape.tensor % g->shape.context;
}

static inline int sp_tensor_member(const struct sp_graph *g)
{
    return g->place.pipeline % g->shape.tensor;
}

/* The number of members with the same keys and values as this one, itself included. */
static inline int sp_graph_key_copies(const struct sp_graph *g)
{
    return sp_key_copies(&g->shape.whole, g->shape.tensor);
}

/* This process's share of its part of the tokens. */
static inline int sp_graph_share(const struct sp_graph *g)
{
    return g->shape.sequence ? sp_tensor_member(g) : 0;
}

/* The number of pipelines with the same parameters as this one, itself included; its place among
 * them; and the pipeline at another place. */
static inline int sp_graph_replicas(const struct sp_graph *g)
{
    return g->place.pipelines / g->shape.tensor;
}

static inline int sp_graph_replica(const struct sp_graph *g)
{
    return g->place.pipeline / g->shape.tensor;
}

static inline int sp_replica_pipeline(const struct sp_graph *g, int equal)
{
    return equal * g->shape.tensor + sp_tensor_member(g);
}

/* A block of a local stage; NULL if the stage does not hold it. */
struct sp_block *sp_stage_block(struct sp_stage *st, enum sp_block_kind kind, int layer);

/* A block's weights and gradient; NULL if the stage does not hold it. */
struct sp_tensor *sp_stage_weight(struct sp_stage *st, enum sp_block_kind kind, int layer);
struct sp_tensor *sp_stage_gradient(struct sp_stage *st, enum sp_block_kind kind, int layer);

/* Bytes of all buffers made for a stage, without the state of its blocks, its tokens and the
 * scratch of tasks: constant once a run is steady. If pools free, bytes of the buffers in use. */
size_t sp_stage_buffer_bytes(const struct sp_stage *st);

/* Resets the accounting of a stage whose forwards were undone: it has no activations any more. */
void sp_stage_forget(struct sp_graph *g, struct sp_stage *st);

/* Piece i of a tensor of weights or gradients, in the stage's own blocks, of which it may keep only
 * its shard; NULL: not held. */
struct sp_tensor *sp_stage_piece(const struct sp_graph *g, struct sp_stage *st,
                                 const struct sp_tensor_id *t, int i);

/* A block's number among the blocks of all stages, for tags. */
int64_t sp_block_number(const struct sp_graph *g, const struct sp_stage *st,
                        const struct sp_block *b);

/* The stage whose copy of a block is used for checkpoints and initial values. */
int sp_block_owner(const struct sp_graph *g, enum sp_block_kind kind, int layer);

/* Lists the elements of a block that several tensor-parallel members hold (model/tensor_parts.h),
 * clipped to the block's state and counted from its first element. Fills range[SP_BLOCK_RANGES];
 * returns the number of ranges. */
int sp_block_same(const struct sp_graph *g, const struct sp_block *b, enum sp_range_kind what,
                  struct sp_block_range *range);

/* A context for tasks of a stage outside any op. */
struct sp_task_context sp_stage_context(struct sp_graph *g, struct sp_stage *st, char pass);

/* The same for tasks on the optimizer's state: if that stays with cores that update it beside GPUs,
 * the worker of these. */
struct sp_task_context sp_update_context(struct sp_graph *g, struct sp_stage *st, char pass);

/* Kinds of tags. Two messages on their way never have the same tag; a tag of each kind counts: */
enum sp_message {
    SP_MSG_ACTION,   /* messages of the step */
    SP_MSG_REPORT,   /* stages */
    SP_MSG_NORM,     /* ranks */
    SP_MSG_BLOCK,    /* blocks of a stage */
    SP_MSG_GRADIENT, /* blocks, from pipeline to pipeline */
    SP_MSG_SAME,     /* blocks, for elements that all tensor-parallel members hold */
    SP_MSG_KEYS,     /* blocks, for keys and values that several of them hold */
    SP_MSG_WEIGHTS,  /* blocks */
    SP_MSG_EXCHANGE, /* exchanges between members of a stage */
    SP_MSG_KINDS
};

/* The instance that belongs to the step being submitted; steps use two in turns. */
static inline struct sp_meter *sp_stage_meter(const struct sp_graph *g, struct sp_stage *st)
{
    return &st->meter[g->turn];
}

static inline struct sp_tensor *sp_stage_tally(const struct sp_graph *g, const struct sp_stage *st)
{
    return st->tally[g->turn];
}

static inline const struct sp_tokens *sp_graph_tokens(const struct sp_graph *g)
{
    return &g->tokens[g->turn];
}

/* True if every stage has a part of embedding and head. */
static inline bool sp_graph_shares_vocabulary(const struct sp_graph *g)
{
    return g->cfg.plan->layout.vocabulary_parallel;
}

/* The documents of a micro-batch in the step being submitted; NULL: not separated. */
static inline const struct sp_documents *sp_graph_documents(const struct sp_graph *g, int mb)
{
    return g->cfg.separates ? &g->documents[g->turn][mb] : NULL;
}

int64_t sp_tag(const struct sp_graph *g, enum sp_message kind, int64_t k);

#endif
