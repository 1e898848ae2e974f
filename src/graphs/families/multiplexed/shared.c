/*
 * Slices of the subsequence family with multiplexed slices that several stages compute; their parts
 * divide attention by keys (policies/families/multiplexed/shared_slices.h). An op is submitted in
 * parts. A stage attends to the keys that it has, for its own queries and for those of the other
 * parts, and merges the results that the other parts send back.
 */
#include "graphs/families/multiplexed/multiplexed.h"
#include "graphs/offload/streamed_keys.h"
#include "policies/families/multiplexed/key_shares.h"
#include "policies/families/multiplexed/shared_slices.h"

static const struct sp_plan *plan_of(const struct sp_op_ctx *c)
{
    return c->g->cfg.plan;
}

static struct sp_slice_part part_of(const struct sp_op_ctx *c, int part)
{
    return sp_part_at(sp_multiplex_layout(c->g), c->global, part);
}

/* The shape of a part's tokens, of this member's heads. */
static const struct sp_shape *heads_of(const struct sp_op_ctx *c, int part)
{
    return sp_cut_attention(c->cut, part);
}

static struct sp_layer_activations *activations_of(const struct sp_op_ctx *c, int part, int i)
{
    return &sp_multiplexed_activations(c->g, c->global, c->mb, part)->layers[i];
}

static bool is_right(const struct sp_op_ctx *c, int slice)
{
    return sp_slice_phase(sp_multiplex_layout(c->g), c->global, slice) == SP_RIGHT;
}

/* True if a stage has keys for the queries of a part. */
static bool has_keys(const struct sp_op_ctx *c, int part, int stage)
{
    return sp_keys_for(plan_of(c), c->g->shape.seq, c->global, part, stage) > 0;
}

/* The stages that compute the op's slice; part_at gives the part of one of them. */
struct stages {
    int first, last;
};

static struct stages stages_of(const struct sp_op_ctx *c)
{
    struct stages s;

    sp_slice_stages(sp_multiplex_layout(c->g), c->global, part_of(c, c->slice).slice, &s.first,
                    &s.last);
    return s;
}

static int part_at(const struct sp_op_ctx *c, int stage)
{
    return c->slice - part_of(c, c->slice).part + stage - stages_of(c).first;
}

/* The number of other stages that have keys for the op's queries. */
static int helpers(const struct sp_op_ctx *c)
{
    struct stages of = stages_of(c);
    int n = 0;

    for (int s = of.first; s <= of.last; s++)
        n += s != c->st->index && has_keys(c, c->slice, s);
    return n;
}

static struct sp_tensor *take(const struct sp_op_ctx *c, struct sp_pool *pool, size_t elements,
                              const char *name)
{
    return sp_pool_get(pool, elements, sp_shape_elem(c->sh), name);
}

/* ---- keys ------------------------------------------------------------------------------------ */

struct queries {
    struct sp_attn at;
    size_t at_batch; /* bytes of the streamed batch that the keys so far take */
    struct sp_attn_keys keys[SP_MAX_SLICES];
};

/* A round of attention over what the op's stage has. An evicted item is a part before the right
 * slices: the owner's keys of it, or the stage's share. */
struct round {
    struct sp_key_rounds keys;
    int round;
};

static void add_keys(struct queries *q, int first, int len, struct sp_tensor *kv,
                     struct sp_tensor *dkv)
{
    q->keys[q->at.n_keys++] =
        (struct sp_attn_keys){.first = first, .len = len, .kv = kv, .dkv = dkv};
}

/* Drops the keys of item `item` that were added last, unless a round reads them. */
static void keep_keys(const struct sp_op_ctx *c, struct queries *q, const struct round *of,
                      int item)
{
    struct sp_attn_keys *last = &q->keys[q->at.n_keys - 1];

    if (of && !sp_key_rounds_has(c, &of->keys, of->round, item, 0, &q->at_batch, last))
        q->at.n_keys--;
}

static void add_part(const struct sp_op_ctx *c, struct queries *q, int part, int i, bool here)
{
    const struct sp_shape *sh = heads_of(c, part);
    const struct sp_layer_activations *t = activations_of(c, part, i);

    add_keys(q, sh->first, sh->seq, here ? t->heads->kv : NULL, here ? t->heads->dkv : NULL);
}

/* Piece i of a share of keys or of their gradients; NULL: none. */
static struct sp_tensor *share_of(const struct sp_op_ctx *c, enum sp_tensor_kind kind, int part,
                                  int i)
{
    struct sp_tensor_id id = sp_key_share_tensor(kind, c->global, c->mb, part, c->st->index);
    const struct sp_stored *t = sp_store_find(&c->st->store, &id);

    return t ? t->piece[i] : NULL;
}

/* The queries of a part and the keys that a stage has for them in layer i; for another stage only
 * the positions of the keys. `of`: for this stage, those of a round; NULL: all. */
static void queries_of(const struct sp_op_ctx *c, int part, int stage, int i,
                       const struct round *of, struct queries *q)
{
    const struct sp_layout *lay = sp_multiplex_layout(c->g);
    const struct sp_shape *sh = heads_of(c, part);
    int before = sp_parts_before_right(lay, c->global), seq = c->g->shape.seq, first, len;
    struct sp_slice_part own = part_of(c, part);
    bool here = stage == c->st->index, right = is_right(c, own.slice);
    int at = stage - (own.stage - own.part);
    struct sp_token_range range = sp_key_range_of(plan_of(c), seq, c->global, stage);

    q->at_batch = 0;
    q->at = (struct sp_attn){.q_len = sh->seq, .q_pos = sh->first, .begins = true, .keys = q->keys};
    for (int r = 0; right && stage < c->global && r < before; r++) {
        first = heads_of(c, r)->first;
        len = sp_token_range_clip(&range, &first, heads_of(c, r)->seq);
        if (len <= 0)
            continue;
        add_keys(q, first, len, here ? share_of(c, SP_TENSOR_KV, r, i) : NULL,
                 here ? share_of(c, SP_TENSOR_DKV, r, i) : NULL);
        keep_keys(c, q, of, r);
    }
    for (int r = sp_first_kept_part(plan_of(c), seq, c->global);
         right && stage == c->global && r < before; r++) {
        add_part(c, q, r, i, here);
        keep_keys(c, q, of, r);
    }
    for (int k = sp_first_shared(lay, c->global, own.slice); k <= own.slice; k++)
        if (k < own.slice || at <= own.part) {
            add_part(c, q, sp_first_part(lay, c->global, k) + at, i, here);
            keep_keys(c, q, of, sp_first_part(lay, c->global, k) + at);
        }
}

/* Lists the evicted keys that the stage has for the queries of a right slice. */
static void plan_rounds(struct sp_op_ctx *c, int i, bool gradients, struct sp_key_rounds *r)
{
    const struct sp_layout *lay = sp_multiplex_layout(c->g);
    bool right = is_right(c, part_of(c, c->slice).slice), owns = c->st->index == c->global;
    int kept = owns ? sp_first_kept_part(plan_of(c), c->g->shape.seq, c->global) : 0;

    r->items = right ? sp_parts_before_right(lay, c->global) : 0;
    r->gradients = gradients;
    for (int k = 0; k < r->items; k++) {
        struct sp_place **share = owns ? NULL : sp_share_places(c->g, c->st, c->global, c->mb, k);

        r->evicted[k] = share ? share + 2 * i : NULL;
        if (owns && k >= kept)
            r->evicted[k] = activations_of(c, k, i)->evicted;
    }
    sp_key_rounds_plan(c, r);
}

/* ---- gradients of keys ----------------------------------------------------------------------- */

static void take_dkv(const struct sp_op_ctx *c, int part, int i, bool clear)
{
    struct sp_layer_activations *t = activations_of(c, part, i);
    const struct sp_shape *sh = heads_of(c, part);

    t->heads->dkv = take(c, c->st->local, (size_t)sh->rows * (size_t)sh->kv_width, "dkv");
    if (clear)
        sp_clear_insert(&c->ctx, t->heads->dkv);
}

static void take_share(const struct sp_op_ctx *c, int part, int len)
{
    struct sp_tensor_id id =
        sp_key_share_tensor(SP_TENSOR_DKV, c->global, c->mb, part, c->st->index);
    const struct sp_shape *sh = heads_of(c, part);
    struct sp_tensor *piece[c->count];

    for (int i = 0; i < c->count; i++)
        piece[i] =
            take(c, c->st->local, (size_t)len * (size_t)sh->batch * (size_t)sh->kv_width, "dkv");
    sp_store_put(&c->st->store, &id, c->count, piece, true);
}

/*
 * The last right slice, whose backward runs first, makes the gradients of all keys that its stage
 * has. The owner also makes those of the keys that it gave away, because its steady slices add to
 * them: these start as zeros.
 */
static void begin_shares(const struct sp_op_ctx *c, int i)
{
    const struct sp_layout *lay = sp_multiplex_layout(c->g);
    int before = sp_parts_before_right(lay, c->global), first, len, seq = c->g->shape.seq;
    int kept = sp_first_kept_part(plan_of(c), seq, c->global);

    for (int r = 0; r < before; r++) {
        if (c->st->index == c->global) {
            if (!activations_of(c, r, i)->evicted) /* else its first reader makes them */
                take_dkv(c, r, i, r < kept);
            continue;
        }
        sp_key_share(plan_of(c), seq, c->global, r, c->st->index, &first, &len);
        if (len > 0 && !share_of(c, SP_TENSOR_DKV, r, 0) &&
            !sp_share_places(c->g, c->st, c->global, c->mb, r))
            take_share(c, r, len);
    }
}

/* The first shared slice in the backward makes the gradients of its stage's parts, unless the
 * owner, in this process, has done so. Returns true if it makes them. */
static bool begin_gradients(const struct sp_op_ctx *c, int i)
{
    const struct sp_layout *lay = sp_multiplex_layout(c->g);
    int slice = part_of(c, c->slice).slice, at = part_of(c, c->slice).part;

    if (c->fl->layers[i].heads->dkv)
        return false;
    if (is_right(c, slice))
        begin_shares(c, i);
    for (int k = sp_first_shared(lay, c->global, slice); k <= slice; k++)
        take_dkv(c, sp_first_part(lay, c->global, k) + at, i, false);
    return true;
}

/* ---- attention ------------------------------------------------------------------------------- */

static struct sp_tensor_id tensor_of(const struct sp_op_ctx *c, enum sp_tensor_kind kind, int part)
{
    return (struct sp_tensor_id){
        .kind = (unsigned char)kind, .slice = (unsigned short)part, .mb = c->mb, .at = c->global};
}

static struct sp_tensor *came(const struct sp_op_ctx *c, enum sp_tensor_kind kind, int part)
{
    struct sp_tensor_id id = tensor_of(c, kind, part);

    return sp_store_find(&c->st->store, &id)->piece[0];
}

/* Takes the buffer of a result that an assisting stage leaves for the stage of a part. */
static struct sp_tensor *leave(const struct sp_op_ctx *c, enum sp_tensor_kind kind, int part,
                               int width, size_t elem)
{
    struct sp_tensor_id id = tensor_of(c, kind, part);
    struct sp_tensor *left =
        sp_pool_get(c->st->boundary, (size_t)heads_of(c, part)->rows * (size_t)width, elem,
                    sp_tensor_name(kind));

    sp_store_put(&c->st->store, &id, 1, &left, true);
    return left;
}

/* A round of attention for the op's own queries. `makes`: it makes the gradients of keys instead of
 * adding to them. */
static void attend_own(const struct sp_op_ctx *c, int i, const struct round *of, bool makes,
                       struct sp_tensor *d_o, int64_t bytes)
{
    struct sp_layer_activations *t = &c->fl->layers[i];
    const struct sp_shape *sh = heads_of(c, c->slice);
    bool last = of->round == of->keys.n;
    struct queries q;

    queries_of(c, c->slice, c->st->index, i, of, &q);
    q.at.begins = of->round == 0;
    q.at.ends = last && helpers(c) == 0;
    q.at.q = t->heads->q;
    q.at.o = t->heads->o;
    q.at.lse = t->heads->lse;
    q.at.sum = t->heads->sum;
    if (d_o)
        sp_attn_bwd_insert(&c->ctx, sh, &q.at, makes, d_o, t->heads->dq, last ? bytes : 0);
    else
        sp_attn_fwd_insert(&c->ctx, sh, &q.at, of->round == 0 ? bytes : 0);
}

/* Attention for another part's queries, and its results. */
struct assist {
    int part;
    bool begun;
    struct sp_tensor *o, *lse, *dq, *sum;
};

/* A round of it; none if all keys of these queries are evicted and the round reads those in
 * memory. */
static void help(const struct sp_op_ctx *c, struct assist *a, int i, const struct round *of)
{
    const struct sp_shape *sh = heads_of(c, a->part);
    struct sp_task_context ctx = c->ctx;
    size_t elem = sp_shape_elem(sh);
    struct queries q;

    ctx.slice = a->part;
    ctx.exchanged = true;
    queries_of(c, a->part, c->st->index, i, of, &q);
    if (!q.at.n_keys)
        return;
    q.at.begins = !a->begun;
    q.at.ends = of->round == of->keys.n;
    q.at.q = came(c, SP_TENSOR_Q, a->part);
    q.at.sum = a->sum;
    if (ctx.pass == 'F') {
        a->o = a->begun ? a->o : leave(c, SP_TENSOR_O, a->part, sh->q_width, elem);
        a->lse =
            a->begun ? a->lse : leave(c, SP_TENSOR_LSE, a->part, sh->model.heads, sizeof(float));
        q.at.o = a->o;
        q.at.lse = a->lse;
        sp_attn_fwd_insert(&ctx, sh, &q.at, 0);
    } else {
        a->dq = a->begun ? a->dq : leave(c, SP_TENSOR_DQ, a->part, sh->q_width, elem);
        q.at.o = came(c, SP_TENSOR_O, a->part);
        q.at.lse = came(c, SP_TENSOR_LSE, a->part);
        sp_attn_bwd_insert(&ctx, sh, &q.at, false, came(c, SP_TENSOR_DO, a->part), a->dq, 0);
    }
    a->begun = true;
}

/* Attention over the keys that the stage has (struct sp_op_ctx: attend), for the queries of all
 * parts: keys are streamed through once for all. */
static void attend(struct sp_op_ctx *c, int i, struct sp_tensor *d_o, int64_t bytes)
{
    bool first = d_o && begin_gradients(c, i);
    struct assist assist[SP_MULTIPLEX_STAGES];
    struct stages of = stages_of(c);
    struct round r;
    int n = 0;

    plan_rounds(c, i, d_o != NULL, &r.keys);
    c->fl->layers[i].heads->sum = sp_take_sum(c, heads_of(c, c->slice), r.keys.n + 1 + helpers(c));
    for (int s = of.first; s <= of.last; s++)
        if (s != c->st->index && has_keys(c, part_at(c, s), c->st->index)) {
            int part = part_at(c, s);

            assist[n++] = (struct assist){.part = part,
                                          .sum = sp_take_sum(c, heads_of(c, part), r.keys.n + 1)};
        }
    for (r.round = 0; r.round <= r.keys.n; r.round++) {
        bool makes = r.round ? !r.keys.stream[r.round - 1].made : first;

        sp_key_rounds_begin(c, r.round, &r.keys);
        attend_own(c, i, &r, makes, d_o, bytes);
        for (int k = 0; k < n; k++)
            help(c, &assist[k], i, &r);
        sp_key_rounds_end(c, r.round, &r.keys);
    }
    for (int k = 0; k < n; k++)
        sp_pool_drop(&assist[k].sum);
}

/* The result of the k-th assisting stage, in the order of arrival. */
static struct sp_tensor *sent(const struct sp_op_ctx *c, enum sp_tensor_kind kind, int k)
{
    struct sp_tensor_id id = tensor_of(c, kind, c->slice);
    const struct sp_stored *t = sp_store_find(&c->st->store, &id);

    while (k-- > 0)
        t = sp_store_next(t);
    return t->piece[0];
}

static void merge(struct sp_op_ctx *c, int i)
{
    struct sp_layer_activations *t = &c->fl->layers[i];
    int n = helpers(c), k = 0;
    struct stages of = stages_of(c);

    c->ctx.layer = c->first + i;
    c->ctx.exchanged = true;
    for (int s = of.first; s <= of.last; s++) {
        struct queries q;

        if (s == c->st->index || !has_keys(c, c->slice, s))
            continue;
        queries_of(c, c->slice, s, i, NULL, &q);
        q.at.begins = false;
        q.at.ends = k == n - 1;
        q.at.o = t->heads->o;
        q.at.lse = t->heads->lse;
        q.at.sum = t->heads->sum;
        if (c->ctx.pass == 'F')
            sp_attn_merge_insert(&c->ctx, heads_of(c, c->slice), &q.at, sent(c, SP_TENSOR_O, k),
                                 sent(c, SP_TENSOR_LSE, k));
        else
            sp_attn_add_insert(&c->ctx, heads_of(c, c->slice), &q.at, t->heads->dq,
                               sent(c, SP_TENSOR_DQ, k));
        k++;
    }
    c->ctx.exchanged = false;
    sp_pool_drop(&t->heads->sum);
}

/* ---- parts of an op -------------------------------------------------------------------------- */

static void finish_layer(struct sp_op_ctx *c, int i)
{
    merge(c, i);
    sp_attention_collect(c, i);
    sp_chunk_end_layer(c, i, sp_multiplex_output(c, i), sp_multiplex_to_head(c, i));
}

static void run_part(struct sp_shared_op *r, int op_part)
{
    struct sp_op_ctx *c = &r->c;
    int step = op_part / 2;

    if (op_part % 2) {
        sp_chunk_attend_layer(c, r->layer);
        return;
    }
    if (step == 0)
        sp_multiplex_begin(c);
    else
        finish_layer(c, r->layer);
    if (step == c->count) {
        sp_multiplex_end(c);
        return;
    }
    r->layer = sp_chunk_layer(c, step);
    sp_chunk_begin_layer(c, r->layer);
    if (c->ctx.pass == 'B')
        sp_attention_share_out_gradient(c, &c->fl->layers[r->layer]);
}

void sp_shared_run(struct sp_shared_op *r, int op_part, void (*share)(struct sp_op_ctx *c, int i))
{
    r->c.attend = attend;
    r->c.share = share;
    run_part(r, op_part);
}

/* ---- what a stage sends ---------------------------------------------------------------------- */

void sp_shared_send(struct sp_shared_op *r, const struct sp_tensor_id *id)
{
    struct sp_tensor *piece;

    if (r->c.slice != id->slice || (r->c.ctx.pass == 'F' && id->kind != SP_TENSOR_Q))
        return; /* another part's: it was left for that part */
    piece = *sp_heads_tensor(r->c.fl->layers[r->layer].heads, (enum sp_tensor_kind)id->kind);
    sp_pool_hold(piece);
    sp_store_put(&r->c.st->store, id, 1, &piece, true);
}
