#pragma once
// HDF5 files that live in memory only. The library never writes a disk file: a kill or a full
// disk cannot leave half of one, and HDF5's file locks play no part.
#include <H5Cpp.h>

#include <functional>

#include "result/durable_file.h"

namespace trainsuite {

using FileChange = std::function<void(H5::H5File&)>;

/// The bytes of a new HDF5 file that `fill` has filled. HDF5's failures become Error.
Bytes new_image(const FileChange& fill);
/// The bytes of the HDF5 file `image` after `change`.
Bytes changed_image(const Bytes& image, const FileChange& change);
/// Lets `look` read the HDF5 file `image`.
void read_image(const Bytes& image, const FileChange& look);

}  // namespace trainsuite
