#include "runtime/device.h"

#include <new>
#include <stdexcept>

namespace pagoda {

void Device::queue(std::function<void()> work, Done done) {
  pool_->submit([work = std::move(work), done = std::move(done)] {
    std::string error;
    try {
      work();
    } catch (const std::bad_alloc&) {
      error = "out of memory";
    } catch (const std::exception& e) {
      error = e.what();
    }
    done(error);
  });
}

void Device::queue_load(WeightSource source, Done done) {
  auto shared = std::make_shared<WeightSource>(std::move(source));
  queue([this, shared] { weights_.load(*shared); }, std::move(done));
}

void Device::queue_plan(Plan plan, Done done) {
  auto shared = std::make_shared<Plan>(std::move(plan));
  queue([this, shared] {
    if (executor_) throw std::runtime_error("the plan was set before");
    weights_.close_files();
    check_plan(*shared, weights_, *kernels_);
    sampler_ = std::make_unique<Sampler>(kernels_, shared->limits.max_seqs, shared->vocab_size, pool_->num_threads());
    executor_ = std::make_unique<Executor>(kernels_, pool_.get(), &weights_, std::move(*shared), sampler_.get());
  }, std::move(done));
}

void Device::queue_add(SlotInit init) {
  auto shared = std::make_shared<SlotInit>(std::move(init));
  queue([this, shared] { sampler_->add(std::move(*shared)); }, [](const std::string&) {});
}

void Device::queue_remove(int32_t slot) {
  queue([this, slot] { sampler_->remove(slot); }, [](const std::string&) {});
}

void Device::queue_step(int slot, Done done) {
  queue([this, slot] {
    executor_->run(steps_[slot]);
    if (!steps_[slot].out.error.empty()) throw std::runtime_error(steps_[slot].out.error);
  }, std::move(done));
}

void Device::queue_logits(std::vector<int32_t> tokens, std::vector<float>* out, Done done) {
  auto shared = std::make_shared<std::vector<int32_t>>(std::move(tokens));
  queue([this, shared, out] { executor_->run_logits(*shared, out); }, std::move(done));
}

void Device::queue_nothing(Done done) { queue([] {}, std::move(done)); }

Device::~Device() { pool_.reset(); }

}  // namespace pagoda
