/* Rank 0 draws text from the model as it is. */
#include "train/run/sample.h"
#include "graphs/inference/inference.h"
#include "sp_error.h"
#include "train/run/draw.h"
#include "train/run/watchdog.h"
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

/* The text so far, from the prompt's first token on. */
struct speech {
    const struct sp_tokenizer *tokenizer; /* NULL: tokens are bytes */
    struct sp_decoding state;
    struct sp_decode_room room;
    char number[16];
};

static void speech_end(struct speech *s)
{
    sp_decode_room_free(&s->room);
}

/* The *n bytes that a token adds, valid until the next call. A model may have more tokens than
 * its tokenizer; those add nothing. Without a tokenizer, tokens that are no bytes appear as
 * numbers. */
static int say(struct speech *s, int32_t id, const char **text, size_t *n)
{
    int err;

    *text = s->number;
    if (s->tokenizer) {
        if (!sp_tokenizer_text(s->tokenizer, (uint32_t)id, n)) {
            *n = 0;
            return 0;
        }
        err = sp_decode(s->tokenizer, &s->state, (uint32_t)id, &s->room, n);
        *text = s->room.at;
        return err;
    }
    s->number[0] = (char)id;
    *n = id < 256 ? 1 : (size_t)snprintf(s->number, sizeof s->number, "<%d>", id);
    return 0;
}

/* Feeds in the prompt without printing it, so that the next tokens are decoded as its
 * continuation, blanks included. */
static int speech_begin(const struct sp_trainer *t, const struct sp_ids *prompt, struct speech *s)
{
    const char *text;
    size_t n;
    int err = 0;

    *s = (struct speech){.tokenizer = t->tokenizer,
                         .state = {.flags = SP_DECODE_CHARACTERS | SP_DECODE_SKIP_SPECIAL}};
    for (size_t i = 0; !err && i < prompt->n; i++)
        err = say(s, (int32_t)prompt->id[i], &text, &n);
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

/* Room for logits and draws. */
struct drawing {
    float *logits;
    int32_t *room;
    uint64_t state;
};

static int say_tokens(const struct sp_trainer *t, struct sp_generator *gen,
                      const struct sp_sampling *how, struct drawing *d, struct speech *speech,
                      const struct sp_sample_sink *to)
{
    const char *text = NULL;
    bool ends = false;
    size_t n = 0;
    int err = 0;

    for (int i = 0; !err && !ends && i < how->tokens; i++) {
        int32_t token = sp_draw(d->logits, t->model.vocab, how, &d->state, d->room);

        err = say(speech, token, &text, &n);
        if (!err && to->token(to->arg, token, text, n))
            return 0;
        ends = sp_train_is_eos(t, token);
        if (!err && !ends && i < how->tokens - 1)
            sp_generator_feed(gen, &token, 1, d->logits);
    }
    if (!err && speech->state.n_waiting)
        to->token(to->arg, -1, (const char *)speech->state.waiting,
                  (size_t)speech->state.n_waiting);
    return err;
}

static int draw_text(const struct sp_trainer *t, struct sp_generator *gen,
                     const struct sp_ids *prompt, const struct sp_sampling *how,
                     const struct sp_sample_sink *to)
{
    size_t vocab = (size_t)t->model.vocab;
    struct drawing d = {.logits = malloc(vocab * sizeof *d.logits),
                        .room = malloc(vocab * sizeof *d.room),
                        .state = (uint64_t)how->seed + 1};
    struct speech speech = {0};
    int err = d.logits && d.room ? speech_begin(t, prompt, &speech)
                                 : sp_error(ENOMEM, "out of memory for a sample");

    if (!err) {
        sp_generator_feed(gen, (const int32_t *)prompt->id, (int)prompt->n, d.logits);
        err = say_tokens(t, gen, how, &d, &speech, to);
    }
    speech_end(&speech);
    free(d.logits);
    free(d.room);
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
    err = sp_generator_create(&t->graph, t->cfg.inference ? &t->weights : NULL, window, &gen);
    if (!err && gen)
        err = draw_text(t, gen, prompt, how, to);
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
    const struct sp_sample_sink to = {tell, &l};
    struct sp_ids ids = {0};
    int err = sp_train_refuse_call(t, "sample", true);

    err = err ? err : sp_sampling_check(how, "sample");
    err = err ? err : sp_train_encode_prompt(t, prompt, how->special_tokens, &ids);
    err = err ? err : sp_train_sample(t, &ids, how, &to);
    sp_ids_free(&ids);
    return err;
}
