#include "raw_buffers.h"

#include <sys/stat.h>

#include <cstdlib>
#include <vector>

namespace curvescope {

namespace {
constexpr char kVariable[] = "CURVESCOPE_RAW_BUFFERS";
}

std::unique_ptr<RawBuffers> RawBuffers::from_environment() noexcept try {
  const char* folder = std::getenv(kVariable);
  if (folder == nullptr || *folder == 0) return nullptr;
  mkdir(folder, 0777);
  return std::make_unique<RawBuffers>(folder);
} catch (...) {
  return nullptr;
}

bool RawBuffers::save(const CuptiApi& api, std::uint32_t cupti_version, std::uint8_t* buffer,
                      std::size_t bytes) noexcept try {
  if (bytes == 0 || saved_bytes_ + bytes > kMostBytes) return true;
  std::vector<std::uint32_t> offsets;
  CUpti_Activity* record = nullptr;
  while (api.ActivityGetNextRecord(buffer, bytes, &record) == CUPTI_SUCCESS) {
    offsets.push_back(static_cast<std::uint32_t>(reinterpret_cast<std::uint8_t*>(record) - buffer));
    see(api, record);
  }
  writer_.write_table(&texts_);
  writer_.write_table(&calls_);
  const RawHeader header{cupti_version, static_cast<std::uint32_t>(offsets.size()), bytes};
  offsets.resize((offsets.size() + 1) / 2 * 2);  // padded to 8 bytes
  std::string payload(reinterpret_cast<const char*>(&header), sizeof(header));
  payload.append(reinterpret_cast<const char*>(offsets.data()), offsets.size() * sizeof(offsets[0]));
  payload.append(reinterpret_cast<const char*>(buffer), bytes);
  saved_bytes_ += bytes;
  return writer_.write_raw(payload.data(), payload.size());
} catch (...) {
  return false;
}

void RawBuffers::see(const CuptiApi& api, const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return see_name(reinterpret_cast<const CUpti_ActivityKernel5*>(record)->name);
    case CUPTI_ACTIVITY_KIND_DEVICE:
      return see_name(reinterpret_cast<const CUpti_ActivityDevice2*>(record)->name);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
      return see_call(api, CUPTI_CB_DOMAIN_RUNTIME_API, reinterpret_cast<const CUpti_ActivityAPI*>(record)->cbid);
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return see_call(api, CUPTI_CB_DOMAIN_DRIVER_API, reinterpret_cast<const CUpti_ActivityAPI*>(record)->cbid);
    default:
      return;
  }
}

void RawBuffers::see_name(const char* name) {
  const auto address = reinterpret_cast<std::uintptr_t>(name);
  if (name == nullptr || !seen_.insert(address).second) return;
  if (texts_.full()) writer_.write_table(&texts_);
  texts_.append(std::array<std::uint64_t, 2>{address, names_.intern(name)});
}

void RawBuffers::see_call(const CuptiApi& api, CUpti_CallbackDomain domain, std::uint32_t id) {
  const std::uint64_t is_driver = domain == CUPTI_CB_DOMAIN_DRIVER_API ? 1 : 0;
  // No text lies in the first page or below: calls and addresses cannot be mistaken for each other.
  if (id >= 2048 || !seen_.insert(id * 2U + is_driver).second) return;
  const char* name = nullptr;
  if (api.GetCallbackName(domain, id, &name) != CUPTI_SUCCESS || name == nullptr) return;
  if (calls_.full()) writer_.write_table(&calls_);
  calls_.append(std::array<std::uint64_t, 3>{is_driver, id, names_.intern(name)});
}

}  // namespace curvescope
