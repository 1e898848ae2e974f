/*
 * starpipe list: the schedules there are.
 */
#include "cli/commands.h"
#include "cli/print.h"
#include "cli/result.h"
#include "policies/registry.h"
#include "sp_error.h"
#include "sp_utf8.h"
#include <string.h>

/* "  [group=.. auto]": what may stand after the name. */
static void print_options(const struct sp_schedule_def *def)
{
    const char *lists[] = {def->options, def->flags}, *ends[] = {"=..", ""};
    const char *between = "  [";

    for (int i = 0; i < 2; i++) {
        for (const char *at = lists[i] ? lists[i] : ""; *at; at += *at == ',') {
            int length = (int)strcspn(at, ",");

            printf("%s%.*s%s", between, length, at, ends[i]);
            between = " ";
            at += length;
        }
    }
    if (def->options || def->flags)
        putchar(']');
}

static void print_text(void)
{
    const struct sp_schedule_def *def;
    int width = 0;

    for (int i = 0; (def = sp_schedule_at(i)); i++) {
        if ((int)strlen(def->name) > width)
            width = (int)strlen(def->name);
    }
    for (int i = 0; (def = sp_schedule_at(i)); i++) {
        const char *plugin = sp_schedule_plugin(def);

        printf("%-*s  %s", width, def->name, def->summary);
        print_options(def);
        if (plugin)
            printf(" (plugin %s)", plugin);
        putchar('\n');
    }
}

static int print_json(void)
{
    const struct sp_schedule_def *def;
    json_t *list = json_array();
    int ret = 0;

    for (int i = 0; (def = sp_schedule_at(i)) && !ret; i++) {
        json_t *o =
            json_pack("{s:s,s:s,s:s,s:s,s:s?,s:s?,s:i,s:s?,s:o}", "name", def->name, "summary",
                      def->summary, "source", def->source, "family", def->family, "options",
                      def->options, "flags", def->flags, "default_chunks", def->default_chunks,
                      "makespan", def->makespan ? def->makespan_source : NULL, "plugin",
                      sp_utf8_json(sp_schedule_plugin(def)));

        if (json_array_append_new(list, o))
            ret = sp_error(ENOMEM, "list: cannot describe schedule %d", i);
    }
    if (ret)
        json_decref(list);
    else
        sp_json_print(list, 0, stdout);
    return ret;
}

int sp_cmd_list(int argc, char **argv)
{
    struct sp_result result = {0};
    const char *plugin = NULL;
    const struct sp_option options[] = {
        SP_RESULT_OPTIONS(result, "text|json"),
        SP_OPTION("plugin", PLUGIN, plugin, .help = SP_PLUGIN_HELP, .arg = SP_PLUGIN_ARG),
        {0},
    };
    int ret = sp_options_parse(options, "Lists the schedules.", argc, argv);

    if (ret)
        return SP_OPTIONS_EXIT(ret);
    if (sp_result_begin("list", result.output, 0))
        return 1;
    if (!result.format)
        print_text();
    else if (print_json())
        return 1;
    return 0;
}
