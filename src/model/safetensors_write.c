/* Writing safetensors: declare, then stream. The file is complete or is not there. */
#include "model/safetensors.h"
#include "model/output.h"
#include "sp_error.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct sp_st_writer {
    struct sp_output out;
    json_t *header;
    uint64_t declared, written; /* bytes of data */
    bool streaming;             /* the header is out */
    int err;                    /* first failure, already reported */
};

int sp_st_writer_create(const char *path, struct sp_st_writer **w)
{
    struct sp_st_writer *made = calloc(1, sizeof *made);
    int rc;

    if (!made)
        return sp_error(ENOMEM, "%s: no memory for a writer", path);
    /* transformers refuses files that do not say which framework wrote them */
    made->header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    if (!made->header) {
        rc = sp_error(ENOMEM, "%s: no memory for a header", path);
        goto err_free;
    }
    rc = sp_output_open(path, &made->out);
    if (rc)
        goto err_header;
    *w = made;
    return 0;

err_header:
    json_decref(made->header);
err_free:
    free(made);
    return rc;
}

/* Reports nothing: the caller did. */
static int fail(struct sp_st_writer *w, int rc)
{
    if (!w->err)
        w->err = rc;
    return rc;
}

int sp_st_writer_declare(struct sp_st_writer *w, const char *name, int ndim, const int64_t *shape)
{
    uint64_t bytes = sizeof(float), end;
    json_t *dims, *entry;

    if (w->streaming || json_object_get(w->header, name))
        return fail(w, sp_error(EINVAL, "%s: tensor %.80s is declared %s", w->out.path, name,
                                w->streaming ? "after the data began" : "twice"));
    dims = json_array();
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0 || __builtin_mul_overflow(bytes, (uint64_t)shape[i], &bytes)) {
            json_decref(dims);
            return fail(w, sp_error(EINVAL, "%s: dimension %d of tensor %.80s is %lld", w->out.path,
                                    i, name, (long long)shape[i]));
        }
        json_array_append_new(dims, json_integer(shape[i]));
    }
    if (__builtin_add_overflow(w->declared, bytes, &end) || end > INT64_MAX) {
        json_decref(dims);
        return fail(w, sp_error(EINVAL, "%s: tensor %.80s of %llu bytes is too large", w->out.path,
                                name, (unsigned long long)bytes));
    }
    entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", dims, "data_offsets",
                      (json_int_t)w->declared, (json_int_t)end);
    if (!entry || json_object_set_new(w->header, name, entry))
        return fail(w, sp_error(EINVAL,
                                "%s: tensor %.80s cannot be declared: no memory, or a name "
                                "that is not UTF-8",
                                w->out.path, name));
    w->declared = end;
    return 0;
}

static int put(struct sp_st_writer *w, const void *data, size_t size, size_t n)
{
    errno = 0;
    if (fwrite(data, size, n, w->out.f) == n)
        return 0;
    return fail(w, sp_error(errno ? errno : EIO, "%s: cannot be written: %s", w->out.path,
                            strerror(errno)));
}

static int put_header(struct sp_st_writer *w)
{
    static const char padding[8] = "        ";
    char *json = json_dumps(w->header, JSON_COMPACT);
    size_t len, pad;
    uint64_t total;
    int rc;

    if (!json)
        return fail(w, sp_error(ENOMEM, "%s: no memory for the header", w->out.path));
    w->streaming = true;
    len = strlen(json);
    pad = (8 - len % 8) % 8; /* readers map the file: keep the data aligned */
    total = len + pad;
    rc = put(w, &total, sizeof total, 1);
    if (!rc)
        rc = put(w, json, 1, len);
    if (!rc && pad)
        rc = put(w, padding, 1, pad);
    free(json);
    return rc;
}

int sp_st_writer_data(struct sp_st_writer *w, const float *data, size_t elements)
{
    uint64_t bytes = (uint64_t)elements * sizeof *data;

    if (w->err)
        return w->err;
    if (!w->streaming && put_header(w))
        return w->err;
    if (bytes > w->declared - w->written)
        return fail(w, sp_error(EINVAL, "%s: %llu bytes of data after %llu of %llu declared",
                                w->out.path, (unsigned long long)bytes,
                                (unsigned long long)w->written, (unsigned long long)w->declared));
    if (elements && put(w, data, sizeof *data, elements))
        return w->err;
    w->written += bytes;
    return 0;
}

int sp_st_writer_finish(struct sp_st_writer *w)
{
    int rc;

    if (!w->err && !w->streaming)
        put_header(w);
    if (!w->err && w->written != w->declared)
        fail(w, sp_error(EINVAL, "%s: %llu bytes of data written, %llu declared", w->out.path,
                         (unsigned long long)w->written, (unsigned long long)w->declared));
    rc = w->err;
    if (rc) {
        sp_st_writer_abort(w);
        return rc;
    }
    rc = sp_output_commit(&w->out);
    json_decref(w->header);
    free(w);
    return rc;
}

void sp_st_writer_abort(struct sp_st_writer *w)
{
    sp_output_discard(&w->out);
    json_decref(w->header);
    free(w);
}
