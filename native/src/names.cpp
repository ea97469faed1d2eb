#include "names.h"

namespace curvescope {

namespace {
constexpr std::size_t kMostTexts = std::size_t{1} << 20;
constexpr std::size_t kMostBytes = std::size_t{64} << 20;

bool keep(SharedLog* log, std::string_view text) noexcept {
  const auto bytes = static_cast<std::uint32_t>(text.size());
  return log->append(&bytes, sizeof(bytes), text.data(), text.size());
}
}  // namespace

Names::Names() {
  intern("");
  intern("(name not recorded)");
}

std::uint32_t Names::intern(std::string_view text) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto found = ids_.find(text); found != ids_.end()) return found->second;
  if (texts_.size() >= kMostTexts || bytes_ + text.size() > kMostBytes) return kDropped;
  const auto id = static_cast<std::uint32_t>(texts_.size());
  texts_.emplace_back(text);
  try {
    ids_.emplace(texts_.back(), id);
  } catch (...) {
    texts_.pop_back();
    throw;
  }
  bytes_ += text.size();
  size_.store(id + 1, std::memory_order_release);
  if (log_ != nullptr) keep(log_, text);  // before an event can have the id
  return id;
}

bool Names::keep_in(SharedLog* log) {
  const std::lock_guard<std::mutex> lock(mutex);
  log_ = log;
  for (const std::string& text : texts_) {
    if (!keep(log, text)) return false;
  }
  return true;
}

std::uint32_t Names::append_since(std::uint32_t first, std::string* out) {
  const std::lock_guard<std::mutex> lock(mutex);
  for (std::size_t id = first; id < texts_.size(); ++id) {
    const std::string& text = texts_[id];
    const auto bytes = static_cast<std::uint32_t>(text.size());
    out->append(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
    out->append(text);
  }
  return static_cast<std::uint32_t>(texts_.size());
}

}  // namespace curvescope
