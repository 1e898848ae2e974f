/* Schedules of the program itself: one that is registered is found and verified as others are, every definition
 * that is wrong is refused with its line, and a check that crashes is caught (an emit: tests/train/test_trainer.c). */
#include "policies/common.h"
#include "policies/registry.h"
#include <signal.h>

static void emit(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    (void)stage;
    for (int i = 0; i < lay->micro_batches; i++)
        sp_program_add(prog, SP_F, i, 0);
    for (int i = 0; i < lay->micro_batches; i++)
        sp_program_add(prog, SP_B, i, 0);
}

static void drops(const struct sp_layout *lay, int stage, struct sp_program *prog)
{
    emit(lay, stage, prog);
    prog->n -= stage;
}

static int crashes(const struct sp_layout *lay, char *why, size_t n)
{
    (void)lay, (void)why, (void)n;
    return raise(SIGSEGV);
}

static int quits(const struct sp_layout *lay, char *why, size_t n)
{
    (void)lay, (void)why, (void)n;
    exit(0);
}

/* A definition that is in order. */
static struct sp_schedule_def good(const char *name)
{
    return (struct sp_schedule_def){.abi = SP_SCHEDULE_ABI,
                                    .name = name,
                                    .summary = "all forwards, then all backwards",
                                    .source = "this test",
                                    .family = "layerwise",
                                    .options = "depth",
                                    .default_chunks = 1,
                                    .emit = emit};
}

/* One line of the program, with `words` in it. */
static void assert_line(const char *said, const char *words)
{
    static const char begins[] = "starpipe: program unit: ";

    if (strncmp(said, begins, strlen(begins)) || !strstr(said, words) ||
        strchr(said, '\n') != said + strlen(said) - 1)
        fail_msg("'%s' is not one line of the program with '%s'", said, words);
}

static int count(void)
{
    int n = 0;

    while (sp_schedule_at(n))
        n++;
    return n;
}

TEST(registers)
{
    static struct sp_schedule_def mine, again;
    struct sp_plan plan, gpipe;
    int before = count();
    struct capture c;

    mine = again = good("mine");
    assert_int_equal(sp_schedule_register(&mine), 0);
    assert_int_equal(sp_schedule_register(&mine), 0); /* known */
    assert_int_equal(count(), before + 1);
    assert_ptr_equal(sp_schedule_find("mine:depth=2"), &mine);
    assert_null(sp_schedule_plugin(&mine));
    make_plan("mine:depth=2", 3, 4, &plan);
    make_plan("gpipe:backward=fifo", 3, 4, &gpipe);
    assert_same_programs(&plan, &gpipe);
    sp_plan_destroy(&plan);
    sp_plan_destroy(&gpipe);
    capture_begin(&c);
    assert_int_equal(sp_schedule_register(&again), -EINVAL);
    assert_line(capture_end(&c),
                "there is a schedule mine already, of program unit; rename this one");
    assert_int_equal(count(), before + 1);
}

TEST(refuses_definitions)
{
    const struct {
        struct sp_schedule_def def;
        const char *line;
    } table[] = {
        {good("1f1b"), "there is a schedule 1f1b already, built in; rename this one"},
        {good("csv"), "the name csv stands for files"},
        {good("Two Words"), "the name 'Two Words' is not of 1 to 40 characters"},
        {good(NULL), "a schedule has no name"},
        {good((const char *)16), "reading its schedule crashed: Segmentation fault"},
        {{.abi = SP_SCHEDULE_ABI + 1, .name = (const char *)16}, "it has schedule ABI "},
        {{.abi = SP_SCHEDULE_ABI, .name = "bare"}, "schedule bare: its summary is missing"},
        {{.abi = SP_SCHEDULE_ABI, .name = "bare", .summary = "x", .source = "x", .emit = emit},
         "schedule bare: no graph family ''; there are: layerwise"},
    };
    int before = count();
    struct capture c;

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        capture_begin(&c);
        assert_int_equal(sp_schedule_register(&table[i].def), -EINVAL);
        assert_line(capture_end(&c), table[i].line);
    }
    capture_begin(&c);
    assert_int_equal(sp_schedule_register(NULL), -EINVAL);
    assert_line(capture_end(&c), "a schedule is NULL");
    assert_int_equal(count(), before);
    print_message("%zu definitions refused\n", sizeof table / sizeof *table + 1);
}

/* It is in order until it is called: the plan is refused, and the process goes on. */
TEST(refuses_orders)
{
    static struct sp_schedule_def def[3];
    static const char *const line[] = {"schedule drops: order: stage 1: B3.0 is missing",
                                       "program unit: check of crashes crashed: Segmentation fault",
                                       "program unit: check of quits called exit"};
    struct sigaction before, after;
    struct sp_plan plan;

    def[0] = good("drops");
    def[0].emit = drops;
    def[1] = good("crashes");
    def[1].check = crashes;
    def[2] = good("quits");
    def[2].check = quits;
    sigaction(SIGSEGV, NULL, &before);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sp_schedule_register(&def[i]), 0);
        assert_no_plan(def[i].name, layout(2, 4), line[i]);
    }
    make_plan("1f1b", 2, 4, &plan);
    sp_plan_destroy(&plan);
    sigaction(SIGSEGV, NULL, &after); /* a crash of the program is no business of the library */
    assert_true(before.sa_handler == after.sa_handler);
}
