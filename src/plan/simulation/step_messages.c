#include "plan/simulation/step_messages.h"
#include "policies/lowering/lowering.h"
#include "sp_grow.h"
#include <errno.h>

/* A tensor that a stage has received, and the last message that brought it. */
struct came {
    struct sp_tensor_id tensor;
    int stage, message;
    int next; /* in the same list, -1: none */
};

enum { LISTS = 1 << 14 };

struct walk {
    const struct sp_plan *plan;
    const struct sp_shape *shape; /* NULL: unknown */
    struct sp_step_messages *out;
    size_t room;    /* for messages */
    int *of_number; /* [numbers] the message that a number of a SEND is in */
    size_t numbers; /* room in of_number */
    int *last_run;  /* [stages] index of the last op that ran; -1: none */
    int *list;      /* [LISTS] by a hash of tensor and stage: index in `came`; -1: none */
    struct came *came;
    int n_came;
    size_t room_came;
    int **evicted; /* [stages][evictions] their messages; NULL: nothing is evicted */
    bool lost;     /* out of memory */
};

/* Makes room for element n of a list; false: no memory. */
static bool grow(struct walk *w, void *list, int n, size_t *room, size_t size)
{
    bool grown = sp_grow(list, (size_t)n + 1, room, size);

    w->lost |= !grown;
    return grown;
}

/* ---- received tensors ------------------------------------------------------------------------ */

static int *list_of(const struct walk *w, const struct sp_tensor_id *t, int stage)
{
    return &w->list[(sp_tensor_hash(t, LISTS) + 31 * (unsigned)stage) % LISTS];
}

static struct came *find(const struct walk *w, const struct sp_tensor_id *t, int stage)
{
    for (int i = *list_of(w, t, stage); i >= 0; i = w->came[i].next)
        if (w->came[i].stage == stage && sp_tensor_is_same(&w->came[i].tensor, t))
            return &w->came[i];
    return NULL;
}

/* Weights, sums of gradients and parked activations may be sent on to other stages; all other tensors
 * stay where they arrive. */
static bool goes_on(const struct sp_tensor_id *t)
{
    return t->kind == SP_TENSOR_STASH || t->kind >= SP_TENSOR_WOUT;
}

static void remember(struct walk *w, const struct sp_action *a, int message)
{
    struct came *came = goes_on(&a->tensor) ? find(w, &a->tensor, a->stage) : NULL;

    if (came)
        came->message = message;
    if (came || !goes_on(&a->tensor) ||
        !grow(w, &w->came, w->n_came, &w->room_came, sizeof *w->came))
        return;
    w->came[w->n_came] = (struct came){.tensor = a->tensor,
                                       .stage = a->stage,
                                       .message = message,
                                       .next = *list_of(w, &a->tensor, a->stage)};
    *list_of(w, &a->tensor, a->stage) = w->n_came++;
}

/* ---- messages -------------------------------------------------------------------------------- */

static struct sp_step_message *add(struct walk *w, struct sp_step_message m)
{
    if (!grow(w, &w->out->message, w->out->n, &w->room, sizeof *w->out->message))
        return NULL;
    m.reader = m.next_of_writer = m.next_of_before = -1;
    w->out->message[w->out->n] = m;
    return &w->out->message[w->out->n++];
}

/* True if a send joins the last message: a part of a layer produced both for the same other
 * part. */
static bool goes_along(const struct walk *w, const struct sp_action *a)
{
    const struct sp_step_message *last = w->out->n ? &w->out->message[w->out->n - 1] : NULL;

    return last && w->plan->family->facts.parts && sp_step_message_is_sent(last) && a->index >= 0 &&
           last->from == a->stage && last->to == a->peer && last->writer == a->index &&
           !goes_on(&last->tensor);
}

/* The layers of a gradient that an op adds to. */
static unsigned short layers_of(const struct walk *w, const struct sp_action *a)
{
    if (a->tensor.kind != SP_TENSOR_D || a->tensor.at < 0 || a->index < 0 || !w->shape)
        return 0;
    return (unsigned short)(sp_tensor_pieces(w->plan, w->shape, &a->tensor) / SP_LAYER_BLOCKS);
}

static void send(struct walk *w, const struct sp_action *a)
{
    const struct came *came = goes_on(&a->tensor) ? find(w, &a->tensor, a->stage) : NULL;

    if (goes_along(w, a))
        w->out->message[w->out->n - 1].bytes += a->bytes;
    else
        add(w, (struct sp_step_message){.kind = SP_ACTION_SEND,
                                        .tensor = a->tensor,
                                        .bytes = a->bytes,
                                        .writer = a->index,
                                        .before = came ? came->message : -1,
                                        .from = (unsigned short)a->stage,
                                        .to = (unsigned short)a->peer,
                                        .writer_stage = (unsigned short)a->stage,
                                        .layers = layers_of(w, a)});
    if (grow(w, &w->of_number, (int)a->number, &w->numbers, sizeof *w->of_number))
        w->of_number[a->number] = w->out->n - 1;
}

/* Keys and values go layer by layer between parts of the same slice, which begin together. */
static bool is_beside(const struct walk *w, const struct sp_step_message *m)
{
    const struct sp_family *family = w->plan->family;

    return family->shared && m->writer >= 0 && m->reader >= 0 &&
           (m->tensor.kind == SP_TENSOR_KV || m->tensor.kind == SP_TENSOR_DKV) &&
           family->shared->slice(&w->plan->layout, &w->plan->programs[m->from].ops[m->writer]) ==
               family->shared->slice(&w->plan->layout, &w->plan->programs[m->to].ops[m->reader]);
}

static void receive(struct walk *w, const struct sp_action *a)
{
    int at = w->of_number[a->number];
    struct sp_step_message *m = &w->out->message[at];

    if (a->index >= 0 && (m->reader < 0 || a->index < m->reader))
        m->reader = a->index;
    m->beside = is_beside(w, m);
    remember(w, a, at);
}

static void collective(struct walk *w, const struct sp_action *a)
{
    int first = a->member[0], last = a->member[a->members - 1];
    struct sp_step_message *m;

    if (!a->bytes)
        return;
    m = add(w,
            (struct sp_step_message){
                .kind = (unsigned char)a->kind,
                .tensor = a->tensor,
                .bytes = a->kind == SP_ACTION_REDUCE ? 2 * a->bytes / a->members * (a->members - 1)
                                                     : a->bytes,
                .writer = w->last_run[a->stage],
                .before = -1,
                .from = (unsigned short)(a->stage - first > last - a->stage ? first : last),
                .to = (unsigned short)a->stage,
                .writer_stage = (unsigned short)a->stage});
    if (m && a->kind == SP_ACTION_GATHER)
        m->reader = a->index;
}

/* ---- evictions ------------------------------------------------------------------------------- */

/* The stage waits for an eviction before the op that needs its room. */
static void evict(struct walk *w, const struct sp_action *a)
{
    const struct sp_eviction *e = a->eviction;
    struct sp_step_message *m =
        add(w, (struct sp_step_message){.kind = SP_ACTION_EVICT,
                                        .tensor = a->tensor,
                                        .bytes = a->bytes,
                                        .writer = a->index,
                                        .left = e->leaves.part,
                                        .wanted = e->gone.part,
                                        .before = -1,
                                        .from = (unsigned short)a->stage,
                                        .to = (unsigned short)a->stage,
                                        .writer_stage = (unsigned short)a->stage});

    if (!m)
        return;
    m->reader = e->gone.index;
    if (e->unit >= 0)
        w->evicted[a->stage][e - w->plan->evictions[a->stage].leaving] = w->out->n - 1;
}

/* A fetch for the op that reads it can start after the op before: so the reader waits only once,
 * before it starts. */
static void fetch(struct walk *w, const struct sp_action *a)
{
    const struct sp_eviction *e = a->eviction;
    bool late = e->returns.index == e->used.index;
    struct sp_step_message *m =
        add(w, (struct sp_step_message){
                   .kind = SP_ACTION_FETCH,
                   .tensor = a->tensor,
                   .bytes = a->bytes,
                   .writer = late ? w->last_run[a->stage] : a->index,
                   .left = late ? 1 : e->returns.part,
                   .wanted = e->used.part,
                   .before = e->unit < 0
                                 ? -1
                                 : w->evicted[a->stage][e - w->plan->evictions[a->stage].leaving],
                   .from = (unsigned short)a->stage,
                   .to = (unsigned short)a->stage,
                   .writer_stage = (unsigned short)a->stage});

    if (m)
        m->reader = e->used.index;
}

static int **new_evicted(const struct sp_plan *plan)
{
    int stages = plan->layout.stages, n = 0, *all;
    int **evicted;

    for (int s = 0; s < stages; s++)
        n += plan->evictions[s].n;
    evicted = calloc((size_t)stages, sizeof *evicted);
    all = calloc((size_t)n + 1, sizeof *all);
    if (!evicted || !all) {
        free(evicted);
        free(all);
        return NULL;
    }
    for (int s = 0; s < stages; s++) {
        evicted[s] = all;
        all += plan->evictions[s].n;
    }
    return evicted;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static void follow(void *arg, const struct sp_action *a)
{
    struct walk *w = arg;

    if (w->lost || a->during) /* its time is part of the op */
        return;
    switch (a->kind) {
    case SP_ACTION_RUN:
        if (a->index >= 0)
            w->last_run[a->stage] = a->index + a->op.overlap;
        break;
    case SP_ACTION_SEND:
        send(w, a);
        break;
    case SP_ACTION_RECV:
        receive(w, a);
        break;
    case SP_ACTION_GATHER:
    case SP_ACTION_SCATTER:
    case SP_ACTION_REDUCE:
        collective(w, a);
        break;
    case SP_ACTION_EVICT:
        evict(w, a);
        break;
    case SP_ACTION_FETCH:
        fetch(w, a);
        break;
    default:
        break;
    }
}

/* ---- the messages ---------------------------------------------------------------------------- */

/* Links the messages by the op or message that they follow, the first one first. */
static int list_messages(const struct sp_plan *plan, struct sp_step_messages *messages)
{
    int stages = plan->layout.stages, *first_of_before;

    messages->first_op = calloc((size_t)stages + 1, sizeof *messages->first_op);
    messages->first_of_writer =
        malloc((size_t)(sp_plan_ops(plan) + 1) * sizeof *messages->first_of_writer);
    first_of_before = malloc((size_t)(messages->n + 1) * sizeof *first_of_before);
    if (!messages->first_op || !messages->first_of_writer || !first_of_before) {
        free(first_of_before);
        return -ENOMEM;
    }
    for (int s = 0; s < stages; s++)
        messages->first_op[s + 1] = messages->first_op[s] + plan->programs[s].n;
    for (int i = 0; i < messages->first_op[stages]; i++)
        messages->first_of_writer[i] = -1;
    for (int i = 0; i < messages->n; i++)
        first_of_before[i] = -1;
    for (int i = messages->n - 1; i >= 0; i--) {
        struct sp_step_message *m = &messages->message[i];

        if (m->writer >= 0) {
            int *first =
                &messages->first_of_writer[messages->first_op[m->writer_stage] + m->writer];

            m->next_of_writer = *first;
            *first = i;
        }
        if (m->before >= 0) {
            m->next_of_before = first_of_before[m->before];
            first_of_before[m->before] = i;
        }
    }
    free(messages->first_of_before);
    messages->first_of_before = first_of_before;
    return 0;
}

int sp_step_messages_create(const struct sp_plan *plan, const struct sp_shape *shape,
                            struct sp_step_messages *messages)
{
    int stages = plan->layout.stages, err = -ENOMEM;
    struct walk w = {.plan = plan, .shape = shape, .out = messages};
    struct sp_lowering l = {0};

    *messages = (struct sp_step_messages){0};
    w.last_run = malloc((size_t)stages * sizeof *w.last_run);
    w.list = malloc(LISTS * sizeof *w.list);
    w.evicted = plan->evictions ? new_evicted(plan) : NULL;
    if (w.last_run && w.list && (w.evicted || !plan->evictions)) {
        memset(w.last_run, -1, (size_t)stages * sizeof *w.last_run);
        memset(w.list, -1, LISTS * sizeof *w.list);
        err = sp_lowering_create(plan, shape, stages, &l);
    }
    err = err ? err : sp_lower_step(&l, follow, &w);
    err = err ? err : w.lost ? -ENOMEM : list_messages(plan, messages);
    if (l.messages)
        sp_lowering_destroy(&l);
    free(w.of_number);
    free(w.last_run);
    free(w.list);
    if (w.evicted)
        free(w.evicted[0]);
    free(w.evicted);
    free(w.came);
    if (err)
        sp_step_messages_destroy(messages);
    return err;
}

void sp_step_messages_destroy(struct sp_step_messages *messages)
{
    free(messages->message);
    free(messages->first_op);
    free(messages->first_of_writer);
    free(messages->first_of_before);
    *messages = (struct sp_step_messages){0};
}

/* ---- queries ---------------------------------------------------------------------------------- */

/* A message and its place in the order of readers. */
struct read {
    int place, message;
};

static int by_place(const void *a, const void *b)
{
    const struct read *x = a, *y = b;

    return x->place != y->place ? x->place - y->place : x->message - y->message;
}

/* Each stage's ops come in turn, then its messages without a reader. */
int *sp_step_messages_by_reader(const struct sp_step_messages *messages, const struct sp_plan *plan,
                                int *n)
{
    int *order = malloc((size_t)(messages->n + 1) * sizeof *order);
    struct read *read = malloc((size_t)(messages->n + 1) * sizeof *read);

    (void)plan;
    *n = 0;
    for (int i = 0; order && read && i < messages->n; i++) {
        const struct sp_step_message *m = &messages->message[i];
        int op =
            m->reader >= 0 ? messages->first_op[m->to] + m->reader : messages->first_op[m->to + 1];

        if (sp_step_message_is_sent(m))
            read[(*n)++] = (struct read){op + m->to, i};
    }
    if (read)
        qsort(read, (size_t)*n, sizeof *read, by_place);
    for (int i = 0; i < *n; i++)
        order[i] = read[i].message;
    if (!read) {
        free(order);
        order = NULL;
    }
    free(read);
    return order;
}

char *sp_step_message_print(const struct sp_plan *plan, const struct sp_step_message *m,
                            char text[SP_TENSOR_TEXT])
{
    if (m->writer < 0)
        return sp_tensor_print(plan, &m->tensor, text);
    return sp_op_print(&plan->programs[m->writer_stage].ops[m->writer], plan->layout.slices > 1,
                       text);
}

double sp_step_message_share(const struct sp_plan *plan, const struct sp_step_message *m)
{
    const struct sp_family *family = plan->family;
    const struct sp_op *op;

    if (m->writer < 0 || !sp_step_message_is_sent(m))
        return 1;
    op = &plan->programs[m->writer_stage].ops[m->writer];
    return family->size ? family->size(&plan->layout, op) : 1;
}
