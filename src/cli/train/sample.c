#include "cli/train/sample.h"
#include "cli/train/interrupt.h"
#include "cli/utf8_printer.h"
#include <string.h>

/* Begins with the prompt. */
struct sample {
    const char *prompt;
    bool begun;
    struct sp_utf8_printer printer;
};

static int print(void *arg, const char *text, size_t n)
{
    struct sample *s = arg;

    if (!s->begun) {
        printf("sample:\n");
        sp_utf8_print(&s->printer, s->prompt, strlen(s->prompt));
    }
    s->begun = true;
    if (sp_interrupt_asked() & SP_ASK_END)
        return 1;
    sp_utf8_print(&s->printer, text, n);
    return 0;
}

int sp_print_sample(struct sp_trainer *t, const char *prompt, int n)
{
    struct sp_sampling how = SP_SAMPLING_DEFAULT;
    struct sample s = {.prompt = prompt, .printer = {.to = stdout, .plain = true}};
    int err;

    how.tokens = n;
    how.seed = (int)t->seed;
    err = sp_trainer_sample(t, prompt, &how, print, &s);
    if (s.begun) {
        sp_utf8_print_end(&s.printer);
        printf("\n");
    }
    return err;
}
