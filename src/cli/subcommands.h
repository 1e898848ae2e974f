/* A command that is a word more: starpipe trace fxt, starpipe reproduce sppo. */
#ifndef SP_SUBCOMMANDS_H
#define SP_SUBCOMMANDS_H

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
