/*
 * Many communicators together: random programs of stages on processes, with few buffers at both ends of
 * every message, in random interleavings. Messages of a communicator are wanted in other orders than they
 * become ready, notes are late, stages wait for buffers: all come to their end. Mistakes planted in the
 * rules stop most of these programs.
 */
#include "draw.h"
#include "policies/common.h"
#include "transport/agree_wrong.h"
#include "transport/nccl/nccl_agree.h"

enum { PROCESSES = 4, STAGES = 8, MESSAGES = 48, MEMBERS = 3, LINKS = PROCESSES * PROCESSES + 2 };

/* One end of a communicator, and what is in its stream. */
struct end {
    bool there;
    struct sp_agree end;
    int stream[MESSAGES], n, done; /* begun, in order; the first `done` of them are done */
};

/* A message from stage to stage, or a sum of one stage of each process of a group. */
struct message {
    int link, stages[MEMBERS], n; /* the first leads */
    bool sum;
};

/* A stage's part of a message. A stage runs its parts in order: it waits for what it receives, and for a
 * buffer for what it sends or sums. Receives are posted ahead, in order, as buffers allow. */
struct part {
    struct sp_agree_message at;
    enum { UNPOSTED, POSTED, READY, DONE } state;
    bool sends;
};

struct stage {
    int process, mine[MESSAGES], n; /* messages that it has a part in */
    int next, posted;               /* the part it runs; the first that is not posted */
    int free_in, free_out;          /* buffers */
};

struct note {
    struct sp_agree_note note;
    int end; /* process of the end */
};

static struct world {
    int processes, stages, messages, depth, window;
    uint64_t draws;
    struct message message[MESSAGES];
    struct part part[MESSAGES][STAGES];
    struct stage stage[STAGES];
    struct end lead[LINKS], follow[LINKS][PROCESSES];    /* followers by process */
    struct note way[PROCESSES][PROCESSES][4 * MESSAGES]; /* between processes, in order */
    int told[PROCESSES][PROCESSES], heard[PROCESSES][PROCESSES];
    const char *wrong;
} w;

/* ---- a random world -------------------------------------------------------------------------------- */

static void add_part(int message, int stage, bool sends)
{
    struct stage *st = &w.stage[stage];

    w.part[message][stage] =
        (struct part){.at = {.tag = message, .bytes = 1000u + (unsigned)message}, .sends = sends};
    st->mine[st->n++] = message;
    w.message[message].stages[w.message[message].n++] = stage;
}

/* Ends of a communicator of processes, the first of which leads. */
static void add_link(int link, const int *processes, int n)
{
    if (w.lead[link].there)
        return;
    w.lead[link].there = true;
    sp_agree_init(&w.lead[link].end, n - 1, w.depth, "test");
    for (int i = 1; i < n; i++) {
        w.follow[link][processes[i]].there = true;
        sp_agree_init(&w.follow[link][processes[i]].end, -1, w.depth, "test");
    }
}

/* Sums are of one stage of each process of a group; the first group has all, the second all but one. */
static void add_sum(int m)
{
    int group = draw_below(&w.draws, 2), members[PROCESSES], n = 0;

    w.message[m].sum = true;
    w.message[m].link = PROCESSES * PROCESSES + group;
    for (int p = group; p < w.processes && n < MEMBERS; p++) {
        int stage = p + w.processes * draw_below(&w.draws, w.stages / w.processes);

        members[n++] = p;
        add_part(m, stage, true);
    }
    add_link(w.message[m].link, members, n);
}

static void add_edge(int m)
{
    int from = draw_below(&w.draws, w.stages), to = draw_below(&w.draws, w.stages - 1);
    int ends[2];

    to += to >= from;
    ends[0] = w.stage[from].process;
    ends[1] = w.stage[to].process;
    w.message[m].link = ends[0] * PROCESSES + ends[1];
    add_part(m, from, true);
    add_part(m, to, false);
    add_link(w.message[m].link, ends, 2);
}

static void make_world(uint64_t seed)
{
    memset(&w, 0, sizeof w);
    w.draws = seed;
    w.processes = 1 + draw_below(&w.draws, PROCESSES);
    w.stages = w.processes * (w.processes > 1 ? 1 + draw_below(&w.draws, STAGES / w.processes) : 2);
    w.messages = 1 + draw_below(&w.draws, MESSAGES);
    w.depth = 1 + draw_below(&w.draws, 3);
    w.window = 1 + draw_below(&w.draws, 6);
    for (int s = 0; s < w.stages; s++) {
        w.stage[s].process = s % w.processes;
        w.stage[s].free_in = 1 + draw_below(&w.draws, 3);
        w.stage[s].free_out = 1 + draw_below(&w.draws, 3);
    }
    for (int m = 0; m < w.messages; m++) {
        if (w.processes > 2 && draw_below(&w.draws, 6) == 0)
            add_sum(m);
        else
            add_edge(m);
    }
}

/* ---- what can happen ---------------------------------------------------------------------------------- */

static int process_of(int message, int i)
{
    return w.stage[w.message[message].stages[i]].process;
}

/* The end of a stage's part of a message. */
static struct end *end_of(int message, int stage)
{
    const struct message *m = &w.message[message];

    if (stage == m->stages[0])
        return &w.lead[m->link];
    return &w.follow[m->link][w.stage[stage].process];
}

static void tell(int message, int from, int to, const struct sp_agree_note *note)
{
    int *n = &w.told[from][to];
    struct note *on = &w.way[from][to][(*n)++];

    on->note = *note;
    on->note.link = w.message[message].link;
    on->end = to;
}

static void apply(struct end *end, int err, const struct sp_agree_step *step)
{
    int m;

    if (err) {
        w.wrong = "an error";
        return;
    }
    if (step->tell) {
        m = (int)step->note.tag;
        for (int i = 1; i < w.message[m].n; i++) {
            if (step->note.go)
                tell(m, process_of(m, 0), process_of(m, i), &step->note);
            else if (end == end_of(m, w.message[m].stages[i]))
                tell(m, process_of(m, i), process_of(m, 0), &step->note);
        }
    }
    if (step->begin) {
        end->stream[end->n++] = (int)step->begin->tag;
        if (end->n - end->done > w.depth)
            w.wrong = "too many in a stream";
    }
}

static bool hear(int from, int to, bool really)
{
    const struct note *on = &w.way[from][to][w.heard[from][to]];
    struct sp_agree_step step;
    struct end *end;

    if (w.heard[from][to] == w.told[from][to])
        return false;
    if (!really)
        return true;
    w.heard[from][to]++;
    end = on->note.go ? &w.follow[on->note.link][to] : &w.lead[on->note.link];
    apply(end, sp_agree_hear(&end->end, &on->note, &step), &step);
    return true;
}

/* A receive's buffer is taken where it is posted; it is ready some time after. */
static bool post(struct stage *st, int s, bool really)
{
    struct part *part;

    while (st->posted < st->n && w.part[st->mine[st->posted]][s].sends)
        st->posted++;
    if (st->posted == st->n || st->posted > st->next + w.window || !st->free_in)
        return false;
    part = &w.part[st->mine[st->posted]][s];
    if (!really)
        return true;
    st->free_in--;
    st->posted++;
    part->state = POSTED;
    return true;
}

static void become_ready(int m, int s)
{
    struct end *end = end_of(m, s);
    struct sp_agree_step step;

    w.part[m][s].state = READY;
    apply(end, sp_agree_ready(&end->end, &w.part[m][s].at, &step), &step);
}

static bool run(struct stage *st, int s, bool really)
{
    struct part *part;

    if (st->next == st->n)
        return false;
    part = &w.part[st->mine[st->next]][s];
    if (part->sends ? !st->free_out : part->state != DONE)
        return false;
    if (!really)
        return true;
    if (part->sends) {
        st->free_out--;
        become_ready(st->mine[st->next], s);
    } else {
        st->free_in++;
    }
    st->next++;
    return true;
}

/* The oldest message of a stream that is not done, which all its ends have begun; -1: none. */
static int landing(const struct end *end)
{
    int m;

    if (!end->there || end->done == end->n)
        return -1;
    m = end->stream[end->done];
    for (int i = 0; i < w.message[m].n; i++) {
        const struct end *other = end_of(m, w.message[m].stages[i]);

        if (other->n <= end->done)
            return -1;
        if (other->stream[end->done] != m)
            w.wrong = "begun in different orders";
    }
    return m;
}

static bool land(struct end *end, int process, bool really)
{
    int m = landing(end);
    struct sp_agree_step step;

    if (m < 0 || !really)
        return m >= 0;
    end->done++;
    for (int i = 0; i < w.message[m].n; i++) {
        int s = w.message[m].stages[i];

        if (end_of(m, s) != end || w.stage[s].process != process)
            continue;
        w.part[m][s].state = DONE;
        if (w.part[m][s].sends)
            w.stage[s].free_out++;
    }
    sp_agree_done(&end->end, &step);
    apply(end, 0, &step);
    return true;
}

/* ---- a run ---------------------------------------------------------------------------------------------- */

enum { KINDS = 5 };

static bool kind_of_event(int kind, int i, int k, bool really)
{
    int m;

    switch (kind) {
    case 0:
        return i < w.stages && k == 0 && post(&w.stage[i], i, really);
    case 1:
        m = i < w.stages && k < w.stage[i].n ? w.stage[i].mine[k] : -1;
        if (m < 0 || w.part[m][i].state != POSTED)
            return false;
        if (really)
            become_ready(m, i);
        return true;
    case 2:
        return i < w.stages && k == 0 && run(&w.stage[i], i, really);
    case 3:
        return i < w.processes && k < w.processes && hear(i, k, really);
    default:
        if (i >= LINKS || k > w.processes)
            return false;
        if (k < w.processes)
            return land(&w.follow[i][k], k, really);
        return w.lead[i].there &&
               land(&w.lead[i],
                    i < PROCESSES * PROCESSES ? i / PROCESSES : i - PROCESSES * PROCESSES, really);
    }
}

/* One of the events that can happen, at random; some kinds are left for last now and then. */
static bool step(void)
{
    static int events[4096][3];
    int n = 0, late = draw_below(&w.draws, 2 * KINDS);

    for (int again = 0; again < 2 && !n; again++, late = -1)
        for (int kind = 0; kind < KINDS; kind++)
            for (int i = 0; kind != late && i < LINKS; i++)
                for (int k = 0; k < MESSAGES; k++)
                    if (kind_of_event(kind, i, k, false)) {
                        events[n][0] = kind;
                        events[n][1] = i;
                        events[n++][2] = k;
                    }
    if (!n)
        return false;
    late = draw_below(&w.draws, n);
    kind_of_event(events[late][0], events[late][1], events[late][2], true);
    return !w.wrong;
}

static const char *run_world(uint64_t seed)
{
    make_world(seed);
    while (step())
        continue;
    for (int s = 0; s < w.stages && !w.wrong; s++)
        if (w.stage[s].next < w.stage[s].n)
            w.wrong = "stuck before the end";
    for (int m = 0; m < w.messages && !w.wrong; m++)
        for (int i = 0; i < w.message[m].n; i++)
            if (w.part[m][w.message[m].stages[i]].state != DONE)
                w.wrong = "a message did not go";
    for (int l = 0; l < LINKS; l++) {
        sp_agree_clear(&w.lead[l].end);
        for (int p = 0; p < PROCESSES; p++)
            sp_agree_clear(&w.follow[l][p].end);
    }
    return w.wrong;
}

TEST(test_programs)
{
    enum { WORLDS = 600 };
    long messages = 0;

    agree_mistake = AGREE_RIGHT;
    for (uint64_t seed = 1; seed <= WORLDS; seed++) {
        const char *wrong = run_world(seed);

        if (wrong)
            fail_msg("world %d (%d processes, %d stages, %d messages): %s", (int)seed, w.processes,
                     w.stages, w.messages, wrong);
        messages += w.messages;
    }
    printf("%d programs, %ld messages\n", WORLDS, messages);
}

TEST(test_mistakes)
{
    enum { WORLDS = 150 };

    for (int m = AGREE_RIGHT + 1; m < AGREE_MISTAKES; m++) {
        int seen = 0;

        agree_mistake = (enum agree_mistake)m;
        for (uint64_t seed = 1; seed <= WORLDS; seed++)
            seen += run_world(seed) != NULL;
        printf("mistake %d: seen in %d of %d programs\n", m, seen, WORLDS);
        assert_true(seen > 0);
    }
    agree_mistake = AGREE_RIGHT;
}
