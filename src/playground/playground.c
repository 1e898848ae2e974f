#include "playground/playground.h"
#include "cli/commands.h"
#include "model/model.h"
#include "plan/machine/machine.h"
#include "sp_error.h"
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_WORDS = 128 };

static int print_choices(int argc, char **argv)
{
    json_t *models = json_array(), *machines = json_array(), *all;
    int bad;

    (void)argc, (void)argv;
    for (const char *const *name = sp_model_presets(); *name; name++)
        json_array_append_new(models, json_string(*name));
    for (int i = 0; sp_machine_name_at(i); i++)
        json_array_append_new(machines, json_string(sp_machine_name_at(i)));
    all = json_pack("{s:o,s:o}", "models", models, "machines", machines);
    bad = !all || json_dumpf(all, stdout, 0);
    json_decref(all);
    return bad;
}

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {{"choices", print_choices}, {"list", sp_cmd_list}, {"show", sp_cmd_show}};

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

int sp_playground(const char *words)
{
    char *text = strdup(words), *rest = text, *argv[MOST_WORDS + 1] = {NULL};
    int argc = 0, status;

    if (!text || redirect(STDOUT_FILENO, "output") || redirect(STDERR_FILENO, "errors")) {
        free(text);
        return 1;
    }
    while (rest && argc < MOST_WORDS)
        argv[argc++] = strsep(&rest, "\n");
    status = run(argc, argv);
    if (fflush(stdout) && !status)
        status = 1;
    free(text);
    return status;
}
