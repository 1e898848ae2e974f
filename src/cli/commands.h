/* The commands. argv[0] is the name of the command; each returns the exit status: 0, 1 when what
 * was asked failed later, 2 when it was refused. */
#ifndef SP_COMMANDS_H
#define SP_COMMANDS_H

int sp_cmd_calibrate(int argc, char **argv);
int sp_cmd_compare(int argc, char **argv);
int sp_cmd_diff(int argc, char **argv);
int sp_cmd_info(int argc, char **argv);
int sp_cmd_list(int argc, char **argv);
int sp_cmd_plan(int argc, char **argv);
int sp_cmd_report(int argc, char **argv);
int sp_cmd_reproduce(int argc, char **argv);
int sp_cmd_simulate(int argc, char **argv);
int sp_cmd_sample(int argc, char **argv);
int sp_cmd_show(int argc, char **argv);
int sp_cmd_tokenize(int argc, char **argv);
int sp_cmd_trace(int argc, char **argv);
int sp_cmd_train(int argc, char **argv);
int sp_cmd_watch(int argc, char **argv);

/* ---- commands of two words: starpipe trace fxt, starpipe reproduce sppo (subcommands.c) */

struct sp_subcommand {
    const char *name, *summary;
};

struct sp_subcommands {
    const char *command;             /* "trace" */
    const char *what;                /* a subcommand, in words: "kind" */
    const char *operand;             /* and as it stands for one: "KIND" */
    const char *options;             /* what follows it in the usage: "..." */
    const char *summary;             /* of the command */
    const char *joint;               /* between a name and its summary, in pages: ": " */
    const char *help;                /* what --help of a subcommand lists: "what it takes" */
    const struct sp_subcommand *sub; /* [n] */
    int n;
    int (*run)(int i, int argc, char **argv); /* argv[0] is the whole name of sub[i] */
};

/* Runs the one that argv[1] names, or prints the help of the command; its exit status. */
int sp_subcommands_run(const struct sp_subcommands *c, int argc, char **argv);

#endif
