/* A run: the graph of a plan, its steps, and what they leave behind. */
#include "parity/run.h"
#include "sinks/starpu/cuda.h"
#include "sinks/starpu/cuda_memory.h"
#include "offload/host.h"
#include "starpipe/order.h"
#include "graphs/count.h"
#include "graphs/create.h"
#include "transport/transport.h"
#include "sinks/starpu/sink.h"
#include "sp_error.h"
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { DISK_BYTES = 64 << 20, IDLE_BYTES = 1 << 20 };

/* Two workers in one process, so that stages share them; one worker each if there are several
 * processes. */
static int workers_of(const struct session *s)
{
    return s->world.size > 1 ? 1 : 2;
}

/* Chooses workers as the program does: GPUs if there are any, unless SP_DEVICE says otherwise. */
static void choose_workers(struct session *s, struct starpu_conf *conf)
{
    const char *device = getenv("SP_DEVICE");
    int devices = device && !strcmp(device, "cpu") ? 0 : sp_cuda_devices(false);
    struct sp_placement like = {.world = s->world, .n_local = SP_MAX_GPUS};

    if (devices)
        sp_placement_use_gpus(&like, devices);
    s->devices = devices;
    conf->precedence_over_environment_variables = 1;
    conf->ncpus = devices ? 0 : workers_of(s);
    conf->ncuda = like.gpus;
    conf->nopencl = conf->nhip = 0;
    conf->use_explicit_workers_cuda_gpuid = devices > 0;
    for (int i = 0; i < like.gpus; i++)
        conf->workers_cuda_gpuid[i] = (unsigned)like.gpu[i];
}

/* From GPUs activations go to main memory. */
static void open_tier(struct session *s)
{
    int node = s->disk ? sp_disk_register(s->disk) : STARPU_MAIN_RAM;

    must(node < 0 ? ENOSPC : 0, "memory node of a disk");
    s->tier = (unsigned)node;
}

void session_start(struct session *s, bool ready, bool offloads)
{
    static const struct sp_host_pins pins = {sp_cuda_pin, sp_cuda_unpin};
    struct starpu_conf conf;

    starpu_conf_init(&conf);
    choose_workers(s, &conf);
    s->ready = ready;
    s->offloads = offloads;
    s->disk = NULL;
    if (offloads) {
        setenv("STARPU_PREFETCH", "0", 1); /* it would fetch what has just been evicted */
        sp_host_start(s->devices ? SIZE_MAX : IDLE_BYTES, s->devices ? &pins : NULL);
    }
    if (offloads && !s->devices)
        must(sp_disk_create(".", DISK_BYTES, sp_transport_abort, &s->disk), "disk");
    conf.sched_policy = ready ? &sp_order_ready : &sp_order_strict;
    must(sp_transport_start(&conf), "StarPU");
    starpu_profiling_status_set(STARPU_PROFILING_ENABLE);
    if (s->devices)
        must(sp_cuda_start(), "CUDA");
    open_tier(s);
}

void session_stop(struct session *s)
{
    if (s->devices)
        sp_cuda_stop();
    sp_transport_stop();
    sp_disk_destroy(s->disk);
    if (s->offloads) {
        sp_host_stop();
        unsetenv("STARPU_PREFETCH");
    }
}

/* Plans the evictions. Rates are made up, so that every run of a plan chooses the same. */
static void plan_offload(const struct setup *s, struct sp_offload *offload)
{
    struct sp_offload_request want = {.mode = s->offloads,
                                      .keys = (enum sp_offload_keys)s->args.layout.offload_keys,
                                      .limit = (int64_t)s->args.layout.memory_limit,
                                      .recompute = s->recompute,
                                      .every = s->every,
                                      .rates = {1e9, 1e9},
                                      .speed = {1e-10, 1e-10}};
    int64_t most = 0;

    must(sp_offload_create(&s->plan, &s->shape, &want, offload), "offload");
    for (int k = 0; k < offload->stages; k++)
        most += offload->evictions[k].most_evicted;
    must(sp_offload_apply(offload, &s->shape, (struct sp_plan *)&s->plan), "evictions");
    must(most + most / 8 > DISK_BYTES ? ENOSPC : 0, "room for what leaves");
}

/* ---- results -------------------------------------------------------------------------- */

struct gathering {
    struct result *r;
    int field;
    size_t at;
};

static int gather_block(void *arg, enum sp_block_kind kind, int layer, const float *w, size_t n)
{
    struct gathering *to = arg;
    struct result *r = to->r;
    float *more = realloc(r->field[to->field], (to->at + n) * sizeof *more);

    must(!more, "memory");
    memcpy(more + to->at, w, n * sizeof *w);
    r->field[to->field] = more;
    if (to->field == SP_FIELD_G) {
        must(r->blocks == MOST_BLOCKS, "blocks");
        r->block[r->blocks++] = (struct block_place){kind, layer, to->at};
        r->n = to->at + n;
    }
    to->at += n;
    return 0;
}

static void gather(struct sp_graph *g, enum sp_field field, struct result *r)
{
    struct gathering to = {.r = r, .field = (int)field};

    must(sp_checkpoint_each(g, field, gather_block, &to), "gathering");
    sp_transport_barrier();
}

static void note_step(const struct sp_step_report *report, int k, struct result *r)
{
    r->loss[k] = report->loss;
    r->norm[k] = report->grad_norm;
    for (int i = 0; i < r->stages; i++) {
        const struct sp_stage_report *st = &report->stages[i];

        r->buffers[k][i] = (int64_t)st->pool_bytes;
        r->alive |= st->live_bytes > 0;
        r->stage[i].sent = (int64_t)st->bytes_sent;
        r->stage[i].messages = st->messages_sent;
        r->stage[i].left = (int64_t)st->left_bytes;
        r->stage[i].returned = (int64_t)st->returned_bytes;
        r->stage[i].peak = (int64_t)st->peak_bytes;
        r->stage[i].live = (int64_t)st->live_bytes;
        r->stage[i].buffers = (int64_t)st->pool_bytes;
    }
}

static void count_sent(void *arg, const struct sp_action *a)
{
    struct result *r = arg;

    if (a->kind == SP_ACTION_EVICT)
        r->stage[a->stage].evicted += a->bytes;
    else if (a->kind == SP_ACTION_FETCH)
        r->stage[a->stage].fetched += a->bytes;
    else if (a->kind == SP_ACTION_RECV || r->stage[a->stage].lowered < 0)
        return;
    else if (a->kind != SP_ACTION_GATHER)
        r->stage[a->stage].lowered += a->bytes;
    for (int k = 0; a->kind == SP_ACTION_GATHER && k < a->members; k++) /* what the others send */
        if (a->member[k] != a->stage)
            r->stage[a->member[k]].lowered += a->bytes / (a->members - 1);
}

/* Notes the bytes that the lowered program sends, with a process a stage, evicts and fetches. */
static void note_actions(const struct session *session, const struct setup *s, struct result *r)
{
    struct sp_lowering l;

    for (int i = 0; i < r->stages; i++)
        r->stage[i].lowered = session->world.size == r->stages ? 0 : -1;
    if (session->world.size != r->stages && !s->offloads)
        return;
    must(sp_lowering_create(&s->plan, &s->shape, r->stages, &l), "lowering");
    must(sp_lower_step(&l, count_sent, r), "actions");
    sp_lowering_destroy(&l);
}

static void note_plan(const struct setup *s, const struct sp_graph_config *cfg,
                      const struct sp_placement *pl, const struct sp_offload *offload,
                      struct result *r)
{
    const struct sp_count_steps steps = {
        .n = s->args.steps, .ahead = s->args.post_validation, .clips = s->args.clip > 0};
    struct sp_count *count = calloc((size_t)r->stages, sizeof *count);

    SP_NEED(count, "no memory for what %d stages hold", r->stages);
    if (!s->offloads)
        must(sp_count_stages(cfg, pl, pl->world.size, &steps, count), "the count");
    for (int i = 0; i < r->stages; i++) {
        const struct sp_memory *m = s->offloads ? &offload->memory[i] : NULL;

        r->stage[i].planned_buffers = m ? m->activations + m->workspace : count[i].buffers;
        r->stage[i].planned_peak =
            s->offloads ? offload->evictions[i].peak_kept
                        : sp_stash_peak(&s->plan, &s->shape, s->recompute, s->every, i);
    }
    free(count);
}

uint64_t text_digest(const char *text)
{
    return XXH64(text, strlen(text), 0);
}

uint64_t result_bits(const struct result *r, bool norms)
{
    XXH64_hash_t h = XXH64(r->loss, sizeof *r->loss * (size_t)r->steps, 1);

    if (norms)
        h = XXH64(r->norm, sizeof *r->norm * (size_t)r->steps, h);
    for (int i = 0; i < FIELDS; i++)
        h = XXH64(r->field[i], sizeof **r->field * r->n, h);
    return h;
}

void result_free(struct result *r)
{
    for (int i = 0; i < FIELDS; i++)
        free(r->field[i]);
    *r = (struct result){0};
}

/* ---- the run -------------------------------------------------------------------------- */

/* Runs a step to its end, and the update after it. */
static void finish_step(struct sp_graph *g, const struct setup *s, int k,
                        struct sp_step_report *report, struct result *r)
{
    struct sp_update hp;

    sp_step_rest(g, NULL, false);
    sp_transport_wait_all();
    sp_step_finish(g, report);
    if (k == 0)
        gather(g, SP_FIELD_G, r);
    hp = sp_train_update(&s->args, k, report->grad_norm);
    sp_step_update(g, &hp, report);
}

/* The same, but the next step begins before this one has ended, and again if clipping proves
 * needed. */
static void finish_ahead(struct sp_graph *g, const struct setup *s, const struct sp_data *data,
                         int k, struct sp_step_report *report, struct result *r)
{
    struct sp_update hp = sp_train_update(&s->args, k, 0);
    bool beside = s->args.clip > 0;

    sp_step_rest(g, &hp, beside);
    sp_step_update_submit(g, &hp, beside);
    sp_step_begin(g, data, (uint64_t)k + 1);
    sp_step_finish(g, report);
    hp = sp_train_update(&s->args, k, report->grad_norm);
    if (hp.factor >= 1)
        return;
    sp_step_undo(g);
    r->undone++;
    sp_step_update_submit(g, &hp, false);
    sp_step_begin(g, data, (uint64_t)k + 1);
}

static void take_steps(struct sp_graph *g, const struct setup *s, const struct sp_data *data,
                       struct result *r)
{
    struct sp_step_report report;
    bool begun = false;

    must(sp_step_report_create(g, &report), "report");
    sp_transport_barrier();
    for (int k = 0; k < s->args.steps; k++) {
        if (!begun)
            sp_step_begin(g, data, (uint64_t)k);
        begun = s->args.post_validation && k > 0 && k + 1 < s->args.steps;
        if (begun)
            finish_ahead(g, s, data, k, &report, r);
        else
            finish_step(g, s, k, &report, r);
        if (g->place.world.rank == 0)
            note_step(&report, k, r);
    }
    gather(g, SP_FIELD_W, r);
    gather(g, SP_FIELD_M, r);
    gather(g, SP_FIELD_V, r);
    sp_step_report_destroy(g, &report);
}

/* Places stages on GPUs, or on all of StarPU's workers, which are not bound to cores. */
static void place(const struct session *session, const struct setup *s, struct sp_placement *pl)
{
    int workers = workers_of(session);

    must(sp_placement_init(pl, &session->world, 1, s->plan.layout.stages, 1), "placement");
    if (session->devices) {
        sp_placement_use_gpus(pl, session->devices);
        return;
    }
    pl->workers = pl->n_local < workers ? pl->n_local : workers;
    pl->threads = 1;
    pl->bound = false;
    pl->crowded = true;
}

void run_setup(struct session *session, struct setup *s, struct result *r)
{
    const struct sp_train_config *a = &s->args;
    struct sp_graph_config cfg = {
        .sink = sp_starpu_sink(),
        .params = &s->params,
        .plan = &s->plan,
        .shape = &s->shape,
        .recompute = s->recompute,
        .every = s->every,
        .ready = session->ready,
        .window = a->window,
        .seed = (uint64_t)a->seed,
        .tier = session->tier,
        .disk = session->disk,
    };
    struct sp_offload offload = {0};
    struct sp_placement pl;
    struct sp_data data;
    struct sp_graph g;

    *r = (struct result){.steps = a->steps, .stages = s->plan.layout.stages};
    must(sp_data_open(a->data, 1, s->model.vocab, &data), a->data);
    if (s->offloads)
        plan_offload(s, &offload);
    cfg.evictions = offload.evictions;
    place(session, s, &pl);
    note_plan(s, &cfg, &pl, &offload, r);
    note_actions(session, s, r);
    if (!session->devices)
        sp_placement_bind(&pl);
    must(sp_graph_create(&cfg, &pl, &g), "graph");
    must(sp_checkpoint_init(&g, NULL), "weights");
    take_steps(&g, s, &data, r);
    sp_transport_wait_all();
    sp_graph_destroy(&g);
    sp_order_reset(); /* the next graph counts its tasks from the beginning */
    sp_offload_destroy(&offload);
    sp_data_close(&data);
}
