# Writes OUTPUT with the commit of SOURCE_DIR, only when it changed. Run at every build.
execute_process(COMMAND git -C "${SOURCE_DIR}" rev-parse HEAD
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
execute_process(COMMAND git -C "${SOURCE_DIR}" status --porcelain --untracked-files=no
  OUTPUT_VARIABLE changes OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(dirty false)
if(changes)
  set(dirty true)
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "#pragma once
#define TRAINSUITE_VERSION \"${VERSION}\"
#define TRAINSUITE_GIT_COMMIT \"${commit}\"
#define TRAINSUITE_GIT_DIRTY ${dirty}
#define TRAINSUITE_TORCH_VERSION \"${TORCH_VERSION_FULL}\"
")
