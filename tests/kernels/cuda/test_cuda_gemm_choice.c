/*
 * How the algorithm of a product is chosen, that measuring changes no result, which kernels are
 * fused, and the message when no algorithm exists: on the cuBLASLt of fake_lt.h, whose clock the
 * test controls.
 */
#include "gemm_host.h"
#include "said.h"
#include "sp_error.h"
#include "kernels/cuda/gemm/tuning_cache.h"
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { T = 6, IN = 40, OUT = 24 };

TEST_SETUP(before)

struct outputs {
    float x[OUT * IN], y[OUT * IN];
    uint16_t low[OUT * IN];
    float sums[OUT];
};

/* One of each: written, added in place to f32, added in place to bf16, with sums. */
static void compute(struct outputs *o)
{
    const struct sp_backend *k = &cuda.backends[SP_BF16], *f = &cuda.backends[SP_F32];
    float *a = new_random(T * IN, 30), *b = new_random(OUT * IN, 31), *c = new_random(T * OUT, 32);
    struct array A = array(SP_BF16, T * IN, a, 0), B = array(SP_BF16, OUT * IN, b, 0);
    struct array C = array(SP_BF16, T * OUT, c, 0);

    for (size_t i = 0; i < OUT * IN; i++) {
        o->x[i] = o->y[i] = random_at(33, i);
        o->low[i] = sp_bf16(random_at(34, i));
    }
    memset(o->sums, 0, sizeof o->sums);
    f->linear(f, &(struct sp_linear){.T = T, .in = IN, .out = OUT, .w = b}, a, o->x);
    k->linear_dw(k, &(struct sp_linear){.T = T, .in = IN, .out = OUT}, A.x, C.x, o->y, o->sums);
    k->linear_dx(k, &(struct sp_linear){.T = T, .in = IN, .out = OUT, .w = B.x}, C.x, o->low, true);
}

static void assert_same_outputs(const struct outputs *a, const struct outputs *b)
{
    assert_memory_equal(a, b, sizeof *a);
}

/* The fastest of eight gives the same bits, measured or not, in the first call and the next. */
TEST(measuring_changes_nothing)
{
    static struct outputs plain, measured, again, other;

    for (int best = 0; best < 8; best++) {
        sp_fake_lt.first = best;
        start(false);
        compute(&plain);
        stop();
        sp_fake_lt.first = 0;
        for (int i = 0; i < 8; i++)
            sp_fake_lt.us[i] = i == best ? 500 : 600;
        start(true);
        compute(&measured);
        assert_int_equal(sp_fake_lt.last_algo, best);
        compute(&again);
        stop();
        assert_same_outputs(&measured, &plain);
        assert_same_outputs(&again, &plain);
        if (best == 0)
            other = plain;
    }
    assert_memory_not_equal(other.x, plain.x, sizeof plain.x);
}

/* Calls one function; returns the algorithm of its last product. */
enum function { LINEAR, LINEAR_GELU, DX_GELU, DW, DW_DBIAS };

static int call(enum function function, enum sp_dtype type, int shift)
{
    const struct sp_backend *k = &cuda.backends[type];
    enum { N = IN * OUT }; /* enough for any of them */
    struct array x = array(type, N, NULL, shift), w = array(type, N, NULL, 0);
    struct array y = array(SP_F32, N, NULL, 0), z = array(SP_F32, N, NULL, 0);

    switch (function) {
    case LINEAR:
        k->linear(k, &(struct sp_linear){.T = T, .in = IN, .out = OUT, .w = w.x}, x.x, y.x);
        break;
    case LINEAR_GELU:
        k->linear_act(k, &(struct sp_linear){.T = T, .in = IN, .out = OUT, .w = w.x, .bias = w.x},
                      SP_GELU_TANH, x.x, y.x, z.x);
        break;
    case DX_GELU:
        k->linear_dx_act(k, &(struct sp_linear){.T = T, .in = IN, .out = OUT, .w = w.x},
                         SP_GELU_TANH, x.x, z.x, y.x);
        break;
    default:
        k->linear_dw(k, &(struct sp_linear){.T = T, .in = IN, .out = OUT}, x.x, w.x, (float *)y.x,
                     function == DW ? NULL : (float *)z.x);
    }
    return sp_fake_lt.last_algo;
}

static int run_linear(int shift)
{
    return call(LINEAR, SP_BF16, shift);
}

/* An algorithm must be clearly faster to be chosen; each shape and alignment is measured once. */
TEST(choice)
{
    for (int i = 0; i < SP_FAKE_ALGOS; i++)
        sp_fake_lt.us[i] = 1000;
    sp_fake_lt.us[5] = 980;
    start(true);
    assert_int_equal(run_linear(0), 0);
    stop();
    sp_fake_lt.us[5] = 900;
    start(true);
    assert_int_equal(run_linear(0), 5);
    sp_fake_lt.us[2] = 500;
    assert_int_equal(run_linear(0), 5);
    sp_fake_lt.asked = sp_fake_lt.runs = 0;
    assert_int_equal(run_linear(0), 5);
    assert_int_equal(sp_fake_lt.asked, 0);
    assert_int_equal(sp_fake_lt.runs, 1);
    assert_int_equal(run_linear(1), 2);
    assert_int_equal(sp_fake_lt.asked, 1);
    stop();
    start(false);
    sp_fake_lt.runs = 0;
    assert_int_equal(run_linear(0), 0);
    assert_int_equal(sp_fake_lt.runs, 1);
    stop();
}

/* A clock that is slow at first, other load meanwhile, an algorithm that fails when it is
 * measured. */
TEST(disturbed)
{
    for (int i = 0; i < SP_FAKE_ALGOS; i++)
        sp_fake_lt.us[i] = 500;
    sp_fake_lt.cold_us = 150e3;
    start(true);
    assert_int_equal(run_linear(0), 0);
    stop();
    sp_fake_lt.us[5] = 400;
    for (int from = 380; from < 500; from += 3) { /* after 200 ms of products */
        sp_fake_lt.slow_from = sp_fake_lt.runs + from;
        sp_fake_lt.slow_to = sp_fake_lt.slow_from + 20;
        start(true);
        assert_int_equal(run_linear(0), 5);
        stop();
    }
    sp_fake_lt.fails_again = 1 << 5;
    sp_fake_lt.us[2] = 450;
    start(true);
    assert_int_equal(run_linear(0), 2);
    stop();
}

/* Two steps where they are faster than one. */
TEST(fusing)
{
    const struct {
        int tune;
        double epilogue, gelu, sums;
        bool fuses_gelu, fuses_sums;
    } cases[] = {{1, 20, 30, 30, true, true},
                 {1, 20, 10, 30, false, true},
                 {1, 20, 30, 10, true, false},
                 {0, 20, 10, 10, true, true}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sp_fake_lt.epilogue_us = cases[i].epilogue;
        kernel_us[GELU_US] = cases[i].gelu;
        kernel_us[SUMS_US] = cases[i].sums;
        start(cases[i].tune);
        call(LINEAR_GELU, SP_BF16, 0);
        call(DX_GELU, SP_BF16, 0);
        call(DW_DBIAS, SP_BF16, 0);
        gelus = sums = 0;
        call(LINEAR_GELU, SP_BF16, 0);
        assert_int_equal(sp_fake_lt.last_epilogue, cases[i].fuses_gelu ? 32 | 128 | 4 : 4);
        call(DX_GELU, SP_BF16, 0);
        assert_int_equal(sp_fake_lt.last_epilogue, cases[i].fuses_gelu ? 64 | 128 : 1);
        call(DW_DBIAS, SP_BF16, 0);
        assert_int_equal(sp_fake_lt.last_epilogue, cases[i].fuses_sums ? 512 : 1);
        assert_int_equal(gelus, cases[i].fuses_gelu ? 0 : 2);
        assert_int_equal(sums, cases[i].fuses_sums ? 0 : 1);
        stop();
    }
    /* In f32 gelu never is part of a product. */
    start(true);
    call(LINEAR_GELU, SP_F32, 0);
    assert_int_equal(sp_fake_lt.last_epilogue, 4);
    stop();
}

/* If there is no memory to measure a sum in place, the first guess is taken. */
TEST(no_scratch)
{
    sp_fake_lt.us[3] = 1;
    start(true);
    sp_fake_cudart.device_waits = 0;
    assert_int_equal(call(DW, SP_BF16, 0), 3);
    assert_int_equal(sp_fake_cudart.device_waits,
                     0); /* messages between GPUs may be on their way */
    stop();
    start(true);
    sp_fake_cudart.most_allocations = sp_fake_cudart.allocations;
    assert_int_equal(call(DW, SP_BF16, 0), 0);
    assert_int_equal(call(LINEAR, SP_BF16, 0), 3);
    stop();
    before(NULL);
    sp_fake_lt.us[3] = 1;
    start(true);
    sp_fake_cudart.total_bytes = sp_fake_cudart.used_bytes + OUT * IN * sizeof(float) * 2 - 1;
    assert_int_equal(call(DW, SP_BF16, 0), 0);
    stop();
}

/* ---- choices that are kept ---- */

static char directory[] = "/tmp/starpipe-kept-XXXXXX", kept_file[256];

/* An empty cache, and all algorithms but one equally fast. */
static void empty_cache(int fastest)
{
    before(NULL);
    setenv("SP_CUDA_CACHE", directory, 1);
    remove(kept_file);
    for (int i = 0; i < SP_FAKE_ALGOS; i++)
        sp_fake_lt.us[i] = i == fastest ? 500 : 1000;
}

static int make_directory(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(kept_file, sizeof kept_file, "%s/products-1-Fake-0-cublasLt-%zu", directory,
             cublasLtGetVersion());
    return 0;
}

/* Reads the text of the file; returns its length. */
static size_t read_file(char *text, size_t size)
{
    FILE *f = fopen(kept_file, "r");
    size_t n;

    assert_non_null(f);
    n = fread(text, 1, size - 1, f);
    text[n] = '\0';
    fclose(f);
    return n;
}

static void write_file(const char *text, size_t n)
{
    FILE *f = fopen(kept_file, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

/* The next run, and others at the same time, take a kept choice without measuring. */
TEST(kept)
{
    struct sp_cuda_gemm *first;

    empty_cache(5);
    start(true);
    first = cuda.gemm;
    assert_int_equal(run_linear(0), 5);
    assert_int_equal(call(DW, SP_BF16, 0), 5);
    start(true); /* another worker, who finds another one faster */
    sp_fake_lt.us[2] = 100;
    sp_fake_lt.runs = 0;
    assert_int_equal(run_linear(0), 5);
    assert_int_equal(sp_fake_lt.runs, 1);
    assert_int_equal(run_linear(1), 2); /* a shape of its own */
    sp_cuda_gemm_free(cuda.gemm);
    cuda.gemm = first;
    sp_fake_lt.us[7] = 10;
    assert_int_equal(run_linear(1), 2);
    stop();
    start(true);
    sp_fake_lt.runs = 0;
    assert_int_equal(run_linear(0), 5);
    assert_int_equal(run_linear(1), 2);
    assert_int_equal(call(DW, SP_BF16, 0), 5);
    assert_int_equal(sp_fake_lt.runs, 3);
    stop();
    /* Without measuring, the first guess is taken. */
    start(false);
    assert_int_equal(run_linear(0), 0);
    stop();
}

/* A choice made without measuring is kept too: the next run, which could measure, gives the same
 * bits. */
TEST(kept_untimed)
{
    empty_cache(3);
    start(true);
    sp_fake_cudart.most_allocations = sp_fake_cudart.allocations;
    assert_int_equal(call(DW, SP_BF16, 0), 0);
    stop();
    sp_fake_cudart.most_allocations = 1000;
    start(true);
    assert_int_equal(call(DW, SP_BF16, 0), 0);
    assert_int_equal(call(LINEAR, SP_BF16, 0), 3);
    stop();
}

/* If several processes come upon a shape at the same time, one decides for all. */
TEST(kept_processes)
{
    enum { PROCESSES = 6 };
    char text[4096];
    size_t lines = 0;
    pid_t pid[PROCESSES];

    empty_cache(0);
    for (int i = 0; i < PROCESSES; i++) {
        pid[i] = fork();
        if (pid[i])
            continue;
        for (int shape = 0; shape < 20; shape++) {
            struct sp_kept *kept = sp_kept_open(strrchr(kept_file, '/') + 1);
            char name[8], value[8];

            snprintf(name, sizeof name, "s%d", shape);
            snprintf(value, sizeof value, "p%d", i);
            sp_kept_lock(kept);
            if (!sp_kept_find(kept, name)) {
                usleep(1000); /* as measuring */
                sp_kept_add(kept, name, value);
            }
            sp_kept_unlock(kept);
            sp_kept_close(kept);
        }
        _exit(0);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;

        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_int_equal(status, 0);
    }
    read_file(text, sizeof text);
    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, 20);
}

/* The choice to fuse or not is kept too. */
TEST(kept_fusing)
{
    for (int fuses = 0; fuses < 2; fuses++) {
        empty_cache(3);
        for (int again = 0; again < 2; again++) {
            sp_fake_lt.epilogue_us = 20;
            kernel_us[GELU_US] =
                (fuses ^ again) ? 30 : 10; /* the second time it would decide otherwise */
            start(true);
            call(LINEAR_GELU, SP_BF16, 0);
            call(LINEAR_GELU, SP_BF16, 0);
            assert_int_equal(sp_fake_lt.last_epilogue, fuses ? 32 | 128 | 4 : 4);
            stop();
        }
    }
}

/* Whatever is in the file or in its place: a choice is made, and the file can be used again. */
TEST(kept_damage)
{
    char text[4096], damaged[4200], name[256];
    size_t n;

    empty_cache(5);
    start(true);
    run_linear(0);
    stop();
    n = read_file(text, sizeof text);
    printf("    %s", text);
    assert_true(n > 80 && text[n - 1] == '\n');
    *strchr(strcpy(name, text), ' ') = '\0';
    for (int kind = 0; kind < 8; kind++) {
        int length = 0;

        empty_cache(6);
        switch (kind) {
        case 0: /* cut off */
            memcpy(damaged, text, (size_t)(length = (int)n - 3));
            break;
        case 1:
            length = sprintf(damaged, "%s 8 of 8 500\n", name);
            break;
        case 2:
            length = sprintf(damaged, "%s -1 of 8 500\n", name);
            break;
        case 3: /* another number of candidates */
            length = sprintf(damaged, "%s 5 of 9 500\n", name);
            break;
        case 4:
            length = sprintf(damaged, "%s 5 of 8 nan\n%s\n", name, name);
            break;
        case 5: /* in the middle of a line, and of another name */
            length = sprintf(damaged, "x%s 5 of 8 500\n%s0 5 of 8 500\n", name, name);
            break;
        case 6:
            memset(damaged, 0, (size_t)(length = 4000));
            break;
        default: /* no newline anywhere */
            memset(damaged, 'x', (size_t)(length = 4000));
        }
        write_file(damaged, (size_t)length);
        start(true);
        assert_int_equal(run_linear(0), 6);
        assert_int_equal(run_linear(1), 6);
        stop();
        sp_fake_lt.us[1] = 1;
        start(true);
        assert_int_equal(run_linear(0), 6);
        assert_int_equal(run_linear(1), 6);
        stop();
    }
    /* A file where the directory should be; a directory, a FIFO, a huge file where the file should. */
    for (int kind = 0; kind < 4; kind++) {
        struct stat about;

        empty_cache(4);
        if (kind == 0)
            setenv("SP_CUDA_CACHE", "/dev/null", 1);
        if (kind == 1)
            assert_int_equal(mkdir(kept_file, 0700), 0);
        if (kind == 2)
            assert_int_equal(mkfifo(kept_file, 0600), 0);
        if (kind == 3) {
            write_file("x\n", 2);
            assert_int_equal(truncate(kept_file, 1 << 25), 0);
        }
        start(true);
        assert_int_equal(run_linear(0), 4);
        stop();
        assert_true(kind != 3 || (stat(kept_file, &about) == 0 && about.st_size == 1 << 25));
        if (kind)
            assert_int_equal(remove(kept_file), 0);
    }
}

/* SP_CUDA_CACHE, then XDG_CACHE_HOME, then HOME. */
TEST(kept_place)
{
    static const char *const variables[] = {"SP_CUDA_CACHE", "XDG_CACHE_HOME", "HOME"};
    static const char *const under[] = {"", "starpipe", ".cache/starpipe"};

    empty_cache(4);
    for (int i = 0; i < 3; i++)
        unsetenv(variables[i]);
    start(true);
    assert_int_equal(run_linear(0), 4);
    stop();
    for (int i = 2; i >= 0; i--) {
        char path[600], base[300];

        snprintf(base, sizeof base, "%s/%d", directory, i);
        setenv(variables[i], base, 1);
        start(true);
        run_linear(0);
        stop();
        snprintf(path, sizeof path, "%s/%s/%s", base, under[i], strrchr(kept_file, '/') + 1);
        assert_int_equal(access(path, R_OK | W_OK), 0);
        assert_int_equal(remove(path), 0);
    }
}

static int remove_directory(void **state)
{
    char command[300];

    (void)state;
    snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command); /* NOLINT: a name of ours */
}

TEST_FIXTURE(make_directory, remove_directory)

/* ---- refusals ---- */

static int impossible(void *arg)
{
    (void)arg;
    return run_linear(0);
}

TEST(refusing_algorithms)
{
    char text[1024];

    for (int tune = 0; tune < 2; tune++) {
        sp_fake_lt.refuse = 1 | 2;
        start(tune);
        assert_int_equal(run_linear(0), 2);
        assert_int_equal(run_linear(0), 2);
        stop();
        sp_fake_lt.refuse = ~0u;
        start(tune);
        assert_int_equal(said_by(impossible, NULL, text, sizeof text), 1);
        printf("    %s", text);
        assert_true(is_one_line(text));
        assert_non_null(strstr(text, "6 x 24 x 40"));
        stop();
    }
}

static int create(void *arg)
{
    (void)arg;
    return sp_cuda_gemm_create(&cuda) ? 0 : errno;
}

TEST(create)
{
    char text[1024];

    sp_fake_lt.create_status = CUBLAS_STATUS_NOT_INITIALIZED;
    assert_int_equal(said_by(create, NULL, text, sizeof text), ELIBACC);
    printf("    %s", text);
    assert_true(is_one_line(text));
    before(NULL);
    sp_fake_cudart.total_bytes = 1 << 20;
    assert_int_equal(said_by(create, NULL, text, sizeof text), ENOMEM);
    printf("    %s", text);
    assert_true(is_one_line(text));
    before(NULL);
    start(true);
    assert_int_equal(sp_cuda_held_bytes(), (64 << 20) + SP_GEMM_VECTOR_BYTES);
    stop();
    sp_fake_cudart.major = 8;
    start(true);
    assert_int_equal(sp_cuda_held_bytes(), (32 << 20) + SP_GEMM_VECTOR_BYTES);
    stop();
}
