/* The CSV of torch.distributed.pipelining: our files and torch's are read back, and a text that is
 * no order is refused with its line and cell. */
#include "policies/common.h"
#include "policies/load/csv.h"
#include "policies/registry.h"
#include "policies/simulation/verify.h"

static char *written(const struct sp_plan *plan)
{
    char *text = NULL, why[160] = "";
    size_t n;
    FILE *out = open_memstream(&text, &n);

    assert_non_null(out);
    if (sp_csv_write(plan, out, why, sizeof why))
        fail_msg("%s", why);
    fclose(out);
    return text;
}

static int parse(const char *text, size_t n, struct sp_layout lay, struct sp_plan *plan)
{
    FILE *in = fmemopen((char *)text, n, "r");
    int err;

    assert_non_null(in);
    *plan = (struct sp_plan){
        .layout = lay, .def = &sp_schedule_csv, .family = sp_family_find("layerwise")};
    err = sp_csv_parse(in, "order.csv", plan);
    fclose(in);
    if (err)
        return err;
    return sp_plan_index(plan);
}

/* The same ops on the same global stages, in the same order. */
static void assert_same(const struct sp_plan *a, const struct sp_plan *b)
{
    assert_int_equal(a->layout.stages, b->layout.stages);
    assert_int_equal(a->layout.micro_batches, b->layout.micro_batches);
    assert_int_equal(a->layout.chunks, b->layout.chunks);
    assert_int_equal(a->paired, b->paired);
    for (int s = 0; s < a->layout.stages; s++) {
        assert_int_equal(a->programs[s].n, b->programs[s].n);
        for (int k = 0; k < a->programs[s].n; k++) {
            const struct sp_op *x = &a->programs[s].ops[k], *y = &b->programs[s].ops[k];

            assert_int_equal(x->pass, y->pass);
            assert_int_equal(x->mb, y->mb);
            assert_int_equal(x->overlap, y->overlap);
            assert_int_equal(sp_global_stage(&a->layout, s, x->chunk),
                             sp_global_stage(&b->layout, s, y->chunk));
        }
    }
}

/* Every schedule of the family, over a grid; sizes it cannot do are not for this test. */
TEST(round_trips)
{
    static const int sizes[][2] = {{1, 1}, {1, 5}, {2, 4},  {3, 6},
                                   {4, 8}, {4, 3}, {5, 20}, {8, 32}};
    const struct sp_schedule_def *def;
    int plans = 0, schedules = 0, pairs = 0;

    for (int i = 0; (def = sp_schedule_at(i)); i++) {
        int before = plans;

        if (strcmp(def->family, "layerwise") && strcmp(def->family, "subsequence"))
            continue;
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            struct sp_layout lay = layout_of(sizes[k][0], sizes[k][1], 0, 1);
            struct sp_plan plan, back;
            struct capture c;
            char *text, *again, why[512] = "";
            int err;

            err = CAPTURED(&c, sp_plan_create(def->name, &lay, &plan));
            if (err)
                continue;
            text = written(&plan);
            assert_int_equal(parse(text, strlen(text), (struct sp_layout){0}, &back), 0);
            assert_same(&plan, &back);
            assert_int_equal(sp_verify(&back, why, sizeof why), 0);
            again = written(&back);
            assert_string_equal(text, again);
            pairs += plan.paired;
            plans++;
            free(text);
            free(again);
            sp_plan_destroy(&plan);
            sp_plan_destroy(&back);
        }
        assert_true(plans > before);
        schedules++;
    }
    print_message("%d plans of %d schedules, %d with overlapped pairs\n", plans, schedules, pairs);
    assert_true(plans > 10);
}

/* Files that torch wrote: its own schedules, and ours after it read them (make_torch_csv.py). */
TEST(torch_files)
{
    static const struct {
        const char *name;
        int stages, micro_batches, chunks, split, paired;
    } table[] = {
        {"torch_1f1b_p4_m8.csv", 4, 8, 1, 0, 0},
        {"torch_interleavedzb_p4_m8_v2.csv", 4, 8, 2, 1, 0},
        {"torch_zbv_p4_m8_v2.csv", 4, 8, 2, 1, 0},
        {"torch_dualpipev_p4_m8_v2.csv", 4, 8, 2, 1, 1},
        {"starpipe_zbv_p4_m8_v2.csv", 4, 8, 2, 1, 0},
        {"starpipe_dualpipev_p4_m8_v2.csv", 4, 8, 2, 1, 1},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct sp_layout lay = {.options = ""};
        struct sp_plan plan;
        char path[512], *text, *file;
        size_t n, out = 0;
        FILE *in;

        snprintf(path, sizeof path, "csv:%s/schedules/%s", SP_TESTDATA, table[i].name);
        assert_int_equal(sp_plan_create(path, &lay, &plan), 0);
        assert_string_equal(plan.options, table[i].name);
        assert_int_equal(plan.layout.stages, table[i].stages);
        assert_int_equal(plan.layout.micro_batches, table[i].micro_batches);
        assert_int_equal(plan.layout.chunks, table[i].chunks);
        assert_int_equal(plan.split, table[i].split);
        assert_int_equal(plan.paired, table[i].paired);
        text = written(&plan);
        /* torch ends its lines with CR LF and keeps idle cells, we do not */
        in = fopen(path + 4, "r");
        assert_non_null(in);
        file = calloc(1, 65536);
        assert_non_null(file);
        n = fread(file, 1, 65535, in);
        fclose(in);
        for (size_t k = 0; k < n; k++) {
            bool idle =
                file[k] == ',' && (out == 0 || file[out - 1] == ',' || file[out - 1] == '\n');

            if (file[k] == '\r' || idle)
                continue;
            if (file[k] == '\n' && file[out - 1] == ',')
                out--;
            file[out++] = file[k];
        }
        file[out] = 0;
        assert_string_equal(text, file);
        print_message("%s: %d ops\n", table[i].name, sp_plan_ops(&plan));
        free(file);
        free(text);
        sp_plan_destroy(&plan);
    }
}

/* Any placement of as many stages on each rank; chunks count from the first layer on. */
TEST(placements)
{
    static const char text[] = " 1F0 ,\"3F0\",,3B0,1B0,\r\n0F0,2F0,,2B0,0B0\r\n";
    struct sp_plan plan;
    char *out;

    assert_int_equal(parse(text, sizeof text - 1, (struct sp_layout){0}, &plan), 0);
    assert_int_equal(plan.layout.stages, 2);
    assert_int_equal(plan.layout.chunks, 2);
    assert_int_equal(sp_global_stage(&plan.layout, 0, 0), 1);
    assert_int_equal(sp_global_stage(&plan.layout, 0, 1), 3);
    assert_int_equal(sp_chunk_owner(&plan.layout, 0, 2).stage, 1);
    assert_int_equal(sp_chunk_owner(&plan.layout, 0, 2).chunk, 1);
    out = written(&plan);
    assert_string_equal(out, "1F0,3F0,3B0,1B0\n0F0,2F0,2B0,0B0\n");
    free(out);
    sp_plan_destroy(&plan);
}

/* PyTorch also writes actions that follow from the order; they change nothing. */
TEST(skips)
{
    static const char text[] =
        "0UNSHARD,0F0,0SEND_F0,0F1,1RECV_B0,0WAIT_RECV_B0,0B0,0B1,0REDUCE_GRAD\n"
        "1F0,1B0,1F1,1B1,1WAIT_REDUCE_GRAD,1RESHARD\n";
    struct sp_plan plan;
    char *out;

    assert_int_equal(parse(text, sizeof text - 1, (struct sp_layout){0}, &plan), 0);
    out = written(&plan);
    assert_string_equal(out, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    free(out);
    sp_plan_destroy(&plan);
}

TEST(refuses)
{
    static const struct {
        const char *text, *why;
        size_t n; /* 0: strlen */
    } table[] = {
        {"\n", "line 1: no action", 0},
        {"0F0,0B0\n,,,\n", "line 2: no action", 0},
        {"0F0,0B0\n\n", "line 2: no action", 0},
        {"0F0,0X0\n", "line 1, cell 2: '0X0' is no action", 0},
        {"0F0,,0SEND_X0,0B0\n", "line 1, cell 3: '0SEND_X0' is no action that is known", 0},
        {"0F0,0B0,0REDUCE_GRADS\n", "line 1, cell 3: '0REDUCE_GRADS' is no action", 0},
        {"0F0,0B0,REDUCE_GRAD\n", "line 1, cell 3: 'REDUCE_GRAD' is no action", 0},
        {"0F0,0B0,0REDUCE_GRAD0x\n", "line 1, cell 3: '0REDUCE_GRAD0x' is no action", 0},
        {"0F0,0B0,70000REDUCE_GRAD\n", "'70000REDUCE_GRAD' has a number above 65535", 0},
        {"0F0,0B0\n1REDUCE_GRAD\n", "line 2: no action", 0},
        {"0F0,0B\n", "line 1, cell 2: '0B' is no action", 0},
        {"0F0,0B0x\n", "line 1, cell 2", 0},
        {"0F0,-1B0\n", "line 1, cell 2", 0},
        {"0F0,0B0,+0F1\n", "line 1, cell 3", 0},
        {"65536F0,0B0\n", "'65536F0' has a number above 65535", 0},
        {"0F99999999999999999999,0B0\n", "cell 1: '0F99999999999999999999' has a number above", 0},
        {"0F0,0B0\n2F0,2B0\n", "stage 1 of 0 .. 2 is on no line", 0},
        {"65535F65535\n", "stage 0 of 0 .. 65535 is on no line", 0},
        {"0F0,0B0\n0F1,0B1\n", "line 2, cell 1: stage 0 is on line 1 already", 0},
        {"0F0,0B0,1F0,1B0\n2F0,2B0\n", "line 2: 1 stages, line 1 has 2", 0},
        {"0F0,0B0,0F0\n", "line 1, cell 3: 0F0 for the second time", 0},
        {"0F0,0I0,0W0,0B0\n", "line 1, cell 4: 0B0 beside 0I0", 0},
        {"0F0,0W0,0B0\n", "line 1, cell 3: 0B0 beside 0W0", 0},
        {"0F0,0B0,0W0\n", "line 1, cell 3: 0W0 beside 0B0", 0},
        {"0F0,0I0\n", "line 1: 0W0 is missing", 0},
        {"0F0,0W0\n", "line 1: 0I0 is missing", 0},
        {"0F0\n", "line 1: 0B0 is missing", 0},
        {"0F1,0B1\n", "line 1: 0F0 is missing", 0},
        {"0F0,1F0,1B0,0B0\n2F0,3F0,2B0\n", "line 2: 3B0 is missing", 0},
        {"0F65535,0B0\n", "line 1: 0F0 is missing", 0},
        {"(0F0;0B0)OVERLAP_F\n", "line 1, cell 1", 0},
        {"(0F0)OVERLAP_F_B,0B0\n", "line 1, cell 1", 0},
        {"(0B0;0F1)OVERLAP_F_B\n", "line 1, cell 1", 0},
        {"(0F0;0B0;0F1)OVERLAP_F_B\n", "line 1, cell 1", 0},
        {"\x7f"
         "ELF\x02\n",
         "line 1, cell 1: '?ELF?'", 0},
        {"0F0,\0B0\n", "line 1, cell 2: a zero byte", 9},
        {"0F0,"
         "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
         "00000000000000000000000F0\n",
         "cell 2: '0000000000000000000000000000000000000000...' is too long", 0},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        size_t n = table[i].n ? table[i].n : strlen(table[i].text);
        struct sp_plan plan;
        struct capture c;
        const char *said;
        int err;

        capture_begin(&c);
        err = parse(table[i].text, n, (struct sp_layout){0}, &plan);
        said = capture_end(&c);
        if (err != -EINVAL || !strstr(said, table[i].why) || strchr(said, '\n')[1] ||
            strncmp(said, "starpipe: order.csv: ", 21))
            fail_msg("%s: %d, %s", table[i].text, err, said);
        assert_null(plan.programs);
    }
    print_message("%zu files refused\n", sizeof table / sizeof *table);
}

/* Writes the text to a file that is empty otherwise. */
static void rewrite(FILE *f, const char *text)
{
    rewind(f);
    assert_int_equal(ftruncate(fileno(f), 0), 0);
    fputs(text, f);
    fflush(f);
}

/* Requested sizes must be those of the file; an order that cannot run is refused. */
TEST(sizes_and_orders)
{
    char path[] = "/tmp/starpipe-csv-XXXXXX", file[64];
    FILE *f = fdopen(mkstemp(path), "w");
    const struct sp_layout any = {0};
    const struct refusal sizes[] = {
        {file, layout(4, 2), "has 2 stages, not 4"},
        {file, layout(2, 8), "has 2 micro-batches, not 8"},
        {file, {.chunks = 2}, "has 1 chunks, not 2"},
        {file, {.slices = 3}, "has 1 slices, not 3"},
        {file, {.layers = 1}, "layers"},
    };
    const struct refusal no_files[] = {
        {"csv:/nonexistent/file", any, "No such file"},
        {"csv:/tmp", any, "not a regular file"},
        {"csv:/dev/zero", any, "not a regular file"},
        {"csv:", any, "which file"},
    };
    struct sp_plan plan;

    assert_non_null(f);
    snprintf(file, sizeof file, "csv:%s", path);
    rewrite(f, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    make_plan_of(file, any, &plan);
    sp_plan_destroy(&plan);
    make_plan_of(file, layout(2, 2), &plan);
    sp_plan_destroy(&plan);
    assert_no_plans(sizes);
    rewrite(f, "0B0,0F1,0F0,0B1\n");
    assert_no_plan(file, any, "comes before its F0.0");
    assert_int_equal(ftruncate(fileno(f), 1L << 30), 0);
    assert_no_plan(file, any, "1073741824 bytes");
    assert_no_plans(no_files);
    fclose(f);
    unlink(path);
}

/* Plans that the format cannot express are refused. */
TEST(export_refused)
{
    struct sp_plan plan;
    char why[160] = "";

    write_plan(layout_of(2, 2, 1, 2),
               (const char *[]){"F0s0 F0s1 B0s1 B0s0", "F0s0 F0s1 B0s1 B0s0"}, &plan);
    assert_int_equal(sp_csv_write(&plan, stderr, why, sizeof why), -EINVAL);
    assert_string_equal(why, "the csv format has no word for F0s0 of stage 0");
    sp_plan_destroy(&plan);
    write_plan(layout(2, 2), (const char *[]){"F0.0 R0.0 B0.0", "F0.0 B0.0"}, &plan);
    assert_int_equal(sp_csv_write(&plan, stderr, why, sizeof why), -EINVAL);
    assert_string_equal(why, "the csv format has no word for R0.0 of stage 0");
    sp_plan_destroy(&plan);
    make_plan_of("dualpipe", layout_of(2, 4, 2, 1), &plan);
    assert_int_equal(sp_csv_write(&plan, stderr, why, sizeof why), -EINVAL);
    assert_non_null(strstr(why, "one copy of each stage"));
    sp_plan_destroy(&plan);
}
