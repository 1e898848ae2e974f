/*
 * Signals that ask a run for something. SIGTERM, SIGINT, SIGHUP and SIGXCPU ask for an end after the step,
 * SIGUSR1 for a checkpoint. The trainer brings what every process was asked to all of them with the
 * step's report, so that all stop after the same step.
 */
#ifndef SP_INTERRUPT_H
#define SP_INTERRUPT_H

#include <stdbool.h>

/* What was asked, as bits. */
enum {
    SP_ASK_TERM = 1,
    SP_ASK_INT = 2,
    SP_ASK_HUP = 4,  /* the terminal is gone */
    SP_ASK_PIPE = 8, /* who read standard output is gone */
    SP_ASK_SAVE = 16,
    SP_ASK_CPU = 32, /* the processor time of a limit is used up */
    SP_ASK_END = SP_ASK_TERM | SP_ASK_INT | SP_ASK_HUP | SP_ASK_PIPE | SP_ASK_CPU
};

/*
 * Takes over SIGUSR1 alone, from the start of the program on: it asks for a checkpoint before there
 * is anything to save, and must not end the process.
 */
void sp_interrupt_install_early(void);

/*
 * Takes the signals over; may be called again, where a library may have taken them since. A SIGHUP
 * that is ignored (nohup) stays so, and a terminal that is closed then ends nothing. SIGPIPE is
 * ignored: writes fail instead. A second SIGTERM or SIGINT, two seconds or more after the first, ends
 * the process at once; so does the first one, by the watchdog, where there is nothing to be lost or nothing
 * moves.
 */
void sp_interrupt_install(void);

/* Asks for the same from inside the process. */
void sp_interrupt_ask(int bits);

/* What was asked so far and not taken back; looks whether standard output is still read. */
int sp_interrupt_asked(void);
/* Has been seen to. */
void sp_interrupt_clear(int bits);

/* Standard output is a pipe without a reader, or a terminal that was closed. */
bool sp_interrupt_reader_gone(void);

/* "SIGTERM", or what else the first of the bits stands for. */
const char *sp_interrupt_name(int bits);

#endif
