/* Lists of counts on the command line, such as 3,2,2,1. */
#ifndef SP_COUNTS_H
#define SP_COUNTS_H

/* Describes a list for its check and for messages. */
struct sp_counts {
    const char *option; /* "partition" */
    const char *unit;   /* "layers" */
    const char *whole;  /* "the model" has `total` of them */
    const char *parts;  /* "the schedule" has `n` "stages and chunks" to fill */
    int total, n;
    int least; /* of a count: 0 or 1 */
};

/* Reads counts[n], each at least `least`, with sum `total`. 0; or one line on stderr and -EINVAL
 * (-ENOMEM), counts untouched. */
int sp_counts_parse(const char *text, const struct sp_counts *want, int *counts);

#endif
