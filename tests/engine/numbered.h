/* Tasks that fill a vector with numbers and that read it again, for tests of where vectors are. */
#ifndef SP_TESTS_ENGINE_NUMBERED_H
#define SP_TESTS_ENGINE_NUMBERED_H

#include "engine/support.h"
#include "sinks/starpu/sink.h"
#include "sinks/starpu/tensor.h"

static int wrong, reads; /* numbers that were not as written; vectors read */

static void write_cpu(void *buffers[], void *arg)
{
    struct starpu_vector_interface *v = buffers[0];
    float *x = (float *)STARPU_VECTOR_GET_PTR(v);

    for (size_t i = 0; i < STARPU_VECTOR_GET_NX(v); i++)
        x[i] = (float)((size_t)(uintptr_t)arg + i);
}

static void read_cpu(void *buffers[], void *arg)
{
    struct starpu_vector_interface *v = buffers[0];
    const float *x = (const float *)STARPU_VECTOR_GET_PTR(v);

    for (size_t i = 0; i < STARPU_VECTOR_GET_NX(v); i++)
        __atomic_add_fetch(&wrong, x[i] != (float)((size_t)(uintptr_t)arg + i), __ATOMIC_RELAXED);
    __atomic_add_fetch(&reads, 1, __ATOMIC_RELAXED);
}

static struct starpu_codelet write_cl = {
    .cpu_funcs = {write_cpu}, .nbuffers = 1, .modes = {STARPU_W}, .name = "write"};
static struct starpu_codelet read_cl = {
    .cpu_funcs = {read_cpu}, .nbuffers = 1, .modes = {STARPU_R}, .name = "read"};

/* `value` is the first number. */
static void submit(struct starpu_codelet *cl, struct sp_tensor *tensor, int value)
{
    struct starpu_task *t = starpu_task_create();

    t->cl = cl;
    t->handles[0] = sp_handle(tensor);
    t->cl_arg = (void *)(uintptr_t)value;
    assert_int_equal(starpu_task_submit(t), 0);
}

#endif
