#pragma once
// The compiled blocks of fine-tuning: one for each length that micro-batches are padded to.
#include "model/decoder.h"
#include "train/compiled_parts.h"

namespace trainsuite {

/// A block of the case's decoder for each of its length buckets, in their order: dense where all
/// trains, else frozen with adapters. None where the case's blocks are not compiled.
std::vector<BlockRequest> finetune_block_requests(const Case& work);

/// Throws Error unless the model's blocks are those of the size's, which are compiled.
void check_compilable(const Case& work, const DecoderConfig& model);

/// The compiled block for micro-batches of this layout; empty where there is none: another number
/// of examples, as in a pass's last step, or a longer example than the last bucket.
BlockFunction compiled_block_of(const Case& work, const CompiledParts& parts,
                                const TokenLayout& layout, const RotaryTable& rotary);

}  // namespace trainsuite
