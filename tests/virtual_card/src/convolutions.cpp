#include "convolutions.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "../../native/fake_cupti_emit.h"

namespace card {

namespace {

// Of the arithmetic of a product of that size; layouts that do not fit the tensor cores are converted on the way.
constexpr double kImplicitEfficiency = 0.75, kPrecomputedEfficiency = 0.9, kOtherLayout = 0.8;

double product_of(const std::vector<std::int64_t>& sizes, std::size_t from = 0) {
  return std::accumulate(sizes.begin() + static_cast<std::ptrdiff_t>(std::min(from, sizes.size())), sizes.end(), 1.0,
                         [](double product, std::int64_t size) { return product * static_cast<double>(size); });
}

// The product that a convolution is; each group is one of a batch.
Product as_product(const Convolution& c, const DeviceFacts& on) {
  const auto groups = std::max(1.0, static_cast<double>(c.image[1]) / static_cast<double>(c.filter[1]));
  const double images = static_cast<double>(c.image[0]);
  const double filters = static_cast<double>(c.filter[0]) / groups, channels = static_cast<double>(c.filter[1]);
  const double taps = product_of(c.filter, 2);
  const double pixels = images * product_of(c.result, 2), inputs = images * product_of(c.image, 2);
  Product p{pixels, filters, channels * taps, groups};
  if (c.direction == Direction::kData) p = {inputs, channels, filters * taps, groups};
  if (c.direction == Direction::kFilter) {
    // Few tiles with long sums: parts of the sum run side by side.
    constexpr double kTile = 128, kLeastPart = 1024;
    const double tiles = std::ceil(filters / kTile) * std::ceil(channels * taps / kTile) * groups;
    const double parts = std::clamp(std::floor(2 * on.sm_count / tiles), 1.0, std::max(1.0, pixels / kLeastPart));
    p = {filters, channels * taps, std::ceil(pixels / parts), groups * parts};
  }
  p.precision = c.precision;
  return p;
}

const char* const kTitles[] = {"fprop", "dgrad", "wgrad"};  // by `Direction`

// The sizes without the number of images.
std::vector<std::int64_t> shape_of(const Convolution& c) {
  std::vector<std::int64_t> shape(c.image.begin() + 1, c.image.end());
  shape.insert(shape.end(), c.filter.begin(), c.filter.end());
  shape.insert(shape.end(), c.result.begin() + 1, c.result.end());
  return shape;
}

bool has_shape(const RecordedConvolution& recorded, const std::vector<std::int64_t>& shape) {
  const auto& sizes = recorded.sizes;
  const auto images_again = sizes.begin() + 8;
  return shape.size() == 10 && std::equal(sizes.begin() + 1, images_again, shape.begin()) &&
         std::equal(images_again + 1, sizes.end(), shape.begin() + 7);
}

// Those of this shape and direction, by the number of images; one that the host paces only for its own.
std::vector<const RecordedConvolution*> recorded_of(const Convolution& c, const DeviceFacts& on) {
  std::vector<const RecordedConvolution*> found;
  if (c.precision != Precision::kFp32 || c.channels_last || c.image.size() != 4) return found;
  const auto shape = shape_of(c);
  for (const RecordedConvolution& one : on.convolutions) {
    if (one.direction != kTitles[static_cast<int>(c.direction)] || !has_shape(one, shape)) continue;
    if (!one.is_paced() || one.sizes[0] == c.image[0]) found.push_back(&one);
  }
  std::sort(found.begin(), found.end(), [](auto* a, auto* b) { return a->sizes[0] < b->sizes[0]; });
  return found;
}

double total_ns(const RecordedConvolution& one) {
  double sum = 0;
  for (const RecordedKernel& kernel : one.kernels) sum += kernel.ns;
  return sum;
}

// Work on streams of the library, which begins after the caller's and which the caller's next work waits for.
class Branches {
 public:
  explicit Branches(Stream* stream) : stream_(stream) {}
  ~Branches() { join(); }
  Branches(const Branches&) = delete;
  Branches& operator=(const Branches&) = delete;

  Stream* stream(int number) {
    if (number == 0) {
      join();
      return stream_;
    }
    Stream* branch = library_stream(*stream_->device, number);
    if (std::find(begun_.begin(), begun_.end(), branch) == begun_.end()) {
      order(stream_, branch);
      begun_.push_back(branch);
    }
    return branch;
  }

 private:
  void join() {
    for (Stream* branch : begun_) order(branch, stream_);
    begun_.clear();
  }

  static void order(Stream* before, Stream* after) {
    Event event;
    record_event(before, &event);
    wait_event(after, event);
  }

  Stream* stream_;
  std::vector<Stream*> begun_;
};

// The kernels of the largest recorded number of images that is not above; between two their time is interpolated.
void launch_recorded(const Convolution& c, Stream* stream) {
  const DeviceFacts& on = *stream->device->facts;
  const auto all = recorded_of(c, on);
  const auto images = static_cast<double>(c.image[0]);
  std::size_t next = 0;
  while (next < all.size() && static_cast<double>(all[next]->sizes[0]) <= images) ++next;
  const RecordedConvolution& low = *all[next == 0 ? 0 : next - 1];
  const auto low_images = static_cast<double>(low.sizes[0]);
  double factor = images / low_images;
  if (next > 0 && next < all.size()) {
    const double part = (images - low_images) / (static_cast<double>(all[next]->sizes[0]) - low_images);
    factor = 1 + part * (total_ns(*all[next]) / total_ns(low) - 1);
  }
  Branches branches(stream);
  for (const RecordedKernel& kernel : low.kernels) {
    Work work;
    work.name = keep(kernel.name.c_str());
    work.grid = kernel.grid;
    work.block = kernel.block;
    work.registers = kernel.registers;
    work.static_shared = kernel.shared;
    work.cycles = std::max(0.0, kernel.ns * factor - config().costs.kernel_ns) * on.clock_hz / 1e9;
    Stream* on_stream = branches.stream(kernel.stream);
    launch_from_library([&] { submit(on_stream, work); }, kernel.launch_ns);
  }
}

std::string name_of(const DeviceFacts& on, const Convolution& c, const Engine& engine, const std::string& tile) {
  const std::string title = kTitles[static_cast<int>(c.direction)];
  const bool precomputed = engine.algorithm == Algorithm::kPrecomputed;
  const Precision precision = engine.tf32 ? Precision::kTf32 : c.precision;
  const bool single = precision == Precision::kFp32 || precision == Precision::kFp64;
  const std::string layout = c.channels_last ? "nhwckrsc_nhwc" : "nchwkcrs_nchw";
  if (on.major >= 8)
    return std::string(on.major >= 9 && !single ? "sm90" : "sm80") + "_xmma_" + title + "_implicit_gemm_" +
           (precomputed ? "indexed_" : "") + types_of(precision) + "_" + layout + "_tilesize" + tile +
           (single ? "x8_stage3_warpsize2x2x1_g1_ffma" : "x32_stage4_warpsize2x2x1_g1_tensor") +
           "_execute_kernel_cudnn";
  if (on.major == 7 && !single)
    return "volta_fp16_s884cudnn_fp16_" + tile + "_ldg8_" + title + "_f2f_exp_small_nhwc_tn_v1";
  const std::string family = on.major >= 5 ? (on.major == 7 ? "volta_scudnn_" : "maxwell_scudnn_") : "scudnn_";
  const char* const kTails[] = {"_relu_medium_nn_v1", "_stridedB_medium_nn_v1", "_stridedB_splitK_small_nn_v1"};
  return family + tile + (precomputed ? "_interior" : "") + kTails[static_cast<int>(c.direction)];
}

}  // namespace

bool is_recorded(const Convolution& c, const DeviceFacts& on) { return !recorded_of(c, on).empty(); }

std::int64_t workspace_bytes(const Convolution& c, const Engine& engine) {
  if (engine.algorithm == Algorithm::kImplicitGemm) return 0;
  return static_cast<std::int64_t>(product_of(c.result) * element_bytes(c.precision));
}

void launch_convolution(const Convolution& c, const Engine& engine, Stream* stream) {
  const DeviceFacts& on = *stream->device->facts;
  if (engine.algorithm == Algorithm::kRecorded) {
    launch_recorded(c, stream);
    return;
  }
  Product product = as_product(c, on);
  if (engine.tf32) product.precision = Precision::kTf32;
  Work work = work_of(product, on);
  work.name = keep(name_of(on, c, engine, tile_of(product, on)).c_str());
  double efficiency = engine.algorithm == Algorithm::kPrecomputed ? kPrecomputedEfficiency : kImplicitEfficiency;
  const bool on_tensor_cores = product.precision != Precision::kFp32 && product.precision != Precision::kFp64;
  if (on_tensor_cores && !c.channels_last) efficiency *= kOtherLayout;
  work.flops_per_sm_clock *= efficiency;
  work.bytes = (product_of(c.image) + product_of(c.filter) + product_of(c.result)) * element_bytes(c.precision);
  launch_from_library([&] { submit(stream, work); });
}

}  // namespace card
