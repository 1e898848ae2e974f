#include "cli/train/sample.h"
#include "cli/train/interrupt.h"
#include <stdio.h>

/* Bytes as text; what no terminal should see as '?', tokens of larger vocabularies by number. */
static void print_token(int32_t token)
{
    if (token >= 256)
        printf("<%d>", token);
    else
        putchar(token == '\n' || (token >= 32 && token < 127) ? token : token == '\t' ? ' ' : '?');
}

/* Begins with the prompt. */
struct sample {
    const char *prompt;
    bool begun;
};

static int print(void *arg, int32_t token)
{
    struct sample *s = arg;

    if (!s->begun)
        printf("sample:\n%s", s->prompt);
    s->begun = true;
    if (sp_interrupt_asked() & SP_ASK_END)
        return 1;
    print_token(token);
    return 0;
}

int sp_print_sample(struct sp_trainer *t, const char *prompt, int n)
{
    struct sample s = {.prompt = prompt[0] ? prompt : "\n"};
    int err = sp_trainer_generate(t, prompt, n, print, &s);

    if (s.begun)
        printf("\n");
    return err;
}
