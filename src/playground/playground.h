/* The interface of the playground's page: commands of starpipe that read and write files in
 * memory. */
#ifndef SP_PLAYGROUND_H
#define SP_PLAYGROUND_H

/*
 * Runs a command. `words` holds the command and its arguments, one a line. Commands are show, list,
 * and choices, which prints {"models": [names of presets], "machines": [names]}. The output goes to
 * the file "output", refusals and warnings go to "errors". Returns the exit status of the command:
 * 0, 1 or 2; 1 also if there is no memory.
 */
int sp_playground(const char *words);

#endif
