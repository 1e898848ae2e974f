/*
 * Signals that ask a run for something. SIGTERM, SIGINT, SIGHUP and SIGXCPU ask for an end after
 * the step, SIGUSR1 for a checkpoint. With each step's report the trainer shares the requests of
 * every process with all of them, so that all stop after the same step.
 */
#ifndef SP_INTERRUPT_H
#define SP_INTERRUPT_H

#include <stdbool.h>

/* Bits of a request. */
enum {
    SP_ASK_TERM = 1,
    SP_ASK_INT = 2,
    SP_ASK_HUP = 4,  /* the terminal is gone */
    SP_ASK_PIPE = 8, /* the reader of standard output is gone */
    SP_ASK_SAVE = 16,
    SP_ASK_CPU = 32, /* the limit of processor time is reached */
    SP_ASK_END = SP_ASK_TERM | SP_ASK_INT | SP_ASK_HUP | SP_ASK_PIPE | SP_ASK_CPU
};

/*
 * Takes over SIGUSR1 alone, from the start of the program on: it asks for a checkpoint before there
 * is anything to save, and must not end the process.
 */
void sp_interrupt_install_early(void);

/*
 * Takes the signals over. Call it again if a library may have taken them since. A SIGHUP that is
 * ignored (nohup) stays ignored, and then a closed terminal ends nothing. SIGPIPE is ignored:
 * writes fail instead. A second SIGTERM or SIGINT, two seconds or more after the first, ends the
 * process at once. The watchdog ends it at the first one if nothing would be lost or nothing moves.
 */
void sp_interrupt_install(void);

/* Makes the same requests from inside the process. */
void sp_interrupt_ask(int bits);

/* The requests made so far and not cleared. Also checks that standard output still has a reader. */
int sp_interrupt_asked(void);
/* Clears requests that were served. */
void sp_interrupt_clear(int bits);

/* True if standard output is a pipe without a reader, or a terminal that was closed. */
bool sp_interrupt_reader_gone(void);

/* The name of the first of the bits, such as "SIGTERM". */
const char *sp_interrupt_name(int bits);

#endif
