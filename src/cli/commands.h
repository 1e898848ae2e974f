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

#endif
