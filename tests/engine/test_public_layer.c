/*
 * Tests <starpipe/layer.h>: its tasks give the bits of the trainer's inserts that recompute norms
 * and activations, with and without positions; its sizes and offsets; its refusals.
 */
#include "engine/tensors.h"
#include "sinks/starpu/tensor.h"
#include "starpipe/layer.h"

enum { MICRO_BATCHES = 2 };

/* No two sizes alike; odd numbers of elements. */
static const struct sp_layer_config configs[] = {
    {SP_LAYER_GPT2, SP_LAYER_F32, .batch = 3, .seq = 7, .hidden = 15, .mlp = 41, .heads = 3,
     .head_dim = 5},
    {SP_LAYER_LLAMA, SP_LAYER_F32, .batch = 3, .seq = 7, .hidden = 19, .mlp = 23, .heads = 4,
     .head_dim = 6, .kv_heads = 2, .norm_eps = 1e-3f, .rope_theta = 500},
    {SP_LAYER_LLAMA, SP_LAYER_BF16, .batch = 1, .seq = 9, .hidden = 17, .mlp = 29, .heads = 2,
     .head_dim = 4},
};
enum { CONFIGS = sizeof configs / sizeof *configs };

/* The trainer's shape for a configuration. */
static struct sp_shape shape_of(const struct sp_layer_config *c)
{
    struct sp_model m = {.arch = c->style == SP_LAYER_LLAMA ? SP_ARCH_LLAMA : SP_ARCH_GPT2,
                         .layers = 1,
                         .hidden = c->hidden,
                         .heads = c->heads,
                         .kv_heads = c->kv_heads ? c->kv_heads : c->heads,
                         .head_dim = c->head_dim,
                         .mlp = c->mlp,
                         .vocab = 11,
                         .positions = 64,
                         .norm_eps = c->norm_eps > 0 ? c->norm_eps : 1e-5f,
                         .rope.theta = c->rope_theta > 0 ? c->rope_theta : 10000};
    struct sp_shape sh;

    sp_shape_init(&sh, &m, c->batch, c->seq, 1);
    sh.dtype = c->dtype == SP_LAYER_BF16 ? SP_BF16 : SP_F32;
    return sh;
}

/* ---- data ------------------------------------------------------------------------------- */

struct buffers {
    void *at[SP_LAYER_BUFFERS];
    size_t bytes[SP_LAYER_BUFFERS];
    starpu_data_handle_t t[SP_LAYER_BUFFERS];
};

static bool is_shared(int buffer)
{
    return buffer < SP_LAYER_X;
}

/* Fills a buffer that the program writes; equal seeds give equal numbers. Gradients of parameters
 * do not start at 0. */
static void put_numbers(const struct sp_layer *l, enum sp_layer_buffer b, uint64_t seed, void *at)
{
    size_t n = sp_layer_elements(l, b);
    bool parameter = b < SP_LAYER_G_NORM1;
    float *x = malloc(n * sizeof *x);

    assert_non_null(x);
    fill(x, n, seed + (uint64_t)b, parameter ? 0.3f : 1);
    for (size_t i = 0; i < n; i++) {
        if (sp_layer_element_bytes(l, b) == 2)
            ((uint16_t *)at)[i] = sp_bf16(x[i]);
        else
            ((float *)at)[i] = x[i];
    }
    free(x);
}

static void make(const struct sp_layer *l, uint64_t seed, const struct buffers *shares,
                 struct buffers *m)
{
    for (int b = 0; b < SP_LAYER_BUFFERS; b++) {
        size_t n = sp_layer_elements(l, b), bytes = sp_layer_element_bytes(l, b);

        if (shares && is_shared(b)) {
            m->t[b] = shares->t[b];
            continue;
        }
        m->bytes[b] = n * bytes;
        m->at[b] = malloc(m->bytes[b]);
        assert_non_null(m->at[b]);
        memset(m->at[b], 0xff, m->bytes[b]); /* NaN of either type */
        if (is_shared(b) || b == SP_LAYER_X || b == SP_LAYER_DY)
            put_numbers(l, b, seed, m->at[b]);
        starpu_vector_data_register(&m->t[b], STARPU_MAIN_RAM, (uintptr_t)m->at[b], (uint32_t)n,
                                    bytes);
    }
}

static void drop(const struct buffers *shares, struct buffers *m)
{
    for (int b = shares ? SP_LAYER_X : 0; b < SP_LAYER_BUFFERS; b++) {
        starpu_data_unregister(m->t[b]);
        free(m->at[b]);
    }
}

/* ---- tasks ------------------------------------------------------------------------------ */

/* Runs the trainer's inserts, without keeping outputs of norms and activations. */
static void insert_all(const struct sp_shape *sh, struct sp_tensor *const *t)
{
    struct sp_task_context ctx = test_context();
    struct sp_tensor *wn = t[SP_LAYER_W_NORM1], *wq = t[SP_LAYER_W_QKV], *wp = t[SP_LAYER_W_POST];
    struct sp_tensor *gn = t[SP_LAYER_G_NORM1], *gq = t[SP_LAYER_G_QKV], *gp = t[SP_LAYER_G_POST];
    struct sp_tensor *dq = t[SP_LAYER_DQ], *du = t[SP_LAYER_DU], *dr = t[SP_LAYER_DR];
    struct sp_pre pre = {t[SP_LAYER_X], t[SP_LAYER_PRE], t[SP_LAYER_Q], t[SP_LAYER_KV], false};
    struct sp_post post = {
        .x = t[SP_LAYER_X], .o = t[SP_LAYER_O], .saved = t[SP_LAYER_POST], .keep_outputs = false};
    struct sp_attn_keys keys = {.len = sh->seq, .kv = t[SP_LAYER_KV], .dkv = t[SP_LAYER_DKV]};
    struct sp_attn at = {.q_len = sh->seq,
                         .begins = true,
                         .ends = true,
                         .n_keys = 1,
                         .keys = &keys,
                         .q = t[SP_LAYER_Q],
                         .o = t[SP_LAYER_O],
                         .lse = t[SP_LAYER_LSE]};

    sp_pre_fwd_insert(&ctx, sh, &pre, wn, wq, 0);
    sp_attn_fwd_insert(&ctx, sh, &at, 0);
    sp_post_fwd_insert(&ctx, sh, &post, wp, t[SP_LAYER_Y], 0);
    sp_post_bwd_insert(&ctx, sh, &post, wp, gp, false, t[SP_LAYER_DY], du, dr, t[SP_LAYER_DO]);
    sp_attn_bwd_insert(&ctx, sh, &at, true, t[SP_LAYER_DO], dq, 0);
    sp_pre_bwd_insert(&ctx, sh, &pre, wn, wq, gn, NULL, false, dq, t[SP_LAYER_DKV], dr,
                      t[SP_LAYER_DX]);
    sp_post_wgrad_insert(&ctx, sh, &post, wp, gp, t[SP_LAYER_DY], du, dr, 0);
    sp_pre_wgrad_insert(&ctx, sh, &pre, wn, dq, t[SP_LAYER_DKV], gq, 0);
}

static void run_inserts(const struct sp_shape *sh, const starpu_data_handle_t *handle)
{
    struct sp_tensor on[SP_LAYER_BUFFERS], *t[SP_LAYER_BUFFERS];

    for (int b = 0; b < SP_LAYER_BUFFERS; b++) {
        on[b] = sp_tensor_on(handle[b]);
        t[b] = &on[b];
    }
    insert_all(sh, t);
}

static void run_public(const struct sp_layer *l, const starpu_data_handle_t *t, bool placed)
{
    typedef void (*insert)(const struct sp_layer *, const starpu_data_handle_t *,
                           const struct sp_layer_position *);
    static const insert all[] = {sp_layer_pre_fwd_insert,    sp_layer_attn_fwd_insert,
                                 sp_layer_post_fwd_insert,   sp_layer_post_bwd_insert,
                                 sp_layer_attn_bwd_insert,   sp_layer_pre_bwd_insert,
                                 sp_layer_post_wgrad_insert, sp_layer_pre_wgrad_insert};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct sp_layer_position at = {0, context_order + 1};

        all[i](l, t, placed ? &at : NULL);
        context_order += placed;
    }
}

/* ---- the tests -------------------------------------------------------------------------- */

static void check_bits(const struct sp_layer_config *c, bool placed)
{
    const struct sp_shape sh = shape_of(c);
    struct buffers ours[MICRO_BATCHES], trainers[MICRO_BATCHES];
    struct sp_layer *l;

    assert_int_equal(sp_layer_create(c, &l), 0);
    for (int m = 0; m < MICRO_BATCHES; m++) {
        make(l, 100 + 50 * (uint64_t)m, m ? ours : NULL, &ours[m]);
        make(l, 100 + 50 * (uint64_t)m, m ? trainers : NULL, &trainers[m]);
        run_public(l, ours[m].t, placed);
        run_inserts(&sh, trainers[m].t);
    }
    starpu_task_wait_for_all();
    for (int m = 0; m < MICRO_BATCHES; m++)
        for (int b = m ? SP_LAYER_X : 0; b < SP_LAYER_BUFFERS; b++) {
            bool kept = b == SP_LAYER_PRE || b == SP_LAYER_POST; /* laid out otherwise */

            if (!kept && memcmp(ours[m].at[b], trainers[m].at[b], ours[m].bytes[b]))
                fail_msg("style %d, dtype %d: buffer %d of micro-batch %d differs", c->style,
                         c->dtype, b, m);
        }
    for (int m = MICRO_BATCHES - 1; m >= 0; m--) {
        drop(m ? ours : NULL, &ours[m]);
        drop(m ? trainers : NULL, &trainers[m]);
    }
    sp_layer_destroy(l);
}

static void test_bits(void **state)
{
    (void)state;
    for (int i = 0; i < CONFIGS; i++) {
        check_bits(&configs[i], true);
        check_bits(&configs[i], false);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    for (int i = 0; i < CONFIGS; i++) {
        const struct sp_shape sh = shape_of(&configs[i]);
        const size_t offsets[SP_LAYER_WEIGHTS] = {0,      sh.norm_bias, sh.qkv,  sh.qkv_bias,
                                                  sh.out, sh.out_bias,  sh.gain, sh.bias,
                                                  sh.up,  sh.up_bias,   sh.down, sh.down_bias};
        size_t T = (size_t)sh.rows, h = (size_t)sh.model.hidden, f = (size_t)sh.model.mlp;
        size_t up = (size_t)sh.up_width, two = sizeof(float) / sp_shape_elem(&sh) * 2;
        struct sp_layer *l;

        assert_int_equal(sp_layer_create(&configs[i], &l), 0);
        for (int w = 0; w < SP_LAYER_WEIGHTS; w++)
            assert_int_equal(sp_layer_offset(l, w), offsets[w]);
        for (size_t w = SP_LAYER_OUT, last = 0; w < SP_LAYER_WEIGHTS; w++)
            if (offsets[w] != (size_t)-1) {
                assert_true(w == SP_LAYER_OUT || offsets[w] > last);
                last = offsets[w];
            }
        assert_int_equal(sp_layer_offset(l, SP_LAYER_WEIGHTS), (size_t)-1);
        assert_true(sp_layer_elements(l, SP_LAYER_PRE) >= T * (h + two));
        assert_true(sp_layer_elements(l, SP_LAYER_POST) >= T * (2 * h + up + f + two));
        assert_int_equal(sp_layer_elements(l, SP_LAYER_LSE), T * (size_t)sh.model.heads);
        assert_int_equal(sp_layer_elements(l, SP_LAYER_KV), T * (size_t)sh.kv_width);
        assert_int_equal(sp_layer_elements(l, SP_LAYER_BUFFERS), 0);
        sp_layer_destroy(l);
    }
}

static void test_refusals(void **state)
{
    static const struct sp_layer_config good = {
        .batch = 1, .seq = 2, .hidden = 6, .mlp = 5, .heads = 3, .head_dim = 2};
    static const struct refused {
        const char *line;
        size_t field;
        int value;
    } table[] = {
        {"no style 2 of dtype 0", offsetof(struct sp_layer_config, style), 2},
        {"no style 0 of dtype -1", offsetof(struct sp_layer_config, dtype), -1},
        {"0 sequences of 2 tokens", offsetof(struct sp_layer_config, batch), 0},
        {"1 sequences of -3 tokens", offsetof(struct sp_layer_config, seq), -3},
        {"hidden size is 0", offsetof(struct sp_layer_config, hidden), 0},
        {"MLP width is -1", offsetof(struct sp_layer_config, mlp), -1},
        {"3 heads of size 3 do not make a hidden size of 6",
         offsetof(struct sp_layer_config, head_dim), 3},
        {"3 heads are not a multiple of 2 kv heads", offsetof(struct sp_layer_config, kv_heads), 2},
        {"a micro-batch has at most", offsetof(struct sp_layer_config, batch), INT32_MAX},
        {"hidden size is 2147483647, it must be at most", offsetof(struct sp_layer_config, hidden),
         INT32_MAX},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sp_layer_config c = good;
        struct sp_layer *l = NULL;
        struct capture said;
        int err;

        memcpy((char *)&c + table[i].field, &table[i].value, sizeof table[i].value);
        err = CAPTURED(&said, sp_layer_create(&c, &l));
        if (err != -EINVAL || l || !strstr(said.text, table[i].line))
            fail_msg("'%s': %d, said: %s", table[i].line, err, said.text);
    }
}

/* Ends the child. */
static void misuse(void *arg)
{
    const int *how = arg;
    const struct sp_layer_position nowhere = {.worker = 1, .order = 1};
    struct buffers m;
    struct sp_layer *l;

    start_starpu(1, &sp_order_strict);
    if (sp_layer_create(&configs[0], &l))
        _exit(3);
    make(l, 1, NULL, &m);
    if (*how == 0)
        m.t[SP_LAYER_KV] = NULL;
    if (*how == 1)
        m.t[SP_LAYER_KV] = m.t[SP_LAYER_Q];
    sp_layer_pre_fwd_insert(l, m.t, *how == 2 ? &nowhere : NULL);
}

static void test_misuse(void **state)
{
    static const char *const lines[] = {"SP_LAYER_KV has no handle",
                                        "SP_LAYER_KV has 1260 bytes, it needs 2520",
                                        "there is no worker 1: StarPU has 1"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct capture said;
        int status = in_child(misuse, &i, &said);

        if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 || !strstr(said.text, lines[i]))
            fail_msg("%s: status %x, said: %s", lines[i], (unsigned)status, said.text);
    }
}

TEST_GROUP(public_layer)
{
    const struct CMUnitTest apart[] = {cmocka_unit_test(test_misuse)};
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_sizes),
                                       cmocka_unit_test(test_refusals)};

    return cmocka_run_group_tests(apart, NULL, NULL) +
           cmocka_run_group_tests(tests, start_one_worker, stop_one_worker);
}
