/* starpipe trace KIND: one command for each kind of trace. */
#include "cli/trace/trace.h"
#include "cli/commands.h"
#include "cli/subcommands.h"

static const struct sp_subcommand kinds[] = {
    {"fxt", "StarPU's traces (STARPU_FXT_TRACE=1), for StarVZ, ViTE and R"},
};
static int (*const commands[])(int argc, char **argv) = {sp_cmd_trace_fxt};

static int run(int i, int argc, char **argv)
{
    return commands[i](argc, argv);
}

int sp_cmd_trace(int argc, char **argv)
{
    static const struct sp_subcommands c = {
        .command = "trace",
        .what = "kind",
        .operand = "KIND",
        .options = "...",
        .summary = "Brings what was recorded of a run into the form that other tools read.",
        .joint = ": ",
        .help = "what it takes",
        .sub = kinds,
        .n = sizeof kinds / sizeof *kinds,
        .run = run,
    };

    return sp_subcommands_run(&c, argc, argv);
}
