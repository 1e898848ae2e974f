/* What the page of the playground calls: commands of starpipe that read and write files in memory. */
#ifndef SP_PLAYGROUND_H
#define SP_PLAYGROUND_H

/*
 * Runs a command; `words` are the command and its arguments, one a line: show, list, or choices, which prints
 * {"models": [names of presets], "machines": [names]}. What it prints is in the file "output" then, its refusals
 * and warnings are in "errors". The exit status of the command: 0, 1 or 2; 1 too where there is no memory.
 */
int sp_playground(const char *words);

#endif
