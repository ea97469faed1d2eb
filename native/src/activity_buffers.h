// The buffers that CUPTI fills: a fixed number that circulates between CUPTI and the writer without a lock. An empty
// buffer is zeroed, because CUPTI would otherwise zero it in the user's thread.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace curvescope {

class ActivityBuffers {
 public:
  // Some 2,500 kernels, or 2,000 launches with their kernels: a killed process loses the one that CUPTI fills.
  static constexpr std::size_t kBytes = std::size_t{512} << 10;
  static constexpr std::size_t kMost = 512;   // 256 MiB
  static constexpr std::size_t kBeyond = 64;  // for a CUPTI that needs them, beyond the others

  struct Full {
    std::uint8_t* data;
    std::size_t bytes;
    std::size_t slot;
  };

  // In the user's thread: an empty buffer. If all are in use, null, or, if `always`, a buffer that will not be read.
  std::uint8_t* request(bool always) noexcept {
    std::uint8_t* data = request_of(slots_.data(), kMost);
    return data == nullptr && always ? request_of(slots_.data() + kMost, kBeyond) : data;
  }

  // In the user's thread. False for a buffer that is not one of these.
  bool complete(const std::uint8_t* data, std::size_t bytes) noexcept {
    for (Slot& slot : slots_) {
      if (slot.state.load(std::memory_order_acquire) != State::kFilling || slot.data != data) continue;
      if (&slot >= slots_.data() + kMost) {
        unread_.fetch_add(1, std::memory_order_relaxed);
        slot.state.store(State::kReady, std::memory_order_release);
        return true;
      }
      slot.bytes = bytes;
      slot.order = completed_.fetch_add(1, std::memory_order_relaxed);
      slot.state.store(State::kFull, std::memory_order_release);
      return true;
    }
    return false;
  }

  // Number of buffers given, and whether one of the first `end` did not come back.
  std::uint64_t given() const noexcept { return given_.load(std::memory_order_acquire); }
  bool any_given(std::uint64_t end = ~std::uint64_t{0}) const noexcept {
    return std::any_of(slots_.begin(), slots_.end(), [end](const Slot& slot) {
      return slot.state.load(std::memory_order_acquire) == State::kFilling && slot.given < end;
    });
  }

  // Number of buffers that came back.
  std::uint64_t completed() const noexcept { return completed_.load(std::memory_order_relaxed); }

  // In the writer: the buffer completed first, of those that were completed before `end`; false if there is none.
  bool take(Full* out, std::uint64_t end = ~std::uint64_t{0}) noexcept {
    const Slot* first = nullptr;
    for (const Slot& slot : slots_) {
      if (slot.state.load(std::memory_order_acquire) == State::kFull && (first == nullptr || slot.order < first->order))
        first = &slot;
    }
    if (first == nullptr || first->order >= end) return false;
    *out = {first->data, first->bytes, static_cast<std::size_t>(first - slots_.data())};
    return true;
  }

  void release(std::size_t slot) noexcept {
    std::memset(slots_[slot].data, 0, kBytes);
    slots_[slot].state.store(State::kReady, std::memory_order_release);
  }

  // In the writer: the number of buffers that were given beyond the limit and came back, since the last call.
  std::uint64_t take_unread() noexcept { return unread_.exchange(0, std::memory_order_relaxed); }

  // In the writer: touches the memory of a few spare buffers, so that the user's threads cause no page faults. If they
  // had to take an untouched one, the number of spares doubles; few at once, because ranges wait meanwhile.
  void prepare() noexcept {
    constexpr int kAtOnce = 16;
    constexpr std::size_t kPage = 4096;
    std::size_t ready = 0;
    for (std::size_t i = 0; i < kMost; ++i) ready += slots_[i].state.load(std::memory_order_relaxed) == State::kReady;
    if (untouched_.exchange(false, std::memory_order_relaxed)) spare_ = std::max(spare_, std::min(2 * ready, kMost));
    int made = 0;
    for (std::size_t i = 0; i < kMost && ready < spare_ && made != kAtOnce; ++i) {
      Slot& slot = slots_[i];
      State expected = State::kUnmade;
      if (!slot.state.compare_exchange_strong(expected, State::kPreparing, std::memory_order_acquire)) continue;
      slot.data = take_memory();
      for (std::size_t at = 0; slot.data != nullptr && at < kBytes; at += kPage)
        *static_cast<volatile std::uint8_t*>(slot.data + at) = 0;
      slot.state.store(slot.data != nullptr ? State::kReady : State::kUnmade, std::memory_order_release);
      ++ready;
      ++made;
    }
  }

 private:
  enum class State : std::uint32_t { kUnmade, kPreparing, kReady, kFilling, kFull };

  struct alignas(64) Slot {
    std::atomic<State> state{State::kUnmade};
    std::uint8_t* data = nullptr;
    std::size_t bytes = 0;
    std::uint64_t order = 0;  // of coming back
    std::atomic<std::uint64_t> given{0};
  };

  std::uint8_t* request_of(Slot* slots, std::size_t count) noexcept {
    for (const State ready : {State::kReady, State::kUnmade}) {
      for (Slot* slot = slots; slot != slots + count; ++slot) {
        if (slot->state.load(std::memory_order_relaxed) != ready) continue;  // cheaper, where many wait to be written
        State expected = ready;
        if (!slot->state.compare_exchange_strong(expected, State::kPreparing, std::memory_order_acquire)) continue;
        if (slot->data == nullptr) {
          slot->data = take_memory();
          untouched_.store(true, std::memory_order_relaxed);
        }
        std::uint8_t* data = slot->data;
        slot->given.store(given_.fetch_add(1, std::memory_order_relaxed), std::memory_order_relaxed);
        slot->state.store(data != nullptr ? State::kFilling : State::kUnmade, std::memory_order_release);
        return data;
      }
    }
    return nullptr;
  }

  // Zeroed; from the C library, because another CUPTI client in the process may free it.
  static std::uint8_t* take_memory() noexcept {
    const int before = errno;
    void* data = std::calloc(1, kBytes);
    errno = before;
    return static_cast<std::uint8_t*>(data);
  }

  std::array<Slot, kMost + kBeyond> slots_;
  std::atomic<std::uint64_t> given_{0};
  std::atomic<std::uint64_t> completed_{0};
  std::atomic<std::uint64_t> unread_{0};
  std::atomic<bool> untouched_{false};  // a user's thread took an untouched buffer
  std::size_t spare_ = 16;              // owned by the writer: number of spare buffers
};

}  // namespace curvescope
