#include "policies/order_book.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    const struct sp_schedule_def *def;
    char options[sizeof((struct sp_plan *)0)->options];
    int stages, micro_batches, chunks, slices;
    struct sp_program *programs; /* [stages] */
    struct entry *next;
};

struct sp_order_book {
    pthread_mutex_t mutex;
    struct entry *first;
};

struct sp_order_book *sp_order_book_create(void)
{
    struct sp_order_book *book = calloc(1, sizeof *book);

    if (book)
        pthread_mutex_init(&book->mutex, NULL);
    return book;
}

void sp_order_book_destroy(struct sp_order_book *book)
{
    if (!book)
        return;
    while (book->first) {
        struct entry *e = book->first;

        book->first = e->next;
        sp_programs_destroy(e->programs, e->stages);
        free(e);
    }
    pthread_mutex_destroy(&book->mutex);
    free(book);
}

bool sp_order_book_takes(const struct sp_plan *plan)
{
    return plan->def->emit_all && !plan->layout.costs && !plan->layout.memory;
}

/* NULL: no memory. */
static struct sp_program *copy_programs(const struct sp_program *from, int stages)
{
    struct sp_program *to = calloc((size_t)stages, sizeof *to);

    for (int s = 0; to && s < stages; s++) {
        size_t bytes = (size_t)from[s].n * sizeof *to[s].ops;

        to[s].ops = malloc(bytes + 1);
        if (!to[s].ops) {
            sp_programs_destroy(to, stages);
            return NULL;
        }
        if (bytes)
            memcpy(to[s].ops, from[s].ops, bytes);
        to[s].n = to[s].cap = from[s].n;
    }
    return to;
}

static bool is_of(const struct entry *e, const struct sp_plan *plan)
{
    const struct sp_layout *lay = &plan->layout;

    return e->def == plan->def && e->stages == lay->stages &&
           e->micro_batches == lay->micro_batches && e->chunks == lay->chunks &&
           e->slices == lay->slices && !strcmp(e->options, plan->options);
}

int sp_order_book_find(struct sp_order_book *book, struct sp_plan *plan)
{
    const struct entry *e;

    pthread_mutex_lock(&book->mutex);
    e = book->first;
    pthread_mutex_unlock(&book->mutex);
    while (e && !is_of(e, plan)) /* entries never change */
        e = e->next;
    if (!e)
        return 0;
    plan->programs = copy_programs(e->programs, e->stages);
    return plan->programs ? 1 : -ENOMEM;
}

void sp_order_book_add(struct sp_order_book *book, const struct sp_plan *plan)
{
    const struct sp_layout *lay = &plan->layout;
    struct entry *e = calloc(1, sizeof *e);

    if (!e)
        return;
    *e = (struct entry){.def = plan->def,
                        .stages = lay->stages,
                        .micro_batches = lay->micro_batches,
                        .chunks = lay->chunks,
                        .slices = lay->slices,
                        .programs = copy_programs(plan->programs, lay->stages)};
    strcpy(e->options, plan->options);
    if (!e->programs) {
        free(e);
        return;
    }
    pthread_mutex_lock(&book->mutex);
    e->next = book->first;
    book->first = e;
    pthread_mutex_unlock(&book->mutex);
}
