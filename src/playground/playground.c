#include "playground/playground.h"
#include "cli/commands.h"
#include "model/model.h"
#include "plan/machine/machine.h"
#include "policies/registry.h"
#include "sp_error.h"
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_WORDS = 128 };

static json_t *model_choice(const char *name)
{
    struct sp_model m;

    if (sp_model_load(name, &m))
        return NULL;
    return json_pack("{s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:i}", "name", name, "style",
                     m.arch == SP_ARCH_LLAMA ? "llama" : "gpt2", "layers", m.layers, "hidden",
                     m.hidden, "heads", m.heads, "kv_heads", m.kv_heads, "mlp", m.mlp, "vocabulary",
                     m.vocab);
}

static json_t *machine_choice(const char *name)
{
    static struct sp_machine m;

    if (sp_machine_load(name, &m))
        return NULL;
    return json_pack("{s:s,s:s,s:i,s:I}", "name", name, "device", m.device, "devices",
                     m.devices_per_node, "memory_bytes", (json_int_t)m.memory_bytes);
}

static int print_choices(int argc, char **argv)
{
    json_t *models = json_array(), *machines = json_array(), *schedules = json_array(), *all;
    const struct sp_schedule_def *def;
    int bad = 0;

    (void)argc, (void)argv;
    for (const char *const *name = sp_model_presets(); *name; name++)
        bad |= json_array_append_new(models, model_choice(*name));
    for (int i = 0; sp_machine_name_at(i); i++)
        bad |= json_array_append_new(machines, machine_choice(sp_machine_name_at(i)));
    for (int i = 0; (def = sp_schedule_at(i)); i++)
        if (sp_schedule_is_synchronous(def->name))
            bad |= json_array_append_new(schedules, json_string(def->name));
    all = json_pack("{s:o,s:o,s:o}", "models", models, "machines", machines, "synchronous",
                    schedules);
    bad = bad || !all || json_dumpf(all, stdout, 0);
    json_decref(all);
    return bad;
}

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {{"choices", print_choices},
                {"list", sp_cmd_list},
                {"plan", sp_cmd_plan},
                {"show", sp_cmd_show}};

/* Sends a standard stream to a file, which is truncated. */
static int redirect(int stream, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int bad = fd < 0 || dup2(fd, stream) < 0;

    if (fd >= 0)
        close(fd);
    return bad;
}

static int run(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (argc > 0 && !strcmp(argv[0], commands[i].name))
            return commands[i].run(argc, argv);
    sp_error(EINVAL, "playground: no command '%s'", argc > 0 ? argv[0] : "");
    return 2;
}

static int last_status;

int sp_playground_status(void)
{
    return last_status;
}

int sp_playground(const char *words)
{
    char *text = strdup(words), *rest = text, *argv[MOST_WORDS + 1] = {NULL};
    int argc = 0, status;

    if (!text || redirect(STDOUT_FILENO, "output") || redirect(STDERR_FILENO, "errors")) {
        free(text);
        return last_status = 1;
    }
    while (rest && argc < MOST_WORDS)
        argv[argc++] = strsep(&rest, "\n");
    status = run(argc, argv);
    if (fflush(stdout) && !status)
        status = 1;
    free(text);
    return last_status = status;
}
