#include "facts.h"

#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "columns.h"

namespace curvescope::facts {
namespace {

struct Facts {
  std::mutex mutex;
  std::vector<std::pair<std::string, std::string>> waiting;  // key and value
};

std::atomic<Facts*> facts{nullptr};  // never freed; null in a child without memory

}  // namespace

void prepare() {
  if (facts == nullptr) facts = new Facts;
}

void add(const char* key, const std::string& value) {
  Facts* all = facts;
  if (all == nullptr) return;
  const std::lock_guard<std::mutex> lock(all->mutex);
  all->waiting.emplace_back(key, value);
}

void write(ChunkWriter* writer) noexcept try {
  Facts* all = facts;
  if (all == nullptr) return;
  std::vector<std::pair<std::string, std::string>> taken;
  {
    const std::lock_guard<std::mutex> lock(all->mutex);
    taken.swap(all->waiting);
  }
  if (taken.empty()) return;
  Columns table("facts", {{"key", true}, {"value", true}});
  for (const auto& [key, value] : taken) {
    if (!table.full())
      table.append(std::array<std::uint64_t, 2>{writer->names()->intern(key), writer->names()->intern(value)});
  }
  writer->write_table(&table);
} catch (...) {
  writer->lose("facts", 1);
}

void abandon() noexcept { facts = new (std::nothrow) Facts; }

}  // namespace curvescope::facts
