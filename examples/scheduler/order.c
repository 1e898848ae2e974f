/*
 * A plain StarPU program whose workers follow programs, with starpipe's scheduler and nothing else
 * of starpipe: two stages, 1F1B over four micro-batches.
 *
 *   cc order.c -o order $(pkg-config --cflags --libs starpu-1.4)
 *   STARPU_SCHED_LIB=$(pkg-config --variable=scheduler starpipe) STARPU_SCHED=starpipe ./order
 *
 * A task belongs to a program when it may run on one worker only (workerids) and has a position
 * there (workerorder: 1, 2, 3, ... without holes). Submission is by micro-batch here, and stage 0
 * could go through its forwards at once; still each worker waits for its next position. Under
 * another policy the order is another one: the program says so and exits 1. starpipe-ready, the
 * other policy of the library, lets a worker overtake what is not ready.
 */
#include <starpu.h>
#include <starpu_scheduler.h>
#include <stdio.h>
#include <string.h>

enum { STAGES = 2, MICRO_BATCHES = 4, OPS = 2 * MICRO_BATCHES };

/* 1F1B: what each stage runs, in order. */
static const char *const programs[STAGES][OPS] = {
    {"F0", "F1", "B0", "F2", "B1", "F3", "B2", "B3"},
    {"F0", "B0", "F1", "B1", "F2", "B2", "F3", "B3"},
};
static const char *ran[STAGES][OPS];
static int count[STAGES];

static void run(void *buffers[], void *name)
{
    int stage = starpu_worker_get_id_check();

    (void)buffers;
    ran[stage][count[stage]++] = name;
}

static struct starpu_codelet codelet = {
    .cpu_funcs = {run}, .nbuffers = 1, .modes = {STARPU_RW}, .name = "op"};

static int submit(int stage, const char *op, starpu_data_handle_t handle)
{
    static uint32_t masks[STAGES][1] = {{1u << 0}, {1u << 1}};
    struct starpu_task *task = starpu_task_create();
    unsigned position = 0;

    while (strcmp(programs[stage][position++], op))
        continue;
    task->cl = &codelet;
    task->cl_arg = (void *)programs[stage][position - 1];
    task->handles[0] = handle; /* the micro-batch: forward through the stages, and back */
    task->workerids = masks[stage];
    task->workerids_len = 1;
    task->workerorder = position;
    return starpu_task_submit(task);
}

int main(void)
{
    starpu_data_handle_t batches[MICRO_BATCHES];
    struct starpu_conf conf;
    const char *policy;
    int wrong = 0;

    starpu_conf_init(&conf);
    conf.ncpus = STAGES;
    conf.ncuda = conf.nopencl = conf.nhip = 0;
    if (starpu_init(&conf) || starpu_cpu_worker_get_count() != STAGES)
        return 77;
    /* StarPU only warns when it finds no such policy, and takes its own. */
    policy = starpu_sched_get_sched_policy()->policy_name;

    for (int i = 0; i < MICRO_BATCHES; i++) {
        char f[] = {'F', (char)('0' + i), 0}, b[] = {'B', (char)('0' + i), 0};

        starpu_void_data_register(&batches[i]);
        for (int s = 0; s < STAGES; s++)
            wrong |= submit(s, f, batches[i]);
        for (int s = STAGES - 1; s >= 0; s--)
            wrong |= submit(s, b, batches[i]);
    }
    starpu_task_wait_for_all();
    for (int s = 0; s < STAGES; s++) {
        printf("stage %d ran", s);
        for (int k = 0; k < OPS; k++) {
            printf(" %s", ran[s][k]);
            wrong |= strcmp(ran[s][k], programs[s][k]) != 0;
        }
        printf("\n");
    }
    printf("policy %s: %s\n", policy, wrong ? "not in program order" : "in program order");
    wrong |= strcmp(policy, "starpipe") != 0;
    for (int i = 0; i < MICRO_BATCHES; i++)
        starpu_data_unregister(batches[i]);
    starpu_shutdown(); /* unloads the library, the policy's name with it */
    return wrong;
}
