// Compiled GPT-2 blocks, with kernels of ours as operators, against the functions of single operators
// run eagerly: values and every gradient.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <unistd.h>

#include "compile/remove_tree.h"
#include "core/error.h"
#include "model/gpt2.h"
#include "train/compiled_parts.h"

namespace trainsuite {
namespace {

Case small_case() {
  Case work;
  work.size = "tiny";
  work.micro_batch = 2, work.sequence = 16, work.vocabulary = 96;
  work.precision = "fp32";
  work.attention = "default", work.loss_kernel = "fused", work.block_kernel = "fused";
  return work;
}

/// Made once for all tests of this program: compiling takes its time.
class CompiledBlockTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string name = (std::filesystem::temp_directory_path() / "trainsuite-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = new std::filesystem::path(name);
    cache = new PackageCache(*folder, find_compile_tools());
    const DeviceInfo device;
    target = compile_target(small_case(), device, false);
    cache->ensure(target, block_requests(small_case()), [] {});
  }
  static void TearDownTestSuite() {
    remove_tree(*folder);
    delete cache;
    delete folder;
  }

  static inline std::filesystem::path* folder = nullptr;
  static inline PackageCache* cache = nullptr;
  static inline CompileTarget target;
};

std::vector<at::Tensor> random_tensors(const BlockRequest& request) {
  std::vector<at::Tensor> tensors;
  for (const auto& one : request.tensors) {
    const auto options = at::TensorOptions().dtype(one.dtype);
    tensors.push_back(one.dtype == at::kLong ? at::randint(0, 96, one.shape, options)
                                             : at::randn(one.shape, options).mul_(0.3));
    tensors.back().requires_grad_(one.gradient);
  }
  return tensors;
}

std::vector<at::Tensor> values_and_gradients(const at::Tensor& out,
                                             const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> wanted;
  for (const auto& tensor : tensors) {
    if (tensor.requires_grad()) wanted.push_back(tensor);
  }
  const auto upstream = at::cos(at::arange(out.numel(), out.options())).view(out.sizes());
  auto all = torch::autograd::grad({out}, wanted, {upstream});
  all.push_back(out.detach());
  return all;
}

void expect_close(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(at::allclose(a[i], b[i], 1e-4, 1e-5)) << "tensor " << i;
  }
}

TEST_F(CompiledBlockTest, BlockHasTheValuesAndGradientsOfTheEagerOne) {
  const auto request = block_requests(small_case())[0];
  const CompiledBlock block(request, cache->find(target, request), at::kCPU);
  at::manual_seed(1);
  const auto tensors = random_tensors(request);
  const at::TensorList list(tensors);
  const auto eager = gpt2_block(list[0], list.slice(1), 4, false);
  expect_close(values_and_gradients(block(tensors), tensors), values_and_gradients(eager, tensors));
}

TEST_F(CompiledBlockTest, HeadHasTheValuesAndGradientsOfTheEagerOne) {
  const auto request = block_requests(small_case())[1];
  const CompiledBlock head(request, cache->find(target, request), at::kCPU);
  at::manual_seed(2);
  const auto t = random_tensors(request);
  const auto eager = gpt2_head_loss(t[0], t[1], t[2], t[3], t[4], 1.0, false);
  expect_close(values_and_gradients(head(t), t), values_and_gradients(eager, t));
}

TEST_F(CompiledBlockTest, OtherShapesAreRefusedInWords) {
  const auto request = block_requests(small_case())[0];
  const CompiledBlock block(request, cache->find(target, request), at::kCPU);
  auto tensors = random_tensors(request);
  tensors[0] = at::zeros({2, 17, 64});
  EXPECT_THROW(block(tensors), Error);
  tensors.pop_back();
  EXPECT_THROW(block(tensors), Error);
}

}  // namespace
}  // namespace trainsuite
