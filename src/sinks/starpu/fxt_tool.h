/* StarPU's reader of its own traces. */
#ifndef SP_FXT_TOOL_H
#define SP_FXT_TOOL_H

/* Runs starpu_fxt_tool, in the form of the library that this program is linked to, on n files: its own files
 * appear in `dir`. 0 or -errno after one line. */
int sp_fxt_tool(char *const files[], int n, const char *dir);
/* How many files it takes at a time; 0: this StarPU has no FxT. */
int sp_fxt_tool_most_files(void);

#endif
