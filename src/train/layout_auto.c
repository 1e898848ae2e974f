#include "train/layout_auto.h"
#include "sp_error.h"
#include "sp_text.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The most layouts of a search, and how many of them are predicted over all micro-batches: the
 * best and the next best. */
enum { MOST = 64, TOLD = 2 };
/* The most layouts that may become contenders. */
enum { OTHERS = 32 };

static const struct sp_layout_args standard = SP_LAYOUT_ARGS_DEFAULT;
static const double RESERVE =
    0.08; /* of a device's memory, if nobody looks how much it has; plan leaves as much */
static const double EXACT = 0.01; /* no prediction is more exact */

/* The state of a search over all numbers of workers and pipelines. */
struct choosing {
    const struct sp_auto_request *r;
    struct sp_search want;
    struct sp_machine machine; /* with one device for each worker of a node */
    int workers, most;         /* of a process: in this search, and at most */
    double started_s;
    struct sp_auto_choice *best;
    struct sp_auto_choice other[OTHERS]; /* the fastest, each with another schedule and grid */
    int others;
    struct sp_auto_choice plain; /* the fastest of the usual schedule */
    struct sp_found least;       /* of the layouts that do not fit, the one that needs least */
    bool any, fits;
};

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void sp_layout_auto_watch(struct sp_option *options, struct sp_layout_kept *kept)
{
    const struct {
        const char *name;
        bool *given;
    } watched[] = {
        {"micro-batch-size", &kept->micro_batch_size},
        {"slices", &kept->slices},
        {"offload", &kept->offload},
        {"data-parallel", &kept->data_parallel},
        {"context-parallel", &kept->context_parallel},
        {"tensor-parallel", &kept->tensor_parallel},
        {"zero", &kept->zero},
    };

    for (struct sp_option *o = options; o->name; o++)
        for (size_t i = 0; i < sizeof watched / sizeof *watched; i++)
            if (!o->given && !strcmp(o->name, watched[i].name))
                o->given = watched[i].given;
}

static bool has_time(struct choosing *c)
{
    const struct sp_auto_request *r = c->r;
    bool has = r->within_s <= 0 || now_s() - c->started_s < r->within_s;

    c->best->cut_short = c->best->cut_short || !has;
    return has;
}

/* sp_search asks this: the search goes on until there is a layout, however long that takes. */
static bool goes_on(void *arg, int tried, const struct sp_found *best, int n)
{
    (void)tried, (void)best;
    return !n || has_time(arg);
}

/* ---- options left open ----------------------------------------------------------------------- */

/* True if an option was given, or has a value that is not the default. */
static bool is_kept(bool kept, int value, int usual)
{
    return kept || value != usual;
}

struct sp_auto_devices sp_auto_devices_of(const struct sp_machine *machine,
                                          const struct sp_layout_args *l,
                                          const struct sp_group_args *groups)
{
    int groups_of = sp_groups_pipelines(groups), here = machine->devices_per_node;
    int all = l->stages_set ? l->stages * groups_of : here;
    struct sp_auto_devices d = {.processes = all, .node_processes = here, .workers = 1};

    if (all < here || all % here)
        d.node_processes = all < here ? all : 1;
    return d;
}

int sp_layout_auto_check(const char *command, const struct sp_layout_args *l,
                         const struct sp_group_args *groups, const struct sp_model *model)
{
    char where[32];

    snprintf(where, sizeof where, "%s: ", command);
    if (sp_model_check_step(
            model, &(struct sp_step_size){l->seq, l->micro_batch_size, l->micro_batches}, where))
        return -EINVAL;
    if ((int64_t)l->micro_batches * l->micro_batch_size > INT32_MAX / 2 / groups->data_parallel)
        return sp_error(EINVAL, "%s: a step of %d x %d x %d sequences is too long", command,
                        groups->data_parallel, l->micro_batches, l->micro_batch_size);
    if (l->partition_slices && l->slices <= 1)
        return sp_error(EINVAL,
                        "%s: --partition-slices %s: --schedule auto may choose whole sequences; "
                        "give --slices N too",
                        command, l->partition_slices);
    if (l->stages_set && l->stages > model->layers)
        return sp_error(EINVAL, "%s: %d stages are more than the %d layers of %s", command,
                        l->stages, model->layers, model->name);
    return 0;
}

/* Takes tensor and context parallelism from the options. */
static void take_groups(const struct sp_auto_request *r, struct sp_search *want)
{
    const struct sp_group_args *g = r->groups;
    const struct sp_layout_kept *k = &r->layout->kept;
    bool tensor = is_kept(k->tensor_parallel, g->tensor_parallel, 1);
    bool context = is_kept(k->context_parallel, g->context_parallel, 1);

    want->group = SP_SEARCH_BOTH;
    want->tensor = tensor ? g->tensor_parallel : 0;
    want->context = context ? g->context_parallel : 0;
    want->devices = want->tensor * want->context;
}

/* The choice that an on/off option leaves open. */
static enum sp_search_choice choice_of(bool kept, bool on)
{
    return on ? SP_SEARCH_WITH : kept ? SP_SEARCH_WITHOUT : SP_SEARCH_EITHER;
}

/* Takes all options but the numbers of workers and pipelines. 0 or -EINVAL after one line. */
static int take_options(struct choosing *c)
{
    const struct sp_auto_request *r = c->r;
    const struct sp_layout_args *l = r->layout;
    const struct sp_layout_kept *k = &l->kept;
    bool mode = l->recompute && !sp_recompute_is_auto(l->recompute);
    struct sp_recompute_option recompute = {SP_RECOMPUTE_NONE, 1};

    c->want = (struct sp_search){
        .schedule = sp_layout_is_auto(l) ? NULL : l->schedule,
        .model = r->model,
        .dtype = r->dtype,
        .seq = l->seq,
        .sequences = r->groups->data_parallel * l->micro_batches * l->micro_batch_size,
        .batch = is_kept(k->micro_batch_size, l->micro_batch_size, 1) ? l->micro_batch_size : 0,
        .stages = l->stages_set ? l->stages : 0,
        .vocabulary = choice_of(!sp_layout_is_auto(l), l->vocabulary_parallel),
        .chunks = l->chunks,
        .slices = is_kept(k->slices, l->slices, 1) ? l->slices : 0,
        .cut = l->partition_slices,
        .balanced = SP_SEARCH_WITHOUT, /* a run balances by measured times: --partition balanced */
        .zero = k->zero || r->groups->zero > 0 ? r->groups->zero : SP_SEARCH_ZERO,
        .any_recompute = !mode,
        .any_offload = !is_kept(k->offload, strcmp(l->offload, "none") != 0, 0),
        .data =
            is_kept(k->data_parallel, r->groups->data_parallel, 1) ? r->groups->data_parallel : 0,
        .machine = &c->machine,
        .reserve = r->node_bytes ? 0 : RESERVE,
        .go_on = goes_on,
        .go_on_arg = c,
    };
    if ((mode && sp_parse_recompute(r->command, l->recompute, &recompute)) ||
        sp_parse_offload(r->command, l, &c->want.offload))
        return -EINVAL;
    c->want.recompute = recompute.mode;
    c->want.every = recompute.every;
    take_groups(r, &c->want);
    return 0;
}

/* ---- searches -------------------------------------------------------------------------------- */

/* Sets up nodes with `workers` workers a process, at the rates for as many threads as each of
 * them has then. */
static void place(struct choosing *c, int workers)
{
    const struct sp_auto_devices *d = &c->r->devices;
    int threads = d->threads ? d->threads : d->cores / workers, here = d->node_processes * workers;
    struct sp_machine *m = &c->machine;
    char why[SP_THREADS_WHY];

    c->workers = workers;
    *m = *c->r->machine;
    if (d->cores > 0) /* missing figures are reported once there is a layout */
        sp_machine_take_threads(m, threads > 0 ? threads : 1, why);
    m->node.shared_by = m->node.shared_by < here ? m->node.shared_by : here;
    m->network.shared_by = m->network.shared_by < here ? m->network.shared_by : here;
    m->devices_per_node = here;
    if (d->processes == 1) /* stages of one process hand tensors over in place */
        m->node = (struct sp_link){.bandwidth = INFINITY, .shared_by = 1};
    if (c->r->node_bytes && sp_machine_is_cpu(m))
        m->memory_bytes = c->r->node_bytes / here;
    else if (c->r->node_bytes)
        m->memory_bytes = c->r->node_bytes;
    c->want.nodes = d->processes / d->node_processes;
    c->want.memory = (int64_t)c->r->layout->memory_limit;
}

static bool is_better(const struct sp_found *a, const struct sp_found *b)
{
    return b->step_ms <= 0 || a->step_ms < b->step_ms;
}

static bool is_alike(const struct sp_found *a, const struct sp_found *b)
{
    return sp_found_same_grid(a, b) && !strcmp(a->schedule, b->schedule) && a->zero == b->zero;
}

/* Keeps the fastest layouts, sorted, each with another schedule and grid. */
static void keep(struct choosing *c, const struct sp_auto_choice *one)
{
    int at = 0;

    while (at < c->others && !is_alike(&c->other[at].found, &one->found))
        at++;
    if (at == c->others && at < OTHERS)
        c->others++;
    else if (!is_better(&one->found, &c->other[at < OTHERS ? at : --at].found))
        return;
    for (; at > 0 && is_better(&one->found, &c->other[at - 1].found); at--)
        c->other[at] = c->other[at - 1];
    c->other[at] = *one;
}

/* Considers a layout that fits and that train can run. */
static void compare(struct choosing *c, const struct sp_search *want, const struct sp_found *f)
{
    const struct sp_auto_choice one = {
        .found = *f,
        .ulysses = f->context > 1 ? sp_search_ulysses(want, f) : 1,
        .memory = sp_search_limit(want),
    };
    bool plain = !strcmp(f->schedule, standard.schedule);

    if (plain && is_better(f, &c->plain.found))
        c->plain = one;
    keep(c, &one);
    c->fits = true;
}

/* Takes the fastest layout, or the usual schedule's if that is slower by no more than EXACT. */
static void conclude(struct choosing *c)
{
    struct sp_auto_choice *best = c->best;
    bool plain = c->plain.found.step_ms > 0 &&
                 c->plain.found.step_ms < (1 + EXACT) * c->other[0].found.step_ms;
    struct sp_auto_choice taken = plain ? c->plain : c->other[0];

    taken.next = sp_auto_same(&taken, &c->other[0]) ? c->other[1].found : c->other[0].found;
    taken.layouts = best->layouts;
    taken.cut_short = best->cut_short;
    *best = taken;
}

/* How a contender must differ from the choice and the contenders before it. */
enum contrast { GRID, SCHEDULE, EITHER };

static bool is_new(const struct sp_auto_choice *choice, const struct sp_auto_contenders *all,
                   const struct sp_found *f, enum contrast contrast)
{
    for (int i = -1; i < all->n; i++) {
        const struct sp_found *other = i < 0 ? &choice->found : &all->layout[i].found;
        bool grid = sp_found_same_grid(other, f), family = sp_found_same_family(other, f);

        if ((contrast == GRID && grid) || (contrast == SCHEDULE && family) ||
            (grid && family && f->zero == other->zero))
            return false;
    }
    return true;
}

/* Contenders: the fastest with another grid, the fastest with another schedule, then any that
 * differs. */
static void contend(const struct choosing *c, struct sp_auto_contenders *all)
{
    all->n = 0;
    for (int contrast = GRID; contrast <= EITHER; contrast++)
        for (int i = 0; i < c->others && all->n < SP_AUTO_CONTENDERS; i++) {
            const struct sp_auto_choice *other = &c->other[i];

            if (other->found.step_ms > SP_AUTO_NEAR * c->best->found.step_ms ||
                !is_new(c->best, all, &other->found, (enum contrast)contrast))
                continue;
            all->layout[all->n++] = *other;
            if (contrast != EITHER)
                break;
        }
}

/*
 * True if the given number of stages, with c->workers workers a process, uses all devices; sets the
 * number of pipelines to do so. If there are too many stages, they share workers: the search counts
 * them as if each had its own, with the most workers, in one process for each.
 */
static bool takes_devices(const struct choosing *c, struct sp_search *want)
{
    int all = c->r->devices.processes * c->workers, data = want->data ? want->data : 1;
    int stage = (want->tensor ? want->tensor : 1) * (want->context ? want->context : 1);
    int least = want->stages * stage * data;

    if (!want->stages)
        return true;
    if (least > all) {
        want->devices = stage;
        want->data = data;
        return stage == 1 && c->workers == c->most;
    }
    if (!want->devices)
        return true;
    if (want->data)
        return least == all;
    want->data = all / least;
    return all % least == 0 && want->sequences % want->data == 0;
}

/* Searches on the devices of c->machine. */
static int search(struct choosing *c)
{
    static struct sp_found found[MOST];
    struct sp_search want = c->want;
    int n;

    if (!takes_devices(c, &want))
        return 0;
    n = sp_search(&want, found, MOST, TOLD);
    for (int i = 0; i < n; i++) {
        if (!found[i].trains)
            continue;
        c->best->layouts++;
        if (found[i].fits)
            compare(c, &want, &found[i]);
        else if (!c->any || found[i].memory < c->least.memory)
            c->least = found[i];
        c->any = c->any || !found[i].fits;
    }
    return n < 0 ? n : 0;
}

/* If processes have several workers, these take stages; pipelines, and devices that share a
 * stage, are processes. */
static int search_pipelines(struct choosing *c)
{
    int processes = c->r->devices.processes, err = 0;

    if (c->want.data)
        return search(c);
    for (int d = 1; d <= processes && !err; d++)
        if (processes % d == 0 && c->want.sequences % d == 0 && (d == 1 || has_time(c))) {
            c->want.data = d;
            err = search(c);
            c->want.data = 0;
        }
    return err;
}

/* Searches with one worker a process, with as many as possible, then with the powers of 2
 * between. */
static int search_workers(struct choosing *c)
{
    bool groups = c->want.tensor > 1 || c->want.context > 1;
    int err;

    c->most = groups ? 1 : c->r->devices.workers;
    place(c, 1);
    err = search(c);
    c->want.devices = c->want.tensor = c->want.context = 1;
    for (int k = c->most; k > 1 && !err && has_time(c);
         k = k == c->most ? 1 << (int)log2(k - 1) : k / 2) {
        place(c, k);
        err = search_pipelines(c);
    }
    return err;
}

/* ---- refusals -------------------------------------------------------------------------------- */

static int refuse(const struct choosing *c)
{
    const struct sp_auto_request *r = c->r;
    const struct sp_found *f = &c->least;
    double has = (double)sp_search_limit(&c->want);
    bool large = f->memory >= 1 << 30;
    double unit = large ? 1 << 30 : 1 << 20;

    if (!c->any)
        return sp_error(EINVAL,
                        "%s: --schedule auto: no schedule takes %d sequences of a step on %s of "
                        "%s within the options given; other --micro-batches, or fewer options, "
                        "may do",
                        r->command, c->want.sequences, SP_COUNT(r->devices.processes, "process"),
                        SP_COUNT(r->devices.workers, "worker"));
    return sp_error(EINVAL,
                    "%s: --schedule auto: nothing fits: %s on %s, which needs least, holds %.2f "
                    "%s on a device that has %.2f; try --recompute full, shorter sequences, or "
                    "more devices",
                    r->command, f->schedule, SP_COUNT(f->stages, "stage"), (double)f->memory / unit,
                    large ? "GiB" : "MiB", has / unit);
}

int sp_layout_auto(const struct sp_auto_request *r, struct sp_auto_choice *choice,
                   struct sp_auto_contenders *contenders)
{
    static struct choosing c; /* static, because a machine is large */
    int err = sp_layout_auto_check(r->command, r->layout, r->groups, r->model);

    if (!err && r->machine->kinds)
        err = sp_error(EINVAL,
                       "%s: --schedule auto chooses for devices that are alike; 'starpipe plan' "
                       "chooses for nodes of several kinds",
                       r->command);
    *choice = (struct sp_auto_choice){.layouts = 0};
    c = (struct choosing){.r = r, .best = choice, .started_s = now_s()};
    err = err ? err : take_options(&c);
    err = err ? err : search_workers(&c);
    if (!err && c.fits)
        conclude(&c);
    if (!err && c.fits && contenders)
        contend(&c, contenders);
    choice->took_s = now_s() - c.started_s;
    return err ? err : c.fits ? 0 : refuse(&c);
}
