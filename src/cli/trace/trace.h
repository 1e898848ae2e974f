/* starpipe trace: what other programs recorded of a run, brought into the form that a tool reads. */
#ifndef SP_CLI_TRACE_H
#define SP_CLI_TRACE_H

/* trace fxt. argv[0] is "trace fxt"; the exit status. */
int sp_cmd_trace_fxt(int argc, char **argv);

#endif
