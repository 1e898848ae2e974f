#include "model/stash.h"

const char *sp_recompute_name(enum sp_recompute recompute)
{
    static const char *const names[] = {[SP_RECOMPUTE_NONE] = "none",
                                        [SP_RECOMPUTE_SELECTIVE] = "selective",
                                        [SP_RECOMPUTE_NO_ATTENTION] = "no-attention",
                                        [SP_RECOMPUTE_FULL] = "full"};

    return names[recompute];
}

char sp_recompute_letter(enum sp_recompute recompute)
{
    return "-saf"[recompute];
}

/* Widths: elements of a token. */
enum width { HIDDEN, QUERY, KEYS, UP, MLP, HEADS, STATS };

/* Modes of recomputation. */
enum {
    NONE = 1 << SP_RECOMPUTE_NONE,
    PRODUCTS = NONE | 1 << SP_RECOMPUTE_SELECTIVE,
    ATTENTION = PRODUCTS | 1 << SP_RECOMPUTE_NO_ATTENTION,
};

enum part { X, STATS1, N1, Q, KV, O, O_HEADS, LSE, STATS2, R, U, N2, G, PARTS };

/* The parts of one buffer follow each other. Its f32 parts come first: after an odd number of bf16
 * elements they would not be aligned as floats. */
static const struct {
    enum sp_stash_tensor tensor;
    enum width width;
    bool f32;  /* even if elements are bf16 */
    int modes; /* the modes that keep it */
} kept[PARTS] = {
    [X] = {SP_STASH_X, HIDDEN, false, ATTENTION}, /* and the first of K layers with every=K */
    [STATS1] = {SP_STASH_PRE, STATS, true, PRODUCTS},
    [N1] = {SP_STASH_PRE, HIDDEN, false, NONE},
    [Q] = {SP_STASH_Q, QUERY, false, PRODUCTS},
    [KV] = {SP_STASH_KV, KEYS, false, PRODUCTS}, /* also kept if later slices read them */
    [O] = {SP_STASH_O, QUERY, false, ATTENTION},
    [O_HEADS] = {SP_STASH_O, QUERY, false,
                 ATTENTION}, /* and by heads, where devices share them out */
    [LSE] = {SP_STASH_LSE, HEADS, true, ATTENTION},
    [STATS2] = {SP_STASH_POST, STATS, true, PRODUCTS},
    [R] = {SP_STASH_POST, HIDDEN, false, PRODUCTS},
    [U] = {SP_STASH_POST, UP, false, PRODUCTS},
    [N2] = {SP_STASH_POST, HIDDEN, false, NONE},
    [G] = {SP_STASH_POST, MLP, false, NONE},
};

static uint64_t elements_of(const struct sp_shape *sh, enum part p)
{
    const int widths[] = {
        [HIDDEN] = sh->model.hidden,
        [QUERY] = sh->q_width,
        [KEYS] = sh->kv_width,
        [UP] = sh->up_width,
        [MLP] = sh->model.mlp,
        [HEADS] = sh->model.heads,
        [STATS] = 2,
    };
    uint64_t n = (uint64_t)sh->rows * (uint64_t)widths[kept[p].width];

    if (p == O_HEADS && !sp_shape_exchanges(sh))
        n = 0;
    if (p == KV && sp_shape_exchanges(sh) &&
        sh->ulysses > sh->held.kv_heads) /* a head is on several devices */
        n = n / (uint64_t)sh->held.kv_heads * (uint64_t)sh->ulysses;

    return kept[p].f32 ? sp_shape_f32(sh, n) : n;
}

static bool keeps(enum sp_recompute recompute, enum part p)
{
    return kept[p].modes & 1 << recompute;
}

/* Sub-operations, and a part that each writes. */
static const struct {
    const char *name;
    enum part writes;
} sub_operations[] = {{"norms", N1}, {"activation", G}, {"qkv", Q}, {"attention", O}, {"mlp", U}};

enum { SUB_OPERATIONS = sizeof sub_operations / sizeof *sub_operations };

const char *sp_sub_operation_name(int i)
{
    return i < SUB_OPERATIONS ? sub_operations[i].name : NULL;
}

unsigned sp_recompute_again(enum sp_recompute recompute)
{
    unsigned again = 0;

    for (int i = 0; i < SUB_OPERATIONS; i++)
        again |= keeps(recompute, sub_operations[i].writes) ? 0 : 1U << i;
    return again;
}

bool sp_stash_keeps(enum sp_recompute recompute, enum sp_stash_tensor tensor)
{
    bool any = false;

    for (enum part p = 0; p < PARTS; p++)
        any |= kept[p].tensor == tensor && keeps(recompute, p);
    return any;
}

/* Counts the elements of a buffer's kept parts before `end`. */
static uint64_t elements_before(const struct sp_shape *sh, enum sp_recompute recompute,
                                enum sp_stash_tensor tensor, enum part end)
{
    uint64_t n = 0;

    for (enum part p = 0; p < end; p++)
        if (kept[p].tensor == tensor && keeps(recompute, p))
            n += elements_of(sh, p);
    return n;
}

uint64_t sp_stash_elements(const struct sp_shape *sh, enum sp_recompute recompute,
                           enum sp_stash_tensor tensor)
{
    return elements_before(sh, recompute, tensor, PARTS);
}

void sp_stash_of_layer(const struct sp_shape *sh, enum sp_recompute recompute, bool keeps_x,
                       bool sliced, int64_t bytes[SP_STASH_TENSORS])
{
    for (enum sp_stash_tensor t = 0; t < SP_STASH_TENSORS; t++)
        bytes[t] = 0;
    for (enum part p = 0; p < PARTS; p++) {
        enum sp_stash_tensor t = kept[p].tensor;
        bool always = (t == SP_STASH_X && keeps_x) || (t == SP_STASH_KV && sliced);

        if (keeps(always ? SP_RECOMPUTE_NONE : recompute, p))
            bytes[t] += (int64_t)(sp_shape_elem(sh) * elements_of(sh, p));
    }
}

static enum sp_recompute mode_of(bool keep_outputs)
{
    return keep_outputs ? SP_RECOMPUTE_NONE : SP_RECOMPUTE_SELECTIVE;
}

uint64_t sp_shape_pre_saved(const struct sp_shape *sh, bool keep_outputs)
{
    return sp_stash_elements(sh, mode_of(keep_outputs), SP_STASH_PRE);
}

uint64_t sp_shape_post_saved(const struct sp_shape *sh, bool keep_outputs)
{
    return sp_stash_elements(sh, mode_of(keep_outputs), SP_STASH_POST);
}

uint64_t sp_shape_residual_saved(const struct sp_shape *sh)
{
    return elements_of(sh, R) + elements_of(sh, STATS2);
}

uint64_t sp_shape_post_chunk(const struct sp_shape *sh)
{
    const struct sp_model *m = &sh->model;

    return (uint64_t)sh->mlp_rows *
           (uint64_t)(m->hidden + 2 * sh->up_width + (m->arch == SP_ARCH_LLAMA ? 2 : 1) * m->mlp);
}

/* The address of a part in its buffer; NULL: it is not kept. */
static void *part_at(const struct sp_shape *sh, bool keep_outputs, void *base, enum part p)
{
    enum sp_recompute mode = mode_of(keep_outputs);

    return keeps(mode, p) ? sp_skip(sh, base, elements_before(sh, mode, kept[p].tensor, p)) : NULL;
}

struct sp_pre_saved sp_shape_pre_view(const struct sp_shape *sh, bool keep_outputs, void *base)
{
    return (struct sp_pre_saved){.n1 = part_at(sh, keep_outputs, base, N1),
                                 .stats = part_at(sh, keep_outputs, base, STATS1)};
}

struct sp_post_saved sp_shape_post_view(const struct sp_shape *sh, bool keep_outputs, void *base)
{
    return (struct sp_post_saved){.r = part_at(sh, keep_outputs, base, R),
                                  .u = part_at(sh, keep_outputs, base, U),
                                  .n2 = part_at(sh, keep_outputs, base, N2),
                                  .g = part_at(sh, keep_outputs, base, G),
                                  .stats = part_at(sh, keep_outputs, base, STATS2)};
}

struct sp_post_saved sp_shape_residual_view(const struct sp_shape *sh, void *base)
{
    return (struct sp_post_saved){.stats = base, .r = sp_skip(sh, base, elements_of(sh, STATS2))};
}
