#include "parity/formula.h"
#include <stdlib.h>
#include <string.h>

/* Numbers of parameters of a model's parts. GPT-2 has biases and one matrix less in the MLP than
 * Llama, whose queries share keys and values; Qwen 3 has gains of heads. */
struct parts {
    int64_t norm1, qkv, rest; /* of a layer */
    int64_t out;              /* of the rest, attention's output product */
    int64_t tokens, positions, norm, head;
};

static struct parts parts_of(const struct sp_model *m)
{
    int64_t h = m->hidden, f = m->mlp, q = (int64_t)m->heads * m->head_dim;
    int64_t kv = (int64_t)2 * m->kv_heads * m->head_dim;
    int64_t biases = m->qkv_bias ? q + kv : 0, gains = m->qk_norm ? 2 * m->head_dim : 0;

    if (m->arch == SP_ARCH_GPT2)
        return (struct parts){.norm1 = 2 * h,
                              .qkv = 3 * h * h + 3 * h,
                              .out = h * h + h,
                              .rest = h * h + h + 2 * h + 2 * h * f + f + h,
                              .tokens = m->vocab * h,
                              .positions = m->positions * h,
                              .norm = 2 * h};
    return (struct parts){.norm1 = h,
                          .qkv = h * (q + kv) + biases + gains,
                          .out = h * q + (m->out_bias ? h : 0),
                          .rest = h * q + h + 3 * h * f + (m->out_bias ? h : 0),
                          .tokens = m->vocab * h,
                          .norm = h,
                          .head = m->vocab * h};
}

static int64_t layer_of(const struct parts *n)
{
    return n->norm1 + n->qkv + n->rest;
}
/* HelixPipe ships q, k, v; or QKV weights; or all of attention. */
enum shipment { ACTIVATIONS, QKV, ATTENTION };

/* The weights of layer l that go to stage `at`, `times` times, for its attention, and their
 * gradients back. */
static void helix_weights(const struct setup *s, enum shipment what, int l, int at, int times,
                          int64_t *sent)
{
    const struct parts n = parts_of(&s->model);
    int P = s->plan.layout.stages, block = l % P, after = l + 1 < s->model.layers ? (l + 1) % P : 0;
    int64_t first = n.qkv + (what == ATTENTION ? n.norm1 : 0),
            second = what == ATTENTION ? n.out : 0;

    sent[block] += block != at ? times * first : 0;
    sent[after] += after != at ? times * second : 0;
    sent[at] += times * ((block != at ? first : 0) + (after != at ? second : 0));
}

/*
 * HelixPipe sends from block to attention, and back, the residual with the product's input or q, k,
 * v; from attention to block, and back, the residual and the output; bsh alone if all of attention
 * is shipped. Weights and their gradients go once to each stage with attention of a layer; in the
 * published schedule, with every micro-batch.
 */
static void helix_bytes(const struct setup *s, int64_t *sent)
{
    const struct sp_layout *lay = &s->plan.layout;
    const struct sp_model *m = &s->model;
    const char *schedule = s->args.layout.schedule;
    const char *fold = strstr(schedule, "fold=");
    bool each = strstr(schedule, "qkv=published");
    enum shipment what = strstr(schedule, "ship=attention")        ? ATTENTION
                         : each || strstr(schedule, "qkv=weights") ? QKV
                                                                   : ACTIVATIONS;
    int P = lay->stages, f = fold ? fold[5] - '0' : 2, M = lay->micro_batches;
    int64_t T = s->shape.rows, h = m->hidden, q = (int64_t)m->heads * m->head_dim;
    int64_t kv = (int64_t)2 * m->kv_heads * m->head_dim;
    int64_t near = T * h + (what == QKV ? T * h : what == ACTIVATIONS ? T * (q + kv) : 0);
    int64_t far = what == ATTENTION ? T * h : T * (h + q);

    for (int l = 0; l < m->layers; l++) {
        int here[MOST_STAGES] = {0};

        for (int i = 0; i < M; i++) {
            int block = l % P, after = l + 1 < m->layers ? (l + 1) % P : 0;
            int at = (l + i / f + 1) % P;

            here[at]++;
            sent[block] += block != at ? near : 0;
            sent[at] += (block != at ? near : 0) + (after != at ? far : 0);
            sent[after] += after != at ? far : 0;
        }
        for (int at = 0; at < P && what != ACTIVATIONS; at++)
            helix_weights(s, what, l, at, each ? here[at] : here[at] > 0, sent);
    }
}

/* A worker at position `at` of a ring has for its backwards this chunk, as weights or as a
 * gradient. */
static int ring_chunk(bool pairs, int P, int at, int i)
{
    return pairs ? (i ? P / 2 : P) - 1 - at / 2 : P - 1 - at;
}

static bool ring_gradient(bool pairs, int at, int i)
{
    return pairs ? at % 2 : i;
}

/* Adds the weights and gradients that worker r sends around the ring. */
static void ring_worker(int P, int G, const char *schedule, const int64_t *size, int r,
                        int64_t *sent)
{
    bool pairs = !strncmp(schedule, "wzb1", 4), home = !pairs;
    bool naive = !strncmp(schedule, "weipipe-naive", 13);
    int forward = naive ? 2 * G * P - P : pairs ? (3 * G / 2 - 1) * P : G * P;
    int turns = naive ? 2 * G * P : pairs ? (3 * G / 2 + 1) * P : (G + 1) * P;
    int last = home ? turns + P - 1 : turns + P - 3;

    if ((2 * P + 1 - r) % P != r) /* the exchange before turn 0 */
        sent[r] += size[(r + P - 1) % P];
    for (int t = 0; t <= forward + P - 2; t++)
        sent[r] += size[(t - r + P * P) % P];
    for (int i = 0; i < 2; i++) {
        int at = (P - r) % P, owner = (ring_chunk(pairs, P, at, i) + 1) % P;

        for (int t = P; t <= last; t++)
            sent[r] += size[ring_chunk(pairs, P, (t - r + P * P) % P, i)];
        if (!ring_gradient(pairs, at, i) && owner != r) /* from its owner first */
            sent[owner] += size[ring_chunk(pairs, P, at, i)];
        at = (last + 1 - r + P * P) % P;
        owner = (ring_chunk(pairs, P, at, i) + 1) % P;
        if (!home && ring_gradient(pairs, at, i) && owner != r) /* to its owner last */
            sent[r] += size[ring_chunk(pairs, P, at, i)];
    }
}

static bool is_line(const char *schedule, int P, int V)
{
    return !strncmp(schedule, "wzb2", 4) || !strncmp(schedule, "tawpipe", 7) ||
           strstr(schedule, "flow=line") || (!strncmp(schedule, "wzb1", 4) && (P % 2 || V > 1));
}

static int owner_of(const char *schedule, int P, int node, int c)
{
    if (!strncmp(schedule, "tawpipe", 7))
        return c % (P / node) * node + c / (P / node) % node;
    return !strncmp(schedule, "wzb2", 4) && !strstr(schedule, "each") ? P - 1 : (c + 1) % P;
}

/* A chunk travels down the line in a round of W workers. Its weights go twice to the next worker,
 * or from the owner to the first worker of all or of the owner's node. Its gradients are sent once
 * by everybody but the owner. */
static void line_chunk(int W, int node, int owner, int64_t size, int64_t *sent)
{
    for (int r = 0; r < W; r++)
        if (r != owner) {
            sent[r == 0 || r == owner / node * node ? owner : r - 1] += 2 * size;
            sent[r] += size;
        }
}

/* The elements of embedding and head that a worker sends to each other one: its part of the
 * weights, and the other's part of the gradients. */
static int64_t ends_in_parts(const struct parts *n, int P)
{
    const int64_t ends[] = {n->tokens, n->positions, n->norm, n->head};
    int64_t sum = 0;

    for (int i = 0; i < 4; i++)
        sum += 2 * (((ends[i] + P - 1) / P + 7) / 8 * 8);
    return sum;
}

/* The number of these messages. */
static int64_t end_messages(const struct parts *n)
{
    return 2 * ((n->tokens > 0) + (n->positions > 0) + (n->norm > 0) + (n->head > 0));
}

/*
 * WeiPipe sends: the exchange before turn 0; forward weights after every turn until the last
 * forward has them; the chunks of backwards from turn P until they are with their owner; the summed
 * gradients of embedding and head. `layer`: of a layer's weights or gradients; `ends`: of embedding
 * and head, between two workers.
 */
static void ring_sent(const struct setup *s, int64_t layer, int64_t ends, int64_t *sent)
{
    const char *schedule = s->args.layout.schedule;
    int P = s->plan.layout.stages, m = s->plan.layout.micro_batches, L = s->model.layers;
    int V = s->plan.layout.chunks, C = P * V;
    bool line = is_line(schedule, P, V);
    const char *given = strstr(schedule, "node=");
    int node = given ? atoi(given + 5) : !strncmp(schedule, "tawpipe", 7) ? P : 1;
    int64_t size[MOST_BLOCKS];

    for (int c = 0; c < C; c++)
        size[c] = layer * (L / C + (c < L % C));
    for (int r = 0; r < P; r++) {
        int active = m < P ? m : P; /* workers that have a micro-batch */

        /* half are weights, which active workers gather; half are their gradients, which they
         * scatter */
        sent[r] += (active - (r < active)) * (ends / 2);
        sent[r] += r < active ? (P - 1) * (ends / 2) : 0;
        if (!line)
            ring_worker(P, (m + P - 1) / P, schedule, size, r, sent);
    }
    for (int c = 0; c < C && line; c++)
        for (int left = m; left > 0; left -= P)
            line_chunk(left < P ? left : P, node, owner_of(schedule, P, node, c), size[c], sent);
}

static void ring_bytes(const struct setup *s, int64_t *sent)
{
    const struct parts n = parts_of(&s->model);

    ring_sent(s, layer_of(&n), ends_in_parts(&n, s->plan.layout.stages), sent);
}

void ring_messages(const struct setup *s, int64_t *sent)
{
    const struct parts n = parts_of(&s->model);

    memset(sent, 0, sizeof *sent * (size_t)s->plan.layout.stages);
    ring_sent(s, SP_LAYER_BLOCKS, end_messages(&n), sent);
}

/*
 * Fully sharded: a worker sends each other worker a shard of every unit that is gathered, of the
 * gradients of its own backwards, and, twice, of embedding and head. Units that are still gathered
 * are not gathered again.
 */
static void shard_bytes(const struct setup *s, int64_t *sent)
{
    const struct parts n = parts_of(&s->model);
    const int64_t layer[] = {n.norm1, n.qkv, n.rest};
    int P = s->plan.layout.stages, V = s->plan.layout.chunks, L = s->model.layers;
    int rounds = strstr(s->args.layout.schedule, "breadth") ? 1 : s->plan.layout.micro_batches / P;
    int64_t of_layer = 0, sum = ends_in_parts(&n, P);

    for (int i = 0; i < 3; i++)
        of_layer += ((layer[i] + P - 1) / P + 7) / 8 * 8;
    for (int g = 0; g < rounds; g++)
        for (int c = 0; c < V; c++) {
            int gathered = (c >= (g ? 2 : 0)) + (c <= V - 3);

            sum += (gathered + 1) * (L / V + (c < L % V)) * of_layer;
        }
    for (int r = 0; r < P; r++)
        sent[r] = (P - 1) * sum;
}

void wire_bytes(enum wire wire, const struct setup *s, int64_t *sent)
{
    memset(sent, 0, sizeof *sent * (size_t)s->plan.layout.stages);
    if (wire == WIRE_HELIX)
        helix_bytes(s, sent);
    else if (wire == WIRE_RING)
        ring_bytes(s, sent);
    else
        shard_bytes(s, sent);
    for (int r = 0; r < s->plan.layout.stages; r++)
        sent[r] *= (int64_t)sizeof(float);
}
