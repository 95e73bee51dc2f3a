// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"io"
	"strings"
	"testing"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestOutlineFindsNamesWithLineFeeds checks that a failed statement of an object whose name contains a line feed is
// found, so the failure costs only that object.
func TestOutlineFindsNamesWithLineFeeds(t *testing.T) {
	dump := strings.Join([]string{
		"--", // line 1
		"-- Current Database: `shop\n-- db`",
		"--",
		"USE `shop\ndb`;", // lines 5 and 6
		"--",
		"-- Final view structure for view `new\n-- line`",
		"--", // line 10
		"/*!50001 VIEW `new\nline` AS select 1 */;",
		"CREATE DEFINER=`a`@`b` TRIGGER `two\n\nfeeds` BEFORE INSERT ON `t`", // lines 13 to 15
		"FOR EACH ROW SET @a = 1;",
		"--",
		"-- Table structure for table `plain`",
		"--",
		"CREATE TABLE `plain` (id int);", // line 20
	}, "\n") + "\n"
	outline := &dumpOutline{from: strings.NewReader(dump)}
	_, err := io.Copy(io.Discard, outline)
	testenv.ExpectNoError(t, err)
	for line, want := range map[int]string{
		5: "schema .shop\ndb", 8: "view shop\ndb.new\nline", 12: "view shop\ndb.new\nline",
		13: "trigger shop\ndb.two\n\nfeeds", 16: "trigger shop\ndb.two\n\nfeeds", 20: "table shop\ndb.plain",
	} {
		part, _ := outline.find(line)
		testenv.ExpectEqual(t, "the object of the line", want, part.String())
	}
}
