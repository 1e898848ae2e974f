/*
 * Attention as a graph of cuDNN, by the header-only cudnn-frontend:
 *
 *   O = softmax(scale Q K^T + mask) V, stats = log-sum-exp
 *
 * and its backward. libcudnn is opened at its first use: without it a program starts all the same,
 * and uses other kernels.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifdef HAVE_CUDNN_FRONTEND
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cstring> /* which the next header forgets */
#include <cudnn_frontend.h>
#include "kernels/cuda/attention/cudnn_plan.h"
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;

/* The frontend looks the library's functions up here. */
namespace cudnn_frontend
{
void *cudnn_dlhandle = nullptr;
}

struct sp_cudnn {
    cudnnHandle_t handle; /* NULL: for a described device */
    std::shared_ptr<fe::DeviceProperties> described;
    std::string why; /* the last refusal */
};

struct sp_cudnn_plan {
    fe::graph::Graph graph;
};

namespace
{

enum uid : int64_t { UID_Q = 1, UID_K, UID_V, UID_O, UID_LSE, UID_DO, UID_DQ, UID_DK, UID_DV };

/* ---- the library ---- */

std::once_flag opened;
std::string about;

/*
 * The frontend opens the CUDA runtime by name, and takes an older one if the machine has both. This
 * tells it the one we are linked with, before main, while no other thread reads the environment.
 */
__attribute__((constructor)) void name_runtime()
{
    char name[32];

    std::snprintf(name, sizeof name, "libcudart.so.%d", CUDART_VERSION / 1000);
    setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", name, 0);
}

void open_library()
{
    fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW);
    if (!fe::cudnn_dlhandle) {
        const char *error = dlerror();

        about = std::string("none: ") + (error ? error : "libcudnn.so.9 does not load");
        return;
    }
    try {
        size_t v = fe::detail::get_backend_version();

        about = std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." +
                std::to_string(v % 100);
    } catch (const std::exception &e) {
        about = std::string("none: libcudnn.so.9: ") + e.what();
        fe::cudnn_dlhandle = nullptr;
    }
}

/* ---- graphs ---- */

/* heads(b, heads, len, d), a row of all heads every `row` elements, `rows` of them a sequence */
Tensor_attributes tensor(uid id, const sp_fused_shape &s, int heads, int len, int rows, int row)
{
    Tensor_attributes t;

    t.set_uid(id)
        .set_dim({s.batch, heads, len, s.head_dim})
        .set_stride({int64_t(rows) * row, s.head_dim, row, 1})
        .set_data_type(fe::DataType_t::BFLOAT16);
    return t;
}

Tensor_attributes query_like(const sp_fused_shape &s, uid id)
{
    return tensor(id, s, s.heads, s.q_len, s.q_rows, s.q_row);
}

Tensor_attributes key_like(const sp_fused_shape &s, uid id)
{
    return tensor(id, s, s.kv_heads, s.kv_len, s.kv_rows, s.kv_row);
}

Tensor_attributes key_gradient(const sp_fused_shape &s, uid id)
{
    return tensor(id, s, s.kv_heads, s.kv_len, s.dkv_rows, s.dkv_row);
}

Tensor_attributes lse(const sp_fused_shape &s)
{
    Tensor_attributes t;

    t.set_uid(UID_LSE)
        .set_dim({s.batch, s.heads, s.q_len, 1})
        .set_stride({int64_t(s.heads) * s.q_len, s.q_len, 1, 1})
        .set_data_type(fe::DataType_t::FLOAT);
    return t;
}

/* Gives an output that cuDNN made the id and layout of one of our tensors. */
void place(const std::shared_ptr<Tensor_attributes> &out, const Tensor_attributes &t)
{
    out->set_output(true)
        .set_uid(t.get_uid())
        .set_dim(t.get_dim())
        .set_stride(t.get_stride())
        .set_data_type(t.get_data_type());
}

/* If causal, the last query sees the last key. With as many queries as keys the first also sees the
 * first. */
template <typename Options> void mask(const sp_fused_shape &s, Options &options)
{
    if (s.full)
        return;
    options
        .set_diagonal_alignment(s.q_len == s.kv_len ? fe::DiagonalAlignment_t::TOP_LEFT
                                                    : fe::DiagonalAlignment_t::BOTTOM_RIGHT)
        .set_diagonal_band_right_bound(0);
}

void describe(const sp_fused_shape &s, fe::graph::Graph &graph)
{
    graph.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);

    auto q = graph.tensor(query_like(s, UID_Q));
    auto k = graph.tensor(key_like(s, UID_K));
    auto v = graph.tensor(key_like(s, UID_V));

    if (!s.backward) {
        auto options = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);

        options.set_attn_scale(s.scale);
        mask(s, options);
        auto out = graph.sdpa(q, k, v, options);

        place(out[0], query_like(s, UID_O));
        place(out[1], lse(s));
        return;
    }
    auto options = fe::graph::SDPA_backward_attributes().set_name("attention_bwd");

    options.set_attn_scale(s.scale).set_deterministic_algorithm(s.deterministic != 0);
    mask(s, options);
    auto out =
        graph.sdpa_backward(q, k, v, graph.tensor(query_like(s, UID_O)),
                            graph.tensor(query_like(s, UID_DO)), graph.tensor(lse(s)), options);

    place(out[0], query_like(s, UID_DQ));
    place(out[1], key_gradient(s, UID_DK));
    place(out[2], key_gradient(s, UID_DV));
}

/* A refusal may have many lines; the first says enough. */
bool good(sp_cudnn *cudnn, fe::error_t e, const char **why)
{
    if (e.is_good())
        return true;
    cudnn->why = e.get_message().substr(0, e.get_message().find('\n'));
    *why = cudnn->why.c_str();
    return false;
}

bool build(sp_cudnn *cudnn, fe::graph::Graph &graph, const char **why)
{
    if (cudnn->described)
        graph.set_device_properties(cudnn->described);
    return good(cudnn, graph.validate(), why) &&
           good(cudnn, graph.build_operation_graph(cudnn->handle), why) &&
           good(cudnn, graph.create_execution_plans({fe::HeurMode_t::A}), why) &&
           good(cudnn, graph.check_support(), why) &&
           good(cudnn, graph.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE), why);
}

/* An exception of the frontend, as when a library lacks a function, is a refusal too. */
void thrown(sp_cudnn *cudnn, const std::exception &e, const char **why)
{
    cudnn->why = e.what();
    *why = cudnn->why.c_str();
}

} // namespace

bool sp_cudnn_there(void)
{
    std::call_once(opened, open_library);
    return fe::cudnn_dlhandle != nullptr;
}

const char *sp_cudnn_about(void)
{
    std::call_once(opened, open_library);
    return about.c_str();
}

struct sp_cudnn *sp_cudnn_open(cudaStream_t stream)
{
    sp_cudnn *cudnn;

    if (!sp_cudnn_there())
        return nullptr;
    cudnn = new sp_cudnn();
    try {
        if (fe::detail::create_handle(&cudnn->handle) == CUDNN_STATUS_SUCCESS) {
            if (fe::detail::set_stream(cudnn->handle, stream) == CUDNN_STATUS_SUCCESS)
                return cudnn;
            fe::detail::destroy_handle(cudnn->handle);
        }
    } catch (const std::exception &) {
        /* a library too old or too new to have these */
    }
    delete cudnn;
    return nullptr;
}

struct sp_cudnn *sp_cudnn_open_described(const char *json, const char **why)
{
    static std::string reason;
    auto cudnn = std::make_unique<sp_cudnn>();

    *why = sp_cudnn_about();
    if (!sp_cudnn_there())
        return nullptr;
    try {
        cudnn->described = std::make_shared<fe::DeviceProperties>();
        auto e = cudnn->described->deserialize({json, json + std::strlen(json)});

        if (e.is_good())
            return cudnn.release();
        reason = e.get_message();
    } catch (const std::exception &e) {
        reason = e.what();
    }
    *why = reason.c_str();
    return nullptr;
}

void sp_cudnn_close(struct sp_cudnn *cudnn)
{
    if (cudnn && cudnn->handle)
        fe::detail::destroy_handle(cudnn->handle);
    delete cudnn;
}

struct sp_cudnn_plan *sp_cudnn_plan_create(struct sp_cudnn *cudnn,
                                           const struct sp_fused_shape *shape,
                                           size_t *workspace_bytes, const char **why)
{
    auto plan = std::make_unique<sp_cudnn_plan>();
    int64_t bytes = 0;

    try {
        describe(*shape, plan->graph);
        if (build(cudnn, plan->graph, why) &&
            good(cudnn, plan->graph.get_workspace_size(bytes), why)) {
            *workspace_bytes = size_t(bytes);
            return plan.release();
        }
    } catch (const std::exception &e) {
        thrown(cudnn, e, why);
    }
    return nullptr;
}

void sp_cudnn_plan_destroy(struct sp_cudnn_plan *plan)
{
    delete plan;
}

bool sp_cudnn_plan_run(struct sp_cudnn *cudnn, const struct sp_cudnn_plan *plan,
                       const struct sp_fused_tensors *t, void *workspace, const char **why)
{
    std::unordered_map<int64_t, void *> at = {
        {UID_Q, const_cast<void *>(t->q)},
        {UID_K, const_cast<void *>(t->k)},
        {UID_V, const_cast<void *>(t->v)},
        {UID_O, t->o},
        {UID_LSE, t->lse},
    };

    if (t->d_o) {
        at[UID_DO] = const_cast<void *>(t->d_o);
        at[UID_DQ] = t->dq;
        at[UID_DK] = t->dk;
        at[UID_DV] = t->dv;
    }
    try {
        return good(cudnn, plan->graph.execute(cudnn->handle, at, workspace), why);
    } catch (const std::exception &e) {
        thrown(cudnn, e, why);
    }
    return false;
}
#endif
