/*
 * Decisions that outlast a run: a file of lines "name value" that processes share, so that whoever asks
 * later, in this run or the next, decides alike.
 */
#ifndef SP_KEPT_H
#define SP_KEPT_H

#ifdef __cplusplus
extern "C" {
#endif

struct sp_kept;

/*
 * The file `name` in the directory SP_CUDA_CACHE, by default starpipe in XDG_CACHE_HOME or ~/.cache,
 * which is made. NULL, silently: SP_CUDA_CACHE=0, or there is none that can be written and locked; the
 * functions below then do nothing and find nothing.
 */
struct sp_kept *sp_kept_open(const char *name);
void sp_kept_close(struct sp_kept *kept);

/* Between these two nobody else decides. sp_kept_lock waits for who does, but not for one that never comes
 * to an end, and reads what they kept. */
void sp_kept_lock(struct sp_kept *kept);
void sp_kept_unlock(struct sp_kept *kept);

/* The last value of a name, up to the next sp_kept_lock, or NULL. Ends with a newline. */
const char *sp_kept_find(const struct sp_kept *kept, const char *name);
/* Adds a name that is not there, or has a value that is no good. Neither has a newline in it, nor the name
 * a space. */
void sp_kept_add(struct sp_kept *kept, const char *name, const char *value);

#ifdef __cplusplus
}
#endif

#endif
