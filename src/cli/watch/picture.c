/*
 * The picture of a run in a terminal, for example:
 *
 *   1f1b of gpt-tiny, 2 stages, 4 micro-batches, f32 on cpu
 *   step 150  loss 2.2134  evaluation 2.1626 after step 150  1.2 gradient norm  8123 tokens/s
 *             114.6 ms a step
 *    5.54 |*
 *         | **
 *         |   ****   *
 *    2.21 |       *** ****
 *   stage 0  bubble  22.0 % ######                          1.0 MiB stashed     1.1 MiB in buffers
 */
#include "cli/watch/watch.h"
#include "sp_text.h"
#include <math.h>
#include <string.h>

enum { CURVE = 8, LEFT = 11, BAR = 30, OTHER_LINES = 4, MOST_COLUMNS = 400 };

static const char *plan_text(const struct sp_watched *w, const char *key, char shown[SP_TEXT_SHOWN])
{
    const char *found = json_string_value(json_object_get(w->plan, key));

    return found ? sp_text_show(found, shown, SP_TEXT_SHOWN) : "?";
}

static int plan_int(const struct sp_watched *w, const char *key)
{
    return (int)json_integer_value(json_object_get(w->plan, key));
}

/* The mean loss of the steps that a column stands for. */
static double mean_loss(const struct sp_watched *w, int column, int columns)
{
    int first = (int)((long long)column * w->n / columns);
    int last = (int)((long long)(column + 1) * w->n / columns);
    double sum = 0;

    last = last > first ? last : first + 1;
    for (int i = first; i < last; i++)
        sum += w->steps[i].loss;
    return sum / (last - first);
}

static void print_curve(const struct sp_watched *w, int columns, const char *end, FILE *out)
{
    double loss[MOST_COLUMNS], least = INFINITY, most = -INFINITY;

    columns = columns - LEFT < MOST_COLUMNS ? columns - LEFT : MOST_COLUMNS;
    columns = columns < w->n ? columns : w->n;
    for (int c = 0; c < columns; c++) {
        loss[c] = mean_loss(w, c, columns);
        least = fmin(least, loss[c]);
        most = fmax(most, loss[c]);
    }
    for (int row = 0; row < CURVE; row++) {
        if (row == 0 || row == CURVE - 1)
            fprintf(out, "%9.4f |", row ? least : most);
        else
            fprintf(out, "%9s |", "");
        for (int c = 0; c < columns; c++) {
            double high =
                most > least ? (most - loss[c]) / (most - least) * (CURVE - 1) : CURVE - 1;

            putc((int)lround(high) == row ? '*' : ' ', out);
        }
        fputs(end, out);
    }
}

static void print_stage(const struct sp_watched_stage *s, int number, int bar, FILE *out)
{
    int full = (int)lround(s->bubble * bar);

    fprintf(out, "stage %-3d bubble %5.1f %% ", number, 100 * s->bubble);
    for (int i = 0; i < bar; i++)
        putc(i < full ? '#' : '.', out);
    fprintf(out, " %8.1f MiB stashed %8.1f MiB in buffers", s->stashed_bytes / 1048576,
            s->buffer_bytes / 1048576);
}

void sp_watch_line(const struct sp_watched *w, FILE *out)
{
    const struct sp_watched_step *s = w->n ? &w->steps[w->n - 1] : NULL;
    double bubble = 0, bytes = 0;

    if (!s) {
        fputs("no step yet", out);
        return;
    }
    for (int i = 0; i < w->stages; i++) {
        bubble += w->stage[i].bubble / w->stages;
        bytes = fmax(bytes, w->stage[i].buffer_bytes);
    }
    fprintf(out, "step %d  loss %.4f", s->number, s->loss);
    if (w->eval_step >= 0)
        fprintf(out, "  eval %.4f", w->eval_loss);
    fprintf(out, "  %.0f tokens/s  bubble %.1f %%  buffers %.1f MiB", s->tokens_per_s, 100 * bubble,
            bytes / 1048576);
}

int sp_watch_picture(const struct sp_watched *w, int columns, int rows, const char *end, FILE *out)
{
    int shown = w->stages, fit = rows - CURVE - OTHER_LINES;
    char plan[SP_TEXT_SHOWN], model[SP_TEXT_SHOWN], dtype[SP_TEXT_SHOWN], device[SP_TEXT_SHOWN];

    if (!w->plan)
        return 0;
    fprintf(out, "%s of %s, %s, %s, %s on %s%s", plan_text(w, "plan", plan),
            plan_text(w, "model", model), SP_COUNT(plan_int(w, "stages"), "stage"),
            SP_COUNT(plan_int(w, "micro_batches"), "micro-batch"), plan_text(w, "dtype", dtype),
            plan_text(w, "device", device), end);
    sp_watch_line(w, out);
    fputs(end, out);
    if (!w->n)
        return 2;
    print_curve(w, columns, end, out);
    if (shown > fit)
        shown = fit > 0 ? fit : 0;
    for (int i = 0; i < shown; i++) {
        print_stage(&w->stage[i], i, columns > 90 + BAR ? BAR : 10, out);
        fputs(end, out);
    }
    if (shown < w->stages)
        fprintf(out, "and %s more%s", SP_COUNT(w->stages - shown, "stage"), end);
    return 2 + CURVE + shown + (shown < w->stages);
}
