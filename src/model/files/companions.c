#include "model/files/companions.h"
#include "model/files/checksums.h"
#include "model/files/output.h"
#include "model/files/weights_dir.h"
#include "model/tokenizer/tokenizer.h"
#include "sp_activity.h"
#include "sp_error.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONFIG "config.json"

enum { MOST_BYTES = SP_TOKENIZER_MAX_BYTES, PIECE = 1 << 20 };

/* ---- names -------------------------------------------------------------------------------- */

bool sp_companions_is_name(const char *name)
{
    /* with what is added to it, of a temporary file or a link, it is still a name */
    enum { MOST = 200 };
    static const char *const own[] = {CONFIG, "state.json", SP_CHECKSUMS_FILE};

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcmp(name, own[i]))
            return false;
    return *name && *name != '.' && !strchr(name, '/') && strlen(name) <= MOST &&
           strncmp(name, "optimizer-", 10) && strncmp(name, "step-", 5) && !strstr(name, ".tmp-") &&
           !sp_weights_is_any_form(name);
}

static json_t *unless_empty(json_t *list)
{
    if (json_array_size(list))
        return list;
    json_decref(list);
    return NULL;
}

json_t *sp_companions_names(const struct sp_dir *held)
{
    json_t *names = json_array();
    const char *name;

    for (int i = 0; names && (name = sp_dir_held(held, i)); i++)
        if (strcmp(name, CONFIG))
            json_array_append_new(names, json_string(name));
    return unless_empty(names);
}

json_t *sp_companions_check_names(const json_t *names)
{
    json_t *good = json_array(), *name;
    size_t i;

    json_array_foreach(names, i, name)
    {
        if (json_is_string(name) && sp_companions_is_name(json_string_value(name)) &&
            json_array_size(good) < SP_COMPANIONS_MOST)
            json_array_append(good, name);
    }
    return unless_empty(good);
}

/* ---- finding ------------------------------------------------------------------------------ */

/* Files that are left out. */
struct left_out {
    int n;
    char name[256], why[96]; /* of the first */
};

static void leave_out(struct left_out *l, const char *name, const char *why)
{
    if (l->n++)
        return;
    snprintf(l->name, sizeof l->name, "%s", name);
    snprintf(l->why, sizeof l->why, "%s", why);
}

static void tell_left_out(const struct left_out *l, const char *path)
{
    char more[48] = "";

    if (l->n > 1)
        snprintf(more, sizeof more, ", and %d more file%s", l->n - 1, l->n > 2 ? "s" : "");
    if (l->n)
        sp_warn("%s/%s is not saved with the model (%s)%s", path, l->name, l->why, more);
}

/* Opens a regular file without waiting. Returns a descriptor; -EISDIR if it is something else; or
 * -errno. */
static int open_regular(const struct sp_dir *dir, const char *name, struct stat *st)
{
    int fd;

    /* first, as opening a device may do something */
    if (fstatat(sp_dir_fd(dir), name, st, 0))
        return -errno;
    if (!S_ISREG(st->st_mode))
        return -EISDIR;
    fd = sp_dir_file(dir, name);
    if (fd < 0 || (!fstat(fd, st) && S_ISREG(st->st_mode)))
        return fd;
    close(fd);
    return -EISDIR;
}

/* JSON has no other names. */
static bool is_utf8(const char *name)
{
    json_t *text = json_string(name);
    bool is = text != NULL;

    json_decref(text);
    return is;
}

/* Opens one of the directory's for *held if it is a companion. 0 or -ENOMEM. */
static int hold_companion(const struct sp_dir *dir, const char *name,
                          const struct sp_companions_other *other, struct sp_dir *held,
                          struct left_out *l)
{
    bool is_config = !strcmp(name, CONFIG);
    const char *why = NULL;
    struct stat st;
    int fd = open_regular(dir, name, &st);

    if (fd == -EISDIR)
        return 0;
    if (fd < 0) {
        leave_out(l, name, strerror(-fd));
        return 0;
    }
    if (!is_config) {
        if (other && other->takes(fd, &st, other->arg)) {
            close(fd);
            return 0;
        }
        if (!is_utf8(name))
            why = "its name is not UTF-8";
        else if (st.st_size > MOST_BYTES)
            why = "it has more than 64 MiB";
        else if (held->n_held > SP_COMPANIONS_MOST) /* the configuration is one of them */
            why = "256 others are";
    }
    if (!why)
        return sp_dir_hold_file(held, name, fd);
    close(fd);
    leave_out(l, name, why);
    return 0;
}

/* Sorts the files that readers of the model look for first, so that they are kept when there are
 * too many. */
static int known_first(const void *a, const void *b)
{
    const char *one = *(const char *const *)a, *other = *(const char *const *)b;
    int known = sp_companions_is_known(other) - sp_companions_is_known(one);

    return known ? known : strcmp(one, other);
}

int sp_companions_open(const char *path, const struct sp_companions_other *other,
                       struct sp_dir *held)
{
    struct left_out left = {0};
    struct sp_dir dir;
    char **names = NULL;
    int n = 0, err = sp_dir_open(path, &dir);

    if (err)
        return sp_error(-err, "%s: cannot be read: %s", path, strerror(-err));
    err = sp_dir_names(&dir, sp_companions_is_name, known_first, &names, &n);
    if (err > 0)
        sp_warn("%s cannot be listed (%s): its configuration and weights alone are saved", path,
                strerror(err));
    if (err < 0)
        goto out;
    held->path = strdup(path);
    err = held->path ? 0 : sp_error(ENOMEM, "%s: no memory for its path", path);
    err = err ? err : hold_companion(&dir, CONFIG, other, held, &left);
    for (int i = 0; !err && i < n; i++)
        err = hold_companion(&dir, names[i], other, held, &left);
    sp_dir_free_names(names, n);
    tell_left_out(&left, path);
out:
    sp_dir_close(&dir);
    return err;
}

static int take_companion(const struct sp_dir *from, const char *name, struct sp_dir *held)
{
    struct stat st;
    int fd = sp_dir_has(from, name, &st) && S_ISREG(st.st_mode) ? sp_dir_file(from, name) : -1;

    return fd < 0 ? 0 : sp_dir_hold_file(held, name, fd);
}

int sp_companions_take(const struct sp_dir *from, const json_t *names, struct sp_dir *held)
{
    json_t *good = sp_companions_check_names(names), *name;
    int err;
    size_t i;

    held->path = strdup(from->path);
    err = held->path ? take_companion(from, CONFIG, held)
                     : sp_error(ENOMEM, "%s: no memory for its path", from->path);
    json_array_foreach(good, i, name)
    {
        err = err ? err : take_companion(from, json_string_value(name), held);
    }
    json_decref(good);
    return err;
}

/* ---- copying ------------------------------------------------------------------------------ */

uint64_t sp_companions_bytes(const struct sp_dir *held)
{
    uint64_t bytes = 0;
    const char *name;
    struct stat st;

    for (int i = 0; (name = sp_dir_held(held, i)); i++)
        if (sp_dir_has(held, name, &st))
            bytes += (uint64_t)st.st_size;
    return bytes;
}

/* Copies a file to `out` and into its sums. Returns 0; a positive errno if it cannot be read; or
 * -errno after one line. */
static int copy_bytes(int fd, struct sp_output *out, struct sp_file_sum *sum)
{
    char *piece = malloc(PIECE);
    off_t at = 0;
    int err = piece ? 0 : ENOMEM;

    while (!err) {
        ssize_t got = pread(fd, piece, PIECE, at);

        sp_activity_touch();
        if (got == 0)
            break;
        if (got < 0) {
            err = errno == EINTR ? 0 : errno;
            continue;
        }
        at += got;
        errno = 0;
        if (at > MOST_BYTES) /* it has grown */
            err = EFBIG;
        else if (fwrite(piece, 1, (size_t)got, out->f) != (size_t)got)
            err = sp_output_fail(out, errno);
        else
            sp_file_sum_add(sum, piece, (size_t)got);
    }
    free(piece);
    return err;
}

static int copy_companion(const struct sp_dir *held, const char *name, const struct sp_dir *to,
                          json_t *sums)
{
    int fd = sp_dir_file(held, name), err;
    struct sp_file_sum *sum;
    struct sp_output out;

    if (fd < 0) {
        sp_warn("%s/%s is not saved with the model (%s)", held->path, name, strerror(-fd));
        return 0;
    }
    sum = sp_file_sum_create();
    err = sum ? sp_output_open_in(to, name, &out)
              : sp_error(ENOMEM, "%s/%s: no memory for its checksum", to->path, name);
    if (err) {
        json_decref(sp_file_sum_end(sum));
        close(fd);
        return err;
    }
    err = copy_bytes(fd, &out, sum);
    close(fd);
    if (err) {
        sp_output_discard(&out);
        json_decref(sp_file_sum_end(sum));
        if (err > 0)
            sp_warn("%s/%s is not saved with the model (%s)", held->path, name, strerror(err));
        return err < 0 ? err : 0;
    }
    err = sp_output_commit(&out);
    if (json_object_set_new(sums, name, sp_file_sum_end(sum)) && !err)
        err = sp_error(ENOMEM, "%s/%s: no memory for its checksum", to->path, name);
    return err;
}

int sp_companions_copy(const struct sp_dir *held, const struct sp_dir *to, json_t *sums)
{
    const char *name;
    int err = 0;

    for (int i = 0; !err && (name = sp_dir_held(held, i)); i++)
        if (strcmp(name, CONFIG))
            err = copy_companion(held, name, to, sums);
    return err;
}
