/* What a run says while it goes on: one line rewritten in place on a terminal, lines elsewhere. */
#ifndef SP_PROGRESS_H
#define SP_PROGRESS_H

#include <stdbool.h>

#define SP_PROGRESS_CHOICES "auto|line|plain"
enum sp_progress { SP_PROGRESS_AUTO, SP_PROGRESS_LINE, SP_PROGRESS_PLAIN };

/*
 * Whether what standard output gets is seen on a terminal. Under a launcher that is asked of the
 * launcher's output, since some (Open MPI) give processes a terminal of their own and pass on what they
 * write there; where it cannot be told, no.
 */
bool sp_progress_on_terminal(void);

/* Columns of the terminal, at most `most`; `most` elsewhere. */
int sp_progress_columns(int most);

struct sp_progress_step {
    int done, steps;                                      /* steps done, in all */
    double loss, eval_loss, tokens_per_s, bubble, left_s; /* eval_loss: NaN, if there is none yet */
};

/* After a step: says it, unless that was done a moment ago; the first and the last step always are. */
void sp_progress_show(enum sp_progress how, const struct sp_progress_step *s, bool first);

/* A line that stays, whatever was being rewritten. */
void sp_progress_say(enum sp_progress how, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What was printed, unless its reader would hold that up: then it stays in the buffer, since no step waits for one. */
void sp_progress_flush(void);

#endif
