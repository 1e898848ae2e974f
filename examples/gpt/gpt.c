/*
 * A pipelined GPT in one program: an order of its own for the pipeline, its own training loop with early
 * stopping, checkpoints, and text from the model at the end. It reads from top to bottom.
 *
 *   ./gpt TEXT DIRECTORY [STEPS [MODEL]]           one process, both stages in it
 *   mpirun -np 2 ./gpt TEXT DIRECTORY ...          two: every process runs all of this program
 *
 * make, or: cc $(pkg-config --cflags starpipe) -o gpt gpt.c $(pkg-config --libs starpipe)
 *
 * MODEL is a preset (gpt-tiny) or a directory in Hugging Face form. The best model so far is in DIRECTORY,
 * in the same form. From the environment: GPT_EVAL names a text that is held out, for evaluation instead of
 * TEXT; GPT_LOG a file that gets a JSON line a step, for `starpipe watch` and `starpipe diff`.
 */
#include <starpipe/schedule.h>
#include <starpipe/trainer.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * 1. The order. A step passes m micro-batches down the p stages (forwards, F) and back up (backwards). A
 * backward has two halves: B computes the gradient that the stage above waits for, and W that of the stage's
 * own weights, for which nobody waits. So stage i puts i of its W off, to the end, when it would be idle
 * (zero bubble ZB-H1: Qi et al. 2023). With p = 4 and m = 8, - being F, = B and ~ W:
 *
 *   stage 0  0--1--2--3--.........0==0~~4--1==1~~5--2==2~~6--3==3~~7--4==4~~5==5~~6==6~~7==7~~
 *   stage 1  ...0--1--2--......0==3--1==0~~4--2==1~~5--3==2~~6--4==3~~7--5==4~~6==5~~7==6~~7~~
 *   stage 2  ......0--1--...0==2--1==3--2==0~~4--3==1~~5--4==2~~6--5==3~~7--6==4~~7==5~~6~~7~~
 *   stage 3  .........0--0==1--1==2--2==3--3==0~~4--4==1~~5--5==2~~6--6==3~~7--7==4~~5~~6~~7~~
 *
 * The function says in which order a stage runs its ops, and nothing else: messages, memory and threads
 * follow from the order. Before the first step the verifier goes through it. An op that is missing or comes
 * twice, one that comes before what it needs, stages that would wait for each other: each is refused, with
 * the op and the stage. (Take out the forward of the steady state, and see.)
 */
static void emit(const struct sp_layout *lay, int stage, struct sp_program *order)
{
    int m = lay->micro_batches, ahead = lay->stages - 1 - stage, f = 0, b = 0, w = 0;

    while (f < m && f < ahead) /* warm-up: until the stages below have work */
        sp_program_add(order, SP_F, f++, 0);
    while (b < m) { /* steady: one forward, one backward; cool-down: backwards alone */
        if (f < m)
            sp_program_add(order, SP_F, f++, 0);
        sp_program_add(order, SP_B, b++, 0);
        if (b > stage)
            sp_program_add(order, SP_W, w++, 0);
    }
    while (w < m) /* nothing comes from below any more */
        sp_program_add(order, SP_W, w++, 0);
}

/* The order is one of whole sequences, and of one chunk of layers a stage. */
static int check(const struct sp_layout *lay, char *why, size_t n)
{
    if (lay->chunks == 1 && lay->slices == 1)
        return 0;
    snprintf(why, n, "has 1 chunk per stage and 1 slice per sequence, not %d and %d", lay->chunks,
             lay->slices);
    return -EINVAL;
}

static const struct sp_schedule_def late_weights = {
    .abi = SP_SCHEDULE_ABI,
    .name = "late-weights",
    .summary = "one forward, one backward, and the gradients of weights late",
    .source = "Qi et al. 2023, ZB-H1",
    .family = "layerwise", /* stages are layers in a row; starpipe/schedule.h has other families */
    .default_chunks = 1,
    .check = check,
    .emit = emit,
};

/*
 * 2. The settings: those of `starpipe train`, under the same names, beginning with its defaults.
 * How fast it learns is a setting as well, so the loop below has no learning rate in it.
 */
static int configure(struct sp_train_config *cfg, int argc, char **argv)
{
    if (sp_train_config_init(cfg))
        return -1;
    cfg->layout.schedule = late_weights.name;
    cfg->layout.model = argc > 4 ? argv[4] : "gpt-tiny";
    cfg->layout.stages = 2;
    cfg->layout.micro_batches = 8;    /* of a step, each of */
    cfg->layout.micro_batch_size = 1; /* sequences, each of */
    cfg->layout.seq = 64;             /* tokens */
    cfg->data = argv[1];
    cfg->eval = getenv("GPT_EVAL") ? getenv("GPT_EVAL") : argv[1];
    cfg->eval_tokens = 4096;
    cfg->steps = argc > 3 ? atoi(argv[3]) : 200;
    cfg->warmup = cfg->steps / 10; /* the rate rises to lr over these steps, */
    cfg->lr = 3e-3;
    cfg->lr_shape = SP_TRAIN_COSINE; /* then falls to lr_min */
    cfg->lr_min = 3e-4;
    cfg->save = argv[2];
    cfg->keep = 1; /* checkpoint, the newest */
    cfg->log = getenv("GPT_LOG");
    return 0;
}

/*
 * 3. The loop. Every EVERY steps it evaluates the model and saves it if it is the best so far; after PATIENCE
 * evaluations without a better one it stops. All processes run the loop, and know the same losses, so they
 * all save and stop after the same step. Rank 0 prints.
 */
enum { EVERY = 10, PATIENCE = 3 };

struct progress {
    double first, best; /* losses of evaluations */
    int best_step;
};

static void print_step(const struct sp_meters *m, double eval)
{
    printf("step %4d  loss %.4f  eval %.4f  rate %.1e  %6.0f tokens/s  bubble", m->step, m->loss,
           eval, m->lr, (double)m->tokens / m->step_ms * 1e3);
    for (int s = 0; s < m->stages; s++) /* what part of the step a stage was idle */
        printf(" %2.0f %%", 100 * m->stage[s].bubble);
    printf("\n");
    fflush(stdout);
}

/* After step `m`: the model's loss, and the model saved if it is the best one. */
static int evaluate(struct sp_trainer *t, const struct sp_meters *m, struct progress *p)
{
    double eval;
    int err = sp_trainer_evaluate(t, &eval);

    if (err)
        return err;
    if (sp_trainer_rank(t) == 0)
        print_step(m, eval);
    if (p->best_step && eval >= p->best)
        return 0;
    p->best = eval;
    p->best_step = m->step;
    return sp_trainer_save(t);
}

static int train(struct sp_trainer *t, int steps, struct progress *p)
{
    struct sp_meters m;
    int err = sp_trainer_evaluate(t, &p->first);

    while (!err && sp_trainer_done(t) < steps) {
        int next = sp_trainer_done(t) + 1;
        bool pauses = next % EVERY == 0 || next == steps;

        err =
            sp_trainer_step(t, !pauses, &m); /* false: something else comes before the next step */
        if (!err && pauses)
            err = evaluate(t, &m, p);
        if (!err && p->best_step && m.step - p->best_step >= PATIENCE * EVERY)
            break; /* it learns the text by heart, or nothing any more */
    }
    return err;
}

/* 4. Text. The model, as the last step left it, draws one token after the other to follow the prompt. */
static int print_text(void *arg, const char *text, size_t n)
{
    (void)arg;
    fwrite(text, 1, n, stdout);
    return 0; /* go on */
}

static int sample(struct sp_trainer *t)
{
    const char *prompt = "The ";
    struct sp_sampling how = SP_SAMPLING_DEFAULT; /* temperature, top-k and top-p, the seed */
    int err, prints = sp_trainer_rank(t) == 0;

    if (prints)
        printf("%s", prompt);
    err = sp_trainer_sample(t, prompt, &how, print_text, NULL);
    if (prints)
        printf("\n");
    return err;
}

/*
 * 5. The program. Functions of starpipe print their own errors, in one line. As in `starpipe
 * train`, the exit status is 2 if no step was begun.
 */
int main(int argc, char **argv)
{
    struct progress p = {0};
    struct sp_train_config cfg;
    struct sp_trainer *t;
    int err, closed;

    if (argc < 3 || argc > 5 || (argc > 3 && atoi(argv[3]) < 1)) {
        fprintf(stderr, "usage: gpt TEXT DIRECTORY [STEPS [MODEL]]\n");
        return 2;
    }
    if (sp_schedule_register(&late_weights) || configure(&cfg, argc, argv) ||
        sp_trainer_open(&cfg, &t))
        return 2;
    err = train(t, cfg.steps, &p);
    if (!err && sp_trainer_rank(t) == 0)
        printf(
            "eval %.4f at first, %.4f at step %d, which is in %s; after the last step it writes:\n",
            p.first, p.best, p.best_step, cfg.save);
    err = err ? err : sample(t);
    closed = sp_trainer_close(t);
    return err || closed;
}
