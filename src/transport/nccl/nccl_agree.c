#include "transport/nccl/nccl_agree.h"
#include "sp_error.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Followers that are ready for a message. */
struct sp_agree_ask {
    struct sp_agree_ask *next;
    int64_t tag;
    uint64_t bytes;
    int followers;
};

void sp_agree_init(struct sp_agree *end, int followers, int depth, const char *name)
{
    *end = (struct sp_agree){.followers = followers, .depth = depth};
    snprintf(end->name, sizeof end->name, "%s", name);
}

void sp_agree_clear(struct sp_agree *end)
{
    while (end->asks) {
        struct sp_agree_ask *ask = end->asks;

        end->asks = ask->next;
        free(ask);
    }
    end->waiting = end->agreed = end->last = NULL;
}

static struct sp_agree_message **waiting_of(struct sp_agree *end, int64_t tag)
{
    struct sp_agree_message **m = &end->waiting;

    while (*m && (*m)->tag != tag)
        m = &(*m)->next;
    return m;
}

static struct sp_agree_ask **ask_of(struct sp_agree *end, int64_t tag)
{
    struct sp_agree_ask **ask = &end->asks;

    while (*ask && (*ask)->tag != tag)
        ask = &(*ask)->next;
    return ask;
}

static int wrong_size(const struct sp_agree *end, int64_t tag, uint64_t here, uint64_t there)
{
    return sp_error(EMSGSIZE,
                    "internal: message %" PRId64 " (%s) has %" PRIu64 " bytes here, %" PRIu64
                    " at the other end",
                    tag, end->name, here, there);
}

/* Begins the next message in order, if there is room for it. */
static void begin_next(struct sp_agree *end, struct sp_agree_step *step)
{
    struct sp_agree_message *m = end->agreed;

    if (!m || end->begun == end->depth)
        return;
    end->agreed = m->next;
    end->begun++;
    step->begin = m;
}

/* Moves a waiting message to the end of the agreed order. */
static void agree(struct sp_agree *end, struct sp_agree_message **at, struct sp_agree_step *step)
{
    struct sp_agree_message *m = *at;

    *at = m->next;
    m->next = NULL;
    if (end->agreed)
        end->last->next = m;
    else
        end->agreed = m;
    end->last = m;
    end->number++;
    begin_next(end, step);
}

/* For a leader: gives the message its number if all ends are ready for it. */
static int lead(struct sp_agree *end, int64_t tag, struct sp_agree_step *step)
{
    struct sp_agree_message **m = waiting_of(end, tag);
    struct sp_agree_ask **at = ask_of(end, tag), *ask = *at;

    if (!*m || (end->followers > 0 && !ask))
        return 0;
    if (ask && ask->bytes != (*m)->bytes)
        return wrong_size(end, tag, (*m)->bytes, ask->bytes);
    if (ask && ask->followers < end->followers)
        return 0;
    step->tell = end->followers > 0;
    step->note =
        (struct sp_agree_note){.go = 1, .tag = tag, .bytes = (*m)->bytes, .number = end->number};
    if (ask) {
        *at = ask->next;
        free(ask);
    }
    agree(end, m, step);
    return 0;
}

int sp_agree_ready(struct sp_agree *end, struct sp_agree_message *m, struct sp_agree_step *step)
{
    struct sp_agree_message **at = waiting_of(end, m->tag);

    *step = (struct sp_agree_step){0};
    if (*at)
        return sp_error(EEXIST, "internal: two messages %" PRId64 " (%s) at once", m->tag,
                        end->name);
    m->next = NULL;
    *at = m;
    if (end->followers >= 0)
        return lead(end, m->tag, step);
    step->tell = true;
    step->note = (struct sp_agree_note){.tag = m->tag, .bytes = m->bytes};
    return 0;
}

/* A follower is ready for a message. */
static int hear_ready(struct sp_agree *end, const struct sp_agree_note *note,
                      struct sp_agree_step *step)
{
    struct sp_agree_ask **at = ask_of(end, note->tag), *ask = *at;

    if (!ask) {
        ask = malloc(sizeof *ask);
        if (!ask)
            return sp_error(ENOMEM, "out of memory for a message");
        *ask = (struct sp_agree_ask){.tag = note->tag, .bytes = note->bytes};
        *at = ask;
    }
    if (ask->bytes != note->bytes)
        return wrong_size(end, note->tag, ask->bytes, note->bytes);
    if (ask->followers == end->followers)
        return sp_error(EEXIST, "internal: two messages %" PRId64 " (%s) at once", note->tag,
                        end->name);
    ask->followers++;
    return lead(end, note->tag, step);
}

/* The leader gave a message its number. */
static int hear_go(struct sp_agree *end, const struct sp_agree_note *note,
                   struct sp_agree_step *step)
{
    struct sp_agree_message **m = waiting_of(end, note->tag);

    if (!*m || note->number != end->number)
        return sp_error(
            EPROTO,
            "internal: message %" PRId64 " (%s) has number %" PRIu64 " where %s%" PRIu64 " is next",
            note->tag, end->name, note->number, *m ? "" : "it is not waiting and ", end->number);
    if (note->bytes != (*m)->bytes)
        return wrong_size(end, note->tag, (*m)->bytes, note->bytes);
    agree(end, m, step);
    return 0;
}

int sp_agree_hear(struct sp_agree *end, const struct sp_agree_note *note,
                  struct sp_agree_step *step)
{
    *step = (struct sp_agree_step){0};
    if ((note->go != 0) != (end->followers < 0))
        return sp_error(EPROTO, "internal: message %" PRId64 " (%s): a note for the other end",
                        note->tag, end->name);
    return note->go ? hear_go(end, note, step) : hear_ready(end, note, step);
}

void sp_agree_done(struct sp_agree *end, struct sp_agree_step *step)
{
    *step = (struct sp_agree_step){0};
    end->begun--;
    begin_next(end, step);
}
