// Damaged traces and databases through the native readers, for the sanitizers: whatever they hold, what is handed back
// stays inside of them. Takes the path of a database whose table `x` (a INTEGER, t TEXT) begins at page 2, and the
// number of damaged ones to make of it.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "curvescope/event_scan.h"
#include "curvescope/table_scan.h"

namespace {

constexpr unsigned kTraces = 20000, kDatabases = 2000;

void require(bool holds, const char* what, unsigned input) {
  if (holds) return;
  std::fprintf(stderr, "input %u: %s\n", input, what);
  std::exit(1);
}

std::string damaged(std::string data, std::mt19937& random, std::size_t from) {
  static const char* const kJunk[] = {"\"", "\\", "{", "}", "[", "]", ",", ":", "\\u", "1e9", "-", "null", "\xff"};
  for (unsigned count = 1 + random() % 4; count > 0; --count) {
    const std::size_t at = from + random() % (data.size() - from);
    switch (random() % 4) {
      case 0:
        data[at] = static_cast<char>(random());
        break;
      case 1:
        data.resize(at + 1);
        break;
      case 2:
        data.insert(at, kJunk[random() % std::size(kJunk)]);
        break;
      default:
        data.erase(at, 1 + random() % 9);
    }
    if (data.size() <= from) return data + " ";
  }
  return data;
}

void scan_events(const std::string& data, unsigned input) {
  static const char* const kNames[] = {"name", "ts", "tid", "count", "Input Dims"};
  constexpr std::uint8_t kInArgs[] = {0, 0, 0, 1, 1};
  constexpr std::uint8_t kKinds[] = {kCurvescopeText, kCurvescopeTime, kCurvescopeJson, kCurvescopeNumber,
                                     kCurvescopeJson};
  CurvescopeEventScan* scan = curvescope_event_scan_open(5, kNames, kInArgs, kKinds);
  std::int64_t at = 0, rows = 0, odd = 0;
  const std::int64_t size = static_cast<std::int64_t>(data.size());
  std::uint8_t closed = 0;
  while (true) {
    // A copy of just this size: the sanitizer sees a step past its end.
    const std::vector<char> piece(data.begin() + at, data.end());
    const std::int64_t done = curvescope_event_scan_next(scan, piece.data(), size - at, at == 0, &rows, &odd, &closed);
    require(done >= 0 && done <= size - at, "reads past its end", input);
    const std::int64_t texts = curvescope_event_scan_texts(scan);
    for (std::int32_t field = 0; field < 5; ++field) {
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t value = curvescope_event_scan_values(scan, field)[row];
        const bool valid = curvescope_event_scan_valid(scan, field)[row] != 0;
        if (kKinds[field] < kCurvescopeNumber && valid) {
          require(value >= 0 && value < texts, "a text that is not there", input);
          std::int64_t length = 0;
          const char* text = curvescope_event_scan_text(scan, value, &length);
          require(std::string(text, text + length).size() == static_cast<std::size_t>(length), "no text", input);
        }
      }
    }
    for (std::int64_t i = 0; i < odd; ++i) {
      const std::int64_t* span = curvescope_event_scan_odd(scan) + 2 * i;
      require(0 <= span[0] && span[0] < span[1] && span[1] <= done, "an odd event outside", input);
      require(piece[static_cast<std::size_t>(span[0])] == '{', "an odd event that is none", input);
    }
    if (done == 0) break;
    at += done;
  }
  curvescope_event_scan_close(scan);
}

void scan_table(const std::string& path, unsigned input) {
  constexpr std::int32_t kFields[] = {-1, 0, 1};
  constexpr std::uint8_t kIsText[] = {0, 0, 1};
  constexpr std::int64_t kRows = 64;
  CurvescopeTableScan* scan = curvescope_table_scan_open(path.c_str(), 2, 3, kFields, kIsText);
  if (scan == nullptr) return;
  std::vector<std::int64_t> values[3] = {std::vector<std::int64_t>(kRows), std::vector<std::int64_t>(kRows),
                                         std::vector<std::int64_t>(kRows + 1)};
  std::vector<std::uint8_t> valid[3] = {std::vector<std::uint8_t>(kRows), std::vector<std::uint8_t>(kRows),
                                        std::vector<std::uint8_t>(kRows)};
  std::int64_t* const to_values[] = {values[0].data(), values[1].data(), values[2].data()};
  std::uint8_t* const to_valid[] = {valid[0].data(), valid[1].data(), valid[2].data()};
  std::int64_t rows = 0;
  while ((rows = curvescope_table_scan_next(scan, kRows, to_values, to_valid)) > 0) {
    require(rows <= kRows, "more rows than asked for", input);
    const char* text = curvescope_table_scan_text(scan, 2);
    for (std::int64_t row = 0; row < rows; ++row) {
      require(values[2][row] <= values[2][row + 1], "texts that overlap", input);
      require(std::string(text + values[2][row], text + values[2][row + 1]).size() < 1 << 20, "no text", input);
    }
  }
  curvescope_table_scan_close(scan);
}

}  // namespace

int main(int argc, char** argv) {
  std::string trace;
  for (int i = 0; i < 12; ++i) {
    const std::string number = std::to_string(i * 977);
    trace += (i ? ",\n  {" : "{") + std::string("\"ph\": \"") + (i % 5 ? "X" : "M") + "\", \"name\": \"na\\u00e9me " +
             number + "\", \"ts\": 16231426234" + number + ".125, \"tid\": [" + number +
             ", \"x\"], \"args\": {\"count\": -" + number + ", \"Input Dims\": [[1, 2], [], \"y\", null, true]}}";
  }
  trace += "]}";
  std::mt19937 random(7);
  for (unsigned input = 0; input < kTraces; ++input) scan_events(damaged(trace, random, 0), input);
  unsigned databases = 0;
  if (argc > 1) {
    databases = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : kDatabases;
    std::ifstream file(argv[1], std::ios::binary);
    const std::string database{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    require(database.size() > 4096, "no database", 0);
    const std::string path = std::string(argv[1]) + ".damaged";
    for (unsigned input = 0; input < databases; ++input) {
      std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged(database, random, 100);
      scan_table(path, input);
    }
    ::unlink(path.c_str());
  }
  std::printf("%u damaged traces, %u damaged databases\n", kTraces, databases);
  return 0;
}
