#include "plan/machine/fields.h"
#include <string.h>

#define FIELD(path, kind, member)                                                                  \
    {                                                                                              \
        path, kind, offsetof(struct sp_machine, member), sizeof(((struct sp_machine *)0)->member)  \
    }

const struct sp_machine_field sp_machine_fields[] = {
    FIELD("name", SP_FIELD_TEXT, name),
    FIELD("source", SP_FIELD_LINES, source),
    FIELD("device.name", SP_FIELD_TEXT, device),
    FIELD("device.matmul.f32", SP_FIELD_CURVE, matmul[SP_F32]),
    FIELD("device.matmul.bf16", SP_FIELD_CURVE, matmul[SP_BF16]),
    FIELD("device.attention.f32.forward", SP_FIELD_CURVE, attention[SP_F32][SP_ATTENTION_FORWARD]),
    FIELD("device.attention.f32.backward", SP_FIELD_CURVE,
          attention[SP_F32][SP_ATTENTION_BACKWARD]),
    FIELD("device.attention.bf16.forward", SP_FIELD_CURVE,
          attention[SP_BF16][SP_ATTENTION_FORWARD]),
    FIELD("device.attention.bf16.backward", SP_FIELD_CURVE,
          attention[SP_BF16][SP_ATTENTION_BACKWARD]),
    FIELD("device.memory", SP_FIELD_CURVE, memory),
    FIELD("device.launch_s", SP_FIELD_REAL, launch_s),
    FIELD("device.memory_bytes", SP_FIELD_BYTES, memory_bytes),
    FIELD("node.devices", SP_FIELD_COUNT, devices_per_node),
    FIELD("node.host_bytes", SP_FIELD_BYTES, host_bytes),
    FIELD("node.copy.to_host", SP_FIELD_REAL, copy.to_host),
    FIELD("node.copy.from_host", SP_FIELD_REAL, copy.from_host),
    FIELD("node.copy.both", SP_FIELD_REAL, copy.both),
    FIELD("node.copy.shared_by", SP_FIELD_COUNT, copy.shared_by),
    FIELD("node.disk.write", SP_FIELD_REAL, disk.write),
    FIELD("node.disk.read", SP_FIELD_REAL, disk.read),
    FIELD("node.disk.both", SP_FIELD_REAL, disk.both),
    FIELD("node.link.latency_s", SP_FIELD_REAL, node.latency_s),
    FIELD("node.link.bandwidth", SP_FIELD_REAL, node.bandwidth),
    FIELD("node.link.half_duplex", SP_FIELD_FLAG, node.half_duplex),
    FIELD("node.link.shared_by", SP_FIELD_COUNT, node.shared_by),
    FIELD("network.latency_s", SP_FIELD_REAL, network.latency_s),
    FIELD("network.bandwidth", SP_FIELD_REAL, network.bandwidth),
    FIELD("network.half_duplex", SP_FIELD_FLAG, network.half_duplex),
    FIELD("network.shared_by", SP_FIELD_COUNT, network.shared_by),
    {NULL, SP_FIELD_TEXT, 0, 0},
};

const char *const sp_machine_optional[] = {"node.copy", "node.disk", NULL};

bool sp_machine_within(const char *object, const char *path)
{
    size_t n = strlen(object);

    return !strncmp(object, path, n) && (!path[n] || path[n] == '.');
}
