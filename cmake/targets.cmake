# How every target of the project is built: warnings, sanitizers, include root.
add_library(trainsuite_build_options INTERFACE)
target_compile_options(trainsuite_build_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor>
  # GCC 12 warns of overlap within std::string's own operator+ (its bug 105651).
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${TRAINSUITE_WERROR}>>:-Werror>)
if(TRAINSUITE_SANITIZE)
  target_compile_options(trainsuite_build_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TRAINSUITE_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer>)
  target_link_options(trainsuite_build_options INTERFACE -fsanitize=${TRAINSUITE_SANITIZE})
endif()
target_include_directories(trainsuite_build_options INTERFACE "${PROJECT_SOURCE_DIR}/src")

# trainsuite_room(<name> SOURCES ... LINK ...): a static library for one room of src/.
function(trainsuite_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;LINK" ${ARGN})
  add_library(trainsuite_${name} STATIC ${ROOM_SOURCES})
  target_link_libraries(trainsuite_${name} PUBLIC trainsuite_build_options ${ROOM_LINK})
endfunction()
