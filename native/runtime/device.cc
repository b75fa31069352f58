#include "runtime/device.h"

#include "runtime/background-thread.h"
#include "runtime/fuse-phases.h"

#include <new>
#include <stdexcept>

namespace pagoda {

namespace {

template <typename Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

}  // namespace

void Device::queue(std::function<void()> work, Done done) {
  pool_->submit([work = std::move(work), done = std::move(done)] { done(error_of(work)); });
}

void Device::queue_cache(std::string path, std::string header, Done done) {
  auto names = std::make_shared<std::pair<std::string, std::string>>(std::move(path), std::move(header));
  queue([this, names] { weights_.use_cache(names->first, names->second); }, std::move(done));
}

void Device::start_cache_write(std::string path, std::string header, uint64_t max_bytes, CacheWrite* outcome, Done done) {
  if (cache_writer_.joinable()) throw std::runtime_error("the cache was written before");
  const std::string error = error_of([&] {
    cache_writer_ = std::thread([this, path, header, max_bytes, outcome, done] {
      lower_priority();
      done(error_of([&] { *outcome = write_packed_cache(path, header, weights_.cacheable(), max_bytes, ending_); }));
    });
  });
  if (!error.empty()) done(error);
}

void Device::queue_load(WeightSource source, Done done) {
  auto shared = std::make_shared<WeightSource>(std::move(source));
  queue([this, shared] { weights_.load(*shared); }, std::move(done));
}

void Device::queue_plan(Plan plan, Done done) {
  auto shared = std::make_shared<Plan>(std::move(plan));
  queue([this, shared] {
    if (executor_) throw std::runtime_error("the plan was set before");
    weights_.finish();
    check_plan(*shared, weights_, *kernels_);
    fuse_phases(*shared);
    sampler_ = std::make_unique<Sampler>(kernels_, shared->limits.max_seqs, shared->limits.max_model_len, shared->vocab_size, pool_->num_threads());
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
  // What a step captures fits the job itself: nothing is allocated.
  step_done_[slot] = std::move(done);
  pool_->submit([this, slot] {
    const std::string error = error_of([&] {
      executor_->run(steps_[slot]);
      if (!steps_[slot].out.error.empty()) throw std::runtime_error(steps_[slot].out.error);
    });
    // Moved out first: the slot may be used again as soon as the caller hears of it.
    const Done done = std::move(step_done_[slot]);
    done(error);
  });
}

void Device::queue_logits(std::vector<int32_t> tokens, std::vector<float>* out, Done done) {
  auto shared = std::make_shared<std::vector<int32_t>>(std::move(tokens));
  queue([this, shared, out] { executor_->run_logits(*shared, out); }, std::move(done));
}

void Device::queue_nothing(Done done) { queue([] {}, std::move(done)); }

Device::~Device() {
  ending_.store(true);
  pool_.reset();
  if (cache_writer_.joinable()) cache_writer_.join();
}

}  // namespace pagoda
