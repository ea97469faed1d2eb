// What differs from run to run: factors on the host's calls and on the card's work, drawn from the spreads of a real
// card. One sequence of numbers serves all processes of a test, so a seed gives the same times again.
#include <algorithm>
#include <cmath>

#include "card.h"

namespace card {

namespace {

// Factors that a step of the host and its work on the card have in common, until the host has waited for the card.
struct StepFactors {
  double host = 1, device = 1;
};
StepFactors of_step;

// A number from 0 to 1 by the seed and its place in the sequence (SplitMix64).
double next_share() {
  std::uint64_t mixed = config().noise + (shared().drawn.fetch_add(1) + 1) * 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return std::ldexp(static_cast<double>((mixed ^ (mixed >> 31)) >> 11), -53);
}

// A factor of a spread: between two of its quantiles by the share of a run; none beyond the last.
double draw(Spread which) {
  const std::vector<Quantile>& spread = config().spreads[static_cast<int>(which)];
  if (spread.size() < 2) return 1;
  const double share = std::min(next_share(), spread.back().share);
  const auto is_below = [=](const Quantile& one) { return one.share < share; };
  const auto upper = std::find_if_not(spread.begin() + 1, spread.end() - 1, is_below);
  const Quantile &low = *(upper - 1), &high = *upper;
  return low.factor + (high.factor - low.factor) * (share - low.share) / (high.share - low.share);
}

}  // namespace

double vary_call() { return config().noise == 0 ? 1 : of_step.host * draw(Spread::kCall); }

double vary_work(double ns) {
  constexpr double kLongNs = 1'000'000;  // as spreads.py has it
  return config().noise == 0 ? 1 : of_step.device * draw(ns < kLongNs ? Spread::kWork : Spread::kLong);
}

void begin_step() {
  if (config().noise != 0) of_step = {draw(Spread::kHost), draw(Spread::kStep)};
}

}  // namespace card
