// Interned strings of the process: each text has one id, which is kept over fork.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "shared_memory.h"

namespace curvescope {

class Names {
 public:
  static constexpr std::uint32_t kEmpty = 0;
  static constexpr std::uint32_t kDropped = 1;  // id of every name beyond the limits

  Names();

  // The id of the text; kDropped once a million texts or 64 MiB are held. May throw std::bad_alloc.
  std::uint32_t intern(std::string_view text);

  // Appends the texts from id `first` on, each after its uint32 length; returns the id after the last.
  std::uint32_t append_since(std::uint32_t first, std::string* out);

  // Number of texts, without waiting for the threads that add some.
  std::uint32_t size() const noexcept { return size_.load(std::memory_order_acquire); }

  // Keeps the texts, those of now and later, in the log too. Returns false if it has no memory.
  bool keep_in(SharedLog* log);

  // In a forked child: the log is the parent's.
  void forget_log() noexcept { log_ = nullptr; }

  // Locked during fork, so that the child's table is consistent.
  std::mutex mutex;

 private:
  std::deque<std::string> texts_;  // never moves its elements: the keys below point into them
  std::unordered_map<std::string_view, std::uint32_t> ids_;
  std::atomic<std::uint32_t> size_{0};
  std::size_t bytes_ = 0;
  SharedLog* log_ = nullptr;
};

}  // namespace curvescope
