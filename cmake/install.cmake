# Where the products lie, in the build and installed, and how they find the wheels' libraries.
file(GLOB wheel_libraries LIST_DIRECTORIES true
  "${site_packages}/torch/lib" "${site_packages}/nvidia/*/lib")
set(install_rpath "$ORIGIN" "$ORIGIN/../lib")
foreach(folder ${wheel_libraries})
  string(FIND "${folder}" "${CMAKE_INSTALL_PREFIX}/" position)
  if(position EQUAL 0)  # inside the prefix: the whole environment can be moved
    file(RELATIVE_PATH relative "${CMAKE_INSTALL_PREFIX}/bin" "${folder}")
    list(APPEND install_rpath "$ORIGIN/${relative}")
  else()
    list(APPEND install_rpath "${folder}")
  endif()
endforeach()
set_target_properties(trainsuite trainsuite_ops PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}"
  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}"
  BUILD_RPATH "$ORIGIN;${wheel_libraries}"
  INSTALL_RPATH "${install_rpath}"
  INSTALL_RPATH_USE_LINK_PATH ON)  # a site's own MPI or HDF5

install(TARGETS trainsuite trainsuite_ops RUNTIME DESTINATION bin LIBRARY DESTINATION lib)
foreach(name results report compare export prepare-data)
  install(PROGRAMS cmake/trainsuite-analysis.sh DESTINATION bin RENAME trainsuite-${name})
endforeach()
install(PROGRAMS src/compile/capture.py DESTINATION share/trainsuite/compile)
install(FILES src/compile/capture_inductor.py src/compile/capture_wrapper.py
  DESTINATION share/trainsuite/compile)
install(FILES jobs/env.sh DESTINATION share/trainsuite)
install(DIRECTORY analysis DESTINATION share/trainsuite PATTERN __pycache__ EXCLUDE)
install(DIRECTORY suites/pytorch DESTINATION share/trainsuite/suites PATTERN __pycache__ EXCLUDE)
install(DIRECTORY docs/ DESTINATION share/doc/trainsuite)
