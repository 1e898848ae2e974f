/*
 * Reads and writes traces in the Paje format: a header with the fields of each kind of event,
 * definitions of types and values, and events with a time. Many tools make, draw and read it;
 * StarPU's are made by starpu_fxt_tool.
 * https://paje.sourceforge.net/download/publication/lang-paje.pdf
 */
#ifndef SP_PAJE_H
#define SP_PAJE_H

#include <stdbool.h>
#include <stddef.h>

enum { SP_PAJE_CODES = 64, SP_PAJE_FIELDS = 32 };

/* The kinds of events in StarPU's traces, with its numbers. */
enum sp_paje_code {
    SP_PAJE_DEFINE_CONTAINER = 1,
    SP_PAJE_DEFINE_VALUE = 6,
    SP_PAJE_CREATE = 7, /* the first kind that has a time */
    SP_PAJE_SET_STATE = 10,
    SP_PAJE_SET_VARIABLE = 13,
    SP_PAJE_END_LINK = 19,
    SP_PAJE_TASK = 20,          /* a state with all facts about a task */
    SP_PAJE_MESSAGE_START = 23, /* a link with all facts about a message */
};

struct sp_paje_kind {
    char *event; /* "PajeSetState"; NULL: there is no such kind */
    int n;
    char *field[SP_PAJE_FIELDS]; /* names, from the field after the code on */
};

/* An event; `rest` is the text after the code, and after the time if it has one. */
struct sp_paje_event {
    int code;
    double ms;    /* 0 before everything */
    size_t place; /* in the trace, while it is sorted */
    char *rest;
};

struct sp_paje {
    struct sp_paje_kind kinds[SP_PAJE_CODES];
    size_t n, cap;
    struct sp_paje_event *events; /* with definitions, in the order of the file */
};

/* The words of an event, without their quotes. */
struct sp_paje_words {
    int n;
    char *at[SP_PAJE_FIELDS];
    char *text;
    size_t size;
};

/* 0 or -errno after one line. To be destroyed in any case. */
int sp_paje_read(const char *path, struct sp_paje *p);
void sp_paje_destroy(struct sp_paje *p);

/* The index of a field among the words of a kind's events; -1: it has none of that name. */
int sp_paje_field(const struct sp_paje *p, int code, const char *name);
/* Removes a field from the header; its words are then omitted when events are written. */
void sp_paje_drop_field(struct sp_paje *p, int code, int field);
/* Defines another kind, or other fields of one: "Time Type Container ...". */
void sp_paje_define(struct sp_paje *p, int code, const char *event, const char *fields);

/* Splits an event's text; `words` is zero before the first call, and reused after it. */
void sp_paje_split(const char *rest, struct sp_paje_words *words);
void sp_paje_words_free(struct sp_paje_words *words);
/* Joins all words except number `but` (-1: none) as they are written, with quotes around those that
 * contain blanks. The caller frees the text. */
char *sp_paje_join(const struct sp_paje_words *words, int but);

/* The next event of a kind from *i on that is not removed, split into `words`; *i becomes the index
 * after it. NULL, with the words freed: there is none. */
struct sp_paje_event *sp_paje_next(const struct sp_paje *p, int code, size_t *i,
                                   struct sp_paje_words *words);

/* Appends an event; `fmt` makes its words. */
void sp_paje_add(struct sp_paje *p, int code, double ms, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Appends an event of another trace, and takes ownership of its words. */
void sp_paje_append(struct sp_paje *p, struct sp_paje_event *e);
/* Omits an event when the trace is written. */
void sp_paje_remove(struct sp_paje_event *e);

/* Sorts: definitions first, then containers, both in their order, then all other events by time. */
void sp_paje_sort(struct sp_paje *p);
/* 0 or -errno after one line. */
int sp_paje_write(const struct sp_paje *p, const char *path);

#endif
