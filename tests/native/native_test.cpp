// Tests of the C boundary and of recording through the public NVTX headers and a test double of libcupti, under load,
// with forks and exits in between. Prints each failed check. Its use is under sanitizers: run_sanitized.sh.
#include <dirent.h>
#include <fcntl.h>
#include <nvtx3/nvToolsExt.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "activity_buffers.h"
#include "chunk_format.h"
#include "curvescope/collector.h"
#include "event_ring.h"
#include "fake_cupti.h"

extern "C" int cuInit(unsigned int);

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
  std::map<std::string, std::uint64_t> rows;  // of each table
  std::uint64_t dropped = 0;                  // sum of the table of losses
  bool thread_named = false;
  int files = 0;
};

std::uint64_t column_value(const char* values, const curvescope::ColumnHeader& column, std::size_t row) {
  std::uint64_t stored = 0;
  std::memcpy(&stored, values + row * column.width, column.width);
  return column.base + stored;
}

void count_table(const char* payload, const std::vector<std::string>& names, Counts* counts) {
  curvescope::TableHeader table{};
  std::memcpy(&table, payload, sizeof(table));
  const std::string& name = names.at(table.name);
  counts->rows[name] += table.rows;
  const char* values = payload + sizeof(table) + table.columns * sizeof(curvescope::ColumnHeader);
  for (std::size_t c = 0; c < table.columns; ++c) {
    curvescope::ColumnHeader column{};
    std::memcpy(&column, payload + sizeof(table) + c * sizeof(column), sizeof(column));
    for (std::size_t row = 0; row < table.rows; ++row) {
      const std::uint64_t value = column_value(values, column, row);
      if (name == "lost" && names.at(column.name) == "count") counts->dropped += value;
    }
    values += (table.rows * column.width + 7) / 8 * 8;
  }
}

void count_file(const std::string& path, Counts* counts) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::string bytes(static_cast<std::size_t>(file.tellg()), '\0');
  file.seekg(0).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  std::uint64_t lost = 0;
  std::vector<std::string> names;
  std::size_t at = 0;
  while (at + sizeof(ChunkHeader) <= bytes.size()) {
    ChunkHeader header{};
    bytes.copy(reinterpret_cast<char*>(&header), sizeof(header), at);
    at += sizeof(header);
    check(header.magic == curvescope::kChunkMagic, "each chunk follows the one before");
    if (header.magic != curvescope::kChunkMagic || at + header.payload_bytes > bytes.size()) break;
    check(curvescope::crc32(bytes.data() + at, header.payload_bytes) == header.payload_crc, "payload's CRC");
    if (header.kind == static_cast<std::uint16_t>(ChunkKind::kEvents)) {
      for (std::size_t i = sizeof(curvescope::EventsHeader); i < header.payload_bytes; i += sizeof(Event)) {
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
    } else if (header.kind == static_cast<std::uint16_t>(ChunkKind::kStrings)) {
      for (std::size_t i = 0; i < header.payload_bytes;) {
        std::uint32_t length = 0;
        std::memcpy(&length, bytes.data() + at + i, sizeof(length));
        names.push_back(bytes.substr(at + i + sizeof(length), length));
        i += sizeof(length) + length;
      }
    } else if (header.kind == static_cast<std::uint16_t>(ChunkKind::kNumbers)) {
      for (std::size_t i = 0; i < header.payload_bytes; i += sizeof(curvescope::Number)) {
        curvescope::Number number{};
        std::memcpy(&number, bytes.data() + at + i, sizeof(number));
        counts->thread_named |= names.at(number.name) == "a worker";
      }
    } else if (header.kind == static_cast<std::uint16_t>(ChunkKind::kTable)) {
      count_table(bytes.data() + at, names, counts);
    }
    at += header.payload_bytes;
  }
  check(at == bytes.size(), "nothing torn after a normal exit");
  counts->lost += lost;
  ++counts->files;
}

// Memory as the recording command offers it to the processes that write into the folder.
class Memory {
 public:
  explicit Memory(const std::string& folder) : link_(folder + "/" + curvescope::kMemoryName) {
    constexpr std::uint64_t kBytes = std::uint64_t{1} << 40;
    const std::uint64_t header[3] = {curvescope::kMemoryMagic, kBytes, curvescope::kBlockStep};
    const std::string path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file_);
    check(ftruncate(file_, kBytes) == 0 && pwrite(file_, header, sizeof(header), 0) == sizeof(header) &&
              symlink(path.c_str(), link_.c_str()) == 0,
          "shared memory");
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    unlink(link_.c_str());
    close(file_);
  }

  // What the processes began, none of which may have left an event in a ring.
  std::uint64_t begun() const {
    std::uint64_t begun = 0;
    std::uint64_t end = 0;
    check(pread(file_, &end, sizeof(end), 16) == sizeof(end), "the memory has a header");
    for (std::uint64_t at = curvescope::kBlockStep; at < end; at += curvescope::kBlockStep) {
      std::uint64_t words[24] = {};
      check(pread(file_, words, sizeof(words), static_cast<off_t>(at)) == sizeof(words), "the memory can be read");
      if (words[0] != curvescope::kBlockMagic) continue;
      if (words[1] == static_cast<std::uint64_t>(curvescope::BlockKind::kProcess)) begun += words[7];
      if (words[1] != static_cast<std::uint64_t>(curvescope::BlockKind::kRing)) continue;
      begun += words[9 + words[8] % 2];
      check(words[8] == words[16], "all events were written");
    }
    return begun;
  }

 private:
  std::string link_;
  int file_ = memfd_create("test", MFD_CLOEXEC);
};

// Reads and removes every file of a folder, and the folder.
Counts take_folder(const char* folder) {
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
  return counts;
}

// ThreadSanitizer takes no new threads in the child of a process that had some, and a child that records makes one.
#if defined(__SANITIZE_THREAD__)
constexpr bool kForkedRecord = false;
#else
constexpr bool kForkedRecord = true;
#endif

void push_and_exit() {
  if (!kForkedRecord) _exit(0);
  nvtxRangePushA("forked");
  nvtxRangePop();
  std::exit(0);
}

// A child, so that its exit flushes; four threads push as fast as they can, while the process forks.
void every_range_is_recorded_or_counted_as_lost() {
  constexpr int kThreads = 4;
  constexpr std::uint64_t kRanges = 50'000;
  char folder[] = "/tmp/curvescope-test-XXXXXX";
  check(mkdtemp(folder) != nullptr, "a folder for the chunks");
  auto memory = std::make_unique<Memory>(folder);
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
    if (forked == 0) push_and_exit();
    for (std::thread& thread : threads) thread.join();
    int status = 1;
    waitpid(forked, &status, 0);
    std::exit(status == 0 ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  check(status == 0, "recording process and its fork end well");
  const std::uint64_t begun = memory->begun();
  memory.reset();
  const Counts counts = take_folder(folder);
  check(counts.files == (kForkedRecord ? 2 : 1), "one file for each process");
  check(counts.pushes > 1, "ranges are recorded");
  check(counts.pushes == counts.pops, "a range is recorded whole or not at all");
  check(counts.pushes == begun, "what a process wrote before it ended well is all that it began");
  check(counts.pushes + counts.unmatched_pops + counts.lost == kThreads * kRanges * 3 / 2 + (kForkedRecord ? 1 : 0),
        "every range and unmatched pop is recorded or counted");
}

constexpr std::uint32_t kKernelKind = 10;
constexpr std::size_t kKernelBytes = 208;  // of CUDA 12.9
constexpr std::uint32_t kEmitting = 3;
constexpr std::uint64_t kCapturing = 2;
constexpr std::uint64_t kNodes = 20'000;    // of graphs, by each thread that captures
std::uint64_t kernels_per_thread = 60'000;  // or as the command line says

void prepare_fake(const char* folder) {
  setenv("CURVESCOPE_CUPTI", FAKE_CUPTI, 1);
  setenv("CUDA_INJECTION64_PATH", CURVESCOPE_LIBRARY, 1);
  setenv("NVTX_INJECTION64_PATH", CURVESCOPE_LIBRARY, 1);
  if (folder != nullptr) setenv("CURVESCOPE_CHUNK_FOLDER", folder, 1);
  fake_set_record_bytes(kKernelKind, kKernelBytes);
}

// Kernels from three threads, ranges from a fourth and nodes of graphs from two more, while the process forks and its
// children exit.
void every_kernel_is_recorded_or_counted_as_dropped() {
  char folder[] = "/tmp/curvescope-test-XXXXXX";
  char raw_folder[] = "/tmp/curvescope-test-raw-XXXXXX";
  check(mkdtemp(folder) != nullptr && mkdtemp(raw_folder) != nullptr, "folders for chunks and raw buffers");
  auto memory = std::make_unique<Memory>(folder);
  const pid_t child = fork();
  if (child == 0) {
    prepare_fake(folder);
    setenv("CURVESCOPE_RAW_BUFFERS", raw_folder, 1);
    if (cuInit(0) != 0) std::exit(1);
    std::thread emitting([] { fake_emit_many(kEmitting, kernels_per_thread, 50, nullptr); });
    std::thread pushing([] {
      nvtxNameOsThreadA(1234, "a worker");
      for (int i = 0; i < 1000; ++i) {
        nvtxRangePushA("r");
        nvtxRangePop();
      }
    });
    std::vector<std::thread> capturing;
    for (std::uint64_t thread = 0; thread < kCapturing; ++thread) {
      capturing.emplace_back([thread] {
        for (std::uint64_t node = 1; node <= kNodes; ++node) {
          const std::uint64_t number = thread * kNodes + node;
          fake_graph_node(number, node % 2 == 0 ? number - 1 : 0);
        }
      });
    }
    int bad = 0;
    for (int i = 0; i < 5; ++i) {
      const pid_t forked = fork();
      if (forked == 0) push_and_exit();
      int status = 1;
      waitpid(forked, &status, 0);
      bad += status != 0;
    }
    emitting.join();
    pushing.join();
    for (std::thread& thread : capturing) thread.join();
    std::exit(bad == 0 ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  check(status == 0, "process with GPU records and its forks end well");
  memory.reset();
  Counts counts = take_folder(folder);
  check(counts.files == (kForkedRecord ? 6 : 1), "one file for each process");
  check(counts.rows["kernels"] + counts.dropped == kEmitting * kernels_per_thread,
        "every kernel is recorded or counted");
  check(counts.rows["kernels"] > 0, "kernels are recorded");
  check(counts.rows["graph_nodes"] == kCapturing * kNodes, "every node of a graph is recorded");
  check(counts.thread_named, "the name of a thread is recorded");
  Counts raw = take_folder(raw_folder);
  check(raw.files == 1 && raw.rows["raw_names"] == 50, "the first buffers are kept with the names in them");
}

// Recordings begun and ended in a process that goes on emitting and pushing, and that ends in one.
void recordings_begin_and_end_under_load() {
  char folder[] = "/tmp/curvescope-test-XXXXXX";
  check(mkdtemp(folder) != nullptr, "a folder for the chunks");
  const pid_t child = fork();
  if (child == 0) {
    prepare_fake(nullptr);
    unsetenv("CURVESCOPE_CHUNK_FOLDER");
    std::atomic<bool> done{false};
    if (curvescope_record_start(folder) != 1 || curvescope_record_start(folder) != 0) std::exit(1);
    // Each pauses at times: without, they would hold up a stop for minutes under ThreadSanitizer.
    static constexpr auto kPause = std::chrono::microseconds(100);
    std::thread emitting([&done] {
      while (!done) {
        fake_emit_many(2, 2000, 10, nullptr);
        std::this_thread::sleep_for(kPause);
      }
    });
    std::thread pushing([&done] {
      while (!done) {
        for (int i = 0; i < 100; ++i) {
          nvtxRangePushA("r");
          nvtxRangePop();
        }
        std::this_thread::sleep_for(kPause);
      }
    });
    for (int i = 0; i < 10; ++i) {
      curvescope_record_stop();
      if (curvescope_record_start(folder) != 1) std::exit(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    done = true;
    emitting.join();
    pushing.join();
    std::exit(0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  check(status == 0, "a process that is recorded again and again ends well");
  Counts counts = take_folder(folder);
  check(counts.files == 11, "one file for each recording");
  check(counts.rows["kernels"] > 0 && counts.pushes > 0, "kernels and ranges are recorded");
}

long page_faults_of_this_thread() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

// Fills that many buffers at once, as threads do that emit faster than the writer reads, and gives the page faults.
long fill(curvescope::ActivityBuffers* buffers, int count) {
  constexpr std::size_t kBytes = curvescope::ActivityBuffers::kBytes;
  std::vector<std::uint8_t*> filling;
  const long before = page_faults_of_this_thread();
  for (int i = 0; i < count; ++i) {
    std::size_t bytes = 0;
    std::uint8_t* data = buffers->request(false, &bytes);
    check(data != nullptr, "there is a buffer");
    for (std::size_t at = 0; at < kBytes; at += 4096) data[at] = 1;
    filling.push_back(data);
  }
  const long faults = page_faults_of_this_thread() - before;
  for (std::uint8_t* data : filling) check(buffers->complete(data, kBytes), "the buffer is one of these");
  curvescope::ActivityBuffers::Full full{};
  while (buffers->take(&full)) buffers->release(full.slot);
  return faults;
}

// A fault in a thread that emits records costs it more than fifty records do.
void buffers_are_touched_before_threads_ask_for_them() {
  auto* buffers = new curvescope::ActivityBuffers;  // never freed, as the collector's
  buffers->prepare();
  check(fill(buffers, 16) < 64, "the first buffers are touched");
  fill(buffers, 64);                               // more than are ready
  for (int i = 0; i < 4; ++i) buffers->prepare();  // sixteen at a time
  check(fill(buffers, 128) < 64, "after a shortage twice as many are touched");
}

// An old CUPTI crashes the program where it gets no buffer.
void beyond_the_limit_there_are_buffers_that_are_counted_and_not_read() {
  using curvescope::ActivityBuffers;
  auto* buffers = new ActivityBuffers;
  std::vector<std::uint8_t*> given;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < ActivityBuffers::kMost; ++i) given.push_back(buffers->request(false, &bytes));
  check(buffers->request(false, &bytes) == nullptr,
        "a CUPTI that takes no buffer for an answer gets none beyond the limit");
  std::uint8_t* beyond = buffers->request(true, &bytes);
  check(beyond != nullptr, "one that does not gets one");
  check(buffers->complete(beyond, 8) && buffers->take_unread() == 1, "it is counted");
  ActivityBuffers::Full full{};
  check(!buffers->take(&full), "and not read");
  std::memset(given[7], 1, ActivityBuffers::kBytes);
  check(buffers->complete(given[7], 8) && buffers->take(&full) && full.data == given[7], "the others are");
  buffers->release(full.slot);
  check(buffers->request(true, &bytes) == given[7], "a buffer that was read is given again");
  check(given[7][0] == 0 && given[7][ActivityBuffers::kBytes - 1] == 0, "zeroed");
}

// A killed process loses the buffer that CUPTI fills. From 400 launches a second on, each with a kernel, it holds less
// than 50 ms of them, and what waits for the next flush is less than that again.
void a_buffer_holds_less_than_50_ms_of_launches() {
  using curvescope::ActivityBuffers;
  constexpr std::int64_t kFlushNs = 50'000'000;
  constexpr std::size_t kLaunchBytes = 248;  // kernel and call
  for (const std::int64_t launches_per_s : {400, 1'000, 3'000, 10'000, 50'000, 200'000}) {
    auto buffers = std::make_unique<ActivityBuffers>();
    const std::int64_t launch_ns = 1'000'000'000 / launches_per_s;
    std::int64_t now_ns = 0;
    std::int64_t flush_ns = kFlushNs;
    ActivityBuffers::Full full{};
    while (now_ns < 4'000'000'000) {
      const std::int64_t from_ns = now_ns;
      std::size_t bytes = 0;
      const std::uint8_t* data = buffers->request(false, &bytes);
      const std::size_t launches = bytes / kLaunchBytes;
      now_ns += static_cast<std::int64_t>(launches) * launch_ns;
      check(buffers->complete(data, launches * kLaunchBytes) && buffers->take(&full), "CUPTI fills it");
      buffers->release(full.slot);
      const bool adapted = from_ns > 3'000'000'000;
      check(!adapted || now_ns - from_ns < kFlushNs, "it holds less than 50 ms");
      check(launches_per_s < 50'000 || !adapted || bytes > (std::size_t{256} << 10), "quick launches get large ones");
      for (; flush_ns < now_ns; flush_ns += kFlushNs) buffers->adapt(kFlushNs);
    }
  }
}

// After an idle time buffers are small, and a burst would soon have used up their number.
void a_burst_gets_large_buffers() {
  auto buffers = std::make_unique<curvescope::ActivityBuffers>();
  for (int i = 0; i < 50; ++i) buffers->adapt(50'000'000);
  std::size_t bytes = 0;
  buffers->request(false, &bytes);
  check(bytes == curvescope::ActivityBuffers::kFewestBytes, "few bytes after an idle time");
  for (int i = 0; i < 10; ++i) buffers->request(false, &bytes);
  check(bytes == curvescope::ActivityBuffers::kBytes, "all of them after ten buffers");
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1) kernels_per_thread = std::strtoull(arguments[1], nullptr, 10);
  every_kernel_is_recorded_or_counted_as_dropped();
  recordings_begin_and_end_under_load();
  every_range_is_recorded_or_counted_as_lost();
  buffers_are_touched_before_threads_ask_for_them();
  beyond_the_limit_there_are_buffers_that_are_counted_and_not_read();
  a_buffer_holds_less_than_50_ms_of_launches();
  a_burst_gets_large_buffers();
  clock_lies_between_two_readings_of_the_monotonic_clock();
  std::printf("native: %s\n", failures == 0 ? "all checks hold" : "checks failed");
  return failures == 0 ? 0 : 1;
}
