/* Progress messages of a run: one line rewritten in place on a terminal, separate lines
 * elsewhere. */
#ifndef SP_PROGRESS_H
#define SP_PROGRESS_H

#include <stdbool.h>

#define SP_PROGRESS_CHOICES "auto|line|plain"
enum sp_progress { SP_PROGRESS_AUTO, SP_PROGRESS_LINE, SP_PROGRESS_PLAIN };

/*
 * True if standard output ends up on a terminal. Under a launcher it looks at the launcher's
 * output, since some launchers (Open MPI) give each process a terminal of its own and pass its
 * output on. False if it cannot tell.
 */
bool sp_progress_on_terminal(void);

/* Columns of the terminal, at most `most`; elsewhere `most`. */
int sp_progress_columns(int most);

struct sp_progress_step {
    int done, steps;                                      /* steps done, in all */
    double loss, eval_loss, tokens_per_s, bubble, left_s; /* eval_loss: NaN, if there is none yet */
};

/* Reports a step, unless the last report is only a moment old; the first and the last step are
 * always reported. */
void sp_progress_show(enum sp_progress how, const struct sp_progress_step *s, bool first);

/* Prints a line that stays, even while another line is rewritten in place. */
void sp_progress_say(enum sp_progress how, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Flushes standard output, unless its reader would block that: then the text stays buffered, as
 * no step waits. */
void sp_progress_flush(void);

#endif
