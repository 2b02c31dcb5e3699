// The module: all kernels in one translation unit, because a CUDA compiler makes one binary of one
// file, and the program loads one.
#include "bench/train/kernels/attention.cu"
#include "bench/train/kernels/column_sums.cu"
#include "bench/train/kernels/cross_entropy.cu"
#include "bench/train/kernels/embedding.cu"
#include "bench/train/kernels/gelu.cu"
#include "bench/train/kernels/layer_norm.cu"
#include "bench/train/kernels/matmul.cu"
#include "bench/train/kernels/optimizer.cu"
