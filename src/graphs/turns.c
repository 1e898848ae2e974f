#include "graphs/turns.h"
#include "sp_error.h"
#include <pthread.h>

struct sp_turns {
    pthread_mutex_t mutex;
    pthread_cond_t passed;
    struct sp_op_ctx *op[2];
    void (*expand)(struct sp_op_ctx *c);
    int turn; /* which op is being expanded */
    int layers[2];
    bool ended[2];
};

/* Lets the other op go on until it passes too, or ends. With the mutex held. */
static void pass(struct sp_turns *t, int me)
{
    if (t->ended[!me])
        return;
    t->turn = !me;
    pthread_cond_broadcast(&t->passed);
    while (t->turn != me)
        pthread_cond_wait(&t->passed, &t->mutex);
}

void sp_op_await(struct sp_op_ctx *c)
{
    struct sp_turns *t = c->turns;

    c->ctx.exchanged = true;
    if (!t)
        return;
    pthread_mutex_lock(&t->mutex);
    pass(t, c->second);
    pthread_mutex_unlock(&t->mutex);
}

void sp_turns_layer(struct sp_op_ctx *c)
{
    struct sp_turns *t = c->turns;
    int me = c->second;

    pthread_mutex_lock(&t->mutex);
    t->layers[me]++;
    while (t->layers[!me] < t->layers[me] && !t->ended[!me])
        pass(t, me);
    pthread_mutex_unlock(&t->mutex);
}

static void expand(struct sp_turns *t, int me)
{
    t->expand(t->op[me]);
    pthread_mutex_lock(&t->mutex);
    t->ended[me] = true;
    t->turn = !me;
    pthread_cond_broadcast(&t->passed);
    pthread_mutex_unlock(&t->mutex);
}

static void *expand_second(void *arg)
{
    struct sp_turns *t = arg;

    pthread_mutex_lock(&t->mutex);
    while (t->turn != 1)
        pthread_cond_wait(&t->passed, &t->mutex);
    pthread_mutex_unlock(&t->mutex);
    expand(t, 1);
    return NULL;
}

void sp_turns_run(struct sp_op_ctx *first, struct sp_op_ctx *second,
                  void (*expand_op)(struct sp_op_ctx *c))
{
    struct sp_turns t = {.op = {first, second}, .expand = expand_op};
    pthread_t thread;

    pthread_mutex_init(&t.mutex, NULL);
    pthread_cond_init(&t.passed, NULL);
    first->turns = second->turns = &t;
    second->second = true;
    SP_NEED(!pthread_create(&thread, NULL, expand_second, &t),
            "no thread for two ops that overlap");
    expand(&t, 0);
    pthread_join(thread, NULL);
    first->turns = second->turns = NULL;
    pthread_cond_destroy(&t.passed);
    pthread_mutex_destroy(&t.mutex);
}
