// The C interface over Manager.
#include "frostline/frostline.h"

#include "bindings/c/call_status.h"
#include "bindings/manager.h"
#include "bindings/whole_file.h"

#include <memory>
#include <span>
#include <string>
#include <utility>

using frostline::Access;
using frostline::copy_out;
using frostline::DeviceSource;
using frostline::Errc;
using frostline::Error;
using frostline::Manager;
using frostline::ManagerOptions;
using frostline::null_argument;
using frostline::Result;
using frostline::status_of;
using frostline::TensorId;

struct frostline_context {
    Manager manager;
};

struct frostline_pinned {
    frostline::PinnedTensor tensor;
};

namespace {

Result<void> give(Result<TensorId> stored, frostline_id* id) {
    if (!stored) return stored.error();
    *id = stored->packed();
    return frostline::ok();
}

}  // namespace

const char* frostline_version(void) {
    return frostline::version();
}

frostline_status frostline_open(const char* const* options, frostline_context** context) {
    return status_of([&]() -> Result<void> {
        if (options == nullptr || context == nullptr) return null_argument("options or context");
        *context = nullptr;
        FROSTLINE_TRY(const ManagerOptions parsed,
                      frostline::parse_options<ManagerOptions>(options));
        FROSTLINE_TRY(Manager manager, Manager::open(parsed));
        *context = new frostline_context{std::move(manager)};
        return frostline::ok();
    });
}

frostline_status frostline_close(frostline_context* context) {
    return status_of([&]() -> Result<void> {
        if (context == nullptr) return frostline::ok();
        FROSTLINE_TRY(const std::size_t pins, context->manager.pins());
        if (pins > 0) {
            return Error(Errc::busy, 0, "{} pins are held; unpin them before closing", pins);
        }
        FROSTLINE_TRY_VOID(context->manager.close());
        delete context;
        return frostline::ok();
    });
}

frostline_status frostline_put(frostline_context* context, const void* data, size_t size_bytes,
                               frostline_id* id) {
    return status_of([&]() -> Result<void> {
        if (context == nullptr || data == nullptr || id == nullptr) {
            return null_argument("context, data or id");
        }
        return give(context->manager.put({static_cast<const std::byte*>(data), size_bytes}), id);
    });
}

frostline_status frostline_put_device(frostline_context* context, const void* device_data,
                                      size_t size_bytes, void* stream, int keep_source,
                                      frostline_id* id) {
    return status_of([&]() -> Result<void> {
        if (context == nullptr || device_data == nullptr || id == nullptr) {
            return null_argument("context, device_data or id");
        }
        return give(context->manager.put_device(
                        device_data, size_bytes, stream,
                        keep_source != 0 ? DeviceSource::kept : DeviceSource::given_back),
                    id);
    });
}

frostline_status frostline_release_source(frostline_context* context, frostline_id id,
                                          void* stream) {
    return status_of([&]() -> Result<void> {
        if (context == nullptr) return null_argument("context");
        return context->manager.release_source(TensorId::from_packed(id), stream);
    });
}

frostline_status frostline_source_read(frostline_context* context, frostline_id id, int* read) {
    return status_of([&]() -> Result<void> {
        if (context == nullptr || read == nullptr) return null_argument("context or read");
        FROSTLINE_TRY(const bool done, context->manager.source_read(TensorId::from_packed(id)));
        *read = done ? 1 : 0;
        return frostline::ok();
    });
}

frostline_status frostline_get_device(frostline_context* context, frostline_id id,
                                      void* device_data, size_t size_bytes, void* stream) {
    return status_of([&]() -> Result<void> {
        if (context == nullptr || device_data == nullptr) {
            return null_argument("context or device_data");
        }
        return context->manager.get_device(TensorId::from_packed(id), device_data, size_bytes,
                                           stream);
    });
}

frostline_status frostline_adopt(frostline_context* context, void* data, size_t size_bytes,
                                 frostline_release_function release, void* user, int held,
                                 frostline_id* id) {
    // The C function takes the buffer as void*, so its address and its user travel in a box.
    struct Owner {
        frostline_release_function release;
        void* user;
        static void call(void* box, std::byte* address, std::uint64_t bytes) {
            const std::unique_ptr<Owner> owner(static_cast<Owner*>(box));
            owner->release(owner->user, address, bytes);
        }
    };
    return status_of([&]() -> Result<void> {
        if (context == nullptr || data == nullptr || release == nullptr || id == nullptr) {
            return null_argument("context, data, release or id");
        }
        auto owner = std::make_unique<Owner>(Owner{release, user});
        auto stored = context->manager.adopt({static_cast<std::byte*>(data), size_bytes},
                                             {Owner::call, owner.get()}, held != 0);
        if (stored) (void)owner.release();  // NOLINT(bugprone-unused-return-value): call() frees it
        return give(std::move(stored), id);
    });
}

frostline_status frostline_settle(frostline_context* context, frostline_id id) {
    return status_of([&]() -> Result<void> {
        if (context == nullptr) return null_argument("context");
        return context->manager.settle(TensorId::from_packed(id));
    });
}

frostline_status frostline_prefetch(frostline_context* context, frostline_id id) {
    return status_of([&]() -> Result<void> {
        if (context == nullptr) return null_argument("context");
        return context->manager.prefetch(TensorId::from_packed(id));
    });
}

frostline_status frostline_get(frostline_context* context, frostline_id id, void* data,
                               size_t size_bytes) {
    return status_of([&]() -> Result<void> {
        if (context == nullptr || data == nullptr) return null_argument("context or data");
        return context->manager.get(TensorId::from_packed(id),
                                    {static_cast<std::byte*>(data), size_bytes});
    });
}

frostline_status frostline_size(frostline_context* context, frostline_id id, size_t* size_bytes) {
    return status_of([&]() -> Result<void> {
        if (context == nullptr || size_bytes == nullptr) {
            return null_argument("context or size_bytes");
        }
        FROSTLINE_TRY(*size_bytes, context->manager.size_bytes(TensorId::from_packed(id)));
        return frostline::ok();
    });
}

frostline_status frostline_pin(frostline_context* context, frostline_id id, int access,
                               frostline_pinned** pinned) {
    return status_of([&]() -> Result<void> {
        if (context == nullptr || pinned == nullptr) return null_argument("context or pinned");
        *pinned = nullptr;
        if (access != FROSTLINE_READ && access != FROSTLINE_WRITE) {
            return Error(Errc::invalid_argument, 0, "access {} is neither READ nor WRITE", access);
        }
        auto box = std::make_unique<frostline_pinned>();
        FROSTLINE_TRY(box->tensor, context->manager.pin(
                                       TensorId::from_packed(id),
                                       access == FROSTLINE_WRITE ? Access::write : Access::read));
        *pinned = box.release();
        return frostline::ok();
    });
}

frostline_status frostline_allocate(frostline_context* context, size_t size_bytes, frostline_id* id,
                                    frostline_pinned** pinned) {
    return status_of([&]() -> Result<void> {
        if (pinned != nullptr) *pinned = nullptr;
        if (context == nullptr || id == nullptr || pinned == nullptr) {
            return null_argument("context, id or pinned");
        }
        auto box = std::make_unique<frostline_pinned>();
        FROSTLINE_TRY(frostline::AllocatedTensor made, context->manager.allocate(size_bytes));
        box->tensor = std::move(made.pin);
        *id = made.id.packed();
        *pinned = box.release();
        return frostline::ok();
    });
}

void* frostline_pinned_data(const frostline_pinned* pinned, size_t* size_bytes) {
    const std::span<std::byte> bytes =
        pinned == nullptr ? std::span<std::byte>() : pinned->tensor.bytes();
    if (size_bytes != nullptr) *size_bytes = bytes.size();
    return bytes.data();
}

void frostline_unpin(frostline_pinned* pinned) {
    delete pinned;
}

void frostline_unpin_after(frostline_pinned* pinned, void* stream) {
    if (pinned != nullptr) pinned->tensor.release_after(stream);
    delete pinned;
}

frostline_status frostline_drop(frostline_context* context, frostline_id id) {
    return status_of([&]() -> Result<void> {
        if (context == nullptr) return null_argument("context");
        return context->manager.drop(TensorId::from_packed(id));
    });
}

frostline_status frostline_step(frostline_context* context) {
    return status_of([&]() -> Result<void> {
        if (context == nullptr) return null_argument("context");
        return context->manager.step();
    });
}

frostline_status frostline_get_stats(frostline_context* context, frostline_stats* stats) {
    return status_of([&]() -> Result<void> {
        if (context == nullptr) return null_argument("context");
        const frostline::ManagerStats now = context->manager.stats();
        return copy_out(frostline_stats{.struct_size = sizeof(frostline_stats),
                                        .stored = now.stored,
                                        .stored_bytes = now.stored_bytes,
                                        .dropped = now.dropped,
                                        .hits = now.hits,
                                        .use_stalls = now.use_stalls,
                                        .use_stall_ns = now.use_stall_ns,
                                        .store_stalls = now.store_stalls,
                                        .store_stall_ns = now.store_stall_ns,
                                        .moves = now.moves,
                                        .free_moves = now.free_moves,
                                        .failed_moves = now.failed_moves,
                                        .direct_reads = now.direct_reads,
                                        .tiers = now.tiers.size()},
                        stats);
    });
}

frostline_status frostline_get_tier_stats(frostline_context* context, size_t index,
                                          frostline_tier_stats* stats) {
    return status_of([&]() -> Result<void> {
        if (context == nullptr) return null_argument("context");
        const frostline::ManagerStats now = context->manager.stats();
        if (index >= now.tiers.size()) {
            return Error(Errc::not_found, 0, "there is no tier {}, the last is {}", index,
                         now.tiers.size() - 1);
        }
        const frostline::TierStats& tier = now.tiers[index];
        return copy_out(frostline_tier_stats{.struct_size = sizeof(frostline_tier_stats),
                                             .name = tier.name,
                                             .label = tier.label,
                                             .budget_bytes = tier.budget_bytes,
                                             .used_bytes = tier.used_bytes,
                                             .peak_bytes = tier.peak_bytes,
                                             .moved_in_bytes = tier.moved_in_bytes,
                                             .moved_out_bytes = tier.moved_out_bytes,
                                             .open = tier.open ? 1 : 0,
                                             .staging_bytes = tier.staging_bytes},
                        stats);
    });
}

frostline_status frostline_write_trace(frostline_context* context, const char* path) {
    return status_of([&]() -> Result<void> {
        if (context == nullptr || path == nullptr) return null_argument("context or path");
        FROSTLINE_TRY(const std::string trace, context->manager.trace());
        return frostline::write_whole_file(path, trace, "trace file");
    });
}
