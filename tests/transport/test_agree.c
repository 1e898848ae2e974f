/*
 * The ends of one communicator agree in every interleaving of the events of a few messages: all
 * ends begin the same messages in the same order, none before all are ready, and all messages end.
 * Mistakes planted in the rules are found.
 */
#include "policies/common.h"
#include "transport/agree_wrong.h"
#include "transport/nccl/nccl_agree.h"

enum { MOST = 4, ENDS = 3 }; /* messages; the leader is end 0 */

struct channel {
    struct sp_agree_note notes[MOST];
    int n;
};

struct end {
    struct sp_agree end;
    struct sp_agree_message messages[MOST];
    int ready;                /* bits */
    int begun[MOST], n_begun; /* messages, in order */
    int done;                 /* how many of them */
    struct channel up, down;  /* notes between a follower and its leader, on their way */
};

struct world {
    int messages, ends, depth;
    bool buffered; /* the leader may be done before the others have begun */
    struct end end[ENDS];
    int order[MOST], n_order; /* as the leader told it */
    const char *wrong;
};

enum kind { READY, HEAR_READY, HEAR_GO, DONE, KINDS };

struct event {
    enum kind kind;
    int end, message;
};

static void set_up(struct world *w)
{
    memset(w->end, 0, sizeof w->end);
    w->n_order = 0;
    w->wrong = NULL;
    for (int e = 0; e < w->ends; e++) {
        sp_agree_init(&w->end[e].end, e == 0 ? w->ends - 1 : -1, w->depth, "test");
        for (int i = 0; i < w->messages; i++)
            w->end[e].messages[i] =
                (struct sp_agree_message){.tag = 10 + i, .bytes = 100u + (unsigned)i};
    }
}

static void tear_down(struct world *w)
{
    for (int e = 0; e < w->ends; e++)
        sp_agree_clear(&w->end[e].end);
}

/* A transfer ends when all have begun it; its ends learn that on their own. */
static bool may_be_done(const struct world *w, int e)
{
    int at = w->end[e].done;

    if (at == w->end[e].n_begun)
        return false;
    for (int k = 0; k < w->ends; k++)
        if (w->end[k].n_begun <= at && !(w->buffered && e == 0))
            return false;
    return true;
}

static bool enabled(const struct world *w, struct event ev)
{
    const struct end *end = &w->end[ev.end];

    if (ev.kind == READY)
        return !(end->ready >> ev.message & 1);
    if (ev.message > 0)
        return false;
    if (ev.kind == DONE)
        return may_be_done(w, ev.end);
    return ev.end > 0 && (ev.kind == HEAR_READY ? end->up.n : end->down.n) > 0;
}

static void check_begun(struct world *w, int e)
{
    const struct end *end = &w->end[e];
    int at = end->n_begun - 1, message = end->begun[at];

    for (int k = 0; k < w->ends; k++) {
        if (!(w->end[k].ready >> message & 1))
            w->wrong = "begun before all are ready";
        if (w->end[k].n_begun > at && w->end[k].begun[at] != message)
            w->wrong = "begun in different orders";
    }
    if (end->n_begun - end->done > w->depth)
        w->wrong = "too many in the stream";
}

static void push(struct world *w, struct channel *ch, struct sp_agree_note note)
{
    if (ch->n == MOST)
        w->wrong = "more notes than messages";
    else
        ch->notes[ch->n++] = note;
}

static struct sp_agree_note pop(struct channel *ch)
{
    struct sp_agree_note note = ch->notes[0];

    memmove(ch->notes, ch->notes + 1, sizeof note * (size_t)--ch->n);
    return note;
}

static void apply(struct world *w, int e, int err, const struct sp_agree_step *step)
{
    struct end *end = &w->end[e];

    if (err)
        w->wrong = "an error";
    if (step->tell && e > 0)
        push(w, &end->up, step->note);
    if (step->tell && e == 0 && w->n_order < MOST)
        w->order[w->n_order++] = (int)step->note.tag;
    for (int k = 1; step->tell && e == 0 && k < w->ends; k++)
        push(w, &w->end[k].down, step->note);
    if (step->begin) {
        if (end->n_begun == w->messages) {
            w->wrong = "begun twice";
            return;
        }
        end->begun[end->n_begun++] = (int)step->begin->tag - 10;
        check_begun(w, e);
    }
}

static void happen(struct world *w, struct event ev)
{
    struct end *end = &w->end[ev.end];
    struct sp_agree_step step;
    struct sp_agree_note note;
    int err = 0, e = ev.end;

    if (ev.kind == READY) {
        end->ready |= 1 << ev.message;
        err = sp_agree_ready(&end->end, &end->messages[ev.message], &step);
    } else if (ev.kind == DONE) {
        end->done++;
        sp_agree_done(&end->end, &step);
    } else {
        note = pop(ev.kind == HEAR_READY ? &end->up : &end->down);
        e = ev.kind == HEAR_READY ? 0 : e;
        err = sp_agree_hear(&w->end[e].end, &note, &step);
    }
    apply(w, e, err, &step);
}

/* ---- the search ------------------------------------------------------------------------------------ */

enum { LONGEST = 4 * ENDS * MOST, SLOTS = 1 << 20 };

/* Two worlds with the same key behave the same from here on: the messages that an end has heard of
 * and not begun follow from the leader's order. */
struct key {
    unsigned char text[MOST + ENDS * (3 + 3 * MOST)];
};

static struct search {
    struct key keys[SLOTS]; /* hashed; the first byte is never 0 where one is */
    int states;
    const char *wrong;
    struct event path[LONGEST];
} search;

static struct key key_of(const struct world *w)
{
    struct key key = {{0}};
    unsigned char *at = key.text;

    for (int i = 0; i < MOST; i++)
        *at++ = (unsigned char)(i < w->n_order ? w->order[i] : 1);
    for (int e = 0; e < w->ends; e++) {
        const struct end *end = &w->end[e];

        *at++ = (unsigned char)end->ready;
        *at++ = (unsigned char)(end->done << 4 | end->n_begun);
        *at++ = (unsigned char)(end->up.n << 4 | end->down.n);
        for (int i = 0; i < MOST; i++) {
            *at++ = (unsigned char)(i < end->n_begun ? 1 + end->begun[i] : 0);
            *at++ = (unsigned char)(i < end->up.n ? end->up.notes[i].tag : 0);
            *at++ = (unsigned char)(i < end->down.n ? end->down.notes[i].tag : 0);
        }
    }
    return key;
}

/* True if the world's key is new. */
static bool is_new(const struct world *w)
{
    struct key key = key_of(w);
    uint64_t hash = 14695981039346656037u;

    for (size_t i = 0; i < sizeof key.text; i++)
        hash = (hash ^ key.text[i]) * 1099511628211u;
    for (size_t i = (size_t)(hash >> 20) % SLOTS;; i = (i + 1) % SLOTS) {
        if (!memcmp(&search.keys[i], &key, sizeof key))
            return false;
        if (search.keys[i].text[0])
            continue;
        search.keys[i] = key;
        assert_true(++search.states < SLOTS / 4 * 3);
        return true;
    }
}

static bool all_done(const struct world *w)
{
    for (int e = 0; e < w->ends; e++) {
        const struct sp_agree *end = &w->end[e].end;

        if (w->end[e].done < w->messages || end->waiting || end->agreed || end->asks || end->begun)
            return false;
    }
    return true;
}

/* The ends hold lists, so a world is not copied but made again from its events. */
static void replay(struct world *w, int length)
{
    set_up(w);
    for (int i = 0; i < length && !w->wrong; i++)
        happen(w, search.path[i]);
}

static void stream(struct world *w, int length)
{
    bool stuck = true;

    assert_true(length < LONGEST);
    for (int e = 0; e < w->ends && !search.wrong; e++)
        for (int kind = 0; kind < KINDS && !search.wrong; kind++)
            for (int i = 0; i < w->messages && !search.wrong; i++) {
                struct event ev = {(enum kind)kind, e, i};

                replay(w, length);
                if (!enabled(w, ev)) {
                    tear_down(w);
                    continue;
                }
                stuck = false;
                happen(w, ev);
                search.wrong = w->wrong;
                search.path[length] = ev;
                if (!search.wrong && is_new(w)) {
                    tear_down(w);
                    stream(w, length + 1);
                } else {
                    tear_down(w);
                }
            }
    if (search.wrong || !stuck)
        return;
    replay(w, length);
    if (!all_done(w))
        search.wrong = "stuck before the end";
    tear_down(w);
}

/* Explores all interleavings; returns the first error, NULL if there is none. */
static const char *explore(int messages, int ends, int depth, bool buffered)
{
    struct world w = {.messages = messages, .ends = ends, .depth = depth, .buffered = buffered};

    memset(&search, 0, sizeof search);
    stream(&w, 0);
    return search.wrong;
}

TEST(test_every_interleaving)
{
    static const struct {
        int messages, ends, depth;
    } cases[] = {{1, 2, 1}, {2, 2, 1}, {3, 2, 1}, {3, 2, 2}, {3, 2, 3}, {4, 2, 1},
                 {4, 2, 2}, {1, 3, 1}, {2, 3, 1}, {2, 3, 2}, {2, 1, 1}};

    agree_mistake = AGREE_RIGHT;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int buffered = 0; buffered < 2; buffered++) {
            const char *wrong = explore(cases[i].messages, cases[i].ends, cases[i].depth, buffered);

            if (wrong)
                fail_msg("%d messages, %d ends, depth %d: %s", cases[i].messages, cases[i].ends,
                         cases[i].depth, wrong);
            printf("%d messages, %d ends, %d in a stream%s: %d states\n", cases[i].messages,
                   cases[i].ends, cases[i].depth, buffered ? ", sends buffered" : "",
                   search.states);
        }
}

TEST(test_mistakes)
{
    for (int m = AGREE_RIGHT + 1; m < AGREE_MISTAKES; m++) {
        const char *wrong;

        agree_mistake = (enum agree_mistake)m;
        wrong = explore(3, 2, 1, false);
        assert_non_null(wrong);
        printf("mistake %d: %s\n", m, wrong);
    }
    agree_mistake = AGREE_RIGHT;
}

/* ---- mistakes of the caller ---------------------------------------------------------------------------- */

/* Each mistake gives one line and an error. */
TEST(test_refusals)
{
    struct sp_agree_message m = {.tag = 5, .bytes = 8}, again = m, other = {.tag = 6, .bytes = 8};
    struct sp_agree leader, follower;
    struct sp_agree_step step;
    struct capture said;

    sp_agree_init(&leader, 1, 1, "rank 0 to 1");
    sp_agree_init(&follower, -1, 1, "rank 0 to 1");
    capture_begin(&said);
    assert_int_equal(sp_agree_ready(&follower, &m, &step), 0);
    assert_int_equal(sp_agree_ready(&follower, &again, &step), -EEXIST);
    assert_string_equal(capture_end(&said),
                        "starpipe: internal: two messages 5 (rank 0 to 1) at once\n");
    capture_begin(&said);
    assert_int_equal(
        sp_agree_hear(&follower, &(struct sp_agree_note){.go = 1, .tag = 6, .bytes = 8}, &step),
        -EPROTO);
    assert_int_equal(
        sp_agree_hear(&follower,
                      &(struct sp_agree_note){.go = 1, .tag = 5, .bytes = 8, .number = 1}, &step),
        -EPROTO);
    assert_int_equal(
        sp_agree_hear(&follower, &(struct sp_agree_note){.go = 1, .tag = 5, .bytes = 9}, &step),
        -EMSGSIZE);
    assert_int_equal(sp_agree_hear(&follower, &(struct sp_agree_note){.tag = 5}, &step), -EPROTO);
    assert_non_null(strstr(capture_end(&said), "message 5 (rank 0 to 1) has 8 bytes here, 9 at"));
    capture_begin(&said);
    assert_int_equal(sp_agree_hear(&leader, &(struct sp_agree_note){.tag = 6, .bytes = 9}, &step),
                     0);
    assert_int_equal(sp_agree_ready(&leader, &other, &step), -EMSGSIZE);
    assert_int_equal(sp_agree_hear(&leader, &(struct sp_agree_note){.tag = 7, .bytes = 9}, &step),
                     0);
    assert_int_equal(sp_agree_hear(&leader, &(struct sp_agree_note){.tag = 7, .bytes = 9}, &step),
                     -EEXIST);
    capture_end(&said);
    sp_agree_clear(&leader);
    sp_agree_clear(&follower);
}
