/* Shared by the tests of StarPU on fake devices. */
#ifndef SP_FAKE_STARPU_SCENE_H
#define SP_FAKE_STARPU_SCENE_H

#include "scene.h"
#include <cuda_runtime_api.h>
#include <starpu.h>

/* Starts StarPU with all devices and one CPU worker; returns the number of devices. */
static inline int start(void)
{
    struct starpu_conf conf;
    int devices = 0;

    starpu_conf_init(&conf);
    conf.ncpus = 1;
    MUST(starpu_init(&conf) == 0);
    MUST(!cudaGetDeviceCount(&devices));
    MUST((int)starpu_cuda_worker_get_count() == devices);
    return devices;
}

/* Worker i of the devices in turn and the CPU. */
static inline unsigned worker(int i, int devices)
{
    int which = i % (devices + 1), id;

    if (which < devices)
        starpu_worker_get_ids_by_type(STARPU_CUDA_WORKER, &id, 1);
    else
        starpu_worker_get_ids_by_type(STARPU_CPU_WORKER, &id, 1);
    return (unsigned)(which < devices ? id + which : id);
}

/*
 * Plays a scene, which must end with `status`, on so many devices with more settings; said[n] is
 * what it wrote on stderr. STARPU_HOSTNAME: the speeds of the bus are measured once for each number
 * of devices.
 */
static inline void starpu_play(const char *scene, int devices, const char *settings, int status,
                               char *said, size_t n)
{
    char all[400];
    int ended;

    snprintf(all, sizeof all,
             "SP_FAKE_GPUS=%d STARPU_HOSTNAME=fake%d STARPU_SILENT=1 STARPU_WORKERS_NOBIND=1 "
             "SP_FAKE_GPU_MEM=256M %s",
             devices, devices, settings);
    ended = scene_play(scene, all, said, n);
    print_message("%s, %d devices, %s: %s", scene, devices, settings, *said ? said : "\n");
    assert_true(WIFEXITED(ended));
    assert_int_equal(WEXITSTATUS(ended), status);
}

#endif
