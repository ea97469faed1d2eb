// Devices, their streams, and the order in which they run what is submitted.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "card.h"

namespace card {

namespace {

thread_local int current = 0;

std::vector<std::unique_ptr<Device>>& devices() {
  static auto& made = *new std::vector<std::unique_ptr<Device>>([] {
    std::vector<std::unique_ptr<Device>> all;
    for (const DeviceFacts& facts : config().devices) {
      auto one = std::make_unique<Device>();
      one->index = static_cast<int>(all.size());
      one->facts = &facts;
      one->legacy.device = one.get();
      all.push_back(std::move(one));
    }
    return all;
  }());
  return made;
}

void wait_for_room(Stream* stream) {
  auto& queued = stream->queued;
  const Ns moment = now();
  while (!queued.empty() && queued.front() <= moment) queued.pop_front();
  if (queued.size() < kQueue) return;
  wait_until(queued.front());
  queued.pop_front();
}

// The order that the legacy default stream keeps with those that are not cudaStreamNonBlocking.
Ns ordered(const Stream& stream) {
  const Device& on = *stream.device;
  if (&stream == &on.legacy) {
    Ns last = stream.ready;
    for (const auto& other : on.streams) {
      if (other->blocking) last = std::max(last, other->ready);
    }
    return last;
  }
  return stream.blocking ? std::max(stream.ready, on.legacy.ready) : stream.ready;
}

// The earliest time from which the SMs have room for the share; of work in one stream each follows the other anyway.
Ns find_room(Device& on, Ns earliest, double share) {
  constexpr double kRounding = 1e-9;
  // What has ended meets no new work, which starts later than now.
  const auto has_ended = [passed = now()](const Running& other) { return other.span.end <= passed; };
  on.running.erase(std::remove_if(on.running.begin(), on.running.end(), has_ended), on.running.end());
  for (Ns start = earliest;;) {
    double busy = 0;
    Ns next_end = 0;
    for (const Running& other : on.running) {
      if (other.span.start > start || other.span.end <= start) continue;
      busy += other.share;
      next_end = next_end == 0 ? other.span.end : std::min(next_end, other.span.end);
    }
    if (busy + share <= 1 + kRounding || next_end == 0) return start;
    start = next_end;
  }
}

}  // namespace

std::recursive_mutex& mutex() {
  static auto& made = *new std::recursive_mutex;
  return made;
}

int device_count() { return static_cast<int>(devices().size()); }

Device& device(int index) { return *devices().at(static_cast<std::size_t>(index)); }

int current_device() { return current; }

void set_current_device(int index) { current = index; }

Stream* stream_of(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread) return &device(current).legacy;
  return reinterpret_cast<Stream*>(handle);
}

Stream* new_stream(Device& on, bool blocking, int priority) {
  open_context(on.index);
  LOCK();
  static std::uint32_t next_id = 13;
  auto made = std::make_unique<Stream>();
  made->device = &on;
  made->id = next_id++;
  made->blocking = blocking;
  made->priority = priority;
  on.streams.push_back(std::move(made));
  return on.streams.back().get();
}

Ns ready_of(const Device& on) {
  Ns last = on.legacy.ready;
  for (const auto& stream : on.streams) last = std::max(last, stream->ready);
  return last;
}

void synchronize(const Device& on) {
  Ns until;
  {
    LOCK();
    until = ready_of(on);
  }
  wait_for_work(until);
}

void wait_for_work(Ns until) {
  wait_until(until);
  begin_step();
}

void wait_event(Stream* stream, const Event& event) {
  LOCK();
  if (event.capture != nullptr || stream->capture != nullptr) {
    capture_wait(stream, event);
  } else if (event.recorded && event.at > stream->ready) {
    stream->ready = event.at;
  }
}

Stream* library_stream(Device& on, int number) {
  LOCK();
  while (static_cast<int>(on.library_streams.size()) < number) on.library_streams.push_back(new_stream(on, false, 0));
  return on.library_streams[static_cast<std::size_t>(number) - 1];
}

Span place(Stream* stream, const Work& work, Ns earliest, std::uint32_t graph, std::uint64_t node) {
  Device& on = *stream->device;
  Work done = work;
  Ns start = earliest;
  if (work.kind == Work::kCopy && work.copy_kind <= 2) {  // between host and device: each way has an engine
    Ns& engine = on.copy_ready[work.copy_kind - 1];
    start = std::max(start, engine);
    engine = start + duration_of(on, done, start);
    stream->ready = engine;
  } else {
    const double share = share_of_sms(*on.facts, work);
    if (stream->priority == 0) start = find_room(on, start, share);
    stream->ready = start + duration_of(on, done, start);
    on.running.push_back({{start, stream->ready}, share, done.name});
    on.busy_ns += stream->ready - start;
  }
  const Span span{start, stream->ready};
  record_work(*stream, done, span, graph, node);
  return span;
}

// An event is reached when what was submitted before it is done.
void record_event(Stream* stream, Event* event) {
  LOCK();
  event->recorded = true;
  event->stream = stream;
  event->capture = nullptr;
  if (stream->capture != nullptr) {
    capture_event(stream, event);
    return;
  }
  event->at = std::max(ordered(*stream), now()) + static_cast<Ns>(config().costs.event_ns);
  stream->ready = event->at;
  stream->after_event = true;
}

Span submit(Stream* stream, const Work& work) {
  open_context(stream->device->index);
  if (stream->capture != nullptr) {
    capture_work(stream, work);
    return {};
  }
  wait_for_room(stream);
  LOCK();
  const Costs& costs = config().costs;
  const Ns idle_start = now() + static_cast<Ns>(costs.start_ns);
  const Ns last = ordered(*stream);
  const auto gap = static_cast<Ns>(stream->after_event ? costs.event_gap_ns : costs.gap_ns);
  const Span span = place(stream, work, std::max(idle_start, last + gap), 0, 0);
  stream->after_event = false;
  stream->queued.push_back(span.end);
  return span;
}

}  // namespace card
