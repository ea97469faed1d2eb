// Passes one thread's events to the writer: a ring with one producer and one consumer, wait-free.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "chunk_format.h"
#include "shared_counts.h"

namespace curvescope {

class EventRing {
 public:
  static constexpr std::size_t kCapacity = 16384;  // 768 KiB: 8 ms of a thread that pushes every microsecond

  // Counts begun events in `begun` as its only writer; in a member of its own if that is null.
  explicit EventRing(std::int64_t thread, SharedCount* begun = nullptr)
      : events_(new Event[kCapacity]), thread_(thread), begun_(begun != nullptr ? begun : &own_begun_) {}

  std::int64_t thread() const noexcept { return thread_; }
  const SharedCount* begun() const noexcept { return begun_; }

  // Producer, first: ranges left open by an earlier recording do not belong to this one.
  void enter(std::uint64_t recording) noexcept {
    if (recording == recording_) return;
    recording_ = recording;
    reserved_ = 0;
    depths_.clear();
  }

  // Producer. A push is accepted only if its pop has room too, so that ranges are dropped completely: the pushes inside
  // it and all their pops are dropped too. Returns false if dropped; the caller counts it.
  bool push(const Event& event) {
    Depth& depth = depth_of(event.domain);
    if (depth.dropped != 0 || free() < reserved_ + 2) {
      ++depth.dropped;
      return false;
    }
    ++depth.open;
    ++reserved_;
    append(event);
    return true;
  }

  bool pop(Event event) {
    Depth& depth = depth_of(event.domain);
    if (depth.dropped != 0) {
      --depth.dropped;
      return true;  // its push was counted
    }
    if (depth.open == 0) {
      event.kind = EventKind::kPopUnmatched;
      return mark(event);
    }
    --depth.open;
    --reserved_;
    append(event);
    return true;
  }

  bool mark(const Event& event) noexcept {
    if (free() < reserved_ + 1) return false;
    append(event);
    return true;
  }

  bool half_full() const noexcept { return kCapacity - free() == kCapacity / 2; }

  // Consumer: takes all events.
  void take(std::vector<Event>* out) {
    const std::size_t head = head_.load(std::memory_order_acquire);
    std::size_t tail = tail_.load(std::memory_order_relaxed);
    out->reserve(out->size() + (head - tail));
    for (; tail != head; ++tail) out->push_back(events_[tail % kCapacity]);
    tail_.store(tail, std::memory_order_release);
  }

  std::atomic<bool> finished{false};  // its thread has ended: free the ring after the next take

 private:
  struct Depth {
    std::uint32_t domain;
    std::size_t open;
    std::size_t dropped;
  };

  // A thread uses few domains, so a scan is the fastest map.
  Depth& depth_of(std::uint32_t domain) {
    for (Depth& depth : depths_) {
      if (depth.domain == domain) return depth;
    }
    return depths_.emplace_back(Depth{domain, 0, 0});
  }

  std::size_t free() const noexcept {
    return kCapacity - (head_.load(std::memory_order_relaxed) - tail_.load(std::memory_order_acquire));
  }

  void append(const Event& event) noexcept {
    // Counted before the event can be taken, so that never more events are written than were begun.
    if (begins(event.kind)) begun_->store(begun_->load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    const std::size_t head = head_.load(std::memory_order_relaxed);
    events_[head % kCapacity] = event;
    head_.store(head + 1, std::memory_order_release);
  }

  std::unique_ptr<Event[]> events_;
  std::int64_t thread_;
  SharedCount own_begun_{0};
  SharedCount* begun_;
  std::uint64_t recording_ = 0;
  std::size_t reserved_ = 0;
  std::vector<Depth> depths_;
  alignas(64) std::atomic<std::size_t> head_{0};
  alignas(64) std::atomic<std::size_t> tail_{0};
};

}  // namespace curvescope
