#include "policies/simulation/channels.h"
#include "policies/simulation/index.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for one more element. */
static int grow(void **array, int n, int *cap, size_t size)
{
    int more = *cap ? 2 * *cap : 64;
    void *a;

    if (n < *cap)
        return 0;
    a = realloc(*array, (size_t)more * size);
    if (!a)
        return -ENOMEM;
    *array = a;
    *cap = more;
    return 0;
}

/* Hash lists of channels by (src, dst, stream, direction); many streams make many channels. */
struct heads {
    int *first; /* [mask + 1] -1: empty */
    unsigned mask;
};

static int heads_create(struct heads *h, int channels)
{
    size_t n = 64;

    while (n < (size_t)channels)
        n *= 2;
    *h = (struct heads){.first = malloc(n * sizeof *h->first), .mask = (unsigned)(n - 1)};
    if (!h->first)
        return -ENOMEM;
    memset(h->first, -1, n * sizeof *h->first);
    return 0;
}

/* The channel of a message, made if there is none. */
static int channel_of(struct sp_channels *ch, int *cap, struct heads *heads, int src, int dst,
                      bool forward, int stream)
{
    unsigned key = ((unsigned)src * 31u + (unsigned)dst) * 2u + forward;
    int *head =
        &heads->first[(key * 2654435761u + (unsigned)stream * 2246822519u) >> 7 & heads->mask];
    void *array = ch->channels;

    for (int c = *head; c >= 0; c = ch->channels[c].next) {
        if (ch->channels[c].src == src && ch->channels[c].dst == dst &&
            ch->channels[c].forward == forward && ch->channels[c].stream == stream)
            return c;
    }
    if (grow(&array, ch->n, cap, sizeof *ch->channels))
        return -ENOMEM;
    ch->channels = array;
    ch->channels[ch->n] = (struct sp_channel_state){
        .src = src, .dst = dst, .stream = stream, .forward = forward, .next = *head};
    *head = ch->n;
    return ch->n++;
}

/* Lists the messages, receiver by receiver. */
static int collect(const struct sp_plan *plan, const struct sp_index *ix, struct heads *heads,
                   struct sp_channels *ch)
{
    const struct sp_layout *lay = &plan->layout;
    int cap_channels = 0, cap = 0;

    for (int s = 0; s < lay->stages; s++) {
        const struct sp_program *prog = &plan->programs[s];

        ch->cursor[s] = ch->n_messages;
        for (int k = 0; k < prog->n; k++) {
            struct sp_dep deps[SP_MAX_DEPS];
            int n = plan->family->deps(lay, s, &prog->ops[k], deps);
            int stream = plan->family->lowers->stream
                             ? plan->family->lowers->stream(lay, s, &prog->ops[k])
                             : 0;

            for (int i = 0; i < n; i++) {
                int place = sp_index_place(ix, plan, &deps[i]), c;
                void *array = ch->messages;

                if (deps[i].stage == s || place < 0)
                    continue;
                c = channel_of(ch, &cap_channels, heads, deps[i].stage, s,
                               prog->ops[k].pass == SP_F, stream);
                if (c < 0 || grow(&array, ch->n_messages, &cap, sizeof *ch->messages))
                    return -ENOMEM;
                ch->messages = array;
                ch->messages[ch->n_messages++] =
                    (struct sp_message){.channel = c, .index = place, .next_out = -1};
            }
        }
    }
    return 0;
}

/* Links the messages of each producer and numbers them in the order sent. */
static void number(const struct sp_plan *plan, struct sp_channels *ch)
{
    const struct sp_layout *lay = &plan->layout;

    for (int m = ch->n_messages - 1; m >= 0; m--) {
        struct sp_message *msg = &ch->messages[m];
        int src = ch->channels[msg->channel].src;
        int id = plan->family->id(lay, src, &plan->programs[src].ops[msg->index]);

        msg->next_out = ch->first_out[id];
        ch->first_out[id] = m;
    }
    for (int s = 0; s < lay->stages; s++) {
        for (int k = 0; k < plan->programs[s].n; k++) {
            int id = plan->family->id(lay, s, &plan->programs[s].ops[k]);

            for (int m = ch->first_out[id]; m >= 0; m = ch->messages[m].next_out)
                ch->messages[m].number = ch->channels[ch->messages[m].channel].sent++;
        }
    }
}

int sp_channels_create(const struct sp_plan *plan, int ids, struct sp_channels *ch)
{
    size_t p = (size_t)plan->layout.stages;
    struct heads heads = {0};
    struct sp_index ix = {0};
    int stage, index, ret = -ENOMEM;

    *ch = (struct sp_channels){.cursor = calloc(p, sizeof *ch->cursor),
                               .first_out = malloc((size_t)(ids > 0 ? ids : 1) * sizeof(int))};
    if (!ch->cursor || !ch->first_out || heads_create(&heads, ids < 65536 ? ids : 65536))
        goto out;
    memset(ch->first_out, -1, (size_t)ids * sizeof(int));
    ret = sp_index_create(plan, &ix, &stage, &index);
    if (!ret)
        ret = collect(plan, &ix, &heads, ch);
    if (!ret)
        number(plan, ch);
out:
    sp_index_destroy(&ix);
    free(heads.first);
    if (ret)
        sp_channels_destroy(ch);
    return ret;
}

void sp_channels_destroy(struct sp_channels *ch)
{
    free(ch->channels);
    free(ch->messages);
    free(ch->cursor);
    free(ch->first_out);
    *ch = (struct sp_channels){0};
}

int sp_channels_out_of_turn(const struct sp_channels *ch, int stage, int n)
{
    int first = ch->cursor[stage];

    for (int i = first; i < first + n; i++) {
        int c = ch->messages[i].channel, mine = 0;

        for (int j = first; j < first + n; j++)
            mine += ch->messages[j].channel == c;
        if (ch->messages[i].number >= ch->channels[c].taken + mine)
            return c;
    }
    return -1;
}

int sp_channels_full(const struct sp_channels *ch, int id, int capacity, double *start)
{
    for (int m = ch->first_out[id]; m >= 0; m = ch->messages[m].next_out) {
        int c = ch->messages[m].channel;
        int first = m; /* an op may put several messages in a channel: the first must fit */

        for (int o = ch->first_out[id]; o != m; o = ch->messages[o].next_out) {
            if (ch->messages[o].channel == c) {
                first = o;
                break;
            }
        }
        if (ch->messages[first].number >= ch->channels[c].taken + capacity)
            return c;
        if (ch->channels[c].free_at > *start)
            *start = ch->channels[c].free_at;
    }
    return -1;
}

int sp_channels_take(struct sp_channels *ch, int stage, double time)
{
    struct sp_channel_state *c = &ch->channels[ch->messages[ch->cursor[stage]++].channel];

    c->taken++;
    if (time > c->free_at)
        c->free_at = time;
    return c->src;
}

int sp_channels_left(const struct sp_channels *ch)
{
    for (int c = 0; c < ch->n; c++) {
        if (ch->channels[c].taken != ch->channels[c].sent)
            return c;
    }
    return -1;
}

int sp_channels_most(const struct sp_channels *ch)
{
    int most = 0;

    for (int c = 0; c < ch->n; c++) {
        if (ch->channels[c].sent > most)
            most = ch->channels[c].sent;
    }
    return most;
}

int sp_channels_next(const struct sp_channels *ch, int channel)
{
    int taken = ch->channels[channel].taken;

    for (int m = 0; m < ch->n_messages; m++) {
        if (ch->messages[m].channel == channel && ch->messages[m].number == taken)
            return ch->messages[m].index;
    }
    return -1;
}
