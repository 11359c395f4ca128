#pragma once
// Fine-tuning as a training task.
#include <memory>

#include "data/examples.h"
#include "train/finetune_model.h"
#include "train/training_task.h"

namespace trainsuite {

/// `data` must outlive the task. `source` gives the base's values.
std::unique_ptr<TrainingTask> make_finetune_task(const Case& work, const DecoderConfig& config,
                                                 const TrainingData& data,
                                                 const WeightSource& source,
                                                 const DeviceInfo& device, Placement place,
                                                 Communicator* communicator);

/// Optimizer steps of the case that train: one pass, or as many as asked for.
std::int64_t steps_of_one_pass(std::int64_t examples, const Case& work);

}  // namespace trainsuite
