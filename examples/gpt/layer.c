/*
 * One transformer layer as StarPU tasks, forward and backward, with the codelets of starpipe
 * (<starpipe/layer.h>) and its scheduler (<starpipe/order.h>). Two micro-batches go through it:
 *
 *   F0 F1   forward:  norm and QKV product, attention, output product and MLP: three tasks each
 *   B0 B1   backward: the same in reverse, from the gradient of y to the gradient of x
 *   W0 W1   gradients of the weights, which nothing else waits for: two tasks each
 *
 *   cc $(pkg-config --cflags starpipe starpu-1.4) -o layer layer.c $(pkg-config --libs starpipe starpu-1.4)
 *   ./layer                      GPT-2 style, in just that order, on the first CPU worker
 *   ./layer llama                Llama style
 *   STARPU_SCHED=lws ./layer     another scheduler, all CPU workers, any order that the data allow
 *
 * A program that does not link libstarpipe gets the scheduler from the environment:
 * STARPU_SCHED_LIB=$(pkg-config --variable=scheduler starpipe) STARPU_SCHED=starpipe. See ../scheduler/order.c.
 *
 * The program checks itself: gradients agree with differences of the loss (exit status 0) or do not
 * (1). 77: StarPU has no CPU worker.
 */
#include <starpipe/layer.h>
#include <starpipe/order.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MICRO_BATCHES = 2 };

static struct sp_layer *layer;
/* By enum sp_layer_buffer. The first ones, parameters and their gradients, micro-batches share. */
static starpu_data_handle_t data[MICRO_BATCHES][SP_LAYER_BUFFERS];
static float *memory[MICRO_BATCHES][SP_LAYER_BUFFERS];

/* ---- tasks ------------------------------------------------------------------------------ */

/* The next place in the program of the first CPU worker. Other schedulers know no programs: NULL, and a
 * task runs where and when StarPU likes. */
static const struct sp_layer_position *next_position(void)
{
    static struct sp_layer_position at;

    if (strcmp(starpu_sched_get_sched_policy()->policy_name, "starpipe"))
        return NULL;
    at.worker = starpu_worker_get_by_type(STARPU_CPU_WORKER, 0);
    at.order++;
    return &at;
}

static void submit_forward(const starpu_data_handle_t *t)
{
    sp_layer_pre_fwd_insert(layer, t, next_position());  /* x -> q, kv */
    sp_layer_attn_fwd_insert(layer, t, next_position()); /* q, kv -> o */
    sp_layer_post_fwd_insert(layer, t, next_position()); /* x, o -> y */
}

static void submit_backward(const starpu_data_handle_t *t)
{
    sp_layer_post_bwd_insert(layer, t, next_position()); /* dy -> du, dr, do */
    sp_layer_attn_bwd_insert(layer, t, next_position()); /* do -> dq, dkv */
    sp_layer_pre_bwd_insert(layer, t, next_position());  /* dr, dq, dkv -> dx */
}

static void submit_weights(const starpu_data_handle_t *t)
{
    sp_layer_post_wgrad_insert(layer, t, next_position()); /* dy, du, dr */
    sp_layer_pre_wgrad_insert(layer, t, next_position());  /* dq, dkv */
}

/* The program. No call waits: StarPU sees that one task writes q and another reads it, and keeps them in
 * order. By the data alone F1 could begin before F0 has ended; positions settle that. */
static void submit_step(void)
{
    for (int m = 0; m < MICRO_BATCHES; m++)
        submit_forward(data[m]);
    for (int m = 0; m < MICRO_BATCHES; m++)
        submit_backward(data[m]);
    for (int m = 0; m < MICRO_BATCHES; m++)
        submit_weights(data[m]);
}

/* ---- data ------------------------------------------------------------------------------- */

static void register_buffer(int m, enum sp_layer_buffer b)
{
    size_t n = sp_layer_elements(layer, b), bytes = sp_layer_element_bytes(layer, b);
    bool input = b == SP_LAYER_X || b == SP_LAYER_DY;
    float scale = b < SP_LAYER_G_NORM1 ? 0.3f : input ? 1 : b < SP_LAYER_X ? 0 : NAN;

    if (m > 0 && b < SP_LAYER_X) { /* shared */
        data[m][b] = data[0][b];
        memory[m][b] = memory[0][b];
        return;
    }
    memory[m][b] = malloc(n * bytes);
    if (!memory[m][b])
        exit(1);
    for (size_t i = 0; i < n; i++) /* tasks add to gradients of parameters, and write all others */
        memory[m][b][i] = scale * (2 * (float)rand() / (float)RAND_MAX - 1);
    starpu_vector_data_register(&data[m][b], STARPU_MAIN_RAM, (uintptr_t)memory[m][b], n, bytes);
}

static void unregister_buffer(int m, enum sp_layer_buffer b)
{
    if (m > 0 && b < SP_LAYER_X)
        return;
    starpu_data_unregister(data[m][b]);
    free(memory[m][b]);
}

/* ---- the check -------------------------------------------------------------------------- */

/* A loss of which dy is the gradient by y: the sum of dy y over all micro-batches. */
static double loss(void)
{
    double sum = 0;

    for (int m = 0; m < MICRO_BATCHES; m++)
        submit_forward(data[m]);
    for (int m = 0; m < MICRO_BATCHES; m++) {
        starpu_data_acquire(data[m][SP_LAYER_Y], STARPU_R); /* waits for the task that writes it */
        for (size_t i = 0; i < sp_layer_elements(layer, SP_LAYER_Y); i++)
            sum += (double)memory[m][SP_LAYER_Y][i] * memory[m][SP_LAYER_DY][i];
        starpu_data_release(data[m][SP_LAYER_Y]);
    }
    return sum;
}

/* The loss where `by` times the sign of its gradient has been added to each element of a buffer. */
static double loss_at(int m, enum sp_layer_buffer b, const float *gradient, float by)
{
    starpu_data_acquire(data[m][b], STARPU_RW); /* waits for the tasks that read it */
    for (size_t i = 0; i < sp_layer_elements(layer, b); i++)
        memory[m][b][i] += gradient[i] < 0 ? -by : by;
    starpu_data_release(data[m][b]);
    return loss();
}

/*
 * Moved along the sign of its gradient g, a buffer changes the loss by the sum of |g| a step: a wrong
 * element of g shows, whatever the others are. Rounding y to 1e-7 of itself leaves about 1e-5 of the
 * difference over a step of 1e-3, and so does the curvature of the loss; ten times that is allowed.
 */
static bool agrees(const char *name, int m, enum sp_layer_buffer b, enum sp_layer_buffer gradient)
{
    const float step = 1.0f / 1024, *g = memory[m][gradient];
    double sum = 0, difference, off;

    starpu_data_acquire(data[m][gradient], STARPU_R);
    for (size_t i = 0; i < sp_layer_elements(layer, gradient); i++)
        sum += fabs(g[i]);
    starpu_data_release(data[m][gradient]);
    difference = loss_at(m, b, g, step);
    difference -= loss_at(m, b, g, -2 * step);
    loss_at(m, b, g, step); /* where it was */
    off = fabs(difference / (2 * step) / sum - 1);
    printf("%-18s |g| %9.4f, off by %.1e: %s\n", name, sum, off, off < 1e-4 ? "right" : "wrong");
    return off < 1e-4;
}

int main(int argc, char **argv)
{
    bool llama = argc > 1 && !strcmp(argv[1], "llama"), right;
    struct sp_layer_config config = {.style = llama ? SP_LAYER_LLAMA : SP_LAYER_GPT2,
                                     .dtype = SP_LAYER_F32,
                                     .batch = 2,
                                     .seq = 16,
                                     .hidden = 32,
                                     .heads = 4,
                                     .kv_heads = llama ? 2 : 4,
                                     .head_dim = 8,
                                     .mlp = 96};
    struct starpu_conf conf;

    starpu_conf_init(&conf);
    conf.sched_policy = getenv("STARPU_SCHED") ? NULL : &sp_order_strict;
    if (starpu_init(&conf) || !starpu_cpu_worker_get_count())
        return 77;
    if (sp_layer_create(&config, &layer))
        return 1; /* it said why */
    for (int m = 0; m < MICRO_BATCHES; m++)
        for (int b = 0; b < SP_LAYER_BUFFERS; b++)
            register_buffer(m, b);

    submit_step();
    printf("scheduler %s\n", starpu_sched_get_sched_policy()->policy_name);
    right = agrees("x of micro-batch 0", 0, SP_LAYER_X, SP_LAYER_DX) &
            agrees("x of micro-batch 1", 1, SP_LAYER_X, SP_LAYER_DX) &
            agrees("norm1", 0, SP_LAYER_W_NORM1, SP_LAYER_G_NORM1) &
            agrees("QKV", 0, SP_LAYER_W_QKV, SP_LAYER_G_QKV) &
            agrees("output and MLP", 0, SP_LAYER_W_POST, SP_LAYER_G_POST);

    for (int m = 0; m < MICRO_BATCHES; m++)
        for (int b = 0; b < SP_LAYER_BUFFERS; b++)
            unregister_buffer(m, b);
    sp_layer_destroy(layer);
    starpu_shutdown();
    return !right;
}
