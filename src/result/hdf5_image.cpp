#include "result/hdf5_image.h"

#include <atomic>

#include "core/error.h"

namespace trainsuite {

namespace {

constexpr std::size_t growth_bytes = 1 << 16;

/// HDF5 takes two open memory files of one name for the same file.
std::string unique_name() {
  static std::atomic<std::uint64_t> count{0};
  return fmt::format("trainsuite-image-{}", count++);
}

H5::FileAccPropList in_memory(const Bytes* image) {
  H5::FileAccPropList properties;
  properties.setCore(growth_bytes, /*backing_store=*/false);
  if (image != nullptr) {
    void* content = const_cast<std::uint8_t*>(image->data());  // HDF5 copies it
    if (H5Pset_file_image(properties.getId(), content, image->size()) < 0)
      fail("HDF5 cannot take a file image of {} bytes", image->size());
  }
  return properties;
}

Bytes image_of(H5::H5File& file) {
  file.flush(H5F_SCOPE_GLOBAL);
  const ssize_t size = H5Fget_file_image(file.getId(), nullptr, 0);
  if (size < 0) fail("HDF5 cannot say the size of a file image");
  Bytes image(static_cast<std::size_t>(size));
  if (H5Fget_file_image(file.getId(), image.data(), image.size()) != size)
    fail("HDF5 cannot give a file image of {} bytes", image.size());
  return image;
}

/// H5::Exception is no std::exception; nothing outside this room has to know it.
template <class Work>
auto translated(Work work) {
  H5::Exception::dontPrint();
  try {
    return work();
  } catch (const H5::Exception& error) {
    fail("HDF5: {}: {}", error.getFuncName(), error.getDetailMsg());
  }
}

}  // namespace

Bytes new_image(const FileChange& fill) {
  return translated([&] {
    H5::H5File file(unique_name(), H5F_ACC_TRUNC, H5::FileCreatPropList::DEFAULT,
                    in_memory(nullptr));
    fill(file);
    return image_of(file);
  });
}

Bytes changed_image(const Bytes& image, const FileChange& change) {
  return translated([&] {
    H5::H5File file(unique_name(), H5F_ACC_RDWR, H5::FileCreatPropList::DEFAULT, in_memory(&image));
    change(file);
    return image_of(file);
  });
}

void read_image(const Bytes& image, const FileChange& look) {
  translated([&] {
    H5::H5File file(unique_name(), H5F_ACC_RDONLY, H5::FileCreatPropList::DEFAULT,
                    in_memory(&image));
    look(file);
  });
}

}  // namespace trainsuite
