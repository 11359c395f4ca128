// Linked into sanitized tests: plugins of MPI stay loaded, so that the leak report can name them
// (tests/lsan.supp) instead of "<unknown module>".
#include <dlfcn.h>

extern "C" int dlclose(void* /*handle*/) noexcept { return 0; }
