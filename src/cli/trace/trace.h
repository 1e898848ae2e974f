/* starpipe trace: what other programs recorded of a run, brought into the form that a tool reads. */
#ifndef SP_CLI_TRACE_H
#define SP_CLI_TRACE_H

/* trace fxt. argv[0] is "trace fxt"; the exit status. */
int sp_cmd_trace_fxt(int argc, char **argv);

/* Runs starpu_fxt_tool, in the form of the library that this program is linked to, on n files: its own files
 * appear in `dir`. 0 or -errno after one line. */
int sp_fxt_tool(char *const files[], int n, const char *dir);
/* How many files it takes at a time; 0: this StarPU has no FxT. */
int sp_fxt_tool_most_files(void);

#endif
