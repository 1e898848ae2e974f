/* starpipe info: describes this build and this machine, or a machine from a file. */
#include "cli/commands.h"
#include "cli/print.h"
#include "cli/result.h"
#include "sinks/starpu/cuda.h"
#include "config.h"
#include "kernels/backend.h"
#include "sp_error.h"
#include "transport/transport.h"
#include "sinks/starpu/runtime.h"
#include <hwloc.h>
#include <stdlib.h>

/* The facts about this build and machine: found once, printed in either form. */
struct facts {
    char starpu[32];
    int packages, cores, units, numa;
    double memory_bytes;
    struct sp_runtime_workers workers; /* cpus -1: StarPU found none */
};

static void find_hardware(struct facts *f)
{
    hwloc_topology_t topology;

    hwloc_topology_init(&topology);
    hwloc_topology_load(topology);
    f->packages = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE);
    f->cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    f->units = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
    f->numa = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
    f->memory_bytes = (double)hwloc_get_root_obj(topology)->total_memory;
    hwloc_topology_destroy(topology);
}

static bool has_cuda(void)
{
#ifdef HAVE_CUDA
    return true;
#else
    return false;
#endif
}

static void print_text(const struct facts *f)
{
    printf("%s\n", PACKAGE_STRING);
    printf("StarPU:    %s\n", f->starpu);
    printf("GEMM:      %s\n", sp_gemm_backend());
    printf("bf16:      %s\n", sp_bf16_unit_name(sp_cpu_bf16_unit()));
    printf("transport: %s\n", sp_transport_version());
    printf("CUDA:      %s\n", has_cuda() ? "yes" : "no");
#ifdef HAVE_CUDA
    printf("attention: cuDNN %s; FlashAttention-3: %s\n", sp_cuda_cudnn(), sp_cuda_flash3());
#endif
    printf("hwloc:     %d packages, %d cores, %d processing units, %d NUMA nodes, %.1f GiB\n",
           f->packages, f->cores, f->units, f->numa, f->memory_bytes / (1024.0 * 1024 * 1024));
    if (f->workers.cpus < 0) {
        printf("StarPU:    found no worker\n");
        return;
    }
    printf("workers:   %d CPU, %d CUDA\n", f->workers.cpus, f->workers.gpus);
    for (int w = 0; w < f->workers.n; w++)
        printf("           %s\n", f->workers.name[w]);
}

/* Prints one object with the same names as the text. 0 or -EIO. */
static int print_json(const struct facts *f)
{
    json_t *workers = json_array(), *root;

    for (int w = 0; w < f->workers.n; w++)
        json_array_append_new(workers, json_string(f->workers.name[w]));
    root = json_pack("{s:s,s:s,s:s,s:s,s:s,s:b,s:{s:i,s:i,s:i,s:i,s:I},s:o}", "version",
                     PACKAGE_VERSION, "starpu", f->starpu, "gemm", sp_gemm_backend(), "bf16",
                     sp_bf16_unit_name(sp_cpu_bf16_unit()), "transport", sp_transport_version(),
                     "cuda", has_cuda(), "hardware", "packages", f->packages, "cores", f->cores,
                     "processing_units", f->units, "numa_nodes", f->numa, "memory_bytes",
                     (json_int_t)f->memory_bytes, "workers", workers);
    return sp_json_print(root, 0, stdout);
}

/* Prints this machine and this build. Returns the exit status. */
static int print_this_machine(bool json)
{
    struct facts f = {0};
    int bad;

    find_hardware(&f);
    sp_runtime_version(f.starpu);
    bad = sp_runtime_look(&f.workers) != 0;
    if (!json)
        print_text(&f);
    else
        bad = print_json(&f) || bad;
    free(f.workers.name);
    return bad;
}

static int print_described(const char *name, bool json)
{
    struct sp_machine m;

    if (sp_machine_load(name, &m))
        return 2;
    return sp_hardware_print(&m, !json) ? 1 : 0;
}

int sp_cmd_info(int argc, char **argv)
{
    const char *machine = NULL;
    struct sp_result result = {0};
    const struct sp_option options[] = {
        SP_OPTION("hardware", STRING, machine,
                  .help = "a described machine in the place of this one", .arg = "NAME|FILE|LIST"),
        SP_RESULT_OPTIONS(result, "text|json"),
        {0},
    };
    int ret = sp_options_parse(options, "The hardware, build features and versions.", argc, argv);

    if (ret)
        return SP_OPTIONS_EXIT(ret);
    if (sp_result_begin("info", result.output, 1))
        return 1;
    return machine ? print_described(machine, result.format) : print_this_machine(result.format);
}
