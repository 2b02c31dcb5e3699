// One function for each thing that the program may do.
#include "tests/bindings/device_program.h"

#include "tests/bindings/writes_beside_copies.h"

#include <gtest/gtest.h>

#include <utility>

namespace frostline {
namespace {

constexpr std::size_t kMostTensors = 44;
constexpr std::size_t kMostHeld = 3;

}  // namespace

DeviceProgram::DeviceProgram(Manager& manager, const Emulator& emulator, std::uint64_t seed,
                             bool on_device)
    : manager_(manager),
      driver_(emulator.driver()),
      random_(seed),
      on_device_(on_device),
      streams_(emulator),
      known_(emulator, random_, kLargestBytes),
      readbacks_(emulator, known_, kLargestBytes),
      scratch_(kLargestBytes) {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
        buffers_[i].first_stream = i % 2 * ProgramStreams::kOfEach;
        EXPECT_TRUE(streams_.context(buffers_[i].first_stream)
                        .run([&] {
                            return driver_.check(
                                "cuMemAlloc",
                                driver_.cuMemAlloc(&buffers_[i].address, kLargestBytes));
                        })
                        .has_value());
    }
}

DeviceProgram::~DeviceProgram() {
    held_.clear();
    for (Buffer& each : buffers_) ready_to_write(each, each.first_stream);
    streams_.synchronize();
    readbacks_.check_all();
    for (const Buffer& each : buffers_) {
        EXPECT_TRUE(
            streams_.context(each.first_stream)
                .run([&] { return driver_.check("cuMemFree", driver_.cuMemFree(each.address)); })
                .has_value());
    }
}

template <class Done>
bool DeviceProgram::went_well(const Done& done, const char* what) {
    if (done) return true;
    EXPECT_EQ(done.error().code(), Errc::no_space) << what << ": " << done.error().message();
    return false;
}

void DeviceProgram::run(std::size_t operations) {
    for (std::size_t i = 0; i < operations && !testing::Test::HasFailure(); ++i) step();
}

void DeviceProgram::step() {
    const std::uint64_t choice = between(random_, 0, 15);
    if (tensors_.empty() || choice == 0) return make();
    if (tensors_.size() >= kMostTensors) drop(between(random_, 0, tensors_.size() - 1));
    switch (choice) {
        case 1:
        case 2:
            return make();
        case 3:
            return put_host();
        case 4:
        case 5:
            return put_device();
        case 6:
        case 7:
            return kWritesBesideCopies ? rewrite(any()) : look_at(any());
        case 8:
        case 9:
            return look_at(any());
        case 10:
            return get_host(any());
        case 11:
        case 12:
            return get_device(any());
        case 13:
            return drop(between(random_, 0, tensors_.size() - 1));
        case 14:
            return hint(any());
        default:
            return end_held();
    }
}

DeviceProgram::Tensor DeviceProgram::fresh() {
    Tensor tensor;
    tensor.size_bytes = one_in(8) ? kLargestBytes : between(random_, 1, kLargestBytes);
    tensor.content = known_.draw(random_);
    return tensor;
}

DeviceProgram::Tensor& DeviceProgram::any() {
    return tensors_[between(random_, 0, tensors_.size() - 1)];
}

// Has the bytes written, by a stream where the host cannot, and ends the pin in some way.
void DeviceProgram::write(Tensor& tensor, PinnedTensor pin) {
    EXPECT_EQ(pin.bytes().size(), tensor.size_bytes);
    if (!on_device_) return known_.write(tensor.content, pin.bytes());
    const std::size_t stream = any_stream(0);
    streams_.before_write(tensor.use, stream);
    known_.write(tensor.content, reinterpret_cast<CUdeviceptr>(pin.bytes().data()),
                 tensor.size_bytes, streams_, stream);
    let_go(std::move(pin), stream);
}

void DeviceProgram::let_go(PinnedTensor pin, std::size_t stream) {
    if (held_.size() < kMostHeld && one_in(6)) {
        held_.push_back({std::move(pin), stream});
    } else if (one_in(12)) {
        streams_.synchronize(stream);
        const PinnedTensor ends_here = std::move(pin);
    } else {
        pin.release_after(streams_.handle(stream));
    }
}

void DeviceProgram::end_held() {
    if (held_.empty()) return;
    Held held = std::move(held_.back());
    held_.pop_back();
    if (one_in(2)) {
        held.pin.release_after(streams_.handle(held.stream));
    } else {
        streams_.synchronize(held.stream);
    }
}

void DeviceProgram::make() {
    Tensor tensor = fresh();
    auto made = manager_.allocate(tensor.size_bytes);
    if (!went_well(made, "allocate")) return;
    tensor.id = made->id;
    write(tensor, std::move(made->pin));
    tensors_.push_back(tensor);
}

void DeviceProgram::rewrite(Tensor& tensor) {
    auto pin = manager_.pin(tensor.id, Access::write);
    if (!went_well(pin, "pin to write")) return;
    tensor.content = known_.draw(random_);
    write(tensor, *std::move(pin));
}

void DeviceProgram::look_at(Tensor& tensor) {
    auto pin = manager_.pin(tensor.id, Access::read);
    if (!went_well(pin, "pin to read")) return;
    if (!on_device_) {
        EXPECT_TRUE(known_.match(tensor.content, pin->bytes())) << "pinned in host memory";
        return;
    }
    const std::size_t stream = any_stream(0);
    streams_.before_read(tensor.use, stream);
    readbacks_.start(reinterpret_cast<CUdeviceptr>(pin->bytes().data()), tensor.size_bytes,
                     tensor.content, "pinned on the device", streams_, stream);
    let_go(*std::move(pin), stream);
}

void DeviceProgram::put_host() {
    Tensor tensor = fresh();
    const auto bytes = std::span(scratch_).first(tensor.size_bytes);
    known_.write(tensor.content, bytes);
    const auto id = manager_.put(bytes);
    if (!went_well(id, "put")) return;
    tensor.id = *id;
    tensors_.push_back(tensor);
}

// What is held may still be being written, which get() knows nothing of.
void DeviceProgram::get_host(const Tensor& tensor) {
    if (tensor.use.writer != StreamUse::kNobody) streams_.synchronize(tensor.use.writer);
    const auto bytes = std::span(scratch_).first(tensor.size_bytes);
    if (!went_well(manager_.get(tensor.id, bytes), "get")) return;
    EXPECT_TRUE(known_.match(tensor.content, bytes)) << "got by the host";
}

// The program's own memory may be given to the stream's next work once nobody uses it any more.
void DeviceProgram::ready_to_write(Buffer& buffer, std::size_t stream) {
    if (buffer.kept_for) {
        const auto read = manager_.source_read(*buffer.kept_for);
        EXPECT_TRUE(read.has_value());
        if (!*read) {
            (void)went_well(
                manager_.release_source(*buffer.kept_for, streams_.handle(buffer.kept_stream)),
                "release_source");
        }
        streams_.before_write(buffer.use, buffer.kept_stream);
        buffer.kept_for.reset();
    }
    streams_.before_write(buffer.use, stream);
}

void DeviceProgram::put_device() {
    Buffer& buffer = buffers_[between(random_, 0, buffers_.size() - 1)];
    const std::size_t stream = any_stream(buffer.first_stream);
    Tensor tensor = fresh();
    ready_to_write(buffer, stream);
    known_.write(tensor.content, buffer.address, tensor.size_bytes, streams_, stream);
    const DeviceSource source = one_in(3) ? DeviceSource::kept : DeviceSource::given_back;
    const auto id = manager_.put_device(reinterpret_cast<void*>(buffer.address), tensor.size_bytes,
                                        streams_.handle(stream), source);
    if (!went_well(id, "put_device")) return;
    tensor.id = *id;
    tensor.use.writer = stream;
    if (source == DeviceSource::kept) {
        buffer.kept_for = *id;
        buffer.kept_stream = stream;
    } else if (one_in(2)) {
        // The next user of the memory, in the stream's order.
        known_.write(known_.draw(random_), buffer.address, tensor.size_bytes, streams_, stream);
    }
    tensors_.push_back(tensor);
}

void DeviceProgram::get_device(Tensor& tensor) {
    Buffer& buffer = buffers_[between(random_, 0, buffers_.size() - 1)];
    const std::size_t stream = any_stream(buffer.first_stream);
    ready_to_write(buffer, stream);
    streams_.before_read(tensor.use, stream);
    const auto got = manager_.get_device(tensor.id, reinterpret_cast<void*>(buffer.address),
                                         tensor.size_bytes, streams_.handle(stream));
    if (!went_well(got, "get_device")) return;
    readbacks_.start(buffer.address, tensor.size_bytes, tensor.content, "got on a device", streams_,
                     stream);
}

void DeviceProgram::drop(std::size_t index) {
    EXPECT_TRUE(manager_.drop(tensors_[index].id).has_value());
    std::swap(tensors_[index], tensors_.back());
    tensors_.pop_back();
}

void DeviceProgram::hint(const Tensor& tensor) {
    if (one_in(4)) {
        EXPECT_TRUE(manager_.step().has_value());
        return;
    }
    (void)went_well(manager_.prefetch(tensor.id), "prefetch");
}

void DeviceProgram::check_all() {
    while (!held_.empty()) end_held();
    for (const Tensor& each : tensors_) get_host(each);
    readbacks_.check_all();
}

void DeviceProgram::drop_all() {
    while (!tensors_.empty()) drop(0);
}

}  // namespace frostline
