/* Text that rank 0 draws from the model as it is. */
#include "train/trainer.h"
#include "graphs/inference/generate.h"
#include "sp_error.h"
#include "train/run/watchdog.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

struct sink {
    int (*token)(void *arg, int32_t token);
    void *arg;
};

static int draw_text(struct sp_trainer *t, struct sp_generator *gen, const char *prompt, int n,
                     const struct sink *to)
{
    int vocab = t->model.vocab, len = (int)strlen(prompt);
    int32_t *text = malloc((size_t)len * sizeof *text), token;
    float *logits = malloc((size_t)vocab * sizeof *logits);
    int err = text && logits ? 0 : sp_error(ENOMEM, "out of memory for a sample");
    uint64_t seed = t->seed + 1;

    for (int i = 0; !err && i < len; i++)
        text[i] = (unsigned char)prompt[i];
    if (!err)
        sp_generator_feed(gen, text, len, logits);
    for (int i = 0; !err && i < n; i++) {
        token = draw(logits, vocab, &seed);
        if (to->token(to->arg, token))
            break;
        if (i < n - 1)
            sp_generator_feed(gen, &token, 1, logits);
    }
    free(text);
    free(logits);
    return err;
}

int sp_train_check_prompt(const struct sp_trainer *t, const char *prompt)
{
    if (t->cfg.tokens && t->model.vocab != 256)
        return sp_error(EINVAL,
                        "a sample's prompt is bytes, and --tokens has the numbers of a vocabulary "
                        "of %d: leave out --sample",
                        t->model.vocab);
    for (const char *c = prompt; *c; c++)
        if ((unsigned char)*c >= t->model.vocab)
            return sp_error(EINVAL, "--prompt: byte %d is no token of a vocabulary of %d",
                            (unsigned char)*c, t->model.vocab);
    return 0;
}

int sp_trainer_generate(struct sp_trainer *t, const char *prompt, int n,
                        int (*token)(void *arg, int32_t token), void *arg)
{
    const struct sink to = {token, arg};
    struct sp_generator *gen = NULL;
    int err = sp_train_refuse_call(t, "generate", true);

    err = err ? err : sp_train_check_prompt(t, prompt);
    if (err)
        return err;
    sp_watchdog_begin(SP_PHASE_SAMPLE, "sampling");
    err = sp_generator_create(&t->graph, t->cfg.layout.seq, &gen);
    if (!err && gen)
        err = draw_text(t, gen, prompt[0] ? prompt : "\n", n, &to);
    sp_generator_destroy(gen);
    if (!err)
        sp_transport_barrier();
    sp_watchdog_end();
    return sp_train_fail(t, err);
}
