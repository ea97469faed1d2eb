// Tests of the C boundary and of recording through the public NVTX headers. Prints each failed check.
#include <dirent.h>
#include <nvtx3/nvToolsExt.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "chunk_format.h"
#include "curvescope/collector.h"

namespace {

int failures = 0;

void check(bool holds, const char* what) {
  if (!holds) {
    std::fprintf(stderr, "failed: %s\n", what);
    ++failures;
  }
}

std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void clock_lies_between_two_readings_of_the_monotonic_clock() {
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t before = monotonic_ns();
    const std::int64_t read = curvescope_clock_ns();
    const std::int64_t after = monotonic_ns();
    check(before <= read && read <= after, "before <= curvescope_clock_ns() <= after");
  }
}

using curvescope::ChunkHeader;
using curvescope::ChunkKind;
using curvescope::Event;
using curvescope::EventKind;

struct Counts {
  std::uint64_t pushes = 0;
  std::uint64_t pops = 0;
  std::uint64_t unmatched_pops = 0;
  std::uint64_t lost = 0;
  int files = 0;
};

void count_file(const std::string& path, Counts* counts) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::uint64_t lost = 0;
  std::size_t at = 0;
  while (at + sizeof(ChunkHeader) <= bytes.size()) {
    ChunkHeader header{};
    bytes.copy(reinterpret_cast<char*>(&header), sizeof(header), at);
    at += sizeof(header);
    check(header.magic == curvescope::kChunkMagic, "each chunk follows the one before");
    if (header.magic != curvescope::kChunkMagic || at + header.payload_bytes > bytes.size()) break;
    check(curvescope::crc32(bytes.data() + at, header.payload_bytes) == header.payload_crc, "payload's CRC");
    if (header.kind == static_cast<std::uint16_t>(ChunkKind::kEvents)) {
      for (std::size_t i = 0; i < header.payload_bytes; i += sizeof(Event)) {
        Event event{};
        bytes.copy(reinterpret_cast<char*>(&event), sizeof(event), at + i);
        counts->pushes += event.kind == EventKind::kPush;
        counts->pops += event.kind == EventKind::kPop;
        counts->unmatched_pops += event.kind == EventKind::kPopUnmatched;
      }
    } else if (header.kind == static_cast<std::uint16_t>(ChunkKind::kLost)) {
      curvescope::LostCounts read{};
      bytes.copy(reinterpret_cast<char*>(&read), sizeof(read), at);
      lost = read.events + read.writes;
    }
    at += header.payload_bytes;
  }
  check(at == bytes.size(), "nothing torn after a normal exit");
  counts->lost += lost;
  ++counts->files;
}

// A child, so that its exit flushes; four threads push as fast as they can, while the process forks.
void every_range_is_recorded_or_counted_as_lost() {
  constexpr int kThreads = 4;
  constexpr std::uint64_t kRanges = 50'000;
  char folder[] = "/tmp/curvescope-test-XXXXXX";
  check(mkdtemp(folder) != nullptr, "a folder for the chunks");
  const pid_t child = fork();
  if (child == 0) {
    setenv("NVTX_INJECTION64_PATH", CURVESCOPE_LIBRARY, 1);
    setenv("CURVESCOPE_CHUNK_FOLDER", folder, 1);
    const nvtxDomainHandle_t domain = nvtxDomainCreateA("domain");
    const auto work = [domain] {
      for (std::uint64_t i = 0; i < kRanges; i += 2) {
        nvtxRangePushA("outer");
        nvtxRangePushW(L"\u00e4\u20ac");
        nvtxRangePop();
        nvtxRangePop();
        nvtxDomainRangePop(domain);
      }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back(work);
    const pid_t forked = fork();
    if (forked == 0) {
      nvtxRangePushA("forked");
      nvtxRangePop();
      std::exit(0);
    }
    for (std::thread& thread : threads) thread.join();
    int status = 1;
    waitpid(forked, &status, 0);
    std::exit(status == 0 ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  check(status == 0, "recording process and its fork end well");
  Counts counts;
  DIR* entries = opendir(folder);
  while (const dirent* entry = readdir(entries)) {
    if (entry->d_name[0] == '.') continue;
    const std::string path = std::string(folder) + "/" + entry->d_name;
    count_file(path, &counts);
    unlink(path.c_str());
  }
  closedir(entries);
  rmdir(folder);
  check(counts.files == 2, "one file for each process");
  check(counts.pushes > 1, "ranges are recorded");
  check(counts.pushes == counts.pops, "a range is recorded whole or not at all");
  check(counts.pushes + counts.unmatched_pops + counts.lost == kThreads * kRanges * 3 / 2 + 1,
        "every range and unmatched pop is recorded or counted");
}

}  // namespace

int main() {
  every_range_is_recorded_or_counted_as_lost();
  clock_lies_between_two_readings_of_the_monotonic_clock();
  std::printf("native: %s\n", failures == 0 ? "all checks hold" : "checks failed");
  return failures == 0 ? 0 : 1;
}
