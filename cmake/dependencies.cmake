# Libraries the project builds on. torch and NCCL come from the Python wheels (see jobs/env.sh).
find_package(MPI REQUIRED COMPONENTS CXX)
find_package(HDF5 REQUIRED COMPONENTS CXX)
if(POLICY CMP0167)
  cmake_policy(SET CMP0167 NEW)  # Boost's own package file
endif()
set(Boost_USE_STATIC_LIBS ON)  # the machines that run a carried build need not have Boost
find_package(Boost REQUIRED COMPONENTS program_options)
find_package(nlohmann_json REQUIRED)
unset(CMAKE_CUDA_ARCHITECTURES)  # torch sets the flags from TORCH_CUDA_ARCH_LIST and warns of this
find_package(Torch REQUIRED)
set(CMAKE_CUDA_ARCHITECTURES OFF)

# The wheels put NCCL beside torch: <site-packages>/nvidia/nccl.
get_filename_component(site_packages "${TORCH_INSTALL_PREFIX}/.." ABSOLUTE)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS "${site_packages}/nvidia/nccl/include" REQUIRED)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS "${site_packages}/nvidia/nccl/lib" REQUIRED)
add_library(nccl SHARED IMPORTED)
set_target_properties(nccl PROPERTIES IMPORTED_LOCATION "${NCCL_LIBRARY}"
  INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}")

# fmt's headers travel with torch.
add_library(fmt_headers INTERFACE)
target_compile_definitions(fmt_headers INTERFACE FMT_HEADER_ONLY=1)
target_include_directories(fmt_headers SYSTEM INTERFACE "${TORCH_INSTALL_PREFIX}/include")

add_library(torch_headers_and_libraries INTERFACE)
target_include_directories(torch_headers_and_libraries SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
target_link_libraries(torch_headers_and_libraries INTERFACE ${TORCH_LIBRARIES} CUDA::cudart)
