// The buffers that CUPTI fills: a fixed number of them, going round between CUPTI and the writer without a lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace curvescope {

class ActivityBuffers {
 public:
  static constexpr std::size_t kBytes = std::size_t{4} << 20;  // some 20,000 kernels
  static constexpr std::size_t kMost = 64;                     // 256 MiB; beyond it CUPTI drops, and counts

  struct Full {
    std::uint8_t* data;
    std::size_t bytes;
    std::size_t slot;
  };

  // In the user's thread: an empty buffer, or null where all are under way. Memory is taken from the C library, for
  // another CUPTI client in the process may get to free it.
  std::uint8_t* request() noexcept {
    for (const State ready : {State::kReady, State::kUnmade}) {
      for (Slot& slot : slots_) {
        State expected = ready;
        if (!slot.state.compare_exchange_strong(expected, State::kPreparing, std::memory_order_acquire)) continue;
        if (slot.data == nullptr) slot.data = static_cast<std::uint8_t*>(std::malloc(kBytes));
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

  // In the writer: the buffer completed first; false where there is none.
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

  // In the writer: touches the memory of a few buffers, so that the user's threads do not fault it in.
  void prepare() noexcept {
    constexpr int kSpare = 2;
    int ready = 0;
    for (const Slot& slot : slots_) ready += slot.state.load(std::memory_order_relaxed) == State::kReady;
    for (Slot& slot : slots_) {
      State expected = State::kUnmade;
      if (ready >= kSpare) return;
      if (!slot.state.compare_exchange_strong(expected, State::kPreparing, std::memory_order_acquire)) continue;
      slot.data = static_cast<std::uint8_t*>(std::malloc(kBytes));
      if (slot.data != nullptr) std::memset(slot.data, 0, kBytes);
      slot.state.store(slot.data != nullptr ? State::kReady : State::kUnmade, std::memory_order_release);
      ++ready;
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

  std::array<Slot, kMost> slots_;
  std::atomic<std::uint64_t> completed_{0};
};

}  // namespace curvescope
