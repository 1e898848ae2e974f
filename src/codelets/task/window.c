#include "codelets/task/window.h"
#include "sp_error.h"
#include <pthread.h>
#include <stdlib.h>

struct sp_window {
    pthread_mutex_t mutex;
    pthread_cond_t room;
    int limit, open;
    int of_turn[2]; /* open ops, by the turn of their step */
};

struct sp_window_op {
    struct sp_window *window;
    int turn;
    int pending; /* tasks not done, plus one until the op is closed */
};

struct sp_window *sp_window_create(int ops)
{
    struct sp_window *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->room, NULL);
    w->limit = ops;
    return w;
}

void sp_window_destroy(struct sp_window *w)
{
    if (!w)
        return;
    pthread_mutex_destroy(&w->mutex);
    pthread_cond_destroy(&w->room);
    free(w);
}

struct sp_window_op *sp_window_open(struct sp_window *w, int turn)
{
    struct sp_window_op *op = malloc(sizeof *op);

    if (!op) {
        sp_error(ENOMEM, "out of memory for an op of the submission window");
        abort();
    }
    op->window = w;
    op->turn = turn;
    op->pending = 1;
    pthread_mutex_lock(&w->mutex);
    while (w->open >= w->limit)
        pthread_cond_wait(&w->room, &w->mutex);
    w->open++;
    w->of_turn[turn]++;
    pthread_mutex_unlock(&w->mutex);
    return op;
}

void sp_window_add(struct sp_window_op *op)
{
    __atomic_add_fetch(&op->pending, 1, __ATOMIC_RELAXED);
}

void sp_window_done(struct sp_window_op *op)
{
    struct sp_window *w = op->window;

    if (__atomic_sub_fetch(&op->pending, 1, __ATOMIC_ACQ_REL))
        return;
    pthread_mutex_lock(&w->mutex);
    w->open--;
    w->of_turn[op->turn]--;
    pthread_cond_broadcast(&w->room);
    pthread_mutex_unlock(&w->mutex);
    free(op);
}

void sp_window_close(struct sp_window_op *op)
{
    sp_window_done(op);
}

void sp_window_drain(struct sp_window *w, int turn)
{
    pthread_mutex_lock(&w->mutex);
    while (w->of_turn[turn])
        pthread_cond_wait(&w->room, &w->mutex);
    pthread_mutex_unlock(&w->mutex);
}
