// Takes the fields asked for out of the events of a JSON trace, and each distinct text once.
//
// Python makes an object of every value of every event, seven microseconds for each event in all; here yyjson parses
// one event at a time out of some megabytes, and what is not asked for costs only its parsing. A value of an unexpected
// kind is not interpreted: the event is handed back as it stands, so that all leniency stays in one place, in Python.
#include "curvescope/event_scan.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "yyjson.h"

namespace {

constexpr int kDeepest = 8;               // of a value whose JSON is a text; shapes are two deep
constexpr std::int64_t kMostDigits = 15;  // of microseconds before the point: 31 years, and 62 bits of nanoseconds
constexpr std::size_t kPadding = YYJSON_PADDING_SIZE;

// Memory for one document at a time, kept from event to event.
class Scratch {
 public:
  Scratch() : allocator_{allocate, reallocate, release, this} {}
  ~Scratch() { std::free(block_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const yyjson_alc* allocator() const { return &allocator_; }

 private:
  static void* grow(Scratch* self, std::size_t size) {
    if (size > self->size_) {
      void* larger = std::realloc(self->block_, size);
      if (larger == nullptr) return nullptr;
      self->block_ = larger;
      self->size_ = size;
    }
    return self->block_;
  }
  static void* allocate(void* self, std::size_t size) { return grow(static_cast<Scratch*>(self), size); }
  static void* reallocate(void* self, void*, std::size_t, std::size_t size) {
    return grow(static_cast<Scratch*>(self), size);
  }
  static void release(void*, void*) {}

  yyjson_alc allocator_;
  void* block_ = nullptr;
  std::size_t size_ = 0;
};

// A number as it is written: -, digits, point, digits; no exponent.
struct Decimal {
  bool negative = false;
  std::string_view whole, fraction;

  // Whether `text` is one.
  bool read(std::string_view text) {
    negative = !text.empty() && text[0] == '-';
    if (negative) text.remove_prefix(1);
    const std::size_t point = text.find('.');
    whole = text.substr(0, point);
    fraction = point == std::string_view::npos ? std::string_view() : text.substr(point + 1);
    return !whole.empty() && all_digits(whole) && all_digits(fraction);
  }

  static bool all_digits(std::string_view text) {
    for (const char c : text) {
      if (c < '0' || c > '9') return false;
    }
    return true;
  }
};

bool whole_number(std::string_view text, std::int64_t* value) {
  Decimal number;
  constexpr std::size_t kCertain = 18;  // digits that always fit 64 bits
  if (!number.read(text) || !number.fraction.empty() || number.whole.size() > kCertain) {
    return false;
  }
  std::int64_t sum = 0;
  for (const char c : number.whole) sum = sum * 10 + (c - '0');
  *value = number.negative ? -sum : sum;
  return true;
}

// Half a nanosecond goes to the even one, as Python rounds.
bool nanoseconds(std::string_view text, std::int64_t* value) {
  Decimal number;
  if (!number.read(text) || static_cast<std::int64_t>(number.whole.size()) > kMostDigits + 3) return false;
  std::int64_t sum = 0;
  for (const char c : number.whole) sum = sum * 10 + (c - '0');
  for (std::size_t i = 0; i < 3; ++i) {
    if (sum > (std::int64_t{1} << 62) / 10) return false;
    sum = sum * 10 + (i < number.fraction.size() ? number.fraction[i] - '0' : 0);
  }
  if (number.fraction.size() > 3) {
    const std::string_view rest = number.fraction.substr(3);
    const bool beyond_half = rest[0] > '5' || (rest[0] == '5' && rest.find_first_not_of('0', 1) != rest.npos);
    const bool half = rest[0] == '5' && !beyond_half;
    sum += beyond_half || (half && sum % 2 == 1);
  }
  *value = number.negative ? -sum : sum;
  return true;
}

// Appends the JSON of a value; false where it is too deep, or has a text that would need escapes.
bool append_json(yyjson_val* value, std::string& json, int depth) {
  if (depth > kDeepest) return false;
  if (yyjson_is_raw(value)) {
    json.append(yyjson_get_raw(value), yyjson_get_len(value));
  } else if (yyjson_is_str(value)) {
    const std::string_view text(yyjson_get_str(value), yyjson_get_len(value));
    for (const char c : text) {
      if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20) return false;
    }
    json.append(1, '"').append(text).append(1, '"');
  } else if (yyjson_is_arr(value)) {
    json += '[';
    yyjson_arr_iter items = yyjson_arr_iter_with(value);
    for (bool next = false; yyjson_val* item = yyjson_arr_iter_next(&items); next = true) {
      if (next) json += ',';
      if (!append_json(item, json, depth + 1)) return false;
    }
    json += ']';
  } else if (yyjson_is_null(value)) {
    json += "null";
  } else if (yyjson_is_bool(value)) {
    json += yyjson_get_bool(value) ? "true" : "false";
  } else {
    return false;
  }
  return true;
}

struct Field {
  std::string name;
  bool in_args;
  std::uint8_t kind;
  std::vector<std::int64_t> values;
  std::vector<std::uint8_t> valid;
  std::int64_t last = -1;  // the text of the row before: most often that of the next one too
};

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

}  // namespace

struct CurvescopeEventScan {
  CurvescopeEventScan(std::int32_t n_fields, const char* const* names, const std::uint8_t* in_args,
                      const std::uint8_t* kinds) {
    for (std::int32_t i = 0; i < n_fields; ++i) {
      fields_.push_back({names[i], in_args[i] != 0, kinds[i], {}, {}});
    }
  }

  std::int64_t next(const char* data, std::size_t size, bool first, std::uint8_t* closed) {
    for (Field& field : fields_) {
      field.values.clear();
      field.valid.clear();
    }
    rows_ = 0;
    odd_.clear();
    *closed = 0;
    // yyjson ends its texts in place and writes past the end of what it is given.
    copy_.resize(size + kPadding);
    if (size > 0) std::memcpy(copy_.data(), data, size);
    std::size_t done = 0, at = 0;
    while (true) {
      while (at < size && is_space(copy_[at])) ++at;
      const bool comma = !first && at < size && copy_[at] == ',';
      if (comma) {
        ++at;
        while (at < size && is_space(copy_[at])) ++at;
      }
      if (at < size && copy_[at] == ']') *closed = 1;
      if (at >= size || copy_[at] != '{' || (!first && !comma)) break;
      constexpr yyjson_read_flag kFlags = YYJSON_READ_INSITU | YYJSON_READ_STOP_WHEN_DONE | YYJSON_READ_NUMBER_AS_RAW;
      yyjson_doc* document = yyjson_read_opts(copy_.data() + at, size - at, kFlags, scratch_.allocator(), nullptr);
      if (document == nullptr) break;
      const std::size_t end = at + yyjson_doc_get_read_size(document);
      yyjson_val* event = yyjson_doc_get_root(document);
      if (yyjson_equals_str(yyjson_obj_get(event, "ph"), "X") && !take(event)) {
        odd_.push_back(static_cast<std::int64_t>(at));
        odd_.push_back(static_cast<std::int64_t>(end));
      }
      done = at = end;
      first = false;
    }
    return static_cast<std::int64_t>(done);
  }

  std::int64_t rows() const { return rows_; }
  const std::vector<std::int64_t>& odd() const { return odd_; }
  const Field& field(std::int32_t place) const { return fields_[static_cast<std::size_t>(place)]; }
  const std::deque<std::string>& texts() const { return texts_; }

 private:
  // Appends a row; false, and no row, where a value is of another kind than its column.
  bool take(yyjson_val* event) {
    yyjson_val* args = nullptr;
    for (Field& field : fields_) {
      field.values.push_back(0);
      field.valid.push_back(0);
    }
    const bool taken = take_object(event, false, &args) &&
                       (args == nullptr || (yyjson_is_obj(args) && take_object(args, true, nullptr)));
    if (taken) {
      ++rows_;
      return true;
    }
    for (Field& field : fields_) {
      field.values.pop_back();
      field.valid.pop_back();
    }
    return false;
  }

  bool take_object(yyjson_val* object, bool in_args, yyjson_val** args) {
    yyjson_obj_iter members = yyjson_obj_iter_with(object);
    while (yyjson_val* key = yyjson_obj_iter_next(&members)) {
      const std::string_view name(yyjson_get_str(key), yyjson_get_len(key));
      yyjson_val* value = yyjson_obj_iter_get_val(key);
      if (yyjson_is_null(value)) continue;
      if (args != nullptr && name == "args") {
        *args = value;
        continue;
      }
      for (Field& field : fields_) {
        if (field.in_args != in_args || field.name != name) continue;
        if (!take_value(field, value)) return false;
        field.valid.back() = 1;
        break;
      }
    }
    return true;
  }

  bool take_value(Field& field, yyjson_val* value) {
    std::int64_t& target = field.values.back();
    const bool raw = yyjson_is_raw(value);
    switch (field.kind) {
      case kCurvescopeNumber:
        return raw && whole_number({yyjson_get_raw(value), yyjson_get_len(value)}, &target);
      case kCurvescopeTime:
        return raw && nanoseconds({yyjson_get_raw(value), yyjson_get_len(value)}, &target);
      case kCurvescopeText:
        if (!yyjson_is_str(value)) return false;
        target = place_of({yyjson_get_str(value), yyjson_get_len(value)}, field);
        return true;
      default:
        json_.clear();
        if (!append_json(value, json_, 0)) return false;
        target = place_of(json_, field);
        return true;
    }
  }

  std::int64_t place_of(std::string_view text, Field& field) {
    if (field.last >= 0 && texts_[static_cast<std::size_t>(field.last)] == text) return field.last;
    auto found = place_.find(text);
    if (found == place_.end()) {
      texts_.emplace_back(text);
      found = place_.emplace(texts_.back(), static_cast<std::int64_t>(texts_.size()) - 1).first;
    }
    return field.last = found->second;
  }

  std::vector<Field> fields_;
  std::int64_t rows_ = 0;
  std::vector<std::int64_t> odd_;
  std::deque<std::string> texts_;  // never moved: `place_` points into them
  std::unordered_map<std::string_view, std::int64_t> place_;
  std::vector<char> copy_;
  std::string json_;
  Scratch scratch_;
};

extern "C" {

CurvescopeEventScan* curvescope_event_scan_open(std::int32_t n_fields, const char* const* names,
                                                const std::uint8_t* in_args, const std::uint8_t* kinds) noexcept try {
  return new CurvescopeEventScan(n_fields, names, in_args, kinds);
} catch (...) {
  return nullptr;
}

std::int64_t curvescope_event_scan_next(CurvescopeEventScan* scan, const char* data, std::int64_t size,
                                        std::uint8_t first, std::int64_t* rows, std::int64_t* odd,
                                        std::uint8_t* closed) noexcept try {
  const std::int64_t done = scan->next(data, static_cast<std::size_t>(size), first != 0, closed);
  *rows = scan->rows();
  *odd = static_cast<std::int64_t>(scan->odd().size() / 2);
  return done;
} catch (...) {
  return -1;
}

const std::int64_t* curvescope_event_scan_values(const CurvescopeEventScan* scan, std::int32_t field) noexcept {
  return scan->field(field).values.data();
}

const std::uint8_t* curvescope_event_scan_valid(const CurvescopeEventScan* scan, std::int32_t field) noexcept {
  return scan->field(field).valid.data();
}

const std::int64_t* curvescope_event_scan_odd(const CurvescopeEventScan* scan) noexcept { return scan->odd().data(); }

std::int64_t curvescope_event_scan_texts(const CurvescopeEventScan* scan) noexcept {
  return static_cast<std::int64_t>(scan->texts().size());
}

const char* curvescope_event_scan_text(const CurvescopeEventScan* scan, std::int64_t place,
                                       std::int64_t* size) noexcept {
  const std::string& text = scan->texts()[static_cast<std::size_t>(place)];
  *size = static_cast<std::int64_t>(text.size());
  return text.data();
}

void curvescope_event_scan_close(CurvescopeEventScan* scan) noexcept { delete scan; }

}  // extern "C"
