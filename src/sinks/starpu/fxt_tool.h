/* StarPU's reader of its own traces. */
#ifndef SP_FXT_TOOL_H
#define SP_FXT_TOOL_H

/* Converts n files like starpu_fxt_tool, through the library that this program is linked to. The
 * results appear in `dir`. 0 or -errno after one line. */
int sp_fxt_tool(char *const files[], int n, const char *dir);
/* The most files that it takes at a time; 0: this StarPU has no FxT. */
int sp_fxt_tool_most_files(void);

#endif
