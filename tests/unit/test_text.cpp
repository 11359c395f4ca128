#include <gtest/gtest.h>

#include "core/text.h"

namespace trainsuite {
namespace {

TEST(EditDistance, CountsEachKindOfEdit) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("plain", "plain"), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("plin", "plain"), 1u);    // insert
  EXPECT_EQ(edit_distance("plaain", "plain"), 1u);  // delete
  EXPECT_EQ(edit_distance("pluin", "plain"), 1u);   // replace
  EXPECT_EQ(edit_distance("palin", "plain"), 1u);   // swap
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(NearestName, FindsTheNearestAndTheFirstOfEquals) {
  EXPECT_EQ(nearest_name("dpd", {"finetune", "ddp", "compile"}), "ddp");
  EXPECT_EQ(nearest_name("ab1", {"ab2", "ab3"}), "ab2");
}

TEST(NearestName, IsEmptyWhereNoneIsNear) {
  EXPECT_EQ(nearest_name("nothing", {"plain", "both", "1gpu"}), "");
  EXPECT_EQ(nearest_name("xy", {"ab"}), "");  // two edits, but nothing in common
  EXPECT_EQ(nearest_name("", {"a"}), "");
  EXPECT_EQ(nearest_name("x", {}), "");
}

TEST(NearestName, AllowsMoreEditsInLongWords) {
  const std::string name = "accumulate-gradients";
  EXPECT_EQ(nearest_name("acumulat-gradeints", {name}), name);  // three edits
  EXPECT_EQ(nearest_name("abcdef", {"abcxyz"}), "");            // three edits in a short word
}

TEST(NearestName, EndsOnHugeWords) {
  EXPECT_EQ(nearest_name(std::string(1 << 20, 'a'), {"a"}), "");
}

TEST(Glob, MatchesTheWholeText) {
  EXPECT_TRUE(glob_matches("*1gpu*", "124m-1gpu-accumulate4"));
  EXPECT_TRUE(glob_matches("plai?", "plain"));
  EXPECT_TRUE(glob_matches("[bp]*", "both"));
  EXPECT_FALSE(glob_matches("plain", "124m-plain"));
  EXPECT_FALSE(glob_matches("PLAIN", "plain"));
  EXPECT_FALSE(glob_matches("", "plain"));
}

TEST(Quoted, StaysOnOneLineAndShort) {
  EXPECT_EQ(quoted("dpd"), "'dpd'");
  EXPECT_EQ(quoted("a\nb\x1b[31m").find_first_of("\n\x1b"), std::string::npos);
  EXPECT_LT(quoted(std::string(100000, 'x')).size(), 80u);
}

TEST(Join, SeparatesOnlyBetween) {
  EXPECT_EQ(join({}, ", "), "");
  EXPECT_EQ(join({"a"}, ", "), "a");
  EXPECT_EQ(join({"a", "a", "b"}, ", "), "a, a, b");
}

TEST(Grouped, PutsCommasBetweenThousands) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(grouped(-123), "-123");
  EXPECT_EQ(grouped(-1234), "-1,234");
}

TEST(DurationText, CarriesRoundedSecondsOver) {
  EXPECT_EQ(duration_text(59.4), "59 s");
  EXPECT_EQ(duration_text(59.6), "1 min 00 s");
  EXPECT_EQ(duration_text(185), "3 min 05 s");
  EXPECT_EQ(duration_text(2 * 3600 + 7 * 60 + 30), "2 h 07 min");
  EXPECT_EQ(duration_text(-1), "0 s");
}

TEST(AlignedTable, AlignsLeftThenRightWithoutTrailingBlanks) {
  EXPECT_EQ(aligned_table({{"a", "bbb", "c"}, {"long", "b", "3"}}, 2),
            "a     bbb  c\n"
            "long  b    3\n");
  EXPECT_EQ(aligned_table({{"x", "1"}, {"y", "100"}}, 1), "x    1\ny  100\n");
  EXPECT_EQ(aligned_table({{"name", "x"}, {"a", ""}}, 2), "name  x\na\n");
  EXPECT_EQ(aligned_table({{"µs", "1"}, {"ab", "2"}}, 1), "µs  1\nab  2\n");
}

}  // namespace
}  // namespace trainsuite
