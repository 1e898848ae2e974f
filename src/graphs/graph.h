/*
 * A model laid out over the stages of this process: parameter blocks, activations in flight,
 * accounting. The graph family expands the ops of a program into tasks on these handles.
 */
#ifndef SP_GRAPH_H
#define SP_GRAPH_H

#include "codelets/insert.h"
#include "codelets/task/window.h"
#include "graphs/placement.h"
#include "graphs/store.h"
#include "policies/families/activations.h"
#include "model/data.h"
#include "model/documents.h"
#include "model/tensor_parts.h"
#include "offload/evicted.h"
#include "offload/mover.h"
#include "policies/lowering/lowering.h"
#include "policies/simulation/index.h"

struct sp_disk;

/* What the user chose, fixed for the run. */
struct sp_graph_config {
    struct sp_sink *sink; /* to which it is submitted */
    const struct sp_params *params;
    const struct sp_plan *plan;
    const struct sp_shape *shape; /* of a process, which the graph copies */
    bool separates;               /* documents, by this token */
    int separator;
    enum sp_recompute recompute;
    int every;  /* K of every=K, 1 otherwise */
    bool ready; /* scheduler: starpipe-ready */
    int window; /* unfinished ops per local stage; 0: default */
    uint64_t seed;
    bool
        in_stream; /* where one GPU does everything, tasks need not end for the next one to be queued */
    const struct sp_eviction_plan
        *evictions;       /* [stages] which activations leave memory; NULL: none do */
    unsigned tier;        /* memory node that they go to: a disk, or main memory from GPUs */
    struct sp_disk *disk; /* behind it, or NULL */
    const struct sp_lowering *lowering; /* that other graphs of the plan use too; NULL: its own */
};

/* What an update writes: buffers in f32, but the weights as products read them. */
enum sp_state {
    SP_STATE_MASTER,
    SP_STATE_G,
    SP_STATE_M,
    SP_STATE_V,
    SP_STATE_W, /* the master itself where the run is in f32 */
    SP_BLOCK_STATE
};

/* One parameter block on a stage that holds it. */
struct sp_block {
    enum sp_block_kind kind;
    int layer;               /* -1 outside the layers */
    struct sp_tensor *w, *g; /* as ops read and add to them */
    size_t first, n; /* elements of the block that this process updates: from where, how many */
    struct sp_tensor *state[SP_BLOCK_STATE]; /* of these */
    struct sp_tensor *spare[SP_BLOCK_STATE]; /* before the last update made ahead; NULL: none yet */
    struct sp_gathered *shared; /* [2] w and g, of which pipelines update parts; NULL: state has
                                 * them whole, see zero.h */
    bool closed;                /* its norm is taken and its update made ahead of the step's end */
    bool counted;               /* in the gradient norm and in checkpoints: once a replica pair */
};

/* Where members of a stage share heads: what this one has of attention, by its heads, of one part of the tokens
 * (sp_shape_parts); and, of one share of them (sp_shape_shares), of a layer whose parameters they share. */
struct sp_heads {
    struct sp_tensor *q, *kv, *o, *lse, *dkv;
    struct sp_tensor *sum;   /* of o or dq, while parts of it come (struct sp_attn) */
    struct sp_tensor *u, *g; /* of the MLP */
    struct sp_tensor *d_o, *dq, *du, *dy, *dr, *n1; /* backward; of all devices dy, dr and n1 */
};

/* The stashed and transient tensors of one layer and micro-batch; NULL where absent. */
struct sp_layer_activations {
    struct sp_tensor *x, *pre, *q, *kv, *o, *lse, *post; /* forward */
    /* Where members share parameters, of pre and post, which then has the norm's statistics alone. */
    struct sp_tensor *n1, *r, *n2;
    struct sp_tensor *dy, *du, *dr, *dq, *dkv; /* backward, until the weight gradient */
    struct sp_tensor *d_o;                     /* of o, until attention's backward */
    struct sp_tensor *sum;                     /* as struct sp_heads has it */
    struct sp_heads *heads; /* [parts of the tokens]; NULL: q, kv, o, lse, dkv are whole here */
    /* [shares of the tokens], where members share parameters: `heads` where these are all that attention has; NULL:
     * none do */
    struct sp_heads *shares;
    /* [2][parts of the tokens] of keys and values that are away (graphs/offload/streamed_keys.h), and of their gradients, NULL
     * where there are none yet; NULL: they are here */
    struct sp_place **evicted;
    int64_t stashed; /* bytes counted as stashed */
};

/* One end, in this process, of a message to or from another one. */
struct sp_message_record {
    int number; /* of the message in the step (policies/lowering/action.h) */
    bool sends;
    struct sp_transfer times;
    double (*now_us)(void);
    double *arrived_us; /* of the op that receives it; NULL: none does */
};

/* Those of a step of a stage, in the order of submission. */
struct sp_message_log {
    int n, cap;
    struct sp_message_record *record; /* [cap] */
};

/* A micro-batch, or a slice of it, inside a chunk. */
struct sp_chunk_activations {
    struct sp_tensor *grad; /* of the chunk's output, or input, between ops of one stage */
    struct sp_tensor *out;  /* last chunk: input of the head */
    struct sp_tensor *norm; /* and, where all stages share that, statistics of its norm */
    struct sp_layer_activations *layers; /* [layers of the chunk] */
};

/* What stays of a micro-batch or slice from the forward of the head to its backward, where all stages share the
 * vocabulary, of each share of the tokens: the head's input, and the logits if they are few (NULL). */
struct sp_head_activations {
    struct sp_tensor **n, **logits; /* [shares] */
};

/* A gradient that came home to the owner of a chunk and is to be added; n is 0 where there is none. */
struct sp_ring_returned {
    int n;
    struct sp_tensor **piece; /* [n] */
};

/* What keys and values that leave have on a stage (graphs/offload/streamed_keys.h). */
struct sp_key_streams {
    struct sp_evicted evicted;
    struct sp_move *own;       /* [units] with which they return; NULL: all stay */
    struct sp_leave **leaving; /* [n_leaving] on their way out */
    int n_leaving;
    unsigned begun; /* visits so far */
    /* By turn: those of keys and values, then those of gradients. */
    struct sp_tensor *buffer[2 * SP_EVICTION_STREAMS];
};

/* What a forward of a layer keeps: in the layer, and, the last one's, of the chunk the head's input. */
struct sp_kept {
    const struct sp_layer_activations *layer;
    const struct sp_chunk_activations *chunk; /* NULL: not the last one */
};

struct sp_stashing;
struct sp_shards; /* what a worker of the sharded family has gathered, see sharded.c */

struct sp_stage {
    int index;
    int worker;
    int n_blocks;
    struct sp_block *blocks;
    struct sp_pool *local;        /* tensors written and freed here */
    struct sp_pool *boundary;     /* tensors that other stages write or free */
    struct sp_tensor *tally[2];   /* SP_TALLIES doubles, by turn */
    struct sp_meter meter[2];     /* by turn */
    struct sp_message_log log[2]; /* by turn */
    struct sp_store store;        /* what is on its way to other stages, or came from them */
    struct sp_chunk_activations
        *activations;         /* [chunks][micro_batches][slices]; layerwise. [chunks][rounds]
                                      * of its own micro-batches; weight-ring, sharded */
    struct sp_tensor **norms; /* weight-ring: [rounds][layers][SP_NORMS] */
    struct sp_ring_returned *returned; /* weight-ring: [chunks][journeys] */
    struct sp_head_activations *heads; /* [micro_batches][slices]; vocabulary-parallel */
    struct sp_shards *shards;          /* sharded; and vocabulary-parallel */
    struct sp_stashing *stashing;      /* weight-stashing: versions of weights, see stashing.c */
    size_t gathered_bytes;             /* buffers of blocks gathered whole */
    struct sp_mover mover;             /* of activations that leave memory */
    struct sp_move *moves;             /* [units] */
    struct sp_move_tensor *moved;      /* [units][tensors of one] */
    struct sp_key_streams streams;     /* of keys and values that leave */
    struct sp_kept *kept;              /* [units] what each is of */
    struct sp_move *fetches;           /* to be brought back by the next op, with its slots */
    struct sp_move *returning;         /* those that the next task submitted brings back */
    double held_us;                    /* sp_order_held_us of its worker at the last report */
    uint64_t bytes_sent[2];            /* of messages submitted in a step, by turn */
    int messages_sent[2];              /* the messages */
    struct sp_tensor *replica_gradients[2]; /* the last gradients of other replicas, latest first */
};

/* The tokens of a step, handles [micro_batches][slices]; ids where a model begins, targets where it ends, NULL
 * elsewhere. Where members share the vocabulary, [micro_batches][slices][shares], and as rows of what this
 * one has, or -1; where stages do, targets of each local stage one after the other, likewise. */
struct sp_tokens {
    struct sp_tensor **ids, **targets;
    int32_t *ids_memory, *targets_memory;
};

/* How a global stage cuts sequences: into the slices of the plan, or parts of them (see
 * policies/families/multiplexed/multiplex.h). */
struct sp_cut {
    int n;
    struct sp_shape *shapes; /* [n] what this process has of them */
    struct sp_shape *heads;  /* [n] of its attention; NULL: the same */
    /* [n][n_shares] of products of its parameters; NULL: it has all of them. n_shares: of the tokens of a slice. */
    struct sp_shape *shares;
    int n_shares;
    /* Attention's, where tokens are shared out, too: of all shares of its part; NULL: none. */
    struct sp_cut *joined;
};

struct sp_graph_family;
struct sp_part_activations;
struct sp_multiplex;
struct sp_op_ctx;

struct sp_graph {
    struct sp_graph_config cfg;
    const struct sp_graph_family *family;
    struct sp_shape shape;
    int losses;            /* of a step: 1, or one of each batch that updates its stage within it */
    struct sp_params held; /* of shape.held: where this process's tensors are in its blocks */
    struct sp_cut *cuts;   /* one for all; of each global stage where slices are shared out */
    int n_cuts;
    struct sp_placement place;
    bool in_stream;
    struct sp_stage *stages;     /* [n_local], stages[k] is stage place.first_local + k */
    struct sp_lowering lowering; /* of the plan, for the processes that there are */
    struct sp_index places;      /* of every op in the program of its stage */
    int *records; /* [stages] most messages of a stage in a step, both ways, with other processes */
    unsigned *worker_order; /* [workers] last position given out */
    struct sp_window *window;
    int64_t step;       /* steps submitted so far */
    uint64_t data_step; /* the number of the one being submitted, as its data have it */
    int turn, closing;  /* of the step being submitted, of the last one submitted whole */
    double moved_us;    /* that the disk was at work, at the last report */
    double polled_us;   /* sp_transport_polling_us at the last report */
    double finished_us; /* when the last report came; 0: the next step starts anew */
    double *free_at;    /* [stages] last end of an op on a worker, by its first stage */
    double *ended;      /* [stages] last end of an op of a stage */
    bool begun_ahead;   /* the step after the last report was begun before that */
    int submitted;      /* ops of the order, in the step being submitted */
    /* the update that blocks get as soon as they can, or [losses] after each batch; NULL: none */
    const struct sp_update *ahead;
    bool beside;                /* and their state before it is kept */
    struct sp_tokens tokens[2]; /* by turn: a step may begin before the one before it has ended */
    struct sp_documents *documents[2]; /* [micro_batches] by turn; NULL: they are not told apart */
    struct sp_part_activations *parts; /* [micro_batches][layers + 1]; attention-parallel */
    struct sp_heads *part_heads;       /* of their attention */
    struct sp_multiplex
        *multiplex; /* where slices are shared out: see graphs/families/multiplexed/multiplexed.c */
    struct sp_op_ctx *aligned; /* [n_local] the op that a stage is in the middle of; aligned */
    int64_t exchanges;         /* between members, submitted so far */
    int32_t *
        row; /* [3][seq] one sequence's inputs and targets on their way there, these as rows of a stage */
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
 * Pipelines are a grid: members that share parameters are next to each other, then those that share tokens, then
 * pipelines with samples of their own. Members of each kind, and which of them this process is:
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

/* The share of its part of the tokens that it has. */
static inline int sp_graph_share(const struct sp_graph *g)
{
    return g->shape.sequence ? sp_tensor_member(g) : 0;
}

/* Processes that have the same parameters as this one, itself counted, which it is, and the pipeline of another. */
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

/* The block of a local stage, NULL if it does not hold it. */
struct sp_block *sp_stage_block(struct sp_stage *st, enum sp_block_kind kind, int layer);

/* Its weights, and their gradient; NULL likewise. */
struct sp_tensor *sp_stage_weight(struct sp_stage *st, enum sp_block_kind kind, int layer);
struct sp_tensor *sp_stage_gradient(struct sp_stage *st, enum sp_block_kind kind, int layer);

/* Bytes of the buffers that were made for a stage, beside the state of its blocks, its tokens and the scratch of tasks: flat
 * once a run is steady. Where pools free, of those in use. */
size_t sp_stage_buffer_bytes(const struct sp_stage *st);

/* The activations of a stage are no more: forwards were undone. */
void sp_stage_forget(struct sp_graph *g, struct sp_stage *st);

/* Piece i of weights, or of their gradients, in the stage's own blocks; NULL: it does not hold the block. */
struct sp_tensor *sp_stage_piece(const struct sp_graph *g, struct sp_stage *st,
                                 const struct sp_tensor_id *t, int i);

/* Of a block among those of all stages, for tags. */
int64_t sp_block_number(const struct sp_graph *g, const struct sp_stage *st,
                        const struct sp_block *b);

/* The stage that holds a block for checkpoints and initial values. */
int sp_block_owner(const struct sp_graph *g, enum sp_block_kind kind, int layer);

/* Elements of a block that members which share parameters all have (model/tensor_parts.h), as far as they are in the
 * block's state, counted from its first. Into range[SP_BLOCK_RANGES]; returns how many. */
int sp_block_same(const struct sp_graph *g, const struct sp_block *b, enum sp_range_kind what,
                  struct sp_block_range *range);

/* A context for tasks of a stage outside any op. */
struct sp_task_context sp_stage_context(struct sp_graph *g, struct sp_stage *st, char pass);

/* Tags: distinct for every message on its way. Of each kind, the k-th: */
enum sp_message {
    SP_MSG_ACTION,   /* message of the step */
    SP_MSG_REPORT,   /* stage */
    SP_MSG_NORM,     /* rank */
    SP_MSG_BLOCK,    /* block of a stage */
    SP_MSG_GRADIENT, /* likewise, from pipeline to pipeline */
    SP_MSG_SAME,     /* likewise, of what members that share parameters all have */
    SP_MSG_WEIGHTS,  /* likewise */
    SP_MSG_EXCHANGE, /* between members of a stage: exchange of this process */
    SP_MSG_KINDS
};

/* What takes turns from step to step, for the one being submitted. */
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

/* Whether every stage has a share of embedding and head. */
static inline bool sp_graph_shares_vocabulary(const struct sp_graph *g)
{
    return g->cfg.plan->layout.vocabulary_parallel;
}

/* Of a micro-batch. */
static inline const struct sp_documents *sp_graph_documents(const struct sp_graph *g, int mb)
{
    return g->cfg.separates ? &g->documents[g->turn][mb] : NULL;
}

int64_t sp_tag(const struct sp_graph *g, enum sp_message kind, int64_t k);

#endif
