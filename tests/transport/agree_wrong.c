#include "transport/agree_wrong.h"
#include "transport/nccl/nccl_agree.h"

static int right_ready(struct sp_agree *end, struct sp_agree_message *m,
                       struct sp_agree_step *step);
static int right_hear(struct sp_agree *end, const struct sp_agree_note *note,
                      struct sp_agree_step *step);
static void right_done(struct sp_agree *end, struct sp_agree_step *step);
#define sp_agree_ready right_ready
#define sp_agree_hear right_hear
#define sp_agree_done right_done
#include "../../src/transport/nccl/nccl_agree.c"
#undef sp_agree_ready
#undef sp_agree_hear
#undef sp_agree_done

enum agree_mistake agree_mistake;

/* Puts a message into the order at once. */
static void begin_unagreed(struct sp_agree *end, struct sp_agree_message *m,
                           struct sp_agree_step *step)
{
    struct sp_agree_message **at = &end->waiting;

    *step = (struct sp_agree_step){0};
    m->next = NULL;
    while (*at)
        at = &(*at)->next;
    *at = m;
    agree(end, at, step);
}

/* ---- unasked: followers keep to the leader's order, but may not be ready yet -------------------- */

/* A follower's asks are what the leader has begun, in order. */
static void next_of_leader(struct sp_agree *end, struct sp_agree_step *step)
{
    struct sp_agree_ask *first = end->asks;
    struct sp_agree_message **m = first ? waiting_of(end, first->tag) : NULL;

    if (!first || !*m || end->begun == end->depth)
        return;
    end->asks = first->next;
    free(first);
    agree(end, m, step);
}

static int unasked_ready(struct sp_agree *end, struct sp_agree_message *m,
                         struct sp_agree_step *step)
{
    if (end->followers >= 0) {
        begin_unagreed(end, m, step);
        step->tell = end->followers > 0;
        step->note = (struct sp_agree_note){
            .go = 1, .tag = m->tag, .bytes = m->bytes, .number = end->number - 1};
        return 0;
    }
    *step = (struct sp_agree_step){0};
    m->next = end->waiting;
    end->waiting = m;
    next_of_leader(end, step);
    return 0;
}

static int unasked_hear(struct sp_agree *end, const struct sp_agree_note *note,
                        struct sp_agree_step *step)
{
    struct sp_agree_ask **at = &end->asks;

    *step = (struct sp_agree_step){0};
    while (*at)
        at = &(*at)->next;
    *at = malloc(sizeof **at);
    if (!*at)
        return -ENOMEM;
    **at = (struct sp_agree_ask){.tag = note->tag};
    next_of_leader(end, step);
    return 0;
}

static void unasked_done(struct sp_agree *end, struct sp_agree_step *step)
{
    *step = (struct sp_agree_step){0};
    end->begun--;
    if (end->followers < 0)
        next_of_leader(end, step);
    else
        begin_next(end, step);
}

/* ---- latest --------------------------------------------------------------------------------------- */

/* Puts what was agreed on last before the rest. */
static void latest_first(struct sp_agree *end)
{
    struct sp_agree_message *m = end->agreed;

    if (!m || !m->next)
        return;
    while (m->next->next)
        m = m->next;
    m->next->next = end->agreed;
    end->agreed = m->next;
    m->next = NULL;
    end->last = m;
}

/* ---- the rules -------------------------------------------------------------------------------------- */

int sp_agree_ready(struct sp_agree *end, struct sp_agree_message *m, struct sp_agree_step *step)
{
    int err;

    if (agree_mistake == AGREE_OWN_ORDER) {
        begin_unagreed(end, m, step);
        return 0;
    }
    if (agree_mistake == AGREE_UNASKED)
        return unasked_ready(end, m, step);
    err = right_ready(end, m, step);
    if (agree_mistake == AGREE_LATEST && end->followers >= 0)
        latest_first(end);
    return err;
}

int sp_agree_hear(struct sp_agree *end, const struct sp_agree_note *note,
                  struct sp_agree_step *step)
{
    int err;

    if (agree_mistake == AGREE_UNASKED && note->go)
        return unasked_hear(end, note, step);
    if (agree_mistake == AGREE_OWN_ORDER || agree_mistake == AGREE_UNASKED ||
        (agree_mistake == AGREE_FORGETS && !note->go && !*waiting_of(end, note->tag))) {
        *step = (struct sp_agree_step){0};
        return 0;
    }
    err = right_hear(end, note, step);
    if (agree_mistake == AGREE_LATEST && end->followers >= 0)
        latest_first(end);
    return err;
}

void sp_agree_done(struct sp_agree *end, struct sp_agree_step *step)
{
    if (agree_mistake == AGREE_UNASKED)
        unasked_done(end, step);
    else
        right_done(end, step);
}
