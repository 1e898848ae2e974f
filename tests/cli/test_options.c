/* The option parser: every kind of option, and every refusal with its line. */
#include "../policies/common.h"
#include "cli/options.h"

struct values {
    const char *file;
    int count, format;
    uint64_t limit;
    double rate;
    bool fast, given;
    const char *mode;
    int depth, style;
};

static int parse(int argc, char **argv, struct values *v)
{
    const struct sp_option options[] = {
        SP_OPTION("file", STRING, v->file, .help = "a file", .arg = "FILE", .given = &v->given),
        SP_OPTION("count", INT, v->count, .help = "how many", .arg = "N", .min = -3, .max = 99),
        SP_OPTION("limit", SIZE, v->limit, .help = "at most", .arg = "BYTES"),
        SP_OPTION("rate", DOUBLE, v->rate, .help = "how fast", .arg = "X", .max = 1.5),
        SP_OPTION("format", CHOICE, v->format, .help = "how", .choices = "text|json|csv",
                  .also = "json=json|form"),
        SP_OPTION("fast", FLAG, v->fast, .help = "hurry"),
        SP_OPTION("mode", STRING, v->mode, .help = "which", .arg = "HOW"),
        SP_OPTION("depth", INT, v->depth, .help = "how deep", .topic = SP_TOPIC_MEMORY, .arg = "N",
                  .max = 9, .wants = "fast|mode"),
        SP_OPTION("style", CHOICE, v->style, .help = "which", .topic = SP_TOPIC_OUTPUT,
                  .choices = "plain|fancy", .also = "fancy=fancy", .wants = "file"),
        {0},
    };

    return sp_options_parse(options, "Tests.", argc, argv);
}

/* Splits at blanks; argv[0] is "test". */
static int parse_line(const char *line, struct values *v)
{
    char text[512], *argv[32] = {"test"}, *save = NULL;
    static char kept[4096];
    static size_t used;
    int argc = 1;

    snprintf(text, sizeof text, "%s", line);
    for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        if (used + strlen(w) + 1 > sizeof kept)
            used = 0;
        argv[argc++] = strcpy(kept + used, w);
        used += strlen(w) + 1;
    }
    return parse(argc, argv, v);
}

TEST(takes_every_kind)
{
    struct values v = {.file = "default", .count = 4, .rate = 0.5};

    assert_int_equal(parse_line("", &v), 0);
    assert_string_equal(v.file, "default");
    assert_false(v.given);
    assert_int_equal(
        parse_line("--file a=b --count=-3 --limit 3MiB --rate=1.5 --format json --fast", &v), 0);
    assert_string_equal(v.file, "a=b");
    assert_true(v.given && v.fast);
    assert_int_equal(v.count, -3);
    assert_true(v.limit == 3 * 1048576);
    assert_true(v.rate == 1.5);
    assert_int_equal(v.format, 1);
    assert_int_equal(parse_line("--count -2 --count 7 --format=csv", &v), 0);
    assert_int_equal(v.count, 7);
    assert_int_equal(v.format, 2);
    /* other names, of the option or of one of its values */
    assert_int_equal(parse_line("--json", &v), 0);
    assert_int_equal(v.format, 1);
    assert_int_equal(parse_line("--form csv", &v), 0);
    assert_int_equal(v.format, 2);
    assert_int_equal(parse_line("--form=text", &v), 0);
    assert_int_equal(v.format, 0);
    /* what wants something else, and gets it, or is off */
    assert_int_equal(parse_line("--depth 3", &(struct values){.fast = true}), 0);
    assert_int_equal(parse_line("--mode some --depth 3", &v), 0);
    assert_int_equal(parse_line("--fancy --file x", &v), 0);
    assert_int_equal(parse_line("--style plain", &(struct values){0}), 0);
}

TEST(refuses)
{
    static const struct {
        const char *line, *why;
    } table[] = {
        {"--cuont 3", "test: no option --cuont, did you mean --count?"},
        {"--fomrat=json", "test: no option --fomrat, did you mean --format?"},
        {"--whatever", "test: no option --whatever; 'starpipe test --help' lists them"},
        {"--coun=3", "test: no option --coun, did you mean --count?"},
        {"stray", "test: 'stray' is not an option; 'starpipe test --help' lists them"},
        {"--fast stray", "test: 'stray' is not an option"},
        {"-f", "test: '-f' is not an option"},
        {"--", "test: '--' is not an option"},
        {"--count", "test: --count needs a value: N"},
        {"--count --fast", "test: --count needs a value: N"},
        {"--format", "test: --format needs a value: text|json|csv"},
        {"--file=", "test: --file: the value is empty"},
        {"--count=", "test: --count: '' is not an integer (-3 .. 99)"},
        {"--count 3x", "test: --count: '3x' is not an integer (-3 .. 99)"},
        {"--count 100", "test: --count: 100 is not in -3 .. 99"},
        {"--count -4", "test: --count: -4 is not in -3 .. 99"},
        {"--count 99999999999999999999", "is not in -3 .. 99"},
        {"--rate 1.6", "test: --rate: 1.6 is not in 0 .. 1.5"},
        {"--rate fast", "test: --rate: 'fast' is not a number"},
        {"--rate nan", "test: --rate: 'nan' is not a number"},
        {"--limit 3PB",
         "test: --limit: '3PB' is not a size: want bytes, or 512MiB, 10M, 80G, 10MB"},
        {"--limit -1", "'-1' is not a size"},
        {"--format jso", "test: --format: 'jso' is none of text|json|csv, did you mean json?"},
        {"--format text|json", "'text|json' is none of"},
        {"--fast=yes", "test: --fast takes no value, not 'yes'"},
        {"--json=yes", "test: --json takes no value; --format does"},
        {"--form", "test: --form needs a value: text|json|csv"},
        {"--jsno", "test: no option --jsno; 'starpipe test --help' lists them"},
        {"--depth 3", "test: --depth without --fast or --mode HOW has no effect"},
        {"--depth=0", "test: --depth without --fast or --mode HOW has no effect"},
        {"--depth 3 --mode none", "test: --depth without --fast or --mode HOW has no effect"},
        {"--depth 3 --fast=off", "test: --depth without --fast or --mode HOW has no effect"},
        {"--style=fancy", "test: --style without --file FILE has no effect"},
        {"--fancy", "test: --fancy without --file FILE has no effect"},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct values v = {.count = 4};
        struct capture c;
        int ret;

        ret = CAPTURED(&c, parse_line(table[i].line, &v));
        if (ret != -EINVAL || strncmp(c.text, "starpipe: ", 10) || !strstr(c.text, table[i].why) ||
            strchr(c.text, '\n') != c.text + strlen(c.text) - 1)
            fail_msg("'%s': %d, '%s'", table[i].line, ret, c.text);
        assert_int_equal(v.count, 4);
    }
    assert_int_equal(SP_OPTIONS_EXIT(-EINVAL), 2);
    print_message("%zu lines refused\n", sizeof table / sizeof *table);
}

/* Operands stand anywhere among the options; each is needed, none may be more. */
TEST(operands)
{
    static const struct {
        const char *words[5], *why;
    } bad[] = {
        {{"test"}, "test: FROM is missing: what to copy"},
        {{"test", "--fast", "a"}, "test: TO is missing: where to"},
        {{"test", "a", "b", "c"}, "test: 'c' is not an option"},
        {{"test", "a", "-b"}, "test: '-b' is not an option"},
        {{"test", "a", ""}, "test: TO: the value is empty"},
        {{"test", "--FROM", "a", "b"}, "test: no option --FROM"},
    };
    const char *from = NULL, *to = NULL, *good[] = {"test", "a", "--fast", "b"};
    bool fast = false;
    const struct sp_option options[] = {
        SP_OPTION("FROM", OPERAND, from, .help = "what to copy", .arg = "FILE"),
        SP_OPTION("fast", FLAG, fast, .help = "hurry"),
        SP_OPTION("TO", OPERAND, to, .help = "where to", .arg = "FILE"),
        {0},
    };

    assert_int_equal(sp_options_parse(options, "Tests.", 4, (char **)good), 0);
    assert_string_equal(from, "a");
    assert_string_equal(to, "b");
    assert_true(fast);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct capture c;
        int argc = 0, ret;

        from = to = NULL;
        while (argc < 5 && bad[i].words[argc])
            argc++;
        ret = CAPTURED(&c, sp_options_parse(options, "Tests.", argc, (char **)bad[i].words));
        if (ret != -EINVAL || !strstr(c.text, bad[i].why))
            fail_msg("%d words: %d, '%s', not '%s'", argc, ret, c.text, bad[i].why);
    }
}

TEST(sizes)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},
                {"512", 512},
                {"1KiB", 1024},
                {"1.5GiB", 1610612736},
                {"80GiB", 85899345920},
                {"0.5KiB", 512},
                {"1KB", 1000},
                {"0.5MB", 500000},
                {"5GB", 5000000000},
                {"1kB", 1000},
                {"64k", 65536},
                {"64K", 65536},
                {"10M", 10485760},
                {"10MB", 10000000},
                {"1.5G", 1610612736},
                {"80G", 85899345920},
                {"1T", 1099511627776},
                {"2TiB", 2199023255552},
                {"3TB", 3000000000000}};
    static const char *const bad[] = {"",      "KiB",   "1.5",   "-1",       "+1",
                                      "1 KiB", "1kib",  "1mb",   "0x10",     "1e3",
                                      "inf",   "nan",   "1..5",  "1KiBx",    " 1",
                                      "1m",    "1kibb", "1KiBB", "8388608T", "99999999999GiB"};
    uint64_t v = 7;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(sp_parse_size(good[i].text, &v), 0);
        assert_true(v == good[i].bytes);
    }
    v = 7;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (sp_parse_size(bad[i], &v) != -EINVAL)
            fail_msg("'%s' was taken for %llu bytes", bad[i], (unsigned long long)v);
    }
    assert_true(v == 7);
}

/* The help goes to stdout, with names, ranges and defaults. */
TEST(helps)
{
    struct values v = {.file = "x.bin", .count = 4, .limit = 2 << 20, .rate = 0.25, .format = 1};
    FILE *out = tmpfile();
    char text[4096];
    int saved = dup(STDOUT_FILENO), ret;
    size_t n;

    assert_non_null(out);
    fflush(stdout);
    dup2(fileno(out), STDOUT_FILENO);
    ret = parse_line("--count 5 --help --nonsense", &v);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    rewind(out);
    n = fread(text, 1, sizeof text - 1, out);
    text[n] = 0;
    fclose(out);
    assert_int_equal(ret, 1);
    assert_int_equal(SP_OPTIONS_EXIT(ret), 0);
    assert_non_null(strstr(text, "usage: starpipe test [options]\nTests.\n"));
    assert_non_null(strstr(text, "--file FILE"));
    assert_non_null(strstr(text, "a file (default x.bin)"));
    assert_non_null(strstr(text, "how many (-3 .. 99; default 5)"));
    assert_non_null(strstr(text, "at most (default 2 MiB)"));
    assert_non_null(strstr(text, "how fast (0 .. 1.5; default 0.25)"));
    assert_non_null(strstr(text, "--format text|json|csv"));
    assert_non_null(strstr(text, "how (default json); --json: --format json, --form: --format"));
    assert_non_null(strstr(text, "  --fast "));
    assert_non_null(
        strstr(text, "\nMemory: what is kept, computed again or moved out\n  --depth "));
    assert_non_null(strstr(text, "  --mode HOW"));
    assert_true(strstr(text, "  --mode HOW") < strstr(text, "\nMemory: "));
    assert_non_null(strstr(text, "\n\nOutput: what is printed and written\n  --style plain|fancy"));
    assert_null(strstr(text, "Optimizer"));
    assert_non_null(
        strstr(text, "\nSizes are in bytes; 10M is 10MiB, 10 x 1024^2 bytes; 10MB is "));
}

TEST(layout_table)
{
    struct sp_layout_args a = SP_LAYOUT_ARGS_DEFAULT;
    const struct sp_option options[] = {SP_LAYOUT_OPTIONS(a), {0}};
    char *argv[] = {
        "show",       "--schedule",           "gpipe:backward=fifo", "--stages=3", "--seq",
        "1048576",    "--memory-limit=80GiB", "--micro-batches",     "17",         "--chunks=2",
        "--slices=5", "--recompute=every=4",  "--micro-batch-size",  "2"};

    assert_string_equal(a.schedule, "1f1b");
    assert_int_equal(a.stages, 4);
    assert_int_equal(a.micro_batches, 8);
    assert_int_equal(sp_options_parse(options, "", sizeof argv / sizeof *argv, argv), 0);
    assert_string_equal(a.schedule, "gpipe:backward=fifo");
    assert_int_equal(a.stages, 3);
    assert_int_equal(a.seq, 1048576);
    assert_true(a.memory_limit == 80ull << 30);
    assert_int_equal(a.micro_batches, 17);
    assert_int_equal(a.chunks, 2);
    assert_int_equal(a.slices, 5);
    assert_string_equal(a.recompute, "every=4");
    assert_int_equal(a.micro_batch_size, 2);
}

TEST(recompute_lists)
{
    static const struct {
        const char *text;
        int mode;
    } rows[] = {{"none", SP_RECOMPUTE_NONE},
                {"norms,activation", SP_RECOMPUTE_SELECTIVE},
                {"activation,norms,norms", SP_RECOMPUTE_SELECTIVE},
                {"mlp,qkv,activation,norms", SP_RECOMPUTE_NO_ATTENTION},
                {"norms,activation,qkv,attention,mlp", SP_RECOMPUTE_FULL},
                {"every=1", SP_RECOMPUTE_FULL},
                {"norms", -1},
                {"attention", -1},
                {"norms,activation,mlp", -1},
                {"norms,activation,", -1},
                {"norms activation", -1},
                {",", -1},
                {"", -1}};
    bool quiet = sp_error_quiet(true);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sp_recompute_option option = {.every = 7};
        int err = sp_parse_recompute("train", rows[i].text, &option);

        assert_int_equal(err, rows[i].mode < 0 ? -EINVAL : 0);
        if (!err)
            assert_int_equal(option.mode, rows[i].mode);
        assert_int_equal(option.every, err ? 7 : 1);
    }
    sp_error_quiet(quiet);
}
