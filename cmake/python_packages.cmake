# Finds torch, NCCL and the CUDA compiler in a Python environment, before project() looks for a
# compiler. The environment: -DTRAINSUITE_PYTHON=<python3>, else the active one, else .venv.
if(NOT TRAINSUITE_PYTHON)
  set(environment "${CMAKE_CURRENT_SOURCE_DIR}/.venv")
  if(DEFINED ENV{VIRTUAL_ENV})
    set(environment "$ENV{VIRTUAL_ENV}")
  endif()
  find_program(TRAINSUITE_PYTHON NAMES python3 PATHS "${environment}/bin" NO_DEFAULT_PATH)
endif()
if(NOT TRAINSUITE_PYTHON)
  message(FATAL_ERROR "No Python environment with torch: run jobs/setup.sh, or give "
    "-DTRAINSUITE_PYTHON=<python3 that has the packages of requirements.txt>")
endif()
execute_process(COMMAND "${TRAINSUITE_PYTHON}" -c "import importlib.util as u
spec = u.find_spec('torch'); print(spec.submodule_search_locations[0] if spec else '', end='')"
  OUTPUT_VARIABLE torch_folder COMMAND_ERROR_IS_FATAL ANY)
if(NOT torch_folder)
  message(FATAL_ERROR "${TRAINSUITE_PYTHON} has no torch: run jobs/setup.sh")
endif()
get_filename_component(site_packages "${torch_folder}/.." ABSOLUTE)
set(Python3_EXECUTABLE "${TRAINSUITE_PYTHON}" CACHE FILEPATH "Python of the tests")
list(APPEND CMAKE_PREFIX_PATH "${torch_folder}/share/cmake")

# The wheels' CUDA compiler, unless another toolkit is named.
set(cuda_folder "${site_packages}/nvidia/cu13")
if(NOT CUDA_TOOLKIT_ROOT_DIR AND NOT CMAKE_CUDA_COMPILER AND EXISTS "${cuda_folder}/bin/nvcc")
  set(CUDA_TOOLKIT_ROOT_DIR "${cuda_folder}" CACHE PATH "CUDA toolkit")
  set(CMAKE_CUDA_COMPILER "${cuda_folder}/bin/nvcc" CACHE FILEPATH "CUDA compiler")
endif()
if(CUDA_TOOLKIT_ROOT_DIR)
  set(ENV{CUDA_HOME} "${CUDA_TOOLKIT_ROOT_DIR}")
  set(ENV{PATH} "${CUDA_TOOLKIT_ROOT_DIR}/bin:$ENV{PATH}")
endif()

# One list of architectures, 80;90 for sm_80 and sm_90: every one of the GPU table by default.
# torch's package sets the compiler's flags from its own spelling, 8.0;9.0.
file(STRINGS src/device/gpu_table.cpp table_rows REGEX "^ *{\"NVIDIA ")
list(TRANSFORM table_rows REPLACE "^[^,]*,[^,]*, *([0-9]+),.*" "\\1" OUTPUT_VARIABLE table_archs)
list(REMOVE_DUPLICATES table_archs)
list(SORT table_archs COMPARE NATURAL)
set(TRAINSUITE_CUDA_ARCHITECTURES "${table_archs}" CACHE STRING "GPU architectures to build for")
if(NOT TORCH_CUDA_ARCH_LIST)
  string(REGEX REPLACE "([0-9]+)([0-9])" "\\1.\\2" TORCH_CUDA_ARCH_LIST
    "${TRAINSUITE_CUDA_ARCHITECTURES}")
endif()
unset(CMAKE_CUDA_ARCHITECTURES CACHE)
set(CMAKE_CUDA_ARCHITECTURES OFF)
