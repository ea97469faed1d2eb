// What tests tell the test double of libcupti.
#pragma once

#include <cstddef>
#include <cstdint>

#define FAKE_API __attribute__((visibility("default")))

extern "C" {

struct FakeKernel {
  const char* name;
  std::uint64_t start_ns;
  std::uint64_t end_ns;
  std::uint32_t device;
  std::uint32_t context;
  std::uint32_t stream;
  std::uint32_t correlation_id;
  std::int32_t grid[3];
  std::int32_t block[3];
  std::uint32_t registers_per_thread;
  std::int32_t static_shared_bytes;
  std::int32_t dynamic_shared_bytes;
  std::uint32_t graph;
  std::uint64_t graph_node;
};

// Size of the records of a kind; 0, as at first: this version has none.
FAKE_API void fake_set_record_bytes(std::uint32_t kind, std::size_t bytes);
FAKE_API std::uint64_t fake_cupti_now();
FAKE_API std::uint64_t fake_ticks();

// How often a client registered a clock.
FAKE_API std::uint64_t fake_clock_changes();

// Where a record finds no buffer it waits for one.
FAKE_API void fake_wait_for_room(int wait);

// The client's reading of records stands still, as where it waits for the disk.
FAKE_API void fake_hold_reader(int hold);

// A client that does nothing with its buffers, which it gives in turn, to hold the cost of one that does against; with
// none, again the one that registered.
FAKE_API void fake_use_idle_client(int buffers);

// Buffers that CUPTI zeroed in the thread that needed them, and buffers that came with old data despite the client's
// word.
FAKE_API std::uint64_t fake_zeroed_buffers();
FAKE_API std::uint64_t fake_dirty_buffers();

// Flushes that were not forced, by the client or by fake_flush.
FAKE_API std::uint64_t fake_flushes();

// Ends all kernels that were emitted without an end; their buffers may now be returned.
FAKE_API void fake_finish_kernels(std::uint64_t end_ns);
FAKE_API int fake_is_collecting(int kind);
FAKE_API void fake_kernel(const FakeKernel* k);

// A node of a CUDA graph that this thread captures; one that it clones where `original` is not 0.
FAKE_API void fake_graph_node(std::uint64_t node, std::uint64_t original);

// Hands over a buffer that some libcupti filled elsewhere: the offsets of its records, and by their addresses there the
// texts that they point to. fake_name_call first gives the names of the calls in it.
FAKE_API void fake_replay(const std::uint8_t* data, std::size_t bytes, const std::uint32_t* offsets,
                          std::uint32_t records, const std::uint64_t* addresses, const char* const* texts,
                          std::uint32_t named);
FAKE_API void fake_name_call(int is_driver, std::uint32_t id, const char* name);

// Kernels from several threads, as fast as they can. cost_ticks, where given, takes each record's cost in cycles of the
// time stamp counter, per_thread for each thread.
FAKE_API void fake_emit_many(std::uint32_t threads, std::uint64_t per_thread, std::uint32_t names,
                             std::uint32_t* cost_ticks);

// A kernel while the range profiler counts; whether it is enabled on a context.
FAKE_API void fake_range_kernel();
FAKE_API int fake_range_profiler_is_enabled();

// Another client of CUPTI: takes the subscriber's place (the result of cuptiSubscribe), and never leaves it; collects
// with buffers of its own; stops.
FAKE_API int fake_other_subscribe();
FAKE_API void fake_other_start();
FAKE_API void fake_other_stop();
FAKE_API std::uint64_t fake_other_kernels();

}  // extern "C"
