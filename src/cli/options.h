/*
 * Long options from a table: "--name value", "--name=value", flags, --help, and the words that a
 * command wants beside them, its operands. Every command parses with this, so that help, defaults,
 * ranges and refusals look the same everywhere.
 */
#ifndef SP_OPTIONS_H
#define SP_OPTIONS_H

#include "train/options.h"

enum { SP_OPTIONS_MOST = 128 }; /* entries of a table */

/*
 * Parses argv[1..]; argv[0] is the command, `summary` its line in the help. 0: go on; 1: the help
 * was printed on stdout, the command is done; -EINVAL: one line was printed on stderr.
 * Of an option given twice the last value counts. Operands are all there then, what options want is
 * given too, and plugins are loaded.
 */
int sp_options_parse(const struct sp_option *options, const char *summary, int argc, char **argv);
/* From here on it does not look at files of SP_OPT_OUTPUT: another process writes them, on its own node. */
void sp_options_write_none(void);
/* Takes over the values alone: what the options mean together is not looked at. typed[i], where typed is not NULL, is
 * the name by which option i was given. */
int sp_options_read(const struct sp_option *options, const char *summary, int argc, char **argv,
                    const char **typed);

/* Exit status of a command for a return code of sp_options_parse other than 0. */
#define SP_OPTIONS_EXIT(ret) ((ret) > 0 ? 0 : 2)

#endif
