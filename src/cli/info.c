/* starpipe info: what this build and this machine have; or a described machine. */
#include "cli/commands.h"
#include "cli/hardware.h"
#include "cli/result.h"
#include "codelets/task/cuda.h"
#include "config.h"
#include "kernels/backend.h"
#include "sp_error.h"
#include "transport/starpu_environment.h"
#include "transport/transport.h"
#include <hwloc.h>
#include <starpu.h>
#include <stdio.h>
#include <stdlib.h>

static void hardware(void)
{
    hwloc_topology_t topology;
    hwloc_obj_t root;

    hwloc_topology_init(&topology);
    hwloc_topology_load(topology);
    root = hwloc_get_root_obj(topology);
    printf("hwloc:     %d packages, %d cores, %d processing units, %d NUMA nodes, %.1f GiB\n",
           hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE),
           hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE),
           hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU),
           hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE),
           (double)root->total_memory / (1024.0 * 1024 * 1024));
    hwloc_topology_destroy(topology);
}

static int workers(void)
{
    struct starpu_conf conf;
    int err;

    setenv("STARPU_FXT_TRACE", "0", 1); /* of nothing */
    err = sp_starpu_environment_set(&conf, false);
    if (err)
        return 1;
    err = starpu_init(&conf);
    sp_starpu_environment_started();
    if (err) {
        sp_starpu_environment_restore();
        printf("StarPU:    found no worker\n");
        return 1;
    }
    printf("workers:   %u CPU, %u CUDA\n", starpu_cpu_worker_get_count(),
           starpu_cuda_worker_get_count());
    for (unsigned w = 0; w < starpu_worker_get_count(); w++) {
        char name[64];

        starpu_worker_get_name((int)w, name, sizeof name);
        printf("           %s\n", name);
    }
    starpu_shutdown();
    sp_starpu_environment_restore();
    return 0;
}

/* A machine in words, or as the file that describes it. */
static int described(const char *name, bool json)
{
    struct sp_machine m;
    char *text;

    if (sp_machine_load(name, &m))
        return 2;
    if (!json) {
        sp_hardware_print(stdout, &m);
        return 0;
    }
    text = sp_machine_text(&m);
    if (!text)
        return 1;
    fputs(text, stdout);
    free(text);
    return 0;
}

static void features(void)
{
    int major, minor, release;

    starpu_get_version(&major, &minor, &release);
    printf("%s\n", PACKAGE_STRING);
    printf("StarPU:    %d.%d.%d\n", major, minor, release);
    printf("GEMM:      %s\n", sp_gemm_backend());
    printf("bf16:      %s\n", sp_bf16_unit_name(sp_cpu_bf16_unit()));
    printf("transport: %s\n", sp_transport_version());
#ifdef HAVE_CUDA
    printf("CUDA:      yes\n");
    printf("attention: cuDNN %s; FlashAttention-3: %s\n", sp_cuda_cudnn(), sp_cuda_flash3());
#else
    printf("CUDA:      no\n");
#endif
}

int sp_cmd_info(int argc, char **argv)
{
    const char *machine = NULL;
    struct sp_result result = {0};
    const struct sp_option options[] = {
        {.name = "hardware",
         .kind = SP_OPT_STRING,
         .value = &machine,
         .arg = "NAME|FILE.json",
         .help = "a described machine in the place of this one"},
        SP_RESULT_OPTIONS(result, "text|json"),
        {0},
    };
    int ret = sp_options_parse(options, "The hardware, build features and versions.", argc, argv);

    if (ret)
        return SP_OPTIONS_EXIT(ret);
    if (!machine && result.format) {
        sp_error(EINVAL,
                 "info: --format json writes a described machine: give --hardware NAME|FILE.json; "
                 "'starpipe calibrate' describes this one");
        return 2;
    }
    if (sp_result_begin("info", result.output, 1))
        return 1;
    if (machine)
        return described(machine, result.format);
    features();
    hardware();
    return workers();
}
