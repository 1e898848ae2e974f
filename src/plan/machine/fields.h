/* Maps each key of a machine's file to its member of the structure: one table for the reader and
 * the writer, in the order of the file. */
#ifndef SP_MACHINE_FIELDS_H
#define SP_MACHINE_FIELDS_H

#include "plan/machine/machine.h"
#include <stddef.h>

enum sp_machine_kind {
    SP_FIELD_TEXT,  /* char[] of `size` */
    SP_FIELD_LINES, /* the same, a list of lines in the file */
    SP_FIELD_REAL,  /* double */
    SP_FIELD_COUNT, /* int */
    SP_FIELD_BYTES, /* int64_t */
    SP_FIELD_FLAG,  /* bool */
    SP_FIELD_CURVE, /* struct sp_curve: a list of [size, rate] */
    SP_FIELD_TEAMS  /* struct sp_rates[]: a list of objects with the keys of device's figures */
};

/* Bounds of a number: far beyond any machine, but so that the times of no plan sum to infinity. */
struct sp_machine_bounds {
    double min, max;
};

struct sp_machine_field {
    const char *path; /* keys from the root on, "node.link.bandwidth" */
    enum sp_machine_kind kind;
    size_t at, size;
    struct sp_machine_bounds bounds; /* of the number, or of a curve's rates */
    bool optional;                   /* the file may omit it; it is 0 then */
};

/* Sizes of calls in curves, FLOPs or bytes. */
#define SP_MACHINE_SIZES ((struct sp_machine_bounds){1e-3, 1e30})

/* Ends with a field without a path. */
extern const struct sp_machine_field sp_machine_fields[];

/* True for a member of struct sp_rates: its path is "device." and its key in an object of
 * device.teams. */
bool sp_machine_is_rate(const struct sp_machine_field *f);

/* The object that a path is, or is in, if it may be null in the file: its fields are 0 then. NULL:
 * there is none. */
const char *sp_machine_optional(const char *path);

/* True if `path` is `object` or a key in it. */
bool sp_machine_within(const char *object, const char *path);

#endif
