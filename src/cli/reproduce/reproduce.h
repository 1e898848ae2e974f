/* The papers of `reproduce`: argv[0] is the name of the paper; each returns the exit status. */
#ifndef SP_REPRODUCE_H
#define SP_REPRODUCE_H

int sp_reproduce_helixpipe(int argc, char **argv);

#endif
