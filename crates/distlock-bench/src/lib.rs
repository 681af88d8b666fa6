//! Benchmarks: a floor, distlock and its peers, side by side in one run.
