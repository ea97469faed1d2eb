// The buffers that CUPTI fills: a fixed number that circulates between CUPTI and the writer without a lock. An empty
// buffer is zeroed, because CUPTI would otherwise zero it in the user's thread. CUPTI keeps a buffer until it is full
// and its work is done, and a killed process loses it. So CUPTI gets as many bytes of a buffer as it fills in kSpanNs.
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
  // Most bytes of a buffer: some 2,500 kernels, or 2,000 launches with their kernels. Fewest: 16 launches.
  static constexpr std::size_t kBytes = std::size_t{512} << 10;
  static constexpr std::size_t kFewestBytes = std::size_t{4} << 10;
  static constexpr std::size_t kFirstBytes = std::size_t{64} << 10;
  static constexpr std::int64_t kSpanNs = 30'000'000;
  static constexpr std::size_t kMost = 512;   // 256 MiB
  static constexpr std::size_t kBeyond = 64;  // for a CUPTI that needs them, beyond the others

  struct Full {
    std::uint8_t* data;
    std::size_t bytes;
    std::size_t slot;
  };

  // In the user's thread: an empty buffer, and how many bytes of it to fill. If all are in use, null, or, if `always`,
  // a buffer that will not be read.
  std::uint8_t* request(bool always, std::size_t* bytes) noexcept {
    *bytes = next_bytes();
    std::uint8_t* data = request_of(slots_.data(), kMost, *bytes);
    if (data != nullptr || !always) return data;
    *bytes = kBytes;
    return request_of(slots_.data() + kMost, kBeyond, *bytes);
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

  // Of how many buffers that did not come back this is true, by their bytes as they are now: CUPTI may be writing.
  template <typename Predicate>
  std::uint64_t count_given(Predicate is_true) const noexcept {
    return static_cast<std::uint64_t>(std::count_if(slots_.begin(), slots_.end(), [&is_true](const Slot& slot) {
      return slot.state.load(std::memory_order_acquire) == State::kFilling && is_true(slot.data, slot.most_bytes);
    }));
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
    taken_bytes_ += first->bytes;
    return true;
  }

  // In the writer, from time to time: adapts the size of the next buffers to the bytes that came back since the last
  // call. A moving average, because buffers come back in bursts.
  void adapt(std::int64_t elapsed_ns) noexcept {
    constexpr double kWeight = 0.25;
    const double rate = static_cast<double>(taken_bytes_) / static_cast<double>(std::max<std::int64_t>(elapsed_ns, 1));
    bytes_per_ns_ += kWeight * (rate - bytes_per_ns_);
    taken_bytes_ = 0;
    const double wanted = bytes_per_ns_ * static_cast<double>(kSpanNs);
    const double bytes = std::clamp(wanted, static_cast<double>(kFewestBytes), static_cast<double>(kBytes));
    bytes_.store(static_cast<std::size_t>(bytes), std::memory_order_relaxed);
    given_since_.store(0, std::memory_order_relaxed);
  }

  void release(std::size_t slot) noexcept {
    std::memset(slots_[slot].data, 0, slots_[slot].most_bytes);
    slots_[slot].state.store(State::kReady, std::memory_order_release);
  }

  // In the writer: the number of buffers that were given beyond the limit and came back, since the last call.
  std::uint64_t take_unread() noexcept { return unread_.exchange(0, std::memory_order_relaxed); }

  // In the writer: makes a few spare buffers, so that the user's threads need not. If they had to make one, the number
  // of spares doubles; few at once, because ranges wait meanwhile.
  void prepare() noexcept {
    constexpr int kAtOnce = 16;
    std::size_t ready = 0;
    for (std::size_t i = 0; i < kMost; ++i) ready += slots_[i].state.load(std::memory_order_relaxed) == State::kReady;
    if (ran_out_.exchange(false, std::memory_order_relaxed)) spare_ = std::max(spare_, std::min(2 * ready, kMost));
    int made = 0;
    for (std::size_t i = 0; i < kMost && ready < spare_ && made != kAtOnce; ++i) {
      Slot& slot = slots_[i];
      State expected = State::kUnmade;
      if (!slot.state.compare_exchange_strong(expected, State::kPreparing, std::memory_order_acquire)) continue;
      slot.data = take_memory();
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
    std::size_t most_bytes = 0;  // that CUPTI may fill
    std::size_t bytes = 0;       // that it filled
    std::uint64_t order = 0;     // of coming back
    std::atomic<std::uint64_t> given{0};
  };

  // Sizes double while buffers are taken faster than expected, so that their number suffices.
  std::size_t next_bytes() noexcept {
    constexpr std::uint32_t kExpected = 4;  // until the next call of adapt(), some of them by flushes
    constexpr std::uint32_t kMostDoublings = 7;
    const std::uint32_t given = given_since_.fetch_add(1, std::memory_order_relaxed);
    const std::uint32_t doublings = given < kExpected ? 0 : std::min(given - kExpected + 1, kMostDoublings);
    return std::min(bytes_.load(std::memory_order_relaxed) << doublings, kBytes);
  }

  std::uint8_t* request_of(Slot* slots, std::size_t count, std::size_t bytes) noexcept {
    for (const State ready : {State::kReady, State::kUnmade}) {
      for (Slot* slot = slots; slot != slots + count; ++slot) {
        if (slot->state.load(std::memory_order_relaxed) != ready) continue;  // cheaper, where many wait to be written
        State expected = ready;
        if (!slot->state.compare_exchange_strong(expected, State::kPreparing, std::memory_order_acquire)) continue;
        if (slot->data == nullptr) {
          slot->data = take_memory();
          ran_out_.store(true, std::memory_order_relaxed);
        }
        std::uint8_t* data = slot->data;
        slot->most_bytes = bytes;
        slot->given.store(given_.fetch_add(1, std::memory_order_relaxed), std::memory_order_relaxed);
        slot->state.store(data != nullptr ? State::kFilling : State::kUnmade, std::memory_order_release);
        return data;
      }
    }
    return nullptr;
  }

  // Zeroed; from the C library, because another CUPTI client in the process may free it. All of its pages are faulted
  // in here: that delays the first record of a buffer, where a fault at each page would delay one record in twenty.
  static std::uint8_t* take_memory() noexcept {
    constexpr std::uintptr_t kPage = 4096;
    constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, since Linux 5.14
    const int before = errno;
    auto* data = static_cast<std::uint8_t*>(std::calloc(1, kBytes));
    if (data != nullptr) {
      const std::uintptr_t skipped = reinterpret_cast<std::uintptr_t>(data) % kPage;
      madvise(data - skipped, kBytes + skipped, kPopulateWrite);  // all at once, if the system can
      for (std::size_t i = 0; i < kBytes; i += kPage) *static_cast<volatile std::uint8_t*>(data + i) = 0;
    }
    errno = before;
    return data;
  }

  std::array<Slot, kMost + kBeyond> slots_;
  std::atomic<std::uint64_t> given_{0};
  std::atomic<std::uint64_t> completed_{0};
  std::atomic<std::uint64_t> unread_{0};
  std::atomic<std::size_t> bytes_{kFirstBytes};  // of the next buffers
  std::atomic<std::uint32_t> given_since_{0};    // buffers since the last call of adapt()
  std::uint64_t taken_bytes_ = 0;                // owned by the writer, since then
  double bytes_per_ns_ = static_cast<double>(kFirstBytes) / static_cast<double>(kSpanNs);  // owned by the writer
  std::atomic<bool> ran_out_{false};  // a user's thread had to make a buffer
  std::size_t spare_ = 16;            // owned by the writer: number of spare buffers
};

}  // namespace curvescope
