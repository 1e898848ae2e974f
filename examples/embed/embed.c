/*
 * A program that trains with a loop of its own: a tiny GPT in two pipeline stages, until its loss on
 * the text is low enough or it has made all its steps. Then it saves the model and lets it write.
 *
 *   ./embed TEXT DIRECTORY [STEPS]            one process
 *   mpirun -np 2 ./embed TEXT DIRECTORY       two: every process runs the same loop
 */
#include <starpipe/trainer.h>
#include <stdio.h>
#include <stdlib.h>

enum { EVERY = 10 }; /* steps between two looks at the loss */

static int print_token(void *arg, int32_t token)
{
    (void)arg;
    putchar(token == '\n' || (token >= 32 && token < 127) ? token : '?');
    return 0; /* go on */
}

static void print_stages(const struct sp_meters *m)
{
    for (int s = 0; s < m->stages; s++)
        printf("  stage %d: busy %.1f ms, idle %.1f, at most %.2f MiB of activations, sent %.0f "
               "bytes\n",
               s, m->stage[s].busy_ms, m->stage[s].idle_ms, m->stage[s].peak_bytes / 1048576,
               m->stage[s].bytes_sent);
}

/* Every process knows the same losses, so all of them stop after the same step. */
static int train(struct sp_trainer *t, int steps)
{
    struct sp_meters m;
    double loss = 9;
    int err = 0, prints = sp_trainer_rank(t) == 0;

    while (!err && sp_trainer_done(t) < steps && loss > 1.5) {
        err = sp_trainer_step(t, true, &m);
        if (err || sp_trainer_done(t) % EVERY)
            continue;
        err = sp_trainer_evaluate(t, &loss);
        if (!err && prints)
            printf("step %d  loss %.4f  on all of the text %.4f  %.0f tokens/s\n", m.step, m.loss,
                   loss, (double)m.tokens / m.step_ms * 1e3);
        if (!err && prints && sp_trainer_done(t) == steps)
            print_stages(&m);
    }
    return err;
}

int main(int argc, char **argv)
{
    struct sp_train_config cfg;
    struct sp_trainer *t;
    int err, closed;

    if (argc < 3) {
        fprintf(stderr, "usage: embed TEXT DIRECTORY [STEPS]\n");
        return 2;
    }
    if (sp_train_config_init(&cfg))
        return 2;
    cfg.layout.model = "gpt-tiny";
    cfg.layout.schedule = "zb1p";
    cfg.layout.stages = 2;
    cfg.layout.seq = 64;
    cfg.data = cfg.eval = argv[1];
    cfg.save = argv[2];
    cfg.steps = argc > 3 ? atoi(argv[3]) : 50;
    cfg.lr = 3e-3;
    if (sp_trainer_open(&cfg, &t))
        return 2; /* it said why */
    err = train(t, cfg.steps);
    err = err ? err : sp_trainer_save(t);
    if (!err && sp_trainer_rank(t) == 0)
        printf("saved to %s; it goes on:\nThe ", cfg.save);
    err = err ? err : sp_trainer_generate(t, "The ", 60, print_token, NULL);
    if (!err && sp_trainer_rank(t) == 0)
        printf("\n");
    closed = sp_trainer_close(t);
    return err || closed;
}
