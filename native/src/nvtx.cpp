// NVTX's injection: the NVTX headers in a program load this library and ask it to fill in their table of functions.
#include <atomic>
#include <cstdint>
#include <string>

#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>

#include "curvescope/collector.h"
#include "names.h"
#include "recorder.h"

namespace {

using curvescope::Event;
using curvescope::EventKind;
using curvescope::recorder::intern;
using curvescope::recorder::name_number;
using curvescope::recorder::record;

std::uint32_t intern_text(const char* text) noexcept { return intern(text == nullptr ? "" : text); }

// A wchar_t is one code point on Linux.
std::uint32_t intern_wide(const wchar_t* text) noexcept try {
  std::string utf8;
  for (; text != nullptr && *text != 0; ++text) {
    const auto point = static_cast<std::uint32_t>(*text);
    const int more = point < 0x80 ? 0 : point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    constexpr std::uint32_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
    utf8 += static_cast<char>(kLead[more] | (point >> (6 * more)));
    for (int shift = 6 * (more - 1); shift >= 0; shift -= 6)
      utf8 += static_cast<char>(0x80 | ((point >> shift) & 0x3F));
  }
  return intern(utf8);
} catch (...) {
  return curvescope::Names::kDropped;
}

// Handles of domains and registered strings are the ids of their texts.
template <typename Handle>
Handle to_handle(std::uint32_t id) noexcept {
  return reinterpret_cast<Handle>(static_cast<std::uintptr_t>(id));
}

template <typename Handle>
std::uint32_t to_id(Handle handle) noexcept {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(handle));
}

Event plain(EventKind kind, std::uint32_t name, std::uint32_t domain) noexcept {
  return {0, 0, 0, kind, 0, 0, name, domain, 0, 0, 0};
}

Event described(EventKind kind, nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) noexcept {
  Event event = plain(kind, curvescope::Names::kEmpty, to_id(domain));
  if (attributes == nullptr) return event;
  switch (attributes->messageType) {
    case NVTX_MESSAGE_TYPE_ASCII:
      event.name = intern_text(attributes->message.ascii);
      break;
    case NVTX_MESSAGE_TYPE_UNICODE:
      event.name = intern_wide(attributes->message.unicode);
      break;
    case NVTX_MESSAGE_TYPE_REGISTERED:
      event.name = to_id(attributes->message.registered);
      break;
    default:
      break;
  }
  if (attributes->colorType == NVTX_COLOR_ARGB) {
    event.color_argb = attributes->color;
    event.has_color = 1;
  }
  event.category = attributes->category;
  if (attributes->payloadType > 0 && attributes->payloadType <= NVTX_PAYLOAD_TYPE_FLOAT) {
    event.payload = attributes->payload.ullValue;
    event.payload_type = static_cast<std::uint8_t>(attributes->payloadType);
  }
  return event;
}

// The time of a push is read last and that of a pop first, so that a range holds little of its own recording.
int record_now(Event event) noexcept {
  event.time_ns = curvescope_clock_ns();
  record(event);
  return NVTX_NO_PUSH_POP_TRACKING;  // the program does not get depths
}

// Ids of start/end ranges, never 0: that is what a program gets for a start that had no room, and its end is nothing.
nvtxRangeId_t start_now(Event event) noexcept {
  static std::atomic<std::uint64_t> last{0};
  event.range = ++last;
  event.time_ns = curvescope_clock_ns();
  return record(event) ? event.range : 0;
}

void end_now(nvtxRangeId_t range) noexcept {
  if (range == 0) return;
  Event event = plain(EventKind::kEnd, 0, 0);
  event.range = range;
  record_now(event);
}

using Attributes = const nvtxEventAttributes_t*;
using Domain = nvtxDomainHandle_t;

void domain_mark(Domain d, Attributes a) { record_now(described(EventKind::kMark, d, a)); }
int domain_push(Domain d, Attributes a) { return record_now(described(EventKind::kPush, d, a)); }
int domain_pop(Domain d) { return record_now(plain(EventKind::kPop, 0, to_id(d))); }
nvtxRangeId_t domain_start(Domain d, Attributes a) { return start_now(described(EventKind::kStart, d, a)); }
void domain_end(Domain, nvtxRangeId_t range) { end_now(range); }
void mark_ex(Attributes a) { domain_mark(nullptr, a); }
int push_ex(Attributes a) { return domain_push(nullptr, a); }
int pop() { return domain_pop(nullptr); }
nvtxRangeId_t start_ex(Attributes a) { return domain_start(nullptr, a); }
void end(nvtxRangeId_t range) { end_now(range); }
void mark_a(const char* text) { record_now(plain(EventKind::kMark, intern_text(text), 0)); }
void mark_w(const wchar_t* text) { record_now(plain(EventKind::kMark, intern_wide(text), 0)); }
int push_a(const char* text) { return record_now(plain(EventKind::kPush, intern_text(text), 0)); }
int push_w(const wchar_t* text) { return record_now(plain(EventKind::kPush, intern_wide(text), 0)); }
nvtxRangeId_t start_a(const char* text) { return start_now(plain(EventKind::kStart, intern_text(text), 0)); }
nvtxRangeId_t start_w(const wchar_t* text) { return start_now(plain(EventKind::kStart, intern_wide(text), 0)); }
Domain create_a(const char* text) { return to_handle<Domain>(intern_text(text)); }
Domain create_w(const wchar_t* text) { return to_handle<Domain>(intern_wide(text)); }
nvtxStringHandle_t register_a(Domain, const char* text) { return to_handle<nvtxStringHandle_t>(intern_text(text)); }
nvtxStringHandle_t register_w(Domain, const wchar_t* text) { return to_handle<nvtxStringHandle_t>(intern_wide(text)); }
void category_a(std::uint32_t number, const char* text) { name_number("category", 0, number, intern_text(text)); }
void category_w(std::uint32_t number, const wchar_t* text) { name_number("category", 0, number, intern_wide(text)); }
void domain_category_a(Domain d, std::uint32_t number, const char* text) {
  name_number("category", to_id(d), number, intern_text(text));
}
void domain_category_w(Domain d, std::uint32_t number, const wchar_t* text) {
  name_number("category", to_id(d), number, intern_wide(text));
}
void thread_a(std::uint32_t thread, const char* text) { name_number("thread", 0, thread, intern_text(text)); }
void thread_w(std::uint32_t thread, const wchar_t* text) { name_number("thread", 0, thread, intern_wide(text)); }

template <typename Function>
void set(NvtxFunctionTable table, unsigned int size, unsigned int id, Function function) noexcept {
  if (id < size && table[id] != nullptr) *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

CURVESCOPE_API int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) noexcept {
  if (get_table == nullptr) return 0;
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  if (callbacks == nullptr || callbacks->struct_size < sizeof(*callbacks)) return 0;
  NvtxFunctionTable core = nullptr;
  NvtxFunctionTable core2 = nullptr;
  unsigned int core_size = 0;
  unsigned int core2_size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &core, &core_size) == 0 ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &core2, &core2_size) == 0 ||
      !(curvescope::recorder::start_injected() || curvescope::recorder::is_prepared())) {
    return 0;
  }
  set(core, core_size, NVTX_CBID_CORE_MarkEx, mark_ex);
  set(core, core_size, NVTX_CBID_CORE_MarkA, mark_a);
  set(core, core_size, NVTX_CBID_CORE_MarkW, mark_w);
  set(core, core_size, NVTX_CBID_CORE_RangePushEx, push_ex);
  set(core, core_size, NVTX_CBID_CORE_RangePushA, push_a);
  set(core, core_size, NVTX_CBID_CORE_RangePushW, push_w);
  set(core, core_size, NVTX_CBID_CORE_RangePop, pop);
  set(core, core_size, NVTX_CBID_CORE_RangeStartEx, start_ex);
  set(core, core_size, NVTX_CBID_CORE_RangeStartA, start_a);
  set(core, core_size, NVTX_CBID_CORE_RangeStartW, start_w);
  set(core, core_size, NVTX_CBID_CORE_RangeEnd, end);
  set(core, core_size, NVTX_CBID_CORE_NameCategoryA, category_a);
  set(core, core_size, NVTX_CBID_CORE_NameCategoryW, category_w);
  set(core, core_size, NVTX_CBID_CORE_NameOsThreadA, thread_a);
  set(core, core_size, NVTX_CBID_CORE_NameOsThreadW, thread_w);
  set(core2, core2_size, NVTX_CBID_CORE2_DomainMarkEx, domain_mark);
  set(core2, core2_size, NVTX_CBID_CORE2_DomainRangePushEx, domain_push);
  set(core2, core2_size, NVTX_CBID_CORE2_DomainRangePop, domain_pop);
  set(core2, core2_size, NVTX_CBID_CORE2_DomainRangeStartEx, domain_start);
  set(core2, core2_size, NVTX_CBID_CORE2_DomainRangeEnd, domain_end);
  set(core2, core2_size, NVTX_CBID_CORE2_DomainNameCategoryA, domain_category_a);
  set(core2, core2_size, NVTX_CBID_CORE2_DomainNameCategoryW, domain_category_w);
  set(core2, core2_size, NVTX_CBID_CORE2_DomainRegisterStringA, register_a);
  set(core2, core2_size, NVTX_CBID_CORE2_DomainRegisterStringW, register_w);
  set(core2, core2_size, NVTX_CBID_CORE2_DomainCreateA, create_a);
  set(core2, core2_size, NVTX_CBID_CORE2_DomainCreateW, create_w);
  return 1;
}
