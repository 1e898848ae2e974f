/*
 * The trainer as programs call it: several trainers in one process, meters, a run that is saved and
 * resumed, text, schedules of the program's own, and every refusal of a call or a configuration, in
 * one line.
 */
#include "model/support.h"
#include "starpipe/schedule.h"
#include "starpipe/trainer.h"
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/stat.h>

enum { STEPS = 5, SEQ = 16, MICRO_BATCHES = 4 };

static char text[4200], saved[4200];

static int setup(void **state)
{
    char words[4001];

    scratch_setup(state);
    for (size_t i = 0; i < sizeof words; i++)
        words[i] = (char)('a' + i * i % 23);
    write_file(scratch_path(scratch, "text", text), words, sizeof words);
    scratch_path(scratch, "saved", saved);
    return 0;
}

static void defaults(struct sp_train_config *cfg)
{
    assert_int_equal(sp_train_config_init(cfg), 0);
    cfg->layout.model = "gpt-tiny";
    cfg->layout.stages = 2;
    cfg->layout.micro_batches = MICRO_BATCHES;
    cfg->layout.seq = SEQ;
    cfg->data = text;
    cfg->steps = STEPS;
    cfg->threads = 1;
}

static void check_meters(const struct sp_meters *m, int step)
{
    assert_int_equal(m->step, step);
    assert_true(isfinite(m->loss) && m->loss > 0 && m->grad_norm > 0 && m->step_ms > 0);
    assert_true(m->lr == (double)1e-3f);
    assert_int_equal(m->tokens, SEQ * MICRO_BATCHES);
    assert_int_equal(m->stages, 2);
    for (int s = 0; s < m->stages; s++) {
        assert_true(m->stage[s].busy_ms > 0 && m->stage[s].peak_bytes > 0);
        assert_true(m->stage[s].bubble > 0 && m->stage[s].bubble < 1);
        assert_true(m->stage[s].bytes_sent == 0);
    }
}

/* Trains; loss[] gets the losses of the remaining steps. */
static void train(const struct sp_train_config *cfg, int save_after, double loss[STEPS])
{
    struct sp_trainer *t;
    struct sp_meters m;

    assert_int_equal(sp_trainer_open(cfg, &t), 0);
    assert_int_equal(sp_trainer_rank(t), 0);
    while (sp_trainer_done(t) < STEPS) {
        int step = sp_trainer_done(t);

        assert_int_equal(sp_trainer_step(t, true, &m), 0);
        check_meters(&m, step + 1);
        loss[step] = m.loss;
        if (step + 1 == save_after)
            assert_int_equal(sp_trainer_save(t), 0);
    }
    assert_int_equal(sp_trainer_close(t), 0);
}

TEST(one_after_the_other)
{
    struct sp_train_config cfg;
    double whole[STEPS], again[STEPS], part[STEPS];

    defaults(&cfg);
    train(&cfg, 0, whole);
    cfg.layout.schedule = "zbv"; /* another order, the same numbers: to rounding */
    train(&cfg, 0, again);
    for (int k = 0; k < STEPS; k++)
        assert_true(fabs(whole[k] - again[k]) < 1e-5 * whole[k]);
    cfg.layout.schedule = "1f1b";
    cfg.save = saved;
    cfg.save_async = true;
    train(&cfg, 2, again);
    assert_memory_equal(whole, again, sizeof whole);
    cfg.save = NULL;
    cfg.save_async = false;
    cfg.resume = saved;
    train(&cfg, 0, part);
    assert_memory_equal(whole + 2, part + 2, (STEPS - 2) * sizeof *whole);
    printf("losses %.6f .. %.6f in four trainers, the last from step 2 on\n", whole[0],
           part[STEPS - 1]);
}

/* The text of a sample, n bytes of it, and the number of its pieces. */
struct said {
    int pieces, n;
    char text[64];
};

static int collect(void *arg, const char *piece, size_t n)
{
    struct said *said = arg;

    for (size_t i = 0; i < n; i++)
        said->text[said->n++] = piece[i];
    return ++said->pieces == 5; /* enough */
}

TEST(between_steps)
{
    struct sp_train_config cfg;
    struct sp_trainer *t;
    struct sp_sampling how = SP_SAMPLING_DEFAULT;
    struct said said[3] = {{0}};
    double loss[3];

    defaults(&cfg);
    cfg.eval = text;
    cfg.eval_tokens = 64;
    assert_int_equal(sp_trainer_open(&cfg, &t), 0);
    assert_int_equal(sp_trainer_step(t, false, NULL), 0);
    how.tokens = 8;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sp_trainer_evaluate(t, &loss[i]), 0);
        how.seed = i == 2;
        assert_int_equal(sp_trainer_sample(t, i ? "abc" : "", &how, collect, &said[i]), 0);
        assert_int_equal(said[i].pieces, 5);
    }
    assert_true(loss[0] > 0 && loss[0] == loss[1] && loss[1] == loss[2]);
    assert_string_not_equal(said[1].text, said[2].text); /* another seed */
    how.top_p = 0;
    assert_int_equal(sp_trainer_sample(t, "abc", &how, collect, &said[0]), -EINVAL);
    assert_int_equal(sp_trainer_close(t), 0);
}

/* Settings for StarPU stay in the environment until the trainer is closed, which restores it. */
TEST(environment_put_back)
{
    static const char *const names[] = {"STARPU_PREFETCH", "STARPU_SCHED", "TMPDIR"};
    struct sp_train_config cfg;
    struct sp_trainer *t;

    defaults(&cfg);
    cfg.layout.offload = "full";
    cfg.offload_dir = scratch;
    for (int i = 0; i < 3; i++)
        setenv(names[i], i ? scratch : "1", 1);
    assert_int_equal(sp_trainer_open(&cfg, &t), 0);
    assert_string_equal(getenv("STARPU_PREFETCH"), "0");
    assert_int_equal(sp_trainer_step(t, false, NULL), 0);
    assert_int_equal(sp_trainer_close(t), 0);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(getenv(names[i]), i ? scratch : "1");
        unsetenv(names[i]);
    }
}

static int asks(void *arg)
{
    return (*(int *)arg)++ ? 4 : 0;
}

/* A process asks with bits at the end of its second step: the meters have them then, and nothing
 * before. */
TEST(asked)
{
    struct sp_train_config cfg;
    struct sp_trainer *t;
    struct sp_meters m;
    int times = 0;

    defaults(&cfg);
    cfg.arg = &times;
    cfg.asks = asks;
    assert_int_equal(sp_trainer_open(&cfg, &t), 0);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(sp_trainer_step(t, true, &m), 0);
        assert_int_equal(m.asked, k ? 4 : 0);
    }
    assert_int_equal(sp_trainer_close(t), 0);
}

static void assert_call(int ret, int wanted, struct capture *c, const char *word)
{
    const char *said = capture_end(c);

    assert_said(said, word, word);
    assert_int_equal(ret, wanted);
}

/* While the next step runs ahead nothing can be read or written; closing discards that step. */
TEST(ahead)
{
    struct sp_train_config cfg;
    struct sp_trainer *t;
    struct capture c;
    double loss;

    defaults(&cfg);
    cfg.post_validation = true;
    cfg.eval = text;
    assert_int_equal(sp_trainer_open(&cfg, &t), 0);
    assert_int_equal(sp_trainer_step(t, true, NULL), 0);
    capture_begin(&c);
    assert_call(sp_trainer_evaluate(t, &loss), -EBUSY, &c, "evaluate: the next step has begun");
    assert_int_equal(sp_trainer_step(t, false, NULL), 0);
    assert_int_equal(sp_trainer_evaluate(t, &loss), 0);
    assert_int_equal(sp_trainer_step(t, true, NULL), 0);
    assert_int_equal(sp_trainer_close(t), 0);
}

static void emit(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    (void)stage;
    for (int i = 0; i < lay->micro_batches; i++)
        sp_program_add(prog, SP_F, i, 0);
    for (int i = 0; i < lay->micro_batches; i++)
        sp_program_add(prog, SP_B, i, 0);
}

static void crashes(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    emit(lay, stage, prog);
    raise(SIGSEGV);
}

static void never_ends(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    for (;;)
        emit(lay, stage, prog);
}

/* Two schedules fail while the trainer opens, which leaves the process as it was; a third one
 * trains. */
TEST(registered)
{
    static struct sp_schedule_def def[] = {{.name = "crashes", .emit = crashes},
                                           {.name = "endless", .emit = never_ends},
                                           {.name = "mine", .emit = emit}};
    static const char *const said[] = {"trainer_unit: emit of crashes crashed: Segmentation fault",
                                       "trainer_unit: emit of endless appends more than"};
    struct sp_train_config cfg;
    double mine[STEPS], built_in[STEPS];
    struct sp_trainer *t;
    struct capture c;

    defaults(&cfg);
    for (int i = 0; i < 3; i++) {
        def[i].abi = SP_SCHEDULE_ABI;
        def[i].family = "layerwise";
        def[i].summary = def[i].source = "this test";
        def[i].default_chunks = 1;
        assert_int_equal(sp_schedule_register(&def[i]), 0);
        cfg.layout.schedule = def[i].name;
        if (i == 2)
            break;
        capture_begin(&c);
        assert_call(sp_trainer_open(&cfg, &t), -EINVAL, &c, said[i]);
    }
    train(&cfg, 0, mine);
    cfg.layout.schedule = "gpipe:backward=fifo";
    train(&cfg, 0, built_in);
    assert_memory_equal(mine, built_in, sizeof mine);
}

TEST(refused_calls)
{
    struct sp_train_config cfg;
    struct sp_trainer *t;
    struct capture c;
    double loss;
    int err = 0;

    defaults(&cfg);
    assert_int_equal(sp_trainer_open(&cfg, &t), 0);
    capture_begin(&c);
    assert_call(sp_trainer_evaluate(t, &loss), -EINVAL, &c, "evaluate: the configuration names");
    capture_begin(&c);
    assert_call(sp_trainer_save(t), -EINVAL, &c, "save: the configuration names");
    assert_int_equal(sp_trainer_close(t), 0);
    cfg.dry_run = true;
    assert_int_equal(sp_trainer_open(&cfg, &t), 0);
    capture_begin(&c);
    assert_call(sp_trainer_step(t, true, NULL), -EINVAL, &c, "opened for a dry run");
    assert_int_equal(sp_trainer_close(t), 0);
    assert_int_equal(sp_trainer_close(NULL), 0);
    defaults(&cfg);
    cfg.lr = 1e5;
    cfg.clip = 0;
    cfg.beta1 = cfg.beta2 = 0;
    assert_int_equal(sp_trainer_open(&cfg, &t), 0);
    capture_begin(&c);
    while (!err)
        err = sp_trainer_step(t, true, NULL);
    assert_call(err, -EDOM, &c, "the run has diverged; try a lower --lr");
    capture_begin(&c);
    assert_call(sp_trainer_step(t, true, NULL), -EINVAL, &c, "has diverged");
    assert_int_equal(sp_trainer_close(t), 0);
}

TEST(refused_configurations)
{
    struct sp_train_config bad[9];
    static const char *const said[] = {"train: --stages: 0 is not in 1 .. 65536",
                                       "train: --beta1: 1.5 is not in 0 .. 1",
                                       "train: --dtype: 3 is the number of none of f32|bf16|fp8",
                                       "train: --lr: nan is not in 0 .. 1e+06",
                                       "call sp_train_config_init first",
                                       "train: which model?",
                                       "train: --shard-size without --save DIR",
                                       "no schedule",
                                       "cannot"};
    struct sp_trainer *t = NULL;
    struct capture c;

    for (int i = 0; i < 9; i++)
        defaults(&bad[i]);
    bad[0].layout.stages = 0;
    bad[1].beta1 = 1.5;
    bad[2].dtype = SP_TRAIN_FP8 + 1;
    bad[3].lr = NAN;
    bad[4].partition = NULL;
    bad[5].layout.model = NULL;
    bad[6].shard_size_set = true;
    bad[7].layout.schedule = "none";
    bad[8].data = "/nowhere";
    for (int i = 0; i < 9; i++) {
        capture_begin(&c);
        assert_call(sp_trainer_open(&bad[i], &t), -EINVAL, &c, said[i]);
        assert_null(t);
    }
}

TEST_FIXTURE(setup, scratch_teardown)
