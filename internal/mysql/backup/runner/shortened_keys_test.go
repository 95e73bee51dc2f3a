// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestLengthsOfKeysOnExpressionsAreRemoved covers texts and names that look like the length of a key, and statements
// that do not create a table of the dump.
func TestLengthsOfKeysOnExpressionsAreRemoved(t *testing.T) {
	const other = "INSERT INTO `t` VALUES (')(191)');\nCREATE TABLE `not from SHOW CREATE` (a int, KEY ((hex(a))(191)));\n"
	table := func(key string) string {
		return "/*!40101 SET @saved_cs_client     = @@character_set_client */;\n" + beforeCreate + "CREATE TABLE `a)(1)` (\n" +
			"  `new\n)(2);``'` char(30) DEFAULT 'it''s )(3)',\n  `c` decimal(65,30) DEFAULT (concat(_utf8mb4'\\')(4)')),\n" +
			"  KEY `k` (`c`),\n  KEY `short` (`text`(20),`b`(3) DESC),\n  KEY `f` (" + key + ") COMMENT 'x)(5)'\n" +
			") ENGINE=InnoDB COMMENT='y)(6)'\n/*!50100 PARTITION BY HASH (`id`)\n(PARTITION p0 VALUES LESS THAN (10)) */;\n"
	}
	const broken, correct = "(hex(`c`))(191),`d`,(coalesce(`e`,(1)))(7) DESC", "(hex(`c`)),`d`,(coalesce(`e`,(1))) DESC"
	dump, want := other+table(broken)+other+table(broken)+other, other+table(correct)+other+table(correct)+other
	for name, from := range map[string]io.Reader{"whole": strings.NewReader(dump), "by byte": iotest.OneByteReader(strings.NewReader(dump))} {
		found, err := io.ReadAll(newShortenedKeys(from))
		testenv.ExpectNoError(t, err)
		testenv.ExpectEqual(t, name, want, string(found))
	}
	failed := errors.New("the bucket is gone")
	found, err := io.ReadAll(newShortenedKeys(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(failed))))
	if string(found) != "a\nb" || !errors.Is(err, failed) {
		t.Errorf("expected all bytes and the error %v, found %q and %v", failed, found, err)
	}
}
