#include <gtest/gtest.h>

#include "core/error.h"
#include "core/fault.h"

namespace {

using namespace trainsuite;

std::string refusal(const std::string& text) {
  try {
    parse_fault(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Fault, IsReadAndWrittenAlike) {
  const Fault fault = parse_fault("rank=1,step=3,kind=hang,case=plain");
  EXPECT_EQ(fault.rank, 1);
  EXPECT_EQ(fault.step, 3);
  EXPECT_EQ(fault.kind, "hang");
  EXPECT_EQ(fault.case_name, "plain");
  EXPECT_EQ(to_text(fault), "rank=1,step=3,kind=hang,case=plain");
  EXPECT_EQ(to_text(parse_fault("kind=oom")), "rank=0,step=0,kind=oom");
}

TEST(Fault, RefusesWhatItDoesNotKnow) {
  EXPECT_NE(refusal("rank=1").find("unknown kind ''"), std::string::npos);
  EXPECT_NE(refusal("kind=explode").find("throw, oom, late, hang"), std::string::npos);
  EXPECT_NE(refusal("kind=oom,rank=-1").find("rank=-1"), std::string::npos);
  EXPECT_NE(refusal("kind=oom,step=x").find("step=x"), std::string::npos);
  EXPECT_NE(refusal("kind=oom,when=3").find("'when'"), std::string::npos);
  EXPECT_NE(refusal("oom").find("KEY=VALUE"), std::string::npos);
}

TEST(Fault, ThrowsWhatItsKindSays) {
  EXPECT_THROW(commit(parse_fault("kind=throw")), Error);
  EXPECT_THROW(commit(parse_fault("kind=oom")), OutOfMemory);
  EXPECT_NO_THROW(commit(parse_fault("kind=nan")));
}

}  // namespace
