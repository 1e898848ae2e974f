/* Plans: defaults, and every refusal with its line. */
#include "policies/common.h"
#include "sp_suggest.h"
#include "policies/registry.h"
#include "policies/simulation/costs.h"

TEST(fills_in_defaults)
{
    struct sp_layout lay = {.stages = 3, .micro_batches = 5, .slices = 1, .layers = 7};
    struct sp_plan plan;

    assert_int_equal(sp_plan_create("gpipe:backward=fifo", &lay, &plan), 0);
    assert_string_equal(plan.def->name, "gpipe");
    assert_int_equal(plan.layout.chunks, 1);
    assert_string_equal(plan.layout.options, "backward=fifo");
    assert_ptr_equal(plan.layout.options, plan.options);
    assert_false(plan.split);
    assert_int_equal(sp_plan_ops(&plan), 3 * 5 * 2);
    sp_plan_destroy(&plan);
    assert_int_equal(sp_plan_create("1f1b", &lay, &plan), 0);
    assert_string_equal(plan.layout.options, "");
    sp_plan_destroy(&plan);
}

TEST(refuses)
{
    static const struct {
        const char *schedule;
        int p, m, v, n, layers;
        const char *line;
    } table[] = {
        {"1f2b", 2, 2, 1, 1, 0, "no schedule '1f2b', did you mean 1f1b? There are: "},
        {"gppie", 2, 2, 1, 1, 0, "no schedule 'gppie', did you mean gpipe? There are: "},
        {"frobnicate:x=1", 2, 2, 1, 1, 0, "no schedule 'frobnicate'; there are: "},
        {"", 2, 2, 1, 1, 0, "no schedule ''; there are: "},
        {"1F1B", 2, 2, 1, 1, 0, "no schedule '1F1B'"},
        {"1f1b:group=2", 2, 2, 1, 1, 0, "schedule 1f1b takes no options, not 'group=2'"},
        {"gpipe:backwards=fifo", 2, 2, 1, 1, 0,
         "schedule gpipe has no option 'backwards'; it has: backward"},
        {"gpipe:backward", 2, 2, 1, 1, 0, "option 'backward' is not of the form key=value"},
        {"gpipe:backward=", 2, 2, 1, 1, 0, "option 'backward=' is not of the form key=value"},
        {"gpipe:=fifo", 2, 2, 1, 1, 0, "option '=fifo' is not of the form key=value"},
        {"gpipe:,", 2, 2, 1, 1, 0, "option '' is not of the form key=value"},
        {"gpipe:backward=fifo,", 2, 2, 1, 1, 0, "options 'backward=fifo,' end in a comma"},
        {"gpipe:backward=fifo,backward=lifo", 2, 2, 1, 1, 0, "option 'backward' is given twice"},
        {"gpipe:auto", 2, 2, 1, 1, 0, "schedule gpipe has no option 'auto'; it has: backward"},
        {"zb1p:AUTO", 2, 2, 1, 1, 0, "no option 'AUTO'; it has: group,limit,budget,auto"},
        {"zb1p:auto=1", 2, 2, 1, 1, 0, "option 'auto' takes no value"},
        {"zb1p:auto,limit=2,auto", 2, 2, 1, 1, 0, "option 'auto' is given twice"},
        {"csv", 2, 2, 1, 1, 0, " csv:FILE"},
        {"gpipe:backward=filo", 2, 2, 1, 1, 0,
         "schedule gpipe backward=filo is neither lifo nor fifo"},
        {"1f1b", 0, 2, 1, 1, 0, "stages: 0 is not in 1 .. 65536"},
        {"1f1b", 65537, 2, 1, 1, 0, "stages: 65537 is not in 1 .. 65536"},
        {"1f1b", -4, 2, 1, 1, 0, "stages: -4 is not in 1 .. 65536"},
        {"1f1b", 2, 0, 1, 1, 0, "micro-batches: 0 is not in 1 .. 65536"},
        {"1f1b", 2, 2, -1, 1, 0, "chunks: -1 is not in 1 .. 65536"},
        {"1f1b", 2, 2, 1, 0, 0, "slices: 0 is not in 1 .. 65536"},
        {"1f1b", 2, 2, 2, 1, 0, "schedule 1f1b has 1 chunk per stage, not 2; use --chunks 1"},
        {"naive", 2, 2, 1, 3, 0, "schedule naive runs whole sequences, not 3 slices"},
        {"1f1b", 7, 2, 1, 1, 6,
         "7 stages of 1 chunk(s) need 7 layers, the model has 6; use at most 6"},
        /* what the schedule cannot do is said before what the model cannot */
        {"1f1b", 2, 2, 9, 1, 6, "schedule 1f1b has 1 chunk per stage, not 9; use --chunks 1"},
        {"1f1b", 2, 2, 1, 1, -1, "layers: -1 is negative"},
        {"1f1b", 65536, 65536, 65536, 65536, 0, "make more than 16000000 ops"},
        {"1f1b", 4096, 4096, 1, 1, 0,
         "4096 stages, 4096 micro-batches, 1 chunks and 1 slices make"},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sp_layout lay = {.stages = table[i].p,
                                .micro_batches = table[i].m,
                                .chunks = table[i].v,
                                .slices = table[i].n,
                                .layers = table[i].layers};
        struct sp_plan plan = {.layout.stages = 99};
        struct capture c;

        assert_says(&c, sp_plan_create(table[i].schedule, &lay, &plan), -EINVAL, table[i].line,
                    table[i].schedule);
        assert_int_equal(plan.layout.stages, 99); /* set only on success */
    }
    print_message("%zu plans refused\n", sizeof table / sizeof *table);
}

TEST(refuses_long_options)
{
    char text[300] = "gpipe:backward=";

    memset(text + strlen(text), 'x', 200);
    assert_no_plan(text, layout(2, 2), "options of 209 characters, at most 127");
}

TEST(parses_costs)
{
    struct sp_plan plan = {.layout = {.stages = 2, .chunks = 2, .slices = 1, .layers = 8},
                           .family = sp_family_find("layerwise")};
    struct sp_costs c;

    assert_int_equal(sp_costs_parse("f=2,b=3.5,w=0,comm=1e-1", &plan, &c), 0);
    assert_true(c.f == 2 && c.b == 3.5 && c.w == 0 && c.comm == 0.1);
    assert_int_equal(sp_costs_parse("b=4", &plan, &c), 0);
    assert_true(c.f == 1 && c.b == 4 && c.w == 1 && c.comm == 0);
    assert_int_equal(sp_costs_parse("pre=1,attn=3,post=2,backward=2.5", &plan, &c), 0);
    assert_true(c.f == 24);                /* 4 layers of 6 */
    assert_true(c.w == 4 * 3 * 1.25);      /* half the backward of pre and post */
    assert_true(c.b + c.w == 4 * 6 * 2.5); /* a backward is 2.5 forwards */
    assert_null(c.scale_f);
    assert_true(sp_costs_know_parts(&c) && c.parts.attn == 3 && c.parts.again == 0);
    sp_costs_add_recompute(&plan, false, &c);
    assert_true(c.b + c.w == 4 * (6 * 2.5 + 3)); /* pre and post once more */
    assert_true(c.parts.again == 1);
    assert_int_equal(sp_costs_parse("f=2,b=3", &plan, &c), 0);
    assert_false(sp_costs_know_parts(&c));
    sp_costs_add_recompute(&plan, true, &c);
    assert_true(c.b == 5);
    plan.family = sp_family_find("attention-parallel");
    plan.layout.layers = 7;
    assert_int_equal(sp_costs_parse("comm=2", &plan, &c), 0);
    assert_true(c.parts.pre == 1 && c.parts.attn == 3 && c.parts.post == 2 && c.comm == 2);
}

TEST(refuses_costs)
{
    static const struct {
        const char *text;
        int layers;
        const char *line;
    } table[] = {
        {"f", 8, "'f' is not one of"},
        {"f=", 8, "f= is not a number"},
        {"f=x", 8, "f=x is not a number in 0 .. 1e18"},
        {"f=-1", 8, "f=-1 is not"},
        {"f=nan", 8, "f=nan is not"},
        {"f=inf", 8, "f=inf is not"},
        {"f=1x", 8, "f=1x is not"},
        {"f=1,f=2", 8, "f is given twice"},
        {"forward=1", 8, "'forward=1' is not one of"},
        {"=1", 8, "'=1' is not one of"},
        {"f=1,,b=2", 8, "'' is not one of"},
        {"f=1,attn=2", 8, "mixes costs of a stage (f, b, w) and of a layer"},
        {"attn=2", 0, "the layers are unknown; use --layers"},
        {"attn=2", 7, "7 layers do not divide evenly over 2 stages of 2 chunk(s), as 4 do"},
        {"f=2,w=1", -8, "the ops of helix are parts of layers; use pre=1"},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        bool parts = table[i].layers < 0; /* of helix */
        struct sp_plan plan = {.layout = {.stages = 2, .chunks = 2, .layers = abs(table[i].layers)},
                               .def = sp_schedule_find(parts ? "helix" : "1f1b")};
        struct sp_costs costs = {.f = 77};
        struct capture c;
        int ret;

        capture_begin(&c);
        plan.family = sp_family_find(plan.def->family);
        ret = sp_costs_parse(table[i].text, &plan, &costs);
        capture_end(&c);
        if (ret != -EINVAL || !strstr(c.text, table[i].line))
            fail_msg("'%s': %d, '%s'", table[i].text, ret, c.text);
        assert_true(costs.f == 77);
    }
}

TEST(registry_is_sound)
{
    const struct sp_schedule_def *def;
    int n = 0;

    for (; (def = sp_schedule_at(n)); n++) {
        assert_int_equal(def->abi, SP_SCHEDULE_ABI);
        assert_ptr_equal(sp_schedule_find(def->name), def);
        assert_non_null(def->summary);
        assert_non_null(def->source);
        assert_non_null(sp_family_find(def->family));
        assert_true(def->default_chunks >= (strcmp(def->family, "sharded") ? 1 : 0));
        assert_int_equal(!!def->emit + !!def->emit_all + !!sp_family_find(def->family)->emit, 1);
        assert_true(!def->makespan || def->makespan_source);
        assert_true(!def->makespan_of_parts || def->makespan_source);
    }
    assert_null(sp_schedule_at(-1));
    assert_null(sp_schedule_find("1f1"));
    assert_null(sp_schedule_find("1f1bb"));
    assert_non_null(sp_schedule_find("1f1b:whatever"));
    assert_null(sp_family_find("nothing"));
    print_message("%d schedules\n", n);
}

TEST(distances)
{
    static const struct {
        const char *word, *text;
    } typed[] = {{"stagse", ", did you mean --stages?"},
                 {"stb", ", did you mean --sta?"},
                 {"xyz", ""},
                 {"s", ""},
                 {"frobnicate", ""}};

    assert_int_equal(sp_edit_distance("", "abc"), 3);
    assert_int_equal(sp_edit_distance("kitten", "sitting"), 3);
    assert_int_equal(sp_edit_distance("gppie", "gpipe"), 1);
    assert_int_equal(sp_edit_distance("ab", "ba"), 1);
    for (size_t i = 0; i < sizeof typed / sizeof *typed; i++) {
        struct sp_suggestion suggestion = {.typed = typed[i].word};
        char text[64];

        sp_suggest(&suggestion, "stages", 6);
        sp_suggest(&suggestion, "sta|ab", 3); /* as words of a list end */
        assert_string_equal(sp_suggest_text(&suggestion, "--", text, sizeof text), typed[i].text);
    }
}
