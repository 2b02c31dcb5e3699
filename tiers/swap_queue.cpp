// The ring, and what stands in for it.
#include "tiers/swap_queue.h"

#include "tiers/page.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <numeric>
#include <utility>

namespace frostline {
namespace {

constexpr int kMostRetries = 64;

}  // namespace

Result<std::unique_ptr<SwapQueue>> SwapQueue::create(const Options& options) noexcept {
    try {
        std::unique_ptr<SwapQueue> queue(new SwapQueue(options));
        if (options.ring) queue->set_up_ring();
        return queue;
    } catch (const std::bad_alloc&) {
        return Error(Errc::out_of_memory, 0, "swap tier: no memory for its queue");
    }
}

// Everything that the life of a transfer needs is reserved here: nothing allocates later.
SwapQueue::SwapQueue(const Options& options)
    : options_(options),
      slots_(options.depth),
      free_(options.depth),
      pending_(options.depth),
      ended_(options.depth) {
    std::iota(free_.begin(), free_.end(), std::size_t{0});
}

void SwapQueue::set_up_ring() {
    // Completions then wait until this thread enters the kernel, instead of interrupting it. Linux
    // before 5.19 does not know it.
    int error = -EINVAL;
    for (const unsigned flags : {unsigned{IORING_SETUP_COOP_TASKRUN}, 0U}) {
        if (error != -EINVAL) break;
        io_uring_params parameters{};
        parameters.flags = flags;
        error =
            options_.calls->uring_init(static_cast<unsigned>(options_.depth), &ring_, &parameters);
    }
    if (error < 0) {
        ring_refusal_ = Error(Errc::unsupported, -error, "io_uring is refused by the system");
        return;
    }
    has_ring_ = ring_works_ = true;
    std::vector<int> descriptors;
    for (std::size_t i = 0; i < options_.files->size(); ++i) {
        descriptors.push_back(options_.files->descriptor(i));
    }
    // Where that is refused each transfer looks its file up instead.
    files_registered_ =
        options_.calls->uring_register_files(&ring_, descriptors.data(),
                                             static_cast<unsigned>(descriptors.size())) == 0;
}

SwapQueue::~SwapQueue() {
    if (has_ring_) ::io_uring_queue_exit(&ring_);
    if (staging_ != nullptr) {
        (void)options_.calls->munmap(staging_, options_.depth * options_.block_bytes);
    }
}

TransferPiece SwapQueue::next_piece(const Extent& extent, std::uint64_t offset,
                                    const std::byte* memory) const noexcept {
    const std::uint64_t rest = extent.length_bytes - offset;
    const std::uint64_t together = options_.files->place(extent.offset + offset).contiguous_bytes;
    const std::uint64_t size = std::min({rest, options_.block_bytes, together});
    if (!options_.files->direct()) return {size, memory != nullptr};
    // O_DIRECT moves whole pages from and to whole pages: what lies otherwise, and the end of an
    // extent that is not a whole page, goes through staging.
    const bool aligned =
        memory != nullptr && reinterpret_cast<std::uintptr_t>(memory) % kPageBytes == 0;
    if (!aligned || size < kPageBytes) return {size, false};
    return {size / kPageBytes * kPageBytes, true};
}

// Made when it is first needed: memory that lies well never needs it.
Result<std::span<std::byte>> SwapQueue::staging(std::size_t slot) noexcept {
    if (staging_ == nullptr) {
        const std::size_t bytes = options_.depth * options_.block_bytes;
        void* const memory = options_.calls->mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            return system_error(errno, "swap tier in '{}': no memory to stage {} bytes",
                                options_.files->location(), bytes);
        }
        staging_ = static_cast<std::byte*>(memory);
    }
    return std::span(staging_ + slot * options_.block_bytes, options_.block_bytes);
}

// Refused where little memory may be locked; then each transfer pins its pages itself.
void SwapQueue::register_staging() noexcept {
    staging_tried_ = true;
    const iovec all{staging_, options_.depth * options_.block_bytes};
    staging_registered_ = options_.calls->uring_register_buffers(&ring_, &all, 1) == 0;
}

bool SwapQueue::in_staging(const std::byte* address) const noexcept {
    return staging_ != nullptr && address >= staging_ &&
           address < staging_ + options_.depth * options_.block_bytes;
}

void SwapQueue::push(const Transfer& transfer) noexcept {
    const std::size_t index = free_.back();
    free_.pop_back();
    std::uint64_t size = transfer.bytes.size();
    // The room of an extent is whole pages, and so is staging.
    if (options_.files->direct() && in_staging(transfer.bytes.data())) {
        size = round_up_to_page(size);
    }
    slots_[index] = {transfer, options_.files->place(transfer.extent.offset + transfer.offset),
                     size, 0, 0};
    if (ring_works_) {
        start(index);
    } else {
        do_ordinarily(index);
    }
}

// Puts what is left of a transfer into the ring, where there is always room: it has as many
// entries as there are slots.
void SwapQueue::start(std::size_t index) noexcept {
    Slot& slot = slots_[index];
    io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
    std::byte* const memory = slot.transfer.bytes.data() + slot.done_bytes;
    const auto size = static_cast<unsigned>(slot.size_bytes - slot.done_bytes);
    const std::uint64_t at = slot.place.offset + slot.done_bytes;
    const int file = files_registered_ ? static_cast<int>(slot.place.file)
                                       : options_.files->descriptor(slot.place.file);
    const bool staged = in_staging(memory);
    if (staged && options_.register_staging && !staging_tried_ && size > kPageBytes) {
        register_staging();
    }
    const bool fixed = staging_registered_ && staged;
    if (slot.transfer.direction == Transfer::Direction::write) {
        if (fixed) {
            ::io_uring_prep_write_fixed(entry, file, memory, size, at, 0);
        } else {
            ::io_uring_prep_write(entry, file, memory, size, at);
        }
    } else if (fixed) {
        ::io_uring_prep_read_fixed(entry, file, memory, size, at, 0);
    } else {
        ::io_uring_prep_read(entry, file, memory, size, at);
    }
    if (files_registered_) ::io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
    ::io_uring_sqe_set_data64(entry, index);
    pending_.push_back(index);
}

void SwapQueue::do_ordinarily(std::size_t index) noexcept {
    bool again = true;
    while (again) {
        Slot& slot = slots_[index];
        std::byte* const memory = slot.transfer.bytes.data() + slot.done_bytes;
        const std::size_t size = slot.size_bytes - slot.done_bytes;
        const auto at = static_cast<off_t>(slot.place.offset + slot.done_bytes);
        const int fd = options_.files->descriptor(slot.place.file);
        const ssize_t done = slot.transfer.direction == Transfer::Direction::write
                                 ? options_.calls->pwrite(fd, memory, size, at)
                                 : options_.calls->pread(fd, memory, size, at);
        again = advance(index, done < 0 ? -errno : done);
    }
}

// Takes note of what a transfer has done: bytes, or -errno. True if it has to go on.
bool SwapQueue::advance(std::size_t index, long result) noexcept {
    Slot& slot = slots_[index];
    const bool write = slot.transfer.direction == Transfer::Direction::write;
    if (result > 0) {
        std::uint64_t done = slot.done_bytes + static_cast<std::uint64_t>(result);
        if (done >= slot.size_bytes) {
            end(index, ok());
            return false;
        }
        if (options_.files->direct()) done = done / kPageBytes * kPageBytes;
        if (done > slot.done_bytes) slot.retries = 0;
        slot.done_bytes = done;
    } else if (result == 0 && !write) {
        end(index, Error(Errc::corrupt, 0, "swap tier in '{}': the file is shorter than it was",
                         options_.files->location()));
        return false;
    }
    const bool put_off = result > 0 || result == -EINTR || result == -EAGAIN;
    if (put_off && ++slot.retries <= kMostRetries) return true;
    const int error = result < 0 ? static_cast<int>(-result) : EIO;
    if (write) {
        options_.meter->close(error);
        end(index,
            system_error(error, "swap tier in '{}': writing {} bytes failed; it takes no new data",
                         options_.files->location(), slot.size_bytes));
    } else {
        end(index, system_error(error, "swap tier in '{}': reading {} bytes failed",
                                options_.files->location(), slot.size_bytes));
    }
    return false;
}

void SwapQueue::end(std::size_t index, Result<void> status) noexcept {
    ended_.push_back({slots_[index].transfer.tag, std::move(status)});
    free_.push_back(index);
}

TransferEnd SwapQueue::wait() noexcept {
    if (ring_works_) reap();
    while (ended_.empty() || must_submit()) {
        if (ring_works_) {
            submit(ended_.empty() ? 1 : 0);
        } else {
            ::sched_yield();  // enters the kernel, which tells the ends of what it still has
        }
        reap();
    }
    return take_ended();
}

std::optional<TransferEnd> SwapQueue::poll() noexcept {
    reap();
    if (must_submit() || (ring_works_ && ended_.empty() && !pending_.empty())) {
        submit(0);
        reap();
    }
    if (ended_.empty()) return std::nullopt;
    return take_ended();
}

// One system call for several transfers, as long as the kernel has enough to do meanwhile.
bool SwapQueue::must_submit() const noexcept {
    return ring_works_ && pending_.size() * 4 >= options_.depth;
}

TransferEnd SwapQueue::take_ended() noexcept {
    TransferEnd end = ended_.front();
    ended_.pop_front();
    return end;
}

void SwapQueue::submit(unsigned wait_for) noexcept {
    const int result = options_.calls->uring_submit_and_wait(&ring_, wait_for);
    if (result >= 0) {
        failed_submissions_ = 0;
        const auto taken = std::min(static_cast<std::size_t>(result), pending_.size());
        pending_.erase_begin(taken);
    } else if (result != -EINTR && ++failed_submissions_ > kMostRetries) {
        give_up_ring();
    }
}

// The ring takes nothing any more, for example because the kernel has no memory for requests. What
// it has taken comes to its end; what it has not is done without it.
void SwapQueue::give_up_ring() noexcept {
    ring_works_ = false;
    for (const std::size_t index : pending_) do_ordinarily(index);
    pending_.clear();
}

void SwapQueue::reap() noexcept {
    if (!has_ring_) return;
    io_uring_cqe* completion = nullptr;
    while (::io_uring_peek_cqe(&ring_, &completion) == 0) {
        const auto index = static_cast<std::size_t>(::io_uring_cqe_get_data64(completion));
        const int result = options_.calls->uring_result(completion->res);
        ::io_uring_cqe_seen(&ring_, completion);
        // The kernel had no thread for it: the medium is well.
        if (result == -ECANCELED) {
            do_ordinarily(index);
            continue;
        }
        if (!advance(index, result)) continue;
        if (ring_works_) {
            start(index);
        } else {
            do_ordinarily(index);
        }
    }
}

}  // namespace frostline
