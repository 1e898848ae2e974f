/*
 * Long options from a table: "--name value", "--name=value", flags, --help, and operands, the words
 * that are not options. Every command parses with this, so that help, defaults, ranges and refusals
 * look the same everywhere.
 */
#ifndef SP_OPTIONS_H
#define SP_OPTIONS_H

#include "train/options.h"

enum { SP_OPTIONS_MOST = 128 }; /* entries of a table */

/*
 * Parses argv[1..]; argv[0] is the command, `summary` its line in the help. 0: go on; 1: the help
 * was printed on stdout, the command is done; -EINVAL: one line was printed on stderr.
 * If an option is given twice, the last value counts. After success all operands are there, every
 * option has the others that it needs, and plugins are loaded.
 */
int sp_options_parse(const struct sp_option *options, const char *summary, int argc, char **argv);
/* Several processes read the same options: rank 0 alone prints and says what is wrong with
 * them, and checks SP_OPT_OUTPUT files, which it writes on its own node. */
void sp_options_of_rank(int rank);
/* Reads the values alone, without checking what the options mean together. If typed is not NULL,
 * typed[i] becomes the name by which option i was given. */
int sp_options_read(const struct sp_option *options, const char *summary, int argc, char **argv,
                    const char **typed);

/* The exit status of a command for a nonzero return code of sp_options_parse. */
#define SP_OPTIONS_EXIT(ret) ((ret) > 0 ? 0 : 2)

#endif
