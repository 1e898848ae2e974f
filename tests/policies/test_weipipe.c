/*
 * WeiPipe's orders and rings: the published ones op by op and message by message. In every other
 * order, weights and gradients move around the rings one hop a turn and must be with the ops that
 * use them.
 */
#include "policies/reference.h"
#include "policies/families/weight_ring/ring.h"
#include "policies/weipipe.h"

/* A message as it was sent; D with the micro-batches in it. */
struct sent {
    int position, to, chunk, payload, n;
    int mbs[WEIPIPE_TURNS * WEIPIPE_STAGES];
};

struct rings {
    struct oracle h;
    int forward[WEIPIPE_STAGES], backward[WEIPIPE_STAGES]; /* chunk that a worker holds */
    struct sent grad[WEIPIPE_STAGES]; /* of a chunk, so far; where its backward weights are */
    int next[WEIPIPE_STAGES];         /* op of a worker */
    struct sent *sent[WEIPIPE_STAGES];
    int n[WEIPIPE_STAGES];
    int last_forward, last_backward; /* turns after which they are passed on */
};

/* Chunk c belongs to worker (c + 1) mod P. */
static int owned(int p, int worker)
{
    return (worker + p - 1) % p;
}

/* Appends a message, unless it would go to its sender. */
static void send(struct rings *r, int worker, int to, int payload, int chunk)
{
    struct sent *s = &r->sent[worker][r->n[worker]];

    if (to == worker)
        return;
    if (payload == SP_RING_GRADIENT)
        *s = r->grad[chunk];
    s->position = r->next[worker];
    s->to = to;
    s->chunk = chunk;
    s->payload = payload;
    r->n[worker]++;
}

/* Runs the next op of a worker if it is that of this rank in this turn. The op must find its
 * weights; a backward adds to D. */
static void run_op(struct rings *r, int worker, int turn, int rank)
{
    const struct sp_program *prog = &r->h.plan->programs[worker];
    const struct sp_op *op = &prog->ops[r->next[worker]];
    int link;

    if (r->next[worker] == prog->n)
        return;
    link = weipipe_link(&r->h, worker, op);
    assert_true(link >= 0);
    if (weipipe_turn(&r->h, op->mb / r->h.p, link) != turn - worker ||
        weipipe_rank(&r->h, link) != rank)
        return;
    if (rank == WEIPIPE_FORWARD)
        assert_int_equal(r->forward[worker], op->chunk);
    if (rank == WEIPIPE_BACKWARD) {
        struct sent *grad = &r->grad[op->chunk];

        assert_int_equal(r->backward[worker], op->chunk);
        assert_true(turn >= r->h.p);
        assert_int_equal(grad->n, op->mb); /* in the order of micro-batches */
        grad->mbs[grad->n++] = op->mb;
    }
    r->next[worker]++;
}

/* Runs the ops and sends of a turn, then rotates the rings. */
static void run_turn(struct rings *r, int turn)
{
    int p = r->h.p, forward[WEIPIPE_STAGES] = {0}, backward[WEIPIPE_STAGES] = {0};

    for (int w = 0; w < p; w++) {
        run_op(r, w, turn, WEIPIPE_BACKWARD);
        if (turn >= p && turn <= r->last_backward) {
            send(r, w, (w + 1) % p, SP_RING_BACKWARD, r->backward[w]);
            send(r, w, (w + 1) % p, SP_RING_GRADIENT, r->backward[w]);
        }
        run_op(r, w, turn, WEIPIPE_FORWARD);
        if (turn <= r->last_forward)
            send(r, w, (w + 1) % p, SP_RING_FORWARD, r->forward[w]);
        run_op(r, w, turn, WEIPIPE_HEAD);
    }
    for (int w = 0; w < p; w++) {
        forward[(w + 1) % p] = r->forward[w];
        backward[(w + 1) % p] = r->backward[w];
    }
    memcpy(r->forward, forward, sizeof forward);
    if (turn >= p) /* until then every worker keeps its own weights */
        memcpy(r->backward, backward, sizeof backward);
}

/* Moves weights and gradients until D is with its owner; all ops must then have run with their
 * weights. */
static void turn_rings(const struct sp_plan *plan, bool naive, struct rings *r)
{
    int p = plan->layout.stages, own[WEIPIPE_STAGES];

    memset(r, 0, sizeof *r);
    weipipe_create(plan, naive, &r->h);
    r->last_backward = r->h.turns - 1 + p; /* one on from the last worker's last */
    r->last_forward = weipipe_turn(&r->h, r->h.rounds - 1, p - 1) + p - 1;
    for (int w = 0; w < p; w++) {
        r->sent[w] = calloc((size_t)(3 * (r->last_backward + 2)), sizeof **r->sent);
        assert_non_null(r->sent[w]);
        own[w] = r->backward[w] = owned(p, w);
    }
    for (int w = 0; w < p; w++) {
        send(r, w, (p + 1 - w) % p, SP_RING_FORWARD, own[w]);
        r->forward[(p + 1 - w) % p] = own[w];
    }
    for (int turn = 0; turn <= r->last_backward; turn++)
        run_turn(r, turn);
    for (int w = 0; w < p; w++) {
        assert_int_equal(r->next[w], plan->programs[w].n);
        assert_int_equal(r->backward[w], own[w]);
        assert_int_equal(r->grad[own[w]].n, r->h.m);
    }
}

static void rings_destroy(struct rings *r)
{
    for (int w = 0; w < r->h.p; w++)
        free(r->sent[w]);
    oracle_destroy(&r->h);
}

/* "w0", "D:w0<-[0, 1]"; "None": nothing was added yet. */
static void payload_text(int p, const struct sent *s, char *text, size_t size)
{
    int used = 0, owner = (s->chunk + 1) % p;

    if (s->payload != SP_RING_GRADIENT || s->n == 0) {
        snprintf(text, size, s->payload == SP_RING_GRADIENT ? "None" : "w%d", owner);
        return;
    }
    used = snprintf(text, size, "D:w%d<-[", owner);
    for (int i = 0; i < s->n; i++)
        used += snprintf(text + used, size - (size_t)used, "%d%s", s->mbs[i],
                         i + 1 < s->n ? ", " : "]");
}

TEST(published)
{
    static const struct {
        const char *name;
        int p, rounds;
    } table[] = {{"weipipe_p2_G1", 2, 1}, {"weipipe_p2_G2", 2, 2}, {"weipipe_p4_G1", 4, 1}};

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        json_t *root = reference_load(table[i].name), *messages;
        struct sp_plan plan;
        struct rings r;
        int n = 0;

        assert_true(reference_number(root, "p", -1) == table[i].p);
        assert_true(reference_number(root, "gradient_accumulation_steps", -1) == table[i].rounds);
        weipipe_plan(false, table[i].p, table[i].rounds, &plan);
        reference_compare(&plan, root);
        turn_rings(&plan, false, &r);
        messages = json_object_get(root, "messages");
        for (int w = 0; w < table[i].p; w++) {
            json_t *list = json_array_get(messages, (size_t)w);

            assert_int_equal(json_array_size(list), r.n[w]);
            n += r.n[w];
            for (int k = 0; k < r.n[w]; k++) {
                json_t *entry = json_array_get(list, (size_t)k);
                char text[512];

                payload_text(table[i].p, &r.sent[w][k], text, sizeof text);
                assert_int_equal(json_integer_value(json_array_get(entry, 0)),
                                 r.sent[w][k].position);
                assert_int_equal(json_integer_value(json_array_get(entry, 1)), r.sent[w][k].to);
                assert_string_equal(json_string_value(json_array_get(entry, 3)), text);
            }
        }
        print_message("%s: %d messages as published\n", table[i].name, n);
        rings_destroy(&r);
        sp_plan_destroy(&plan);
        json_decref(root);
    }
}

/* Worker w runs what worker 0 does, with the micro-batches of its own. */
static void same_programs(const struct sp_plan *plan)
{
    for (int w = 0; w < plan->layout.stages; w++) {
        assert_int_equal(plan->programs[w].n, plan->programs[0].n);
        for (int k = 0; k < plan->programs[w].n; k++) {
            struct sp_op op = plan->programs[w].ops[k], first = plan->programs[0].ops[k];

            assert_int_equal(op.mb, first.mb + w);
            assert_true(op.pass == first.pass && op.part == first.part && op.chunk == first.chunk &&
                        op.slice == 0 && op.overlap == 0);
        }
    }
}

/* Checks the rings against the promises of ring.h. */
static void same_ring(const struct rings *r)
{
    const struct sp_plan *plan = r->h.plan;
    const struct sp_ring *ring = sp_ring_of(&plan->layout);
    int p = r->h.p;

    assert_int_equal(ring->turns, r->h.turns);
    assert_int_equal(ring->forward_turns, r->last_forward - p + 2);
    assert_int_equal(ring->rounds, r->h.rounds);
    assert_int_equal(ring->chunks, p);
    for (int w = 0; w < p; w++) {
        assert_int_equal(sp_ring_owner(ring, owned(p, w)), w);
        assert_int_equal(sp_ring_item(ring, w, p, SP_RING_BACKWARD).chunk, owned(p, w));
        for (int k = 0; k < plan->programs[w].n; k++) {
            const struct sp_op *op = &plan->programs[w].ops[k];
            int link = weipipe_link(&r->h, w, op), round = op->mb / p;
            int turn = sp_ring_turn(ring, op, round);

            assert_int_equal(turn, weipipe_turn(&r->h, round, link));
            if (link < p)
                assert_int_equal(sp_ring_forward(p, w, turn + w), op->chunk);
            if (link > p)
                assert_int_equal(sp_ring_item(ring, w, turn + w, SP_RING_BACKWARD).chunk,
                                 op->chunk);
        }
    }
    if (p > 1) {
        assert_int_equal(sp_ring_last_forward(ring), r->last_forward);
        assert_int_equal(sp_ring_last_backward(ring), r->last_backward);
    }
}

TEST(grid)
{
    int plans = 0, messages = 0;

    for (int i = 0; i < 2 * 8 * 5; i++) {
        bool naive = i % 2;
        int p = i / 2 % 8 + 1, rounds = i / 16 + 1;
        int passes = naive ? 2 * rounds : rounds + 1; /* of the model past a worker */
        struct sp_plan plan;
        struct rings r;

        weipipe_plan(naive, p, rounds, &plan);
        turn_rings(&plan, naive, &r);
        assert_int_equal(oracle_index(&r.h), 0);
        same_programs(&plan);
        same_ring(&r);
        for (int w = 0; w < p; w++) {
            /* a worker that would exchange with itself at first sends nothing then */
            assert_int_equal(r.n[w], p == 1 ? 0 : 3 * passes * p - (2 * w % p == 1 % p));
            messages += r.n[w];
        }
        plans++;
        rings_destroy(&r);
        sp_plan_destroy(&plan);
    }
    print_message("%d plans, %d messages\n", plans, messages);
}
