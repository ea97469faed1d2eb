// The buffers that CUPTI fills: a fixed number that circulates between CUPTI and the writer without a lock.
#pragma once

#include <sys/mman.h>

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
  static constexpr std::size_t kBytes = std::size_t{4} << 20;  // some 20,000 kernels
  static constexpr std::size_t kMost = 64;                     // 256 MiB; beyond it CUPTI drops records and counts them

  struct Full {
    std::uint8_t* data;
    std::size_t bytes;
    std::size_t slot;
  };

  // In the user's thread: an empty buffer, or null if all are in use.
  std::uint8_t* request() noexcept {
    for (const State ready : {State::kReady, State::kUnmade}) {
      for (Slot& slot : slots_) {
        State expected = ready;
        if (!slot.state.compare_exchange_strong(expected, State::kPreparing, std::memory_order_acquire)) continue;
        if (slot.data == nullptr) {
          slot.data = take_memory();
          untouched_.store(true, std::memory_order_relaxed);
        }
        std::uint8_t* data = slot.data;
        slot.state.store(data != nullptr ? State::kFilling : State::kUnmade, std::memory_order_release);
        return data;
      }
    }
    return nullptr;
  }

  // In the user's thread. False for a buffer that is not one of these.
  bool complete(const std::uint8_t* data, std::size_t bytes) noexcept {
    for (Slot& slot : slots_) {
      if (slot.state.load(std::memory_order_acquire) != State::kFilling || slot.data != data) continue;
      slot.bytes = bytes;
      slot.order = completed_.fetch_add(1, std::memory_order_relaxed);
      slot.state.store(State::kFull, std::memory_order_release);
      return true;
    }
    return false;
  }

  // In the writer: the buffer completed first; false if there is none.
  bool take(Full* out) noexcept {
    const Slot* first = nullptr;
    for (const Slot& slot : slots_) {
      if (slot.state.load(std::memory_order_acquire) == State::kFull && (first == nullptr || slot.order < first->order))
        first = &slot;
    }
    if (first == nullptr) return false;
    *out = {first->data, first->bytes, static_cast<std::size_t>(first - slots_.data())};
    return true;
  }

  void release(std::size_t slot) noexcept { slots_[slot].state.store(State::kReady, std::memory_order_release); }

  // In the writer: touches the memory of a few spare buffers, so that the user's threads cause no page faults. If they
  // had to take an untouched one, the number of spares doubles; few at once, because ranges wait meanwhile.
  void prepare() noexcept {
    constexpr int kAtOnce = 2;
    std::size_t ready = 0;
    for (const Slot& slot : slots_) ready += slot.state.load(std::memory_order_relaxed) == State::kReady;
    if (untouched_.exchange(false, std::memory_order_relaxed)) spare_ = std::max(spare_, std::min(2 * ready, kMost));
    int made = 0;
    for (Slot& slot : slots_) {
      if (ready >= spare_ || made == kAtOnce) return;
      State expected = State::kUnmade;
      if (!slot.state.compare_exchange_strong(expected, State::kPreparing, std::memory_order_acquire)) continue;
      slot.data = take_memory();
      if (slot.data != nullptr) std::memset(slot.data, 0, kBytes);
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
    std::uint64_t order = 0;
  };

  // From the C library, because another CUPTI client in the process may free it. In huge pages if available: with small
  // pages, every twentieth record touches a new one, which costs the emitting thread 1 to 10 microseconds.
  static std::uint8_t* take_memory() noexcept {
    constexpr std::size_t kHugePage = std::size_t{2} << 20;
    const int before = errno;
    void* data = nullptr;
    if (posix_memalign(&data, kHugePage, kBytes) != 0) data = nullptr;
    if (data != nullptr) madvise(data, kBytes, MADV_HUGEPAGE);  // on failure, small pages are used
    errno = before;
    return static_cast<std::uint8_t*>(data);
  }

  std::array<Slot, kMost> slots_;
  std::atomic<std::uint64_t> completed_{0};
  std::atomic<bool> untouched_{false};  // a user's thread took an untouched buffer
  std::size_t spare_ = 2;               // owned by the writer: number of spare buffers
};

}  // namespace curvescope
