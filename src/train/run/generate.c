/* --sample: text that rank 0 draws from the model that was trained. */
#include "train/trainer.h"
#include "graphs/generate.h"
#include "sp_error.h"
#include "cli/train/interrupt.h"
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

/* Bytes as text; what no terminal should see as '?', tokens of larger vocabularies by number. */
static void print_token(int32_t token)
{
    if (token >= 256)
        printf("<%d>", token);
    else
        putchar(token == '\n' || (token >= 32 && token < 127) ? token : token == '\t' ? ' ' : '?');
}

/* Prints the prompt and n tokens after it. 0 or -ENOMEM. */
static int print_text(struct sp_generator *gen, const char *prompt, int n, int vocab, uint64_t seed)
{
    size_t len = strlen(prompt);
    int32_t *text = malloc(len * sizeof *text), token;
    float *logits = malloc((size_t)vocab * sizeof *logits);
    int err = text && logits ? 0 : sp_error(ENOMEM, "out of memory for a sample");

    for (size_t i = 0; !err && i < len; i++)
        text[i] = (unsigned char)prompt[i] % vocab;
    if (!err) {
        printf("sample:\n%s", prompt);
        sp_generator_feed(gen, text, (int)len, logits);
    }
    for (int i = 0; !err && i < n && !(sp_interrupt_asked() & SP_ASK_END); i++) {
        token = draw(logits, vocab, &seed);
        print_token(token);
        if (i < n - 1)
            sp_generator_feed(gen, &token, 1, logits);
    }
    if (!err)
        printf("\n");
    free(text);
    free(logits);
    return err;
}

int sp_train_sample(struct sp_trainer *t, const char *prompt, int n)
{
    struct sp_generator *gen = NULL;
    int err;

    sp_watchdog_pause(t->watchdog);
    err = sp_generator_create(&t->graph, t->args.layout.seq, &gen);
    if (!err && gen)
        err = print_text(gen, prompt[0] ? prompt : "\n", n, t->model.vocab, t->args.seed + 1);
    sp_generator_destroy(gen);
    if (!err)
        sp_transport_barrier();
    sp_watchdog_resume(t->watchdog);
    return err;
}
