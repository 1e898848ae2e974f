#include "plan/machine/fields.h"
#include <string.h>

/* A member of the structure, with the bounds of its number. */
#define MEMBER(optional, kind, member, ...)                                                        \
    SP_FIELD_##kind, offsetof(struct sp_machine, member),                                          \
        sizeof(((struct sp_machine *)0)->member), {__VA_ARGS__}, optional
#define FIELD(...) MEMBER(false, __VA_ARGS__)
#define OPTIONAL(...) MEMBER(true, __VA_ARGS__)

#define NONE 0, 0
#define FLOPS 1, 1e21 /* a second */
#define RATE 1, 1e18  /* bytes a second */
#define SECONDS 1e-12, 1e3
#define MEMORY 1, 1e14 /* bytes times as many devices as there may be, in 64 bits */
#define DEVICES 1, 65536

const struct sp_machine_field sp_machine_fields[] = {
    {"name", FIELD(TEXT, name, NONE)},
    {"source", FIELD(LINES, source, NONE)},
    {"device.name", FIELD(TEXT, device, NONE)},
    {"device.threads", OPTIONAL(COUNT, rates.threads, DEVICES)},
    {"device.matmul.f32", FIELD(CURVE, rates.matmul[SP_F32], FLOPS)},
    {"device.matmul.bf16", FIELD(CURVE, rates.matmul[SP_BF16], FLOPS)},
    {"device.matmul.fp8", OPTIONAL(CURVE, rates.matmul[SP_FP8], FLOPS)},
    {"device.attention.f32.forward",
     FIELD(CURVE, rates.attention[SP_F32][SP_ATTENTION_FORWARD], FLOPS)},
    {"device.attention.f32.backward",
     FIELD(CURVE, rates.attention[SP_F32][SP_ATTENTION_BACKWARD], FLOPS)},
    {"device.attention.bf16.forward",
     FIELD(CURVE, rates.attention[SP_BF16][SP_ATTENTION_FORWARD], FLOPS)},
    {"device.attention.bf16.backward",
     FIELD(CURVE, rates.attention[SP_BF16][SP_ATTENTION_BACKWARD], FLOPS)},
    {"device.pairs.f32.forward", OPTIONAL(CURVE, rates.pairs[SP_F32][SP_ATTENTION_FORWARD], FLOPS)},
    {"device.pairs.f32.backward",
     OPTIONAL(CURVE, rates.pairs[SP_F32][SP_ATTENTION_BACKWARD], FLOPS)},
    {"device.pairs.bf16.forward",
     OPTIONAL(CURVE, rates.pairs[SP_BF16][SP_ATTENTION_FORWARD], FLOPS)},
    {"device.pairs.bf16.backward",
     OPTIONAL(CURVE, rates.pairs[SP_BF16][SP_ATTENTION_BACKWARD], FLOPS)},
    {"device.memory", FIELD(CURVE, rates.memory[SP_F32], RATE)},
    {"device.memory_bf16", OPTIONAL(CURVE, rates.memory[SP_BF16], RATE)},
    {"device.launch_s", FIELD(REAL, rates.launch_s, SECONDS)},
    {"device.memory_bytes", FIELD(BYTES, memory_bytes, MEMORY)},
    {"device.teams", OPTIONAL(TEAMS, team, NONE)},
    {"node.devices", FIELD(COUNT, devices_per_node, DEVICES)},
    {"node.host_bytes", FIELD(BYTES, host_bytes, MEMORY)},
    {"node.host_rate", OPTIONAL(REAL, host_rate, RATE)},
    {"node.copy.to_host", FIELD(REAL, copy.to_host, RATE)},
    {"node.copy.from_host", FIELD(REAL, copy.from_host, RATE)},
    {"node.copy.both", FIELD(REAL, copy.both, RATE)},
    {"node.copy.shared_by", FIELD(COUNT, copy.shared_by, DEVICES)},
    {"node.disk.write", FIELD(REAL, disk.write, RATE)},
    {"node.disk.read", FIELD(REAL, disk.read, RATE)},
    {"node.disk.both", FIELD(REAL, disk.both, RATE)},
    {"node.link.latency_s", FIELD(REAL, node.latency_s, SECONDS)},
    {"node.link.bandwidth", FIELD(REAL, node.bandwidth, RATE)},
    {"node.link.half_duplex", FIELD(FLAG, node.half_duplex, NONE)},
    {"node.link.shared_by", FIELD(COUNT, node.shared_by, DEVICES)},
    {"network.latency_s", FIELD(REAL, network.latency_s, SECONDS)},
    {"network.bandwidth", FIELD(REAL, network.bandwidth, RATE)},
    {"network.half_duplex", FIELD(FLAG, network.half_duplex, NONE)},
    {"network.shared_by", FIELD(COUNT, network.shared_by, DEVICES)},
    {.path = NULL},
};

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

const char *sp_machine_optional(const char *path)
{
    static const char *const objects[] = {"node.copy", "node.disk"};

    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++)
        if (sp_machine_within(objects[i], path))
            return objects[i];
    return NULL;
}
