// The chunk file, one per process: chunks after chunks, each whole by itself and checked by its CRC-32 (zlib's).
// profiling/recorders/nvtx_chunks.py reads it; a change here is a new kChunkVersion.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace curvescope {

constexpr std::uint32_t kChunkMagic = 0x4b435643;  // "CVCK" in the file's little-endian bytes
constexpr std::uint16_t kChunkVersion = 1;

enum class ChunkKind : std::uint16_t {
  kStrings = 1,  // repeated: uint32 bytes, then that many of UTF-8; ids count on from 0 over the file's chunks
  kEvents = 2,   // repeated: Event, all of one thread, in order
  kLost = 3,     // one LostCounts, counted since the process began: the last chunk holds
};

struct ChunkHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t kind;
  std::uint64_t payload_bytes;
  std::int64_t process;
  std::int64_t thread;  // 0 but in kEvents
  std::uint32_t payload_crc;
  std::uint32_t header_crc;  // of the bytes before it
};
static_assert(sizeof(ChunkHeader) == 40);

enum class EventKind : std::uint32_t {
  kPush = 1,
  kPop = 2,
  kMark = 3,
  kPopUnmatched = 4,  // a pop whose push this process did not record
};

struct Event {
  std::int64_t time_ns;  // CLOCK_MONOTONIC
  EventKind kind;
  std::uint32_t name;    // string id
  std::uint32_t domain;  // string id; 0 for the default domain
  std::uint32_t color_argb;
  std::uint32_t has_color;
  std::uint32_t reserved;
};
static_assert(sizeof(Event) == 32);

struct LostCounts {
  std::uint64_t events;  // pushes (each with its pop) and marks for which there was no room
  std::uint64_t names;   // events whose name was dropped
  std::uint64_t writes;  // events that the disk did not take
};

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1U) != 0 ? 0xEDB88320U : 0U);
    table[i] = value;
  }
  return table;
}

inline std::uint32_t crc32(const void* data, std::size_t bytes) noexcept {
  static constexpr auto kTable = make_crc_table();
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint32_t crc = ~0U;
  for (std::size_t i = 0; i < bytes; ++i) crc = (crc >> 8) ^ kTable[(crc ^ at[i]) & 0xFFU];
  return ~crc;
}

}  // namespace curvescope
