// Passes one thread's events to the writer: a ring with one producer and one consumer, wait-free. It lies in memory
// that outlives the process: an event is in it once `head` is stored, and out of it once it is in the chunk file.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "chunk_format.h"
#include "shared_memory.h"

namespace curvescope {

struct RingBlock {
  static constexpr std::size_t kCapacity = 16384;  // 768 KiB: 8 ms of a thread that pushes every microsecond

  BlockHeader header;
  std::uint64_t id;  // of the ring in this process
  std::int64_t thread;
  alignas(64) SharedCount head{0};  // events from the start; the event at position n lies at n % kCapacity
  SharedCount begun[2] = {};        // pushes, starts and marks among the first `head` events, at head % 2
  alignas(64) SharedCount tail{0};  // events that were written or counted as unwritten
  alignas(64) Event events[kCapacity];
};
static_assert(offsetof(RingBlock, head) == 64 && offsetof(RingBlock, tail) == 128 &&
              offsetof(RingBlock, events) == 192);

class EventRing {
 public:
  // In shared memory, if there is a block of it.
  EventRing(std::uint64_t id, std::int64_t thread, RingBlock* shared)
      : own_(shared != nullptr ? nullptr : new RingBlock), block_(shared != nullptr ? shared : own_.get()) {
    block_->id = id;
    block_->thread = thread;
  }
  EventRing(const EventRing&) = delete;
  EventRing& operator=(const EventRing&) = delete;
  ~EventRing() {
    if (own_ == nullptr) SharedMemory::release(&block_->header);
  }

  std::uint64_t id() const noexcept { return block_->id; }
  std::int64_t thread() const noexcept { return block_->thread; }
  bool is_shared() const noexcept { return own_ == nullptr; }
  // Consumer, once the thread has ended: the pushes, starts and marks that it began, which no longer count here.
  std::uint64_t take_begun() noexcept {
    const std::uint64_t begun = block_->begun[block_->head.load(std::memory_order_acquire) % 2].exchange(0);
    for (SharedCount& one : block_->begun) one.store(0, std::memory_order_relaxed);
    return begun;
  }

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
    if (depth.dropped != 0 || !has_room(reserved_ + 2)) {
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
    if (!has_room(reserved_ + 1)) return false;
    append(event);
    return true;
  }

  // Producer, after an event: the ring is at least half full, which it says again after each eighth.
  bool half_full() noexcept {
    constexpr std::size_t kHalf = RingBlock::kCapacity / 2;
    if (head_ < check_at_) return false;
    tail_ = block_->tail.load(std::memory_order_acquire);
    const bool full = head_ - tail_ >= kHalf;
    check_at_ = full ? head_ + RingBlock::kCapacity / 8 : tail_ + kHalf;
    return full;
  }

  // Consumer: number of events in the ring.
  std::size_t held() const noexcept {
    return block_->head.load(std::memory_order_acquire) - block_->tail.load(std::memory_order_relaxed);
  }

  // Events that lie together, the first at position `first`.
  struct Piece {
    std::uint64_t first;
    std::size_t count;
    const Event* events;
  };

  // Consumer: the oldest events, up to `most`; they stay until the release, which makes room.
  Piece oldest(std::size_t most) const noexcept {
    const std::uint64_t first = block_->tail.load(std::memory_order_relaxed);
    const std::size_t at = first % RingBlock::kCapacity;
    const std::uint64_t held = block_->head.load(std::memory_order_acquire) - first;
    return {first, std::min<std::size_t>({held, most, RingBlock::kCapacity - at}), &block_->events[at]};
  }
  void release(const Piece& piece) noexcept {
    block_->tail.store(piece.first + piece.count, std::memory_order_release);
  }

  std::atomic<bool> finished{false};  // its thread has ended: free the ring once it is empty

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

  bool has_room(std::size_t events) noexcept {
    if (RingBlock::kCapacity - (head_ - tail_) >= events) return true;
    tail_ = block_->tail.load(std::memory_order_acquire);
    return RingBlock::kCapacity - (head_ - tail_) >= events;
  }

  void append(const Event& event) noexcept {
    block_->events[head_ % RingBlock::kCapacity] = event;
    // The other of the two counts, so that head and count change at once however the process ends. After the last head:
    // who reads a running process sees no count that is two positions ahead of it.
    begun_ += begins(event.kind) ? 1 : 0;
    block_->begun[++head_ % 2].store(begun_, std::memory_order_release);
    block_->head.store(head_, std::memory_order_release);
  }

  std::unique_ptr<RingBlock> own_;
  RingBlock* block_;
  // The producer's own: the counts that it stores, and the tail as it last saw it.
  std::uint64_t begun_ = 0;
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
  std::uint64_t check_at_ = RingBlock::kCapacity / 2;
  std::uint64_t recording_ = 0;
  std::size_t reserved_ = 0;
  std::vector<Depth> depths_;
};

}  // namespace curvescope
