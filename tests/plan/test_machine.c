/*
 * Machines: curves at, between and beyond their points; the named machines; a written file reads
 * back unchanged; every key is refused in every way that it can be wrong.
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

TEST(curves)
{
    const struct sp_curve c = {3, {{10, 1}, {1000, 100}, {4000, 50}}}, one = {1, {{5, 7}}};

    assert_true(near(sp_curve_rate(&c, 10), 1) && near(sp_curve_rate(&c, 1000), 100) &&
                near(sp_curve_rate(&c, 4000), 50));
    assert_true(near(sp_curve_rate(&c, 100), 10)); /* the middle of two decades */
    assert_true(near(sp_curve_rate(&c, 2000), 100 / sqrt(2)));
    assert_true(near(sp_curve_rate(&c, 1), 1) && near(sp_curve_rate(&c, 1e9), 50));
    assert_true(near(sp_curve_rate(&one, 0.1), 7) && near(sp_curve_rate(&one, 100), 7));
    assert_true(near(sp_curve_s(&c, 100), 10) && near(sp_curve_s(&one, 14), 2));
    assert_true(sp_curve_s(&c, 0) <= 0);
}

TEST(links)
{
    const struct sp_link l = {.latency_s = 1e-5, .bandwidth = 1e9, .shared_by = 1};

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

/* Writes a machine and reads it back. The caller frees the text. */
static char *write_and_read(const struct sp_machine *m, struct sp_machine *again)
{
    char *text = sp_machine_text(m);

    assert_non_null(text);
    assert_int_equal(sp_machine_parse("it", text, again), 0);
    return text;
}

/* Rates make sense beside each other. */
static void check_rates(const struct sp_machine *m)
{
    const double large = 1e15;

    for (int t = 0; t < SP_ELEMENTS; t++) {
        double matmul = sp_curve_rate(&m->rates.matmul[t], large);

        for (int pass = 0; pass < SP_ATTENTION_PASSES; pass++)
            assert_true(sp_curve_rate(&m->rates.attention[t][pass], large) <= matmul);
        assert_true(sp_curve_rate(&m->rates.matmul[t], 1e6) < matmul);
    }
    /* fp8 pays for large products alone: rounding takes most of the time of small ones */
    if (m->rates.matmul[SP_FP8].n) {
        double times = sp_curve_rate(&m->rates.matmul[SP_FP8], large) /
                       sp_curve_rate(&m->rates.matmul[SP_BF16], large);

        assert_true(times > 1 && times < 2);
    }
    assert_true(m->network.bandwidth <= m->node.bandwidth);
    assert_true(m->copy.both <= m->copy.to_host && m->copy.both <= m->copy.from_host);
    assert_true(m->disk.both <= m->disk.write && m->disk.both <= m->disk.read);
}

TEST(named)
{
    const char *name, *last = "";
    int n = 0;

    for (; (name = sp_machine_name_at(n)); n++) {
        struct sp_machine m, again;

        assert_true(strcmp(last, name) < 0);
        assert_int_equal(sp_machine_load(name, &m), 0);
        assert_string_equal(m.name, name);
        check_rates(&m);
        free(write_and_read(&m, &again));
        assert_same(&m, &again);
        print_message("%-16s %-24s products %.3g TFLOP/s in bf16, attention %.3g, %.3g GB/s "
                      "in a node, %.3g between nodes\n",
                      name, m.device, 1e-12 * sp_curve_rate(&m.rates.matmul[SP_BF16], 1e15),
                      1e-12 * sp_curve_rate(&m.rates.attention[SP_BF16][0], 1e15),
                      1e-9 * m.node.bandwidth, 1e-9 * m.network.bandwidth);
        last = name;
    }
    assert_int_equal(n, 8);
    assert_null(sp_machine_name_at(-1));
}

/* A machine whose numbers have all their digits, without optional keys. */
TEST(written)
{
    struct sp_machine m, again;
    double x = 1.0 / 3;
    char *text;

    assert_int_equal(sp_machine_load("laptop", &m), 0);
    m.copy = (struct sp_copy_rates){.to_host = 0};
    m.disk = (struct sp_disk_rates){.write = 0};
    m.rates.launch_s = x * 1e-5;
    m.host_bytes = 98765432109877;
    m.host_rate = 1LL << 35; /* whose low half is 0 */
    m.network.half_duplex = true;
    strcpy(m.source, "one \"quoted\" line\n\n\xc3\xa9 on the third");
    m.rates.memory[SP_F32].n = SP_CURVE_POINTS;
    for (int i = 0; i < SP_CURVE_POINTS; i++) {
        m.rates.memory[SP_F32].at[i].size = 100 * (i + x);
        m.rates.memory[SP_F32].at[i].rate = 1e9 / (i + 3);
    }
    text = write_and_read(&m, &again);
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

static int parse(const char *json, struct sp_machine *m)
{
    return sp_machine_parse("machine x.json", json, m);
}

static void refused(const char *json, const char *why)
{
    static struct sp_machine m;
    struct capture c;

    assert_says(&c, parse(json, &m), -EINVAL, why, json);
    assert_true(!strncmp(c.text, "starpipe: machine x.json: ", 26));
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

/* The laptop's JSON with `value`, also JSON, at a path; NULL: without that key. */
static char *with(const char *path, const char *value)
{
    json_t *root = laptop(), *at = root;
    const char *dot;
    char key[64], *text;

    for (; (dot = strchr(path, '.')); path = dot + 1) {
        snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
        if (!json_object_get(at, key)) /* of a key that may be left out */
            json_object_set_new(at, key, json_object());
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
TEST(every_key)
{
    static const char *const wrong[] = {
        [SP_FIELD_TEXT] = "7",    [SP_FIELD_LINES] = "\"text\"", [SP_FIELD_REAL] = "\"1\"",
        [SP_FIELD_COUNT] = "[]",  [SP_FIELD_BYTES] = "\"1GiB\"", [SP_FIELD_FLAG] = "1",
        [SP_FIELD_CURVE] = "1e9", [SP_FIELD_TEAMS] = "{}"};
    static const char *const zero[] = {
        [SP_FIELD_TEXT] = "\"\"", [SP_FIELD_LINES] = "[]",  [SP_FIELD_REAL] = "0",
        [SP_FIELD_COUNT] = "0",   [SP_FIELD_BYTES] = "0.5", [SP_FIELD_FLAG] = "null",
        [SP_FIELD_CURVE] = "[]",  [SP_FIELD_TEAMS] = "[]"};
    int keys = 0;

    for (const struct sp_machine_field *f = sp_machine_fields; f->path; f++, keys++) {
        if (!f->optional)
            refused_with(f->path, NULL, "it is missing");
        refused_with(f->path, wrong[f->kind], "it is");
        refused_with(f->path, zero[f->kind], "it ");
        if (f->kind == SP_FIELD_REAL)
            refused_with(f->path, "-1e9", "it is -1e+09, it must be a number between");
    }
    print_message("%d keys, each missing, of a wrong type, without a value\n", keys);
}

/* Numbers that no time can be computed from. */
TEST(bounds)
{
    static const char *const large[] = {"1.7e308", "1e22"};
    int keys = 0;

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

/* ---- devices of other numbers of threads -------------------------------------------------- */

/* The laptop, whose devices have so many threads, and `teams` of others as JSON. */
static char *with_teams(const char *threads, const char *teams)
{
    json_t *root = laptop(), *device = json_object_get(root, "device");
    char *text;

    json_object_set_new(json_object_get(root, "node"), "copy", json_null());
    if (threads)
        json_object_set_new(device, "threads", json_loads(threads, JSON_DECODE_ANY, NULL));
    else
        json_object_del(device, "threads");
    json_object_set_new(device, "teams", json_loads(teams, JSON_DECODE_ANY, NULL));
    text = json_dumps(root, 0);
    json_decref(root);
    return text;
}

#define TEAM(threads, rate, rest)                                                                  \
    "{\"threads\":" threads ",\"matmul\":{\"f32\":[[10," rate                                      \
    "],[1000,4e3]],\"bf16\":[[10,2e3]]},"                                                          \
    "\"attention\":{\"f32\":{\"forward\":[[10,1e3]],\"backward\":[[10,1e3]]},"                     \
    "\"bf16\":{\"forward\":[[10,1e3]],\"backward\":[[10,1e3]]}},\"memory\":[[10,1e3]]" rest "}"
#define LAUNCH ",\"launch_s\":1e-6"

static void refused_teams(const char *threads, const char *teams, const char *why)
{
    char *json = with_teams(threads, teams), text[256];

    snprintf(text, sizeof text, "machine x.json: device.teams%s", why);
    refused(json, text);
    free(json);
}

TEST(teams_refused)
{
    refused_teams("8", "[7]", "[0]: it must be an object");
    refused_teams("8", "[" TEAM("1", "1e3", "") "]", "[0]: launch_s: it is missing");
    refused_teams("8", "[" TEAM("0", "1e3", LAUNCH) "]", "[0]: threads: it is 0, it must be");
    refused_teams("8", "[" TEAM("1", "0", LAUNCH) "]", "[0]: matmul.f32[0]: it is 0, it must be");
    refused_teams("8", "[" TEAM("1", "1e22", LAUNCH) "]", "[0]: matmul.f32[0]: it is 1e+22");
    refused_teams("8", "[" TEAM("1", "1e3", LAUNCH ",\"name\":\"x\"") "]",
                  "[0]: name: there is no such key");
    refused_teams("8", "[" TEAM("2", "1e3", LAUNCH) "," TEAM("2", "1e3", LAUNCH) "]",
                  "[1]: threads: they must ascend, 2 is not above 2");
    refused_teams("8", "[" TEAM("8", "1e3", LAUNCH) "]",
                  "[0]: threads: the figures of 8 are the device's own");
    refused_teams("8", "[" TEAM("9", "1e3", LAUNCH) "]",
                  ": a device of 9 threads, a node has 8 cores");
    refused_teams(NULL, "[" TEAM("1", "1e3", LAUNCH) "]", ": device.threads is missing");
}

TEST(cores_bounded)
{
    json_t *root = laptop();
    char *text;

    json_object_set_new(json_object_get(root, "device"), "threads", json_integer(40000));
    json_object_set_new(json_object_get(root, "node"), "devices", json_integer(2));
    text = json_dumps(root, 0);
    refused(text, "device.threads: a node of 2 devices of 40000 threads has more than 65536 cores");
    free(text);
    json_decref(root);
}

/* A machine of 16 cores as devices of 8 threads, with figures of 1 and 4 too. */
static void parse_teams(struct sp_machine *m)
{
    char *json = with_teams("8", "[" TEAM("1", "1e3", LAUNCH) "," TEAM("4", "2e3", LAUNCH) "]");

    assert_int_equal(parse(json, m), 0);
    free(json);
    m->devices_per_node = 2;
    m->network.shared_by = 2;
}

TEST(teams_written)
{
    struct sp_machine m, again;

    parse_teams(&m);
    m.team[0].pairs[SP_BF16][SP_ATTENTION_BACKWARD] = (struct sp_curve){1, {{1, 2}}};
    m.rates.memory[SP_BF16] = (struct sp_curve){2, {{1, 2}, {2, 3}}};
    assert_int_equal(m.teams, 2);
    assert_int_equal(m.team[1].threads, 4);
    free(write_and_read(&m, &again));
    assert_same(&m, &again);
    assert_int_equal(again.teams, 2);
}

/* Rates at a measured number of threads, between two, and beyond, which prints a warning. */
TEST(threads_taken)
{
    static const struct {
        int threads, devices;
        double rate; /* of the smallest product; 0: that of the device */
        bool says;
    } cases[] = {{1, 16, 1e3, false}, {4, 4, 2e3, false}, {2, 8, 0, false},
                 {8, 2, 0, false},    {16, 1, 0, true},   {0, 2, 0, false}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char why[SP_THREADS_WHY];
        struct sp_machine m, before, again;
        double rate;

        parse_teams(&m);
        before = m;
        sp_machine_take_threads(&m, cases[i].threads, why);
        rate = m.rates.matmul[SP_F32].at[0].rate;
        assert_int_equal(*why != 0, cases[i].says);
        assert_int_equal(m.devices_per_node, cases[i].devices);
        assert_int_equal(m.network.shared_by, cases[i].devices);
        assert_int_equal(m.memory_bytes, cases[i].devices == 2 ? before.memory_bytes
                                                               : m.host_bytes / cases[i].devices);
        free(write_and_read(&m, &again)); /* as other processes read it */
        if (cases[i].threads == 2)        /* half way between 1 and 4, in logarithms */
            assert_true(near(rate, 1e3 * sqrt(2)));
        else
            assert_true(near(rate, cases[i].rate > 0 ? cases[i].rate
                                                     : before.rates.matmul[SP_F32].at[0].rate));
        if (cases[i].says)
            assert_non_null(strstr(why, "no figures of devices of 16 threads, those of 8"));
    }
}

/* A file without a number of threads is taken as it is, with a warning; GPUs have none. */
TEST(threads_unknown)
{
    char why[SP_THREADS_WHY];
    struct sp_machine m, before;

    assert_int_equal(sp_machine_load("laptop", &m), 0);
    m.rates.threads = 0;
    before = m;
    sp_machine_take_threads(&m, 3, why);
    assert_same(&m, &before);
    assert_non_null(strstr(why, "does not say how many threads"));
    assert_int_equal(sp_machine_load("h200", &m), 0);
    before = m;
    sp_machine_take_threads(&m, 3, why);
    assert_same(&m, &before);
    assert_string_equal(why, "");
}

TEST(unknown_keys)
{
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

TEST(values)
{
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

TEST(documents)
{
    refused("", "line ");
    refused("[]", "it is no JSON object");
    refused("{\"name\": \"a\", \"name\": \"b\"}", "line 1: duplicate");
}

TEST(whole_numbers)
{
    struct sp_machine m;
    char *json = with("device.memory_bytes", "80e9");

    assert_int_equal(parse(json, &m), 0);
    assert_int_equal(m.memory_bytes, 80000000000);
    free(json);
}

/* As many rows of logits as `train` has at a time on a GPU; on cores it says so itself. */
TEST(head_rows)
{
    struct sp_machine gpu, cpu;
    struct sp_model model = {.vocab = 50257};

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
TEST(untouched)
{
    struct sp_machine m, before;
    char *json = with("network.shared_by", NULL);
    struct capture c;

    assert_int_equal(sp_machine_load("h200", &m), 0);
    before = m;
    assert_int_equal(sp_machine_parse("machine x.json", json, &m), -EINVAL);
    assert_same(&before, &m);
    free(json);
    for (int i = 0; sp_machine_name_at(i); i++)
        assert_says(&c, sp_machine_load("h300", &m), -EINVAL, sp_machine_name_at(i), "h300");
    assert_says(&c, sp_machine_load("/nowhere/x", &m), -ENOENT, "machine /nowhere/x: ", "nowhere");
    assert_says(&c, sp_machine_load("/dev/null", &m), -EINVAL, "", "nothing");
    assert_says(&c, sp_machine_load("/dev/zero", &m), -EINVAL, "", "zeros");
    assert_says(&c, sp_machine_load("/", &m), -EISDIR, "", "a directory");
}

/* ---- nodes of several kinds ------------------------------------------------------------- */

TEST(list)
{
    struct sp_machine m, fast, slow;

    assert_int_equal(sp_machine_load("h100-ib:2,a800-ib:3", &m), 0);
    assert_int_equal(sp_machine_load("h100-ib", &fast), 0);
    assert_int_equal(sp_machine_load("a800-ib", &slow), 0);
    assert_int_equal(m.kinds, 2);
    assert_int_equal(sp_machine_nodes(&m), 5);
    assert_string_equal(m.name, "h100-ib:2,a800-ib:3");
    assert_true(sp_curve_rate(&m.rates.matmul[SP_BF16], 1e11) ==
                sp_curve_rate(&slow.rates.matmul[SP_BF16], 1e11));
    assert_true(m.network.bandwidth / m.network.shared_by ==
                slow.network.bandwidth / slow.network.shared_by);
    for (int node = 0; node < 7; node++)
        assert_string_equal(sp_machine_of_node(&m, node)->name, node < 2 ? "h100-ib" : "a800-ib");
    assert_string_equal(sp_machine_of_devices(&m, 0, 16)->name, "h100-ib");
    assert_string_equal(sp_machine_of_devices(&m, 15, 2)->name,
                        "a800-ib"); /* of both, the slower */
    assert_string_equal(sp_machine_of_devices(&m, 16, 1)->name, "a800-ib");
    assert_int_equal(sp_machine_load("h100-ib,a800-ib", &m), 0);
    assert_int_equal(sp_machine_nodes(&m), 2);
    assert_ptr_equal(sp_machine_of_devices(&fast, 3, 9), &fast);
    assert_int_equal(sp_machine_nodes(&fast), 0);
}

TEST(list_refused)
{
    static const struct {
        const char *list, *says;
    } bad[] = {{"h100-ib:0,a800-ib", "it must have 1 to"},
               {"h100-ib:99999", "it must have 1 to"},
               {"h100-ib:2,", "wants a name before"},
               {",h100-ib", "wants a name before"},
               {"h100-ib:2,a801", "there is no machine 'a801'"},
               {"h100-ib,laptop", "laptop has cores and h100-ib GPUs"},
               {"h100-ib,h100-ib,h100-ib,h100-ib,h100-ib,h100-ib,h100-ib,h100-ib,h100-ib",
                "at most 8 kinds"}};
    struct sp_machine m;
    struct capture c;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_says(&c, sp_machine_load(bad[i].list, &m), -EINVAL, bad[i].says, bad[i].list);
}

/* Every process has the machine of rank 0 as a text. */
TEST(kinds_written)
{
    struct sp_machine m, again;

    assert_int_equal(sp_machine_load("h20-ib:2,a800-ib:1", &m), 0);
    free(write_and_read(&m, &again));
    assert_int_equal(again.kinds, 2);
    assert_string_equal(again.name, m.name);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(again.kind[k].count, m.kind[k].count);
        assert_same(again.kind[k].machine, m.kind[k].machine);
    }
    assert_int_equal(
        sp_machine_parse(
            "text",
            "{\"name\": \"two\", \"nodes\": [{\"count\": 4, \"machine\": \"h100-ib\"}, "
            "{\"count\": 1, \"machine\": \"h20-ib\"}]}",
            &m),
        0);
    assert_string_equal(m.name, "two");
    assert_int_equal(sp_machine_nodes(&m), 5);
    refused("{\"name\": \"two\", \"nodes\": []}", "1 to 8 kinds");
    refused("{\"name\": \"two\", \"nodes\": [3]}", "an object of");
    refused("{\"name\": \"two\", \"nodes\": [{\"count\": 0, \"machine\": \"h100-ib\"}]}",
            "whole number between 1");
    refused("{\"nodes\": [{\"count\": 1, \"machine\": \"h100-ib\"}]}", "a \"name\"");
    refused("{\"name\": \"two\", \"nodes\": [{\"count\": 1, \"machine\": {}}]}", "it is missing");
}

/* Three kinds of nodes have all six orders, two have both, and equal nodes have one. */
TEST(orders)
{
    struct sp_machine order[SP_MACHINE_ORDERS], m;

    assert_int_equal(sp_machine_load("h100-ib:1,a800-ib:2,h20-ib:3", &m), 0);
    assert_int_equal(sp_machine_orders(&m, order), 6);
    for (int i = 0; i < 6; i++) {
        struct sp_machine again;

        assert_int_equal(sp_machine_nodes(&order[i]), 6);
        assert_int_equal(sp_machine_load(order[i].name, &again), 0);
        for (int k = 0; k < 3; k++)
            assert_string_equal(again.kind[k].machine->name, order[i].kind[k].machine->name);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(order[i].name, order[j].name);
    }
    assert_string_equal(order[0].name, m.name);
    assert_int_equal(sp_machine_load("h100-ib:1,a800-ib:2", &m), 0);
    assert_int_equal(sp_machine_orders(&m, order), 2);
    assert_string_equal(order[1].name, "a800-ib:2,h100-ib:1");
    assert_int_equal(sp_machine_load("h100-ib", &m), 0);
    assert_int_equal(sp_machine_orders(&m, order), 1);
}
