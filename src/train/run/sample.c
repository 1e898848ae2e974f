/* Rank 0 draws text from the model as it is; other ranks may have some of its stages. */
#include "train/run/sample.h"
#include "graphs/inference/inference.h"
#include "sp_error.h"
#include "train/run/draw.h"
#include "train/run/watchdog.h"
#include "transport/clock.h"
#include "transport/transport.h"
#include <stdlib.h>
#include <string.h>

/* ---- text to tokens -------------------------------------------------------------------------- */

int sp_train_check_prompt(const struct sp_trainer *t, const char *prompt)
{
    if (t->tokenizer)
        return 0;
    if (t->cfg.tokens && t->model.vocab != 256)
        return sp_error(EINVAL,
                        "a sample's prompt is text, and the model has a vocabulary of %d but no "
                        "tokenizer.json: leave out --sample",
                        t->model.vocab);
    for (const char *c = prompt; *c; c++)
        if ((unsigned char)*c >= t->model.vocab)
            return sp_error(EINVAL, "--prompt: byte %d is no token of a vocabulary of %d",
                            (unsigned char)*c, t->model.vocab);
    return 0;
}

/* Turns the prompt into tokens with the model's tokenizer. */
static int encode(const struct sp_trainer *t, const char *prompt, bool special, struct sp_ids *ids)
{
    unsigned flags = SP_ENCODE_AROUND | SP_ENCODE_UNFINISHED | (special ? SP_ENCODE_SPECIAL : 0);
    int64_t bos = sp_tokenizer_special(t->tokenizer, SP_TOKEN_BOS);
    struct sp_encoder *e = sp_encoder_create(t->tokenizer);
    int err = e ? sp_encode(e, prompt, strlen(prompt), flags, ids)
                : sp_error(ENOMEM, "no memory to read a prompt");

    if (!err && !ids->n && bos >= 0)
        sp_ids_add(ids, (uint32_t)bos);
    if (!err && !ids->n)
        err = sp_encode(e, "\n", 1, flags, ids);
    if (!err && !ids->n)
        err = sp_error(EINVAL, "the prompt has no token, and the model no bos to begin with");
    sp_encoder_destroy(e);
    return err;
}

int sp_train_encode_prompt(const struct sp_trainer *t, const char *prompt, bool special_tokens,
                           struct sp_ids *ids)
{
    int err = sp_train_check_prompt(t, prompt[0] ? prompt : "\n");

    if (!err && t->tokenizer)
        err = encode(t, prompt, special_tokens, ids);
    else if (!err)
        for (const char *c = prompt[0] ? prompt : "\n"; *c; c++)
            sp_ids_add(ids, (unsigned char)*c);
    if (!err && ids->failed)
        err = sp_error(ENOMEM, "no memory to read a prompt");
    for (size_t i = 0; !err && i < ids->n; i++)
        if (ids->id[i] >= (uint32_t)t->model.vocab)
            err = sp_error(EINVAL, "the prompt has token %u, the model's vocabulary is %d",
                           ids->id[i], t->model.vocab);
    return err;
}

/* ---- tokens to text -------------------------------------------------------------------------- */

/* A text under way, from the prompt's first token on. */
struct text {
    const struct sp_trainer *t;
    const struct sp_sampling *how;
    struct sp_decoding decoding;
    struct sp_decode_room room;
    char number[16];
    float *logits;
    int32_t *candidates; /* room for a draw */
    uint64_t state;      /* of the draws */
    struct sp_sample_times times;
};

/* The *n bytes that a token adds, valid until the next call. A model may have more tokens than
 * its tokenizer; those add nothing. Without a tokenizer tokens are bytes, and those that are none
 * appear as numbers. */
static int decode(struct text *x, int32_t id, const char **bytes, size_t *n)
{
    const struct sp_tokenizer *tokenizer = x->t->tokenizer;
    int err = 0;

    *bytes = x->number;
    if (!tokenizer) {
        x->number[0] = (char)id;
        *n = id < 256 ? 1 : (size_t)snprintf(x->number, sizeof x->number, "<%d>", id);
    } else if (!sp_tokenizer_text(tokenizer, (uint32_t)id, n)) {
        *n = 0;
    } else {
        err = sp_decode(tokenizer, &x->decoding, (uint32_t)id, &x->room, n);
        *bytes = x->room.at;
    }
    return err;
}

/* ---- drawing --------------------------------------------------------------------------------- */

bool sp_train_is_eos(const struct sp_trainer *t, int32_t id)
{
    for (int i = 0; i < t->eos.n; i++)
        if (t->eos.id[i] == id)
            return true;
    return false;
}

/* Draws one token after the other, until the text ends or nobody wants more of it. */
static int say_tokens(struct text *x, struct sp_generator *gen, const struct sp_sample_sink *to)
{
    const char *bytes = NULL;
    bool ends = false;
    size_t n = 0;
    int err = 0;

    for (int i = 0; !err && !ends && i < x->how->tokens; i++) {
        int32_t token = sp_draw(x->logits, x->t->model.vocab, x->how, &x->state, x->candidates);

        err = decode(x, token, &bytes, &n);
        if (!err && to->token(to->arg, token, bytes, n))
            return 0;
        ends = sp_train_is_eos(x->t, token);
        if (!err && !ends && i < x->how->tokens - 1) {
            sp_generator_feed(gen, &token, 1, x->logits);
            x->times.drawn++;
        }
    }
    if (!err && x->decoding.n_waiting)
        to->token(to->arg, -1, (const char *)x->decoding.waiting, (size_t)x->decoding.n_waiting);
    return err;
}

/* Feeds in the prompt without printing it, so that the tokens after it are decoded as its
 * continuation, blanks included. */
static int draw_text(const struct sp_trainer *t, struct sp_generator *gen,
                     const struct sp_ids *prompt, const struct sp_sampling *how,
                     const struct sp_sample_sink *to)
{
    size_t vocab = (size_t)t->model.vocab, n;
    struct text x = {.t = t,
                     .how = how,
                     .decoding = {.flags = SP_DECODE_CHARACTERS | SP_DECODE_SKIP_SPECIAL},
                     .logits = malloc(vocab * sizeof *x.logits),
                     .candidates = malloc(vocab * sizeof *x.candidates),
                     .state = (uint64_t)how->seed + 1};
    const char *bytes;
    double begun;
    int err = x.logits && x.candidates ? 0 : sp_error(ENOMEM, "out of memory for a sample");

    for (size_t i = 0; !err && i < prompt->n; i++)
        err = decode(&x, (int32_t)prompt->id[i], &bytes, &n);
    if (!err) {
        begun = sp_clock_us(CLOCK_MONOTONIC);
        sp_generator_feed(gen, (const int32_t *)prompt->id, (int)prompt->n, x.logits);
        x.times.prompt_us = sp_clock_us(CLOCK_MONOTONIC) - begun;
        err = say_tokens(&x, gen, to);
        x.times.drawn_us = sp_clock_us(CLOCK_MONOTONIC) - begun - x.times.prompt_us;
    }
    x.times.prompt = prompt->n < (size_t)t->cfg.layout.seq ? (int)prompt->n : t->cfg.layout.seq;
    if (to->times)
        *to->times = x.times;
    sp_decode_room_free(&x.room);
    free(x.logits);
    free(x.candidates);
    return err;
}

int sp_train_sample(struct sp_trainer *t, const struct sp_ids *prompt,
                    const struct sp_sampling *how, const struct sp_sample_sink *to)
{
    size_t all = prompt->n + (size_t)how->tokens;
    int window = t->cfg.layout.seq;
    struct sp_generator *gen = NULL;
    int err;

    if (all < (size_t)window)
        window = (int)all;
    sp_watchdog_begin(SP_PHASE_SAMPLE, "sampling");
    err = sp_generator_create(&t->graph, t->cfg.inference ? &t->weights : NULL, window, how->slices,
                              &gen);
    if (!err && t->world.rank == 0)
        err = draw_text(t, gen, prompt, how, to);
    else if (!err)
        sp_generator_follow(gen);
    sp_generator_destroy(gen);
    if (!err)
        sp_transport_barrier();
    sp_watchdog_end();
    return sp_train_fail(t, err);
}

/* ---- the public function --------------------------------------------------------------------- */

struct listener {
    int (*text)(void *arg, const char *text, size_t n);
    void *arg;
};

static int tell(void *arg, int32_t id, const char *text, size_t n)
{
    const struct listener *l = arg;

    (void)id;
    return n ? l->text(l->arg, text, n) : 0;
}

int sp_trainer_sample(struct sp_trainer *t, const char *prompt, const struct sp_sampling *how,
                      int (*text)(void *arg, const char *text, size_t n), void *arg)
{
    struct listener l = {text, arg};
    const struct sp_sample_sink to = {.token = tell, .arg = &l};
    struct sp_ids ids = {0};
    int err = sp_train_refuse_call(t, "sample", true);

    err = err ? err : sp_sampling_check(how, "sample");
    err = err ? err : sp_train_encode_prompt(t, prompt, how->special_tokens, &ids);
    err = err ? err : sp_train_sample(t, &ids, how, &to);
    sp_ids_free(&ids);
    return err;
}
