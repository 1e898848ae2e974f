/*
 * Runs a layer's second half and the head on two devices that share heads, MLP and vocabulary, one
 * after the other. Together their tasks must compute what one device computes alone.
 */
#include "engine/codelets.h"
#include "model/tensor_parts.h"

enum { DEVICES = 2 };

/* A model in two parts, and the shapes of all of it and of one part. */
struct divided {
    struct sp_shape whole, part;
    struct sp_params params, held;
};

static void destroy_params(void *params)
{
    sp_params_destroy(params);
}

static struct divided *divide(const struct sp_shape *sh)
{
    struct divided *d = test_bytes(sizeof *d);
    struct sp_shape shared = *sh;

    *d = (struct divided){.whole = *sh};
    sp_shape_tensor(&shared, DEVICES, false);
    sp_shape_share_of(&shared, &d->part);
    assert_int_equal(sp_params_create(&sh->model, &d->params), 0);
    test_at_end(destroy_params, &d->params);
    assert_int_equal(sp_params_create(&shared.held, &d->held), 0);
    test_at_end(destroy_params, &d->held);
    return d;
}

/* A device's part of a block of weights. */
static struct tensor part_of(const struct divided *d, enum sp_block_kind kind, int device,
                             const struct tensor *whole)
{
    struct tensor t = tensor(sp_block_elements(&d->held.model, kind));

    sp_block_take_part(&(struct sp_divided_block){&d->params, &d->held, kind, 0}, device, whole->at,
                       t.at);
    return t;
}

/* Copies the columns of a device's heads, (T,q/2), out of (T,q), or back. */
static void heads(const struct divided *d, int device, bool back, float *whole, float *part)
{
    size_t n = (size_t)d->part.q_width, all = (size_t)d->whole.q_width;

    for (size_t r = 0; r < T; r++)
        for (size_t c = 0; c < n; c++) {
            float *w = &whole[r * all + (size_t)device * n + c], *p = &part[r * n + c];

            *(back ? w : p) = *(back ? p : w);
        }
}

static void assert_near(const float *a, const float *b, size_t n, const char *what)
{
    double square = 0, scale;

    for (size_t i = 0; i < n; i++)
        square += (double)b[i] * (double)b[i];
    scale = sqrt(square / (double)n);
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= 1e-5 * (fabs((double)b[i]) + scale)))
            fail_msg("%s[%zu] of %zu: %.9g in parts, %.9g", what, i, n, (double)a[i], (double)b[i]);
}

/* One device alone: y, dr, do, and g += . */
struct alone {
    struct tensor y, dr, d_o, g;
};

static struct alone run_alone(const struct sp_shape *sh, const struct tensor *x,
                              const struct tensor *o, const struct tensor *w,
                              const struct tensor *dy)
{
    struct alone a = {.y = tensor(x->n),
                      .dr = tensor(x->n),
                      .d_o = tensor(o->n),
                      .g = block(sh, SP_BLOCK_POST, 24)};
    struct tensor saved = tensor(sp_shape_post_saved(sh, true));
    struct tensor du = tensor((size_t)T * (size_t)sh->up_width);
    struct sp_post post = {
        .x = x->handle, .o = o->handle, .saved = saved.handle, .keep_outputs = true};
    struct sp_task_context ctx = test_context();

    sp_post_fwd_insert(&ctx, sh, &post, w->handle, a.y.handle, 0);
    sp_post_bwd_insert(&ctx, sh, &post, w->handle, a.g.handle, false, dy->handle, du.handle,
                       a.dr.handle, a.d_o.handle);
    sp_post_wgrad_insert(&ctx, sh, &post, w->handle, a.g.handle, dy->handle, du.handle, a.dr.handle,
                         0);
    starpu_task_wait_for_all();
    return a;
}

/* A device's parts of these tensors, and its terms of the sums. */
struct device {
    struct tensor o, w, g, r, u, act, y, du, dn, d_o;
};

static struct device new_device(const struct divided *d, int i, const struct tensor *o,
                                const struct tensor *w, const struct tensor *g)
{
    const struct sp_shape *sh = &d->part;
    size_t nx = (size_t)T * (size_t)sh->model.hidden, nu = (size_t)T * (size_t)sh->up_width;
    struct device v = {.o = tensor((size_t)T * (size_t)sh->q_width),
                       .w = part_of(d, SP_BLOCK_POST, i, w),
                       .g = part_of(d, SP_BLOCK_POST, i, g),
                       .r = tensor(nx),
                       .u = tensor(nu),
                       .act = tensor((size_t)T * (size_t)sh->model.mlp),
                       .y = tensor(nx),
                       .du = tensor(nu),
                       .dn = tensor(nx),
                       .d_o = tensor((size_t)T * (size_t)sh->q_width)};

    heads(d, i, false, o->at, v.o.at);
    return v;
}

/* The whole gradient from two parts that both began with the previous one. Tensors that both have
 * count once; norm2's gradient is not summed over devices. */
static float *gradient_of(const struct divided *d, const struct device v[DEVICES], size_t n)
{
    float *whole = floats(n);

    memset(whole, 0, n * sizeof *whole);
    for (int i = 0; i < DEVICES; i++)
        sp_block_put_part(&(struct sp_divided_block){&d->params, &d->held, SP_BLOCK_POST, 0}, i,
                          v[i].g.at, whole);
    return whole;
}

static void check_half(const struct sp_shape *sh)
{
    const struct divided *d = divide(sh);
    size_t nx = (size_t)T * (size_t)sh->model.hidden;
    struct tensor x = random_tensor(nx, 21), o = random_tensor((size_t)T * (size_t)sh->q_width, 22);
    struct tensor w = block(sh, SP_BLOCK_POST, 23), g = block(sh, SP_BLOCK_POST, 24);
    struct tensor dy = random_tensor(nx, 25), n2 = tensor(nx), stats = tensor(2 * T);
    struct tensor dr = tensor(nx), n2_again = tensor(nx);
    struct alone alone = run_alone(sh, &x, &o, &w, &dy);
    struct sp_task_context ctx = test_context();
    struct device v[DEVICES];
    float *whole;

    for (int i = 0; i < DEVICES; i++) {
        v[i] = new_device(d, i, &o, &w, &g);
        sp_out_fwd_insert(&ctx, &d->part, v[i].o.handle, v[i].w.handle, i == 0, NULL,
                          v[i].r.handle);
    }
    sp_sum_norm_insert(&ctx, sh, true, w.handle, v[0].r.handle, 2,
                       (struct sp_tensor *[]){v[1].r.handle, x.handle}, n2.handle, stats.handle, 0);
    sp_norm_again_insert(&ctx, sh, true, w.handle, v[0].r.handle, stats.handle, n2_again.handle);
    for (int i = 0; i < DEVICES; i++)
        sp_mlp_fwd_insert(&ctx, &d->part, n2.handle, v[i].w.handle, v[i].u.handle, v[i].act.handle,
                          i == 1, v[i].y.handle);
    sp_partial_sum_insert(&ctx, sh, v[0].y.handle, 2,
                          (struct sp_tensor *[]){v[1].y.handle, v[0].r.handle});
    starpu_task_wait_for_all();
    assert_near(v[0].y.at, alone.y.at, nx, "y");
    assert_near(n2_again.at, n2.at, nx, "n2 again");

    for (int i = 0; i < DEVICES; i++)
        sp_mlp_bwd_insert(&ctx, &d->part, v[i].u.handle, v[i].w.handle, dy.handle, v[i].du.handle,
                          v[i].dn.handle);
    sp_sum_norm_bwd_insert(&ctx, &d->part, true, false, v[0].w.handle, v[0].g.handle, v[0].r.handle,
                           stats.handle, v[0].dn.handle, 1, &v[1].dn.handle, dy.handle, dr.handle,
                           0);
    for (int i = 0; i < DEVICES; i++) {
        bool keeps = i == 0; /* the other recomputes the activations */

        sp_out_bwd_insert(&ctx, &d->part, dr.handle, v[i].w.handle, v[i].d_o.handle);
        sp_out_wgrad_insert(&ctx, &d->part, v[i].o.handle, dr.handle, v[i].g.handle);
        sp_mlp_wgrad_insert(&ctx, &d->part, n2.handle, v[i].u.handle,
                            keeps ? v[i].act.handle : NULL, dy.handle, v[i].du.handle,
                            v[i].g.handle, 0);
    }
    /* norm2's gradient is on device 0; copy it to device 1, as reduce_same in step.c would */
    starpu_task_wait_for_all();
    memcpy(v[1].g.at + d->part.gain, v[0].g.at + d->part.gain,
           (size_t)sh->model.hidden * sizeof(float));
    if (d->part.bias != (size_t)-1)
        memcpy(v[1].g.at + d->part.bias, v[0].g.at + d->part.bias,
               (size_t)sh->model.hidden * sizeof(float));
    assert_near(dr.at, alone.dr.at, nx, "dr");
    for (int i = 0; i < DEVICES; i++)
        heads(d, i, true, o.at, v[i].d_o.at);
    assert_near(o.at, alone.d_o.at, o.n, "do");
    whole = gradient_of(d, v, g.n);
    for (size_t i = 0; i < g.n; i++) /* skip the gaps between tensors */
        alone.g.at[i] = whole[i] == 0 ? 0 : alone.g.at[i];
    assert_near(whole, alone.g.at, g.n, "gradient");
}

static void check_head(const struct sp_shape *sh)
{
    const struct divided *d = divide(sh);
    enum sp_block_kind kind = sh->model.tied ? SP_BLOCK_TOKENS : SP_BLOCK_HEAD;
    int h = sh->model.hidden, V = sh->model.vocab;
    size_t nx = (size_t)(T * h);
    struct tensor n = random_tensor(nx, 31), table = block(sh, kind, 32), g = block(sh, kind, 33);
    struct tensor part[DEVICES], grad[DEVICES], dn[DEVICES], stats[DEVICES], kept[DEVICES];
    float *want = floats(nx), *want_g = copy(&g), *whole = floats(g.n);
    double loss = 1.5;
    int32_t all[T];
    const struct sp_logits head = head_of(sh, n.at, table.at, all);
    struct tally tally = tally_of(loss, 7);
    struct sp_tensor *ih[DEVICES];
    struct sp_task_context ctx = test_context();
    uint64_t seed = 34;

    for (int t = 0; t < T; t++)
        all[t] = draw_below(&seed, V);
    sp_cross_entropy(&head, &loss, want, want_g);
    for (int i = 0; i < DEVICES; i++) {
        int first, rows;
        int32_t *here = test_bytes(T * sizeof *here);

        sp_vocabulary_part(&sh->model, DEVICES, i, &first, &rows);
        for (int t = 0; t < T; t++)
            here[t] = all[t] >= first && all[t] < first + rows ? all[t] - first : -1;
        ih[i] = tensor_at(here, T, sizeof *here);
        part[i] = part_of(d, kind, i, &table);
        grad[i] = part_of(d, kind, i, &g);
        dn[i] = tensor(nx);
        stats[i] = tensor(2 * T);
        kept[i] = tensor((size_t)(T * sp_logits_ld(V)));
        /* device 0 keeps its logits, device 1 recomputes them */
        sp_logit_stats_insert(&ctx, &d->part, rows, n.handle, ih[i], part[i].handle,
                              stats[i].handle, i == 0 ? kept[i].handle : NULL);
    }
    for (int i = 0; i < DEVICES; i++) {
        int first, rows;

        sp_vocabulary_part(&sh->model, DEVICES, i, &first, &rows);
        sp_vocabulary_insert(&ctx, &d->part, rows, i == 1, n.handle, ih[i], part[i].handle,
                             grad[i].handle, DEVICES,
                             (struct sp_tensor *[]){stats[0].handle, stats[1].handle},
                             i == 0 ? kept[i].handle : NULL, dn[i].handle, tally.handle);
    }
    sp_partial_sum_insert(&ctx, sh, dn[0].handle, 1, &dn[1].handle);
    starpu_task_wait_for_all();
    assert_near(dn[0].at, want, nx, "dn");
    memcpy(whole, g.at, g.n * sizeof *whole); /* what lies between tensors */
    for (int i = 0; i < DEVICES; i++)
        sp_block_put_part(&(struct sp_divided_block){&d->params, &d->held, kind, -1}, i, grad[i].at,
                          whole);
    assert_near(whole, want_g, g.n, "gradient of the table");
    assert_true(fabs(tally.at[SP_TALLY_LOSS] - loss) < 1e-5 * loss &&
                tally.at[SP_TALLY_SUMSQ] == 7);
    for (int i = 0; i < DEVICES; i++) {
    }
}

static void each_divisible(void (*check)(const struct sp_shape *sh))
{
    for (int which = 0; which < SMALL_MODELS; which++) {
        struct sp_model m = small_model((enum small)which);
        struct sp_shape sh;

        m.heads *= DEVICES;
        m.kv_heads *= DEVICES;
        m.mlp *= DEVICES;
        sp_shape_init(&sh, &m, BATCH, SEQ, 3);
        sp_shape_cut(&sh, 0, 4);
        check(&sh);
    }
}

TEST(half)
{
    each_divisible(check_half);
}

TEST(head)
{
    each_divisible(check_head);
}

/* Ranges of a gradient to a tensor of their own and back; the norm without them. */
TEST(ranges)
{
    const struct sp_block_range range[] = {{0, 3}, {10, 1}, {90, 10}};
    struct tensor g = random_tensor(100, 61), part = tensor(14);
    float *before = copy(&g);
    double want = 2;
    struct tally tally = tally_of(0, want);
    struct sp_task_context ctx = test_context();

    sp_pack_insert(&ctx, 3, range, g.handle, part.handle);
    sp_sumsq_insert(&ctx, g.handle, 3, range, tally.handle, false);
    starpu_task_wait_for_all();
    assert_memory_equal(part.at, before, 3 * sizeof(float));
    assert_memory_equal(part.at + 3, before + 10, sizeof(float));
    assert_memory_equal(part.at + 4, before + 90, 10 * sizeof(float));
    for (int i = 3; i < 90; i++)
        want += i == 10 ? 0 : (double)before[i] * (double)before[i];
    for (int i = 0; i < 14; i++)
        part.at[i] += 1;
    sp_unpack_insert(&ctx, 3, range, part.handle, g.handle);
    starpu_task_wait_for_all();
    for (int i = 0; i < 100; i++)
        assert_true(g.at[i] == (i < 3 || i == 10 || i >= 90 ? before[i] + 1 : before[i]));
    assert_true(fabs(tally.at[SP_TALLY_SUMSQ] - want) < 1e-9 * want);
}

TEST_FIXTURE(start_one_worker, stop_one_worker)
