// The chunk file, one per process and recording: a sequence of self-contained chunks, each checked by its CRC-32
// (zlib's). profiling/collect/chunks.py reads it; a change here is a new kChunkVersion.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace curvescope {

constexpr std::uint32_t kChunkMagic = 0x4b435643;  // "CVCK" in the file's little-endian bytes
//   1  NVTX push/pop and marks
//   2  tables by column, start/end ranges, categories and payloads
//   3  unparsed CUPTI buffers
//   4  positions of strings, events and numbers, so that nothing is read twice
constexpr std::uint16_t kChunkVersion = 4;

enum class ChunkKind : std::uint16_t {
  kStrings = 1,  // repeated: uint32 bytes, then that many of UTF-8; `first` is the id of the first
  kEvents = 2,   // EventsHeader, repeated: Event, all of one thread, in order; `first` counts the events of the ring
  kLost = 3,     // one LostCounts, counted from the start of the recording: the last chunk counts
  kTable = 4,    // TableHeader, its ColumnHeaders, then the values of each column, each column padded to 8 bytes
  kRaw = 5,      // RawHeader, uint32 offset of each record, padded to 8 bytes, then the buffer
  kNumbers = 6,  // repeated: Number; `first` counts them
};

struct ChunkHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t kind;
  std::uint64_t payload_bytes;
  std::int64_t process;
  std::uint64_t first;  // position of the first item among all of its kind; 0 for kLost, kTable and kRaw
  std::uint32_t payload_crc;
  std::uint32_t header_crc;  // of the bytes before it
};
static_assert(sizeof(ChunkHeader) == 40);

enum class EventKind : std::uint16_t {
  kPush = 1,
  kPop = 2,
  kMark = 3,
  kPopUnmatched = 4,  // a pop whose push was not recorded
  kStart = 5,
  kEnd = 6,  // end of the start with the same range id, in any thread
};

// Whether the event begins a range or is a mark; lost events are counted in these.
constexpr bool begins(EventKind kind) noexcept {
  return kind == EventKind::kPush || kind == EventKind::kMark || kind == EventKind::kStart;
}

struct Event {
  std::int64_t time_ns;   // CLOCK_MONOTONIC
  std::uint64_t payload;  // bits of the payload, by payload_type
  std::uint64_t range;    // id of a start/end range
  EventKind kind;
  std::uint8_t payload_type;  // NVTX's number; 0 for none
  std::uint8_t has_color;
  std::uint32_t name;    // string id
  std::uint32_t domain;  // string id; 0 for the default domain
  std::uint32_t category;
  std::uint32_t color_argb;
  std::uint32_t reserved;
};
static_assert(sizeof(Event) == 48);

// The events of a ring belong to one thread.
struct EventsHeader {
  std::uint64_t ring;  // number in the process
  std::int64_t thread;
};
static_assert(sizeof(EventsHeader) == 16);

// The name of a number: a category of a domain, or a thread id.
struct Number {
  std::uint64_t what;    // string id: "category" or "thread"
  std::uint64_t domain;  // string id
  std::uint64_t number;
  std::uint64_t name;  // string id
};
static_assert(sizeof(Number) == 32);

struct LostCounts {
  std::uint64_t events;  // pushes and starts (each with its end) and marks dropped for lack of room
  std::uint64_t names;   // events with a dropped name
  std::uint64_t writes;  // pushes, starts and marks that could not be written
};

struct TableHeader {
  std::uint32_t name;  // string id
  std::uint32_t rows;
  std::uint32_t columns;
  std::uint32_t reserved;
};
static_assert(sizeof(TableHeader) == 16);

struct ColumnHeader {
  std::uint32_t name;     // string id
  std::uint16_t is_text;  // 1: values are string ids
  std::uint16_t width;    // bytes of each stored value: 0, 1, 2, 4 or 8; a value is base + stored (nothing for 0)
  std::uint64_t base;
};
static_assert(sizeof(ColumnHeader) == 16);

// Texts that the records point to are in the table `raw_names` by address, names of calls in `raw_calls` by number.
struct RawHeader {
  std::uint32_t cupti_version;
  std::uint32_t records;
  std::uint64_t bytes;
};
static_assert(sizeof(RawHeader) == 16);

// Eight tables process eight bytes per step, fast enough for ten million records per second.
constexpr std::array<std::array<std::uint32_t, 256>, 8> make_crc_tables() {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1U) != 0 ? 0xEDB88320U : 0U);
    tables[0][i] = value;
  }
  for (std::size_t t = 1; t < 8; ++t) {
    for (std::size_t i = 0; i < 256; ++i) {
      const std::uint32_t before = tables[t - 1][i];
      tables[t][i] = (before >> 8) ^ tables[0][before & 0xFFU];
    }
  }
  return tables;
}

// Of the data, after other data of that CRC.
inline std::uint32_t crc32(const void* data, std::size_t bytes, std::uint32_t before = 0) noexcept {
  static constexpr auto kTables = make_crc_tables();
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint32_t crc = ~before;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof(word));  // little-endian, like every machine with CUDA
    word ^= crc;
    crc = kTables[7][word & 0xFFU] ^ kTables[6][(word >> 8) & 0xFFU] ^ kTables[5][(word >> 16) & 0xFFU] ^
          kTables[4][(word >> 24) & 0xFFU] ^ kTables[3][(word >> 32) & 0xFFU] ^ kTables[2][(word >> 40) & 0xFFU] ^
          kTables[1][(word >> 48) & 0xFFU] ^ kTables[0][word >> 56];
  }
  for (std::size_t i = 0; i < bytes; ++i) crc = (crc >> 8) ^ kTables[0][(crc ^ at[i]) & 0xFFU];
  return ~crc;
}

}  // namespace curvescope
