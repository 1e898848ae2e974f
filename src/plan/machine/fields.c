#include "plan/machine/fields.h"
#include <string.h>

#define FIELD(path, kind, member, bounds)                                                          \
    {                                                                                              \
        path, kind, offsetof(struct sp_machine, member), sizeof(((struct sp_machine *)0)->member), \
            bounds, false                                                                          \
    }

#define OPTIONAL(path, kind, member, bounds)                                                       \
    {                                                                                              \
        path, kind, offsetof(struct sp_machine, member), sizeof(((struct sp_machine *)0)->member), \
            bounds, true                                                                           \
    }

#define NONE                                                                                       \
    {                                                                                              \
        0, 0                                                                                       \
    }
#define FLOPS                                                                                      \
    {                                                                                              \
        1, 1e21                                                                                    \
    } /* a second */
#define RATE                                                                                       \
    {                                                                                              \
        1, 1e18                                                                                    \
    } /* bytes a second */
#define SECONDS                                                                                    \
    {                                                                                              \
        1e-12, 1e3                                                                                 \
    }
#define BYTES                                                                                      \
    {                                                                                              \
        1, 1e14                                                                                    \
    } /* times as many devices as there may be, in 64 bits */
#define COUNT                                                                                      \
    {                                                                                              \
        1, 65536                                                                                   \
    }

const struct sp_machine_field sp_machine_fields[] = {
    FIELD("name", SP_FIELD_TEXT, name, NONE),
    FIELD("source", SP_FIELD_LINES, source, NONE),
    FIELD("device.name", SP_FIELD_TEXT, device, NONE),
    OPTIONAL("device.threads", SP_FIELD_COUNT, rates.threads, COUNT),
    FIELD("device.matmul.f32", SP_FIELD_CURVE, rates.matmul[SP_F32], FLOPS),
    FIELD("device.matmul.bf16", SP_FIELD_CURVE, rates.matmul[SP_BF16], FLOPS),
    FIELD("device.attention.f32.forward", SP_FIELD_CURVE,
          rates.attention[SP_F32][SP_ATTENTION_FORWARD], FLOPS),
    FIELD("device.attention.f32.backward", SP_FIELD_CURVE,
          rates.attention[SP_F32][SP_ATTENTION_BACKWARD], FLOPS),
    FIELD("device.attention.bf16.forward", SP_FIELD_CURVE,
          rates.attention[SP_BF16][SP_ATTENTION_FORWARD], FLOPS),
    FIELD("device.attention.bf16.backward", SP_FIELD_CURVE,
          rates.attention[SP_BF16][SP_ATTENTION_BACKWARD], FLOPS),
    OPTIONAL("device.pairs.f32.forward", SP_FIELD_CURVE, rates.pairs[SP_F32][SP_ATTENTION_FORWARD],
             FLOPS),
    OPTIONAL("device.pairs.f32.backward", SP_FIELD_CURVE,
             rates.pairs[SP_F32][SP_ATTENTION_BACKWARD], FLOPS),
    OPTIONAL("device.pairs.bf16.forward", SP_FIELD_CURVE,
             rates.pairs[SP_BF16][SP_ATTENTION_FORWARD], FLOPS),
    OPTIONAL("device.pairs.bf16.backward", SP_FIELD_CURVE,
             rates.pairs[SP_BF16][SP_ATTENTION_BACKWARD], FLOPS),
    FIELD("device.memory", SP_FIELD_CURVE, rates.memory[SP_F32], RATE),
    OPTIONAL("device.memory_bf16", SP_FIELD_CURVE, rates.memory[SP_BF16], RATE),
    FIELD("device.launch_s", SP_FIELD_REAL, rates.launch_s, SECONDS),
    FIELD("device.memory_bytes", SP_FIELD_BYTES, memory_bytes, BYTES),
    OPTIONAL("device.teams", SP_FIELD_TEAMS, team, NONE),
    FIELD("node.devices", SP_FIELD_COUNT, devices_per_node, COUNT),
    FIELD("node.host_bytes", SP_FIELD_BYTES, host_bytes, BYTES),
    FIELD("node.copy.to_host", SP_FIELD_REAL, copy.to_host, RATE),
    FIELD("node.copy.from_host", SP_FIELD_REAL, copy.from_host, RATE),
    FIELD("node.copy.both", SP_FIELD_REAL, copy.both, RATE),
    FIELD("node.copy.shared_by", SP_FIELD_COUNT, copy.shared_by, COUNT),
    FIELD("node.disk.write", SP_FIELD_REAL, disk.write, RATE),
    FIELD("node.disk.read", SP_FIELD_REAL, disk.read, RATE),
    FIELD("node.disk.both", SP_FIELD_REAL, disk.both, RATE),
    FIELD("node.link.latency_s", SP_FIELD_REAL, node.latency_s, SECONDS),
    FIELD("node.link.bandwidth", SP_FIELD_REAL, node.bandwidth, RATE),
    FIELD("node.link.half_duplex", SP_FIELD_FLAG, node.half_duplex, NONE),
    FIELD("node.link.shared_by", SP_FIELD_COUNT, node.shared_by, COUNT),
    FIELD("network.latency_s", SP_FIELD_REAL, network.latency_s, SECONDS),
    FIELD("network.bandwidth", SP_FIELD_REAL, network.bandwidth, RATE),
    FIELD("network.half_duplex", SP_FIELD_FLAG, network.half_duplex, NONE),
    FIELD("network.shared_by", SP_FIELD_COUNT, network.shared_by, COUNT),
    {NULL, SP_FIELD_TEXT, 0, 0, NONE, false},
};

const char *const sp_machine_optional[] = {"node.copy", "node.disk", NULL};

bool sp_machine_is_rate(const struct sp_machine_field *f)
{
    size_t first = offsetof(struct sp_machine, rates);

    return f->at >= first && f->at < first + sizeof(struct sp_rates);
}

bool sp_machine_within(const char *object, const char *path)
{
    size_t n = strlen(object);

    return !strncmp(object, path, n) && (!path[n] || path[n] == '.');
}
