/*
 * A sample of what the model learned: rank 0 gathers the weights and extends a prompt one token
 * at a time, with the keys and values of earlier tokens kept (they are slice 0, the new token is
 * slice 1 of the attention).
 */
#include "cli/train.h"
#include "kernels/kernels.h"
#include "sp_error.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct generator {
    const struct sp_params *params;
    struct sp_shape sh; /* one row */
    float *tokens, *positions, *norm, *head;
    float **layer[3]; /* NORM1, QKV, POST of each layer */
    float **kv;       /* [layers] (positions, kv) */
    int length;       /* positions in the cache */
    float *x, *n, *q, *kv_row, *o, *lse, *r, *u, *act, *logits;
};

static float *copy(const float *w, size_t n)
{
    float *c = malloc(n * sizeof *c);

    if (c)
        memcpy(c, w, n * sizeof *c);
    return c;
}

static int keep_block(void *arg, enum sp_block_kind kind, int layer, const float *w, size_t n)
{
    struct generator *g = arg;
    float **slot = NULL;

    switch (kind) {
    case SP_BLOCK_TOKENS:
        slot = &g->tokens;
        break;
    case SP_BLOCK_POSITIONS:
        slot = &g->positions;
        break;
    case SP_BLOCK_NORM:
        slot = &g->norm;
        break;
    case SP_BLOCK_HEAD:
        slot = &g->head;
        break;
    default:
        slot = &g->layer[kind - SP_BLOCK_NORM1][layer];
    }
    *slot = copy(w, n);
    return *slot ? 0 : sp_error(ENOMEM, "out of memory for a sample");
}

static void rotate(const struct generator *g, float *q, float *kv, int pos)
{
    const struct sp_model *m = &g->sh.model;

    if (m->arch != SP_ARCH_LLAMA)
        return;
    sp_rope(1, 1, m->heads, m->head_dim, g->sh.q_width, pos, m->rope_theta, false, q);
    sp_rope(1, 1, m->kv_heads, m->head_dim, g->sh.kv_width, pos, m->rope_theta, false, kv);
}

static void layer_forward(struct generator *g, int l)
{
    const struct sp_shape *sh = &g->sh;
    const struct sp_model *m = &sh->model;
    float *norm = g->layer[0][l], *qkv = g->layer[1][l], *post = g->layer[2][l];
    float *cache = g->kv[l], *bias = sp_at(qkv, sh->qkv_bias);
    int h = m->hidden, lens[2] = {g->length, 1};
    const float *slices[2] = {cache, g->kv_row};
    struct sp_attention at = {
        .batch = 1,
        .heads = m->heads,
        .kv_heads = m->kv_heads,
        .head_dim = m->head_dim,
        .scale = 1.0f / sqrtf((float)m->head_dim),
        .q_len = 1,
        .q_pos = g->length,
        .n_kv = g->length ? 2 : 1,
        .kv_len = g->length ? lens : lens + 1,
    };

    sp_norm(sh->rms, 1, h, m->norm_eps, g->x, norm, sp_at(norm, sh->norm_bias), g->n, NULL);
    sp_linear(1, h, sh->q_width, g->n, qkv + sh->qkv, bias, g->q, sh->q_width);
    sp_linear(1, h, sh->kv_width, g->n, qkv + sh->qkv + (size_t)sh->q_width * (size_t)h,
              bias ? bias + sh->q_width : NULL, g->kv_row, sh->kv_width);
    rotate(g, g->q, g->kv_row, g->length);
    sp_attention(&at, g->q, g->length ? slices : slices + 1, g->o, g->lse);
    memcpy(cache + (size_t)g->length * (size_t)sh->kv_width, g->kv_row,
           sizeof(float) * (size_t)sh->kv_width);

    sp_linear_add(1, sh->q_width, h, g->o, post + sh->out, sp_at(post, sh->out_bias), g->x, g->r);
    sp_norm(sh->rms, 1, h, m->norm_eps, g->r, post + sh->gain, sp_at(post, sh->bias), g->n, NULL);
    sp_linear(1, h, sh->up_width, g->n, post + sh->up, sp_at(post, sh->up_bias), g->u,
              sh->up_width);
    if (sh->rms)
        sp_swiglu(1, m->mlp, g->u, g->act);
    else
        sp_gelu((size_t)m->mlp, g->u, g->act);
    sp_linear_add(1, m->mlp, h, g->act, post + sh->down, sp_at(post, sh->down_bias), g->r, g->x);
}

/* Feeds one token; logits of the next one are left in g->logits. */
static void feed(struct generator *g, int32_t token)
{
    const struct sp_model *m = &g->sh.model;

    sp_embed(1, 1, m->hidden, 0, &token, g->tokens,
             g->positions ? g->positions + (size_t)g->length * (size_t)m->hidden : NULL, g->x);
    for (int l = 0; l < m->layers; l++)
        layer_forward(g, l);
    sp_norm(g->sh.rms, 1, m->hidden, m->norm_eps, g->x, g->norm, sp_at(g->norm, g->sh.norm_bias),
            g->n, NULL);
    sp_linear(1, m->hidden, m->vocab, g->n, m->tied ? g->tokens : g->head, NULL, g->logits,
              m->vocab);
    g->length++;
}

/* Draws from softmax(logits / 0.8), the same draws for the same seed. */
static int32_t draw(const float *logits, int n, uint64_t *state)
{
    const double temperature = 0.8;
    double top = -INFINITY, sum = 0, at;

    for (int i = 0; i < n; i++)
        top = fmax(top, logits[i]);
    for (int i = 0; i < n; i++)
        sum += exp((logits[i] - top) / temperature);
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    at = sum * (double)(*state >> 11) / 9007199254740992.0;
    for (int i = 0; i < n; i++) {
        at -= exp((logits[i] - top) / temperature);
        if (at <= 0)
            return i;
    }
    return n - 1;
}

static int allocate(struct generator *g, int positions)
{
    const struct sp_model *m = &g->sh.model;
    size_t L = (size_t)m->layers;
    float **rows[] = {&g->x,   &g->n, &g->q, &g->kv_row, &g->o,
                      &g->lse, &g->r, &g->u, &g->act,    &g->logits};
    int widths[] = {m->hidden, m->hidden, g->sh.q_width,  g->sh.kv_width, g->sh.q_width,
                    m->heads,  m->hidden, g->sh.up_width, m->mlp,         m->vocab};
    bool ok = true;

    for (int k = 0; k < 3; k++)
        ok &= (g->layer[k] = calloc(L, sizeof(float *))) != NULL;
    ok &= (g->kv = calloc(L, sizeof(float *))) != NULL;
    for (size_t l = 0; ok && l < L; l++)
        ok &=
            (g->kv[l] = calloc((size_t)positions * (size_t)g->sh.kv_width, sizeof(float))) != NULL;
    for (int i = 0; i < 10; i++)
        ok &= (*rows[i] = calloc((size_t)widths[i], sizeof(float))) != NULL;
    return ok ? 0 : sp_error(ENOMEM, "out of memory for a sample");
}

static void release(struct generator *g)
{
    float *flat[] = {g->tokens, g->positions, g->norm, g->head, g->x, g->n,   g->q,
                     g->kv_row, g->o,         g->lse,  g->r,    g->u, g->act, g->logits};

    for (size_t i = 0; i < sizeof flat / sizeof *flat; i++)
        free(flat[i]);
    for (int l = 0; l < g->sh.model.layers; l++) {
        for (int k = 0; k < 3; k++)
            if (g->layer[k])
                free(g->layer[k][l]);
        if (g->kv)
            free(g->kv[l]);
    }
    for (int k = 0; k < 3; k++)
        free(g->layer[k]);
    free(g->kv);
}

/* Bytes as text; what no terminal should see as '?', tokens of larger vocabularies by number. */
static void print_token(int32_t token)
{
    if (token >= 256)
        printf("<%d>", token);
    else
        putchar(token == '\n' || (token >= 32 && token < 127) ? token : token == '\t' ? ' ' : '?');
}

/*
 * Token i of the text, the prompt's or drawn, is fed at the next position. Positions past the
 * sequences trained on mean nothing to the model: when they are used up, the cache starts again
 * with the later half of the text.
 */
static void generate(struct generator *g, const char *prompt, int n, int window, uint64_t seed)
{
    int len = (int)strlen(prompt), vocab = g->sh.model.vocab;
    int32_t *text = calloc((size_t)len + (size_t)n, sizeof *text);

    for (int i = 0; text && i < len + n; i++) {
        text[i] = i < len ? (unsigned char)prompt[i] % vocab : draw(g->logits, vocab, &seed);
        if (i >= len)
            print_token(text[i]);
        if (g->length == window) {
            g->length = 0;
            for (int k = i - window / 2; k < i; k++)
                feed(g, text[k]);
        }
        feed(g, text[i]);
    }
    free(text);
}

int sp_train_sample(struct sp_trainer *t, const char *prompt, int n)
{
    struct generator g = {.params = &t->params};
    int window = t->args.layout.seq, err = 0;

    if (!prompt[0])
        prompt = "\n";
    sp_shape_init(&g.sh, &t->model, 1, 1, 1, 0, 1);
    if (t->world.rank == 0)
        err = allocate(&g, window);
    err = err ? err : sp_checkpoint_each(&t->graph, SP_FIELD_W, keep_block, &g);
    if (!err && t->world.rank == 0) {
        printf("sample:\n%s", prompt);
        generate(&g, prompt, n, window, t->args.seed + 1);
        printf("\n");
    }
    release(&g);
    return err;
}
