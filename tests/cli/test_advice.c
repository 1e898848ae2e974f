/*
 * Tests the advice after a run. The records come from a list simulation, so the right advice is
 * known.
 */
#include "cli/train/train.h"
#include "model/support.h"
#include "train/run/record.h"

static char text[4200];

static int setup(void **state)
{
    char words[2001];

    scratch_setup(state);
    for (size_t i = 0; i < sizeof words; i++)
        words[i] = (char)('a' + i * i % 23);
    write_file(scratch_path(scratch, "text", text), words, sizeof words);
    return 0;
}

static const char *schedule = "1f1b", *model = "gpt-tiny";

static struct sp_trainer *open_trainer(int stages, int micro_batches, const char *partition)
{
    struct sp_train_config cfg;
    struct sp_trainer *t;

    assert_int_equal(sp_train_config_init(&cfg), 0);
    cfg.layout.model = model;
    cfg.layout.schedule = schedule;
    cfg.layout.stages = stages;
    cfg.layout.micro_batches = micro_batches;
    cfg.layout.seq = 64;
    cfg.partition = partition;
    cfg.data = text;
    cfg.steps = 1;
    cfg.clip = 0; /* not all schedules can clip */
    cfg.threads = 1;
    cfg.device = SP_TRAIN_CPU;
    cfg.hardware = "a800-ib"; /* on which each stage has a device of its own */
    assert_int_equal(sp_trainer_open(&cfg, &t), 0);
    return t;
}

/* Advises on the predicted step, made `times` as long as if cores were missing. */
static void advise(struct sp_trainer *t, double times, char advice[SP_ADVICE])
{
    struct sp_timeline record;
    struct sp_report r;

    assert_int_equal(sp_train_record_predicted(t, &record), 0);
    assert_int_equal(sp_report_make(&record, &r), 0);
    record.length *= times;
    r.causes.measured_ms *= times;
    sp_advise(t, &r, advice);
    sp_report_destroy(&r);
    sp_timeline_destroy(&record);
}

TEST(more_micro_batches)
{
    struct sp_trainer *t = open_trainer(2, 2, "even");
    char advice[SP_ADVICE];

    advise(t, 1, advice);
    printf("%s\n", advice);
    assert_non_null(strstr(advice, "with 2 micro-batches 1f1b itself is idle 3"));
    assert_non_null(
        strstr(advice, "twice as many (--micro-batches 4) would train 1.2 times as many"));
    assert_int_equal(sp_trainer_close(t), 0);
}

/* A run that is nearly as fast as possible gets no advice. */
TEST(none)
{
    struct sp_trainer *t = open_trainer(1, 8, "even");
    char advice[SP_ADVICE] = "x";

    advise(t, 1, advice);
    assert_string_equal(advice, "");
    assert_int_equal(sp_trainer_close(t), 0);
}

TEST(fewer_stages)
{
    struct sp_trainer *t = open_trainer(4, 8, "even");
    char advice[SP_ADVICE];

    t->place.workers = 2;
    advise(t, 4, advice);
    printf("%s\n", advice);
    assert_true(!strncmp(advice, "4 stages share 2 cores: 2 would be ", 35));
    assert_non_null(strstr(advice, " times as fast (--stages 2)"));
    /* the play of two stages takes longer than that of four with a device each, not longer than the
     * run */
    assert_true(atof(advice + 35) > 1.5 && atof(advice + 35) < 3);
    advise(t, 1, advice); /* a step as short as on four devices: two stages would be no faster */
    assert_null(strstr(advice, "--stages"));
    assert_int_equal(sp_trainer_close(t), 0);
}

TEST(uneven_stages)
{
    struct sp_trainer *t = open_trainer(2, 32, "7,1");
    char advice[SP_ADVICE];

    advise(t, 1, advice);
    printf("%s\n", advice);
    assert_non_null(strstr(advice, "the partition is uneven: stage 0 has 7 of 8 layers"));
    assert_non_null(strstr(advice, "; without that a step would be 1."));
    assert_int_equal(sp_trainer_close(t), 0);
}

/* Also covers schedules whose ops are not of whole chunks. */
TEST(all_schedules)
{
    static const char *const names[] = {"gpipe",    "interleaved", "zb1p",      "zbv",
                                        "dualpipe", "hanayo",      "seq1f1b",   "terapipe",
                                        "weipipe",  "wzb1",        "fsdp",      "helix",
                                        "sppo",     "chimera",     "pipedream", "pipedream-2bw"};
    char advice[SP_ADVICE];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct sp_trainer *t;

        schedule = names[i];
        model = "llama-tiny"; /* whose tables are two */
        t = open_trainer(4, 8, "even");
        advise(t, 3, advice);
        printf("%s: %s\n", schedule, advice);
        assert_int_equal(sp_trainer_close(t), 0);
    }
    schedule = "1f1b";
    model = "gpt-tiny";
}

TEST_FIXTURE(setup, scratch_teardown)
