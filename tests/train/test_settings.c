/* Settings of ranks that disagree, and of a run that goes on otherwise. */
#include "model/support.h"
#include "train/config.h"
#include "train/settings.h"
#include <errno.h>

static char *settings(const char *lr, const char *log)
{
    char *s = sp_settings_add(NULL, "--lr", "%s", lr);

    s = sp_settings_add(s, "--log", "%s", log);
    return sp_settings_add(s, "--prompt", "%s", "two\nlines=one");
}

TEST(test_same)
{
    char *a = settings("0.1", ""), *b = settings("0.1", ""), *c = settings("0.2", "");
    char *d = settings("0.1", "x"), *e = sp_settings_add(settings("0.1", ""), "--new", "%d", 1);
    struct capture cap;

    assert_string_equal(a, "--lr=0.1\n--log=\n--prompt=two\\nlines=one\n");
    assert_int_equal(sp_settings_same(a, b), 0);
    assert_says(&cap, sp_settings_same(c, a), -EINVAL, "--lr is 0.2 here and 0.1 on rank 0",
                "another number");
    assert_says(&cap, sp_settings_same(d, a), -EINVAL, "--log is x here and not given on rank 0",
                "one without");
    assert_says(&cap, sp_settings_same(a, d), -EINVAL, "--log is not given here and x on rank 0",
                "the other without");
    assert_says(&cap, sp_settings_same(e, a), -EINVAL, "--new: rank 0 has no such setting",
                "another program");
    free(a), free(b), free(c), free(d), free(e);
}

static bool any(const char *name)
{
    return strcmp(name, "--prompt");
}

static bool log_only(const char *name)
{
    return !strcmp(name, "--log");
}

TEST(test_changes)
{
    char *was = settings("0.1", "a"), *now = settings("0.25", "b"), text[200], cut[12];
    json_t *saved = sp_settings_json(was);

    assert_int_equal(sp_settings_changes(was, saved, any, text, sizeof text), 0);
    assert_string_equal(text, "");
    assert_int_equal(sp_settings_changes(now, saved, any, text, sizeof text), 2);
    assert_string_equal(text, "--lr 0.25 (was 0.1), --log b (was a)");
    assert_int_equal(sp_settings_changes(now, saved, log_only, text, sizeof text), 1);
    assert_int_equal(sp_settings_changes(now, saved, any, cut, sizeof cut), 2);
    assert_string_equal(cut, "--lr 0.25 (");
    free(was);
    was = settings("0.25", "");
    assert_int_equal(sp_settings_changes(was, saved, log_only, text, sizeof text), 1);
    assert_string_equal(text, "--log not given (was a)");
    assert_string_equal(json_string_value(json_object_get(saved, "--prompt")), "two\nlines=one");
    json_decref(saved);
    free(was), free(now);
}

/* An option of train without a role would be forgotten by a run that goes on. */
TEST(test_roles)
{
    static struct sp_train_config cfg;
    static char longest[20000];
    struct sp_option options[SP_TRAIN_OPTIONS];
    int counts[SP_ROLE_START + 1] = {0};
    char *all;

    assert_int_equal(sp_train_config_init(&cfg), 0);
    sp_train_options(&cfg, options);
    for (const struct sp_option *o = options; o->name; o++) {
        if (o->role == SP_ROLE_NONE)
            fail_msg("--%s has no role", o->name);
        assert_int_equal(sp_train_role(o->name), o->role);
        counts[o->role]++;
    }
    for (int r = SP_ROLE_NUMBERS; r <= SP_ROLE_START; r++)
        assert_true(counts[r] > 1);
    assert_int_equal(sp_train_role("no-such-option"), SP_ROLE_NONE);
    /* paths are told as given, where they may differ */
    cfg.data = "/a/book";
    cfg.log = "log";
    cfg.layout.schedule = "csv:/a/order";
    all = sp_train_settings(&cfg, true);
    assert_non_null(strstr(all, "--data=/a/book\n"));
    assert_non_null(strstr(all, "--schedule=csv:/a/order\n"));
    assert_non_null(strstr(all, "--document-separator=\n"));
    assert_non_null(strstr(all, "--seed=0\n"));
    free(all);
    /* of any length */
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    cfg.eval = longest;
    all = sp_train_settings(&cfg, true);
    assert_non_null(strstr(all, longest));
    free(all);
    all = sp_train_settings(&cfg, false);
    assert_non_null(strstr(all, "--data=given\n"));
    assert_non_null(strstr(all, "--schedule=csv:FILE\n"));
    assert_non_null(strstr(all, "--log=log\n"));
    free(all);
}

/* Names of files may be any bytes; documents are UTF-8. */
TEST(test_bytes)
{
    static const struct {
        const char *name, *shown;
    } table[] = {
        {"plain", "plain"},
        {"mod\xe9", "mod\xef\xbf\xbd"},
        {"\xc3\xa9\xc3", "\xc3\xa9\xef\xbf\xbd"}, /* cut within a character */
        {"\xff\xfe/a", "\xef\xbf\xbd\xef\xbf\xbd/a"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char *text = sp_settings_add(NULL, "--data", "%s", table[i].name);
        json_t *saved = sp_settings_json(text);

        assert_string_equal(json_string_value(json_object_get(saved, "--data")), table[i].shown);
        json_decref(saved);
        free(text);
    }
}
