/*
 * Machines: curves at, between and beyond their points; the named ones; a file written reads back as it was;
 * and every key refused in every way that it can be wrong.
 */
#include "policies/common.h"
#include "plan/machine/fields.h"
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fabs(b);
}

/* ---- curves ------------------------------------------------------------------------------- */

static void curves(void **state)
{
    const struct sp_curve c = {3, {{10, 1}, {1000, 100}, {4000, 50}}}, one = {1, {{5, 7}}};

    (void)state;
    assert_true(near(sp_curve_rate(&c, 10), 1) && near(sp_curve_rate(&c, 1000), 100) &&
                near(sp_curve_rate(&c, 4000), 50));
    assert_true(near(sp_curve_rate(&c, 100), 10)); /* the middle of two decades */
    assert_true(near(sp_curve_rate(&c, 2000), 100 / sqrt(2)));
    assert_true(near(sp_curve_rate(&c, 1), 1) && near(sp_curve_rate(&c, 1e9), 50));
    assert_true(near(sp_curve_rate(&one, 0.1), 7) && near(sp_curve_rate(&one, 100), 7));
    assert_true(near(sp_curve_s(&c, 100), 10) && near(sp_curve_s(&one, 14), 2));
    assert_true(sp_curve_s(&c, 0) <= 0);
}

static void links(void **state)
{
    const struct sp_link l = {.latency_s = 1e-5, .bandwidth = 1e9, .shared_by = 1};

    (void)state;
    assert_true(near(sp_link_s(&l, 0), 1e-5) && near(sp_link_s(&l, 5e8), 0.5 + 1e-5));
}

/* ---- named ones --------------------------------------------------------------------------- */

static void assert_same(const struct sp_machine *a, const struct sp_machine *b)
{
    for (const struct sp_machine_field *f = sp_machine_fields; f->path; f++) {
        const char *x = (const char *)a + f->at, *y = (const char *)b + f->at;
        bool text = f->kind == SP_FIELD_TEXT || f->kind == SP_FIELD_LINES;

        if (text ? strcmp(x, y) : memcmp(x, y, f->size))
            fail_msg("%s: %s is another", a->name, f->path);
    }
}

/* Rates make sense beside each other. */
static void check_rates(const struct sp_machine *m)
{
    const double large = 1e15;

    for (int t = 0; t < SP_DTYPES; t++) {
        double matmul = sp_curve_rate(&m->matmul[t], large);

        for (int pass = 0; pass < SP_ATTENTION_PASSES; pass++)
            assert_true(sp_curve_rate(&m->attention[t][pass], large) <= matmul);
        assert_true(sp_curve_rate(&m->matmul[t], 1e6) < matmul);
    }
    assert_true(m->network.bandwidth <= m->node.bandwidth);
    assert_true(m->copy.both <= m->copy.to_host && m->copy.both <= m->copy.from_host);
    assert_true(m->disk.both <= m->disk.write && m->disk.both <= m->disk.read);
}

static void named(void **state)
{
    const char *name, *last = "";
    int n = 0;

    (void)state;
    for (; (name = sp_machine_name_at(n)); n++) {
        struct sp_machine m, again;
        char *text;

        assert_true(strcmp(last, name) < 0);
        assert_int_equal(sp_machine_load(name, &m), 0);
        assert_string_equal(m.name, name);
        check_rates(&m);
        text = sp_machine_text(&m);
        assert_non_null(text);
        assert_int_equal(sp_machine_parse(name, text, &again), 0);
        assert_same(&m, &again);
        free(text);
        print_message("%-16s %-24s products %.3g TFLOP/s in bf16, attention %.3g, %.3g GB/s "
                      "in a node, %.3g between nodes\n",
                      name, m.device, 1e-12 * sp_curve_rate(&m.matmul[SP_BF16], 1e15),
                      1e-12 * sp_curve_rate(&m.attention[SP_BF16][0], 1e15),
                      1e-9 * m.node.bandwidth, 1e-9 * m.network.bandwidth);
        last = name;
    }
    assert_int_equal(n, 8);
    assert_null(sp_machine_name_at(-1));
}

/* A machine of numbers with all their digits, without what may be left out. */
static void written(void **state)
{
    struct sp_machine m, again;
    double x = 1.0 / 3;
    char *text;

    (void)state;
    assert_int_equal(sp_machine_load("laptop", &m), 0);
    m.copy = (struct sp_copy_rates){.to_host = 0};
    m.disk = (struct sp_disk_rates){.write = 0};
    m.launch_s = x * 1e-5;
    m.host_bytes = 98765432109877;
    m.network.half_duplex = true;
    strcpy(m.source, "one \"quoted\" line\n\n\xc3\xa9 on the third");
    m.memory.n = SP_CURVE_POINTS;
    for (int i = 0; i < SP_CURVE_POINTS; i++) {
        m.memory.at[i].size = 100 * (i + x);
        m.memory.at[i].rate = 1e9 / (i + 3);
    }
    text = sp_machine_text(&m);
    assert_non_null(text);
    assert_int_equal(sp_machine_parse("it", text, &again), 0);
    assert_same(&m, &again);
    assert_non_null(strstr(text, "\"copy\": null"));
    free(text);
    strcpy(m.name, "\xff"); /* of a system whose names are no UTF-8 */
    text = sp_machine_text(&m);
    assert_non_null(text);
    assert_non_null(strstr(text, "\"name\": \"\xef\xbf\xbd\""));
    free(text);
}

/* ---- refusals ----------------------------------------------------------------------------- */

/* What the function prints on stderr while it runs. */
static int said(int (*call)(const char *, struct sp_machine *), const char *arg, char text[1024])
{
    static struct sp_machine m;
    FILE *f = tmpfile();
    int held = dup(2), err;
    size_t n;

    assert_non_null(f);
    dup2(fileno(f), 2);
    err = call(arg, &m);
    dup2(held, 2);
    close(held);
    rewind(f);
    n = fread(text, 1, 1023, f);
    text[n] = 0;
    fclose(f);
    return err;
}

static int parse(const char *json, struct sp_machine *m)
{
    return sp_machine_parse("machine x.json", json, m);
}

static void refused(const char *json, const char *why)
{
    char text[1024];

    assert_int_equal(said(parse, json, text), -EINVAL);
    if (!strstr(text, why) || strncmp(text, "starpipe: machine x.json: ", 26) ||
        strchr(text, '\n') != text + strlen(text) - 1)
        fail_msg("not '%s' but: %s", why, text);
}

static json_t *laptop(void)
{
    struct sp_machine m;
    char *text;
    json_t *root;

    assert_int_equal(sp_machine_load("laptop", &m), 0);
    text = sp_machine_text(&m);
    root = json_loads(text, 0, NULL);
    free(text);
    assert_non_null(root);
    json_object_set_new(json_object_get(root, "node"), "copy",
                        json_pack("{s:f,s:f,s:f,s:i}", "to_host", 1e9, "from_host", 1e9, "both",
                                  1e9, "shared_by", 1));
    return root;
}

/* The laptop with `value`, which is JSON, in the place of a path; NULL: without it. */
static char *with(const char *path, const char *value)
{
    json_t *root = laptop(), *at = root;
    const char *dot;
    char key[64], *text;

    for (; (dot = strchr(path, '.')); path = dot + 1) {
        snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
        at = json_object_get(at, key);
    }
    if (value)
        json_object_set_new(at, path, json_loads(value, JSON_DECODE_ANY, NULL));
    else
        json_object_del(at, path);
    text = json_dumps(root, 0);
    json_decref(root);
    return text;
}

static void refused_with(const char *path, const char *value, const char *why)
{
    char *json = with(path, value), text[256];

    snprintf(text, sizeof text, "machine x.json: %s%s%s", path, *why == '[' ? "" : ": ", why);
    refused(json, text);
    free(json);
}

/* Every key missing, and of a wrong type. */
static void every_key(void **state)
{
    static const char *const wrong[] = {
        [SP_FIELD_TEXT] = "7",   [SP_FIELD_LINES] = "\"text\"", [SP_FIELD_REAL] = "\"1\"",
        [SP_FIELD_COUNT] = "[]", [SP_FIELD_BYTES] = "\"1GiB\"", [SP_FIELD_FLAG] = "1",
        [SP_FIELD_CURVE] = "1e9"};
    static const char *const zero[] = {
        [SP_FIELD_TEXT] = "\"\"", [SP_FIELD_LINES] = "[]",  [SP_FIELD_REAL] = "0",
        [SP_FIELD_COUNT] = "0",   [SP_FIELD_BYTES] = "0.5", [SP_FIELD_FLAG] = "null",
        [SP_FIELD_CURVE] = "[]"};
    int keys = 0;

    (void)state;
    for (const struct sp_machine_field *f = sp_machine_fields; f->path; f++, keys++) {
        refused_with(f->path, NULL, "it is missing");
        refused_with(f->path, wrong[f->kind], "it is");
        refused_with(f->path, zero[f->kind], "it ");
        if (f->kind == SP_FIELD_REAL)
            refused_with(f->path, "-1e9", "it is -1e+09, it must be a number between");
    }
    print_message("%d keys, each missing, of a wrong type, without a value\n", keys);
}

/* Numbers that times cannot be made of. */
static void bounds(void **state)
{
    static const char *const large[] = {"1.7e308", "1e22"};
    int keys = 0;

    (void)state;
    for (const struct sp_machine_field *f = sp_machine_fields; f->path; f++) {
        char text[64];

        if (f->bounds.max <= 0)
            continue;
        keys++;
        assert_true(f->bounds.min > 0 && f->bounds.max < 1e30);
        for (int i = 0; i < 2; i++) {
            snprintf(text, sizeof text, f->kind == SP_FIELD_CURVE ? "[[1, %s]]" : "%s", large[i]);
            refused_with(f->path, text, f->kind == SP_FIELD_CURVE ? "[0]: it is" : "it is");
        }
        refused_with(f->path, f->kind == SP_FIELD_CURVE ? "[[1e-300, 1e9]]" : "1e-300",
                     f->kind == SP_FIELD_CURVE ? "[0]: it is 1e-300" : "it is 1e-300");
    }
    print_message("%d keys with a number, each too large and too small\n", keys);
    assert_true(keys > 20);
}

static void unknown_keys(void **state)
{
    (void)state;
    refused_with("colour", "1", "there is no such key");
    refused_with("device.matmull", "1", "there is no such key");
    refused_with("device.mat", "1", "there is no such key");
    refused_with("device.matmul.f16", "[[1, 1]]", "there is no such key");
    refused_with("device.attention.f32.sideways", "[[1, 1]]", "there is no such key");
    refused_with("node.link", "3", "it is 3, it must be an object");
    refused_with("network", "null", "it is null, it must be an object");
    refused_with("node.disk", "true", "it is true, it must be an object or null");
    refused("{\"node.devices\": 1}", "node.devices: there is no such key");
    refused("{\"a\\nb\": 1}", "a\\x0ab: there is no such key");
}

static void values(void **state)
{
    (void)state;
    refused_with("device.matmul.bf16", "[[1, 2], [2, 3], [2, 4]]",
                 "[2]: sizes must ascend, 2 is not above 2");
    refused_with("device.matmul.bf16", "[[1, 2], [2, 0]]", "[1]: it is 0, it must be a number");
    refused_with("device.memory", "[[1, 2], [3]]", "[1]: it must be a size and a rate");
    refused_with("device.memory", "[[1, 2], 3]", "[1]: it must be a size and a rate");
    refused_with("device.memory",
                 "[[1,1],[2,1],[3,1],[4,1],[5,1],[6,1],[7,1],[8,1],[9,1],[10,1],"
                 "[11,1],[12,1],[13,1],[14,1],[15,1],[16,1],[17,1],[18,1],[19,1],"
                 "[20,1],[21,1],[22,1],[23,1],[24,1],[25,1]]",
                 "it has 25 points, it must have 1 to 24");
    refused_with("node.devices", "1.5", "it is 1.5, it must be a whole number");
    refused_with("node.devices", "1000001", "it is 1000001, it must be a whole number");
    refused_with("device.memory_bytes", "1e19", "it is 1e+19, it must be a whole number");
    refused_with("name", "\"a\\tb\"", "it is 'a\\x09b', it must be a text in one line");
    refused_with("name", "\"0123456789012345678901234567890123456789012345678901234567890123\"",
                 "it is longer than 63 bytes");
    refused_with("source", "[\"a\", 1]", "it is 1, it must be lines of text");
    for (size_t i = 0; i < 3; i++) {
        static const char *const shared[] = {"node.copy.shared_by", "node.link.shared_by",
                                             "network.shared_by"};

        refused_with(shared[i], "2", "2 devices share it, a node has 1");
    }
}

static void documents(void **state)
{
    (void)state;
    refused("", "line ");
    refused("[]", "it is no JSON object");
    refused("{\"name\": \"a\", \"name\": \"b\"}", "line 1: duplicate");
}

static void whole_numbers(void **state)
{
    struct sp_machine m;
    char *json = with("device.memory_bytes", "80e9");

    (void)state;
    assert_int_equal(parse(json, &m), 0);
    assert_int_equal(m.memory_bytes, 80000000000);
    free(json);
}

/* As many rows of logits as `train` has at a time on a GPU; on cores it says so itself. */
static void head_rows(void **state)
{
    struct sp_machine gpu, cpu;
    struct sp_model model = {.vocab = 50257};

    (void)state;
    assert_int_equal(sp_machine_load("h200", &gpu), 0);
    assert_int_equal(sp_machine_load("laptop", &cpu), 0);
    assert_int_equal(sp_machine_head_rows(&gpu, &model), 4096);
    assert_int_equal(sp_machine_head_rows(&cpu, &model), 0);
    assert_int_equal(sp_machine_head_rows(NULL, &model), 0);
    model.vocab = 128256;
    assert_int_equal(sp_machine_head_rows(&gpu, &model), 2048); /* 501 MiB in bf16 */
    model.vocab = 1 << 30;
    assert_int_equal(sp_machine_head_rows(&gpu, &model), 1);
}

/* A refused file leaves the machine as it was. */
static void untouched(void **state)
{
    struct sp_machine m, before;
    char *json = with("network.shared_by", NULL), text[1024];

    (void)state;
    assert_int_equal(sp_machine_load("h200", &m), 0);
    before = m;
    assert_int_equal(sp_machine_parse("machine x.json", json, &m), -EINVAL);
    assert_same(&before, &m);
    free(json);
    assert_int_equal(said(sp_machine_load, "h300", text), -EINVAL);
    for (int i = 0; sp_machine_name_at(i); i++)
        assert_non_null(strstr(text, sp_machine_name_at(i)));
    assert_int_equal(said(sp_machine_load, "/nowhere/x", text), -ENOENT);
    assert_non_null(strstr(text, "machine /nowhere/x: "));
    assert_int_equal(said(sp_machine_load, "/dev/null", text), -EINVAL);
    assert_int_equal(said(sp_machine_load, "/dev/zero", text), -EINVAL);
    assert_int_equal(said(sp_machine_load, "/", text), -EISDIR);
}

TEST_GROUP(machine)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curves),        cmocka_unit_test(links),     cmocka_unit_test(named),
        cmocka_unit_test(written),       cmocka_unit_test(every_key), cmocka_unit_test(bounds),
        cmocka_unit_test(unknown_keys),  cmocka_unit_test(values),    cmocka_unit_test(documents),
        cmocka_unit_test(whole_numbers), cmocka_unit_test(head_rows), cmocka_unit_test(untouched),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
