/* The interface of the playground's page: commands of starpipe that read and write files in
 * memory. */
#ifndef SP_PLAYGROUND_H
#define SP_PLAYGROUND_H

/*
 * Runs a command. `words` holds the command and its arguments, one a line. Commands are show, plan,
 * list, and choices, which prints {"models": [{name, style (gpt2, llama), layers, hidden, heads,
 * kv_heads, mlp, vocabulary}], "machines": [{name, device (what it is called), devices (of a node),
 * memory_bytes (of a device)}], "synchronous": [names]}: presets, named machines, and the schedules
 * that plan tries. The output goes to the file "output",
 * refusals and warnings go to "errors". While plan searches, it writes now and then to the file
 * "progress" how many layouts it tried, and after a blank what it would print if it ended there, or
 * nothing yet: one line, in the form picture. Returns the exit status of the command: 0, 1 or 2; 1
 * also if there is no memory.
 */
int sp_playground(const char *words);

/* The same of the last command. In a browser what a function returns is lost if a fiber had to take
 * its turn. */
int sp_playground_status(void);

#endif
