// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"slices"
	"testing"
)

func TestSharedStartsOnceAndOutlivesTheTest(t *testing.T) {
	var suite Suite
	starts, ended := 0, false
	shared := NewShared(&suite, func(t testing.TB) string {
		starts++
		t.Cleanup(func() { ended = true })
		return t.TempDir()
	})
	var dirs []string
	for range 2 {
		t.Run("a test of the package", func(t *testing.T) { dirs = append(dirs, shared.Get(t)) })
	}
	if starts != 1 || ended || dirs[0] == "" || dirs[0] != dirs[1] {
		t.Errorf("expected one start, which goes on, found %d, ended %t, folders %q", starts, ended, dirs)
	}
	suite.runCleanups()
	if !ended || isFolder(dirs[0]) {
		t.Errorf("expected an end without a folder left behind, found ended %t", ended)
	}
}

func TestSuiteEndsInReverseOrder(t *testing.T) {
	var suite Suite
	var order []int
	NewShared(&suite, func(t testing.TB) int {
		for i := range 3 {
			t.Cleanup(func() { order = append(order, i) })
		}
		return 0
	}).Get(t)
	suite.runCleanups()
	if !slices.Equal(order, []int{2, 1, 0}) {
		t.Errorf("expected the last that started to end first, found %v", order)
	}
}

func TestSharedThatIsSkippedSkipsEveryTest(t *testing.T) {
	var suite Suite
	shared := NewShared(&suite, func(t testing.TB) int {
		t.Skip("there is no server")
		return 0
	})
	for range 2 {
		var skipped bool
		t.Run("a test of the package", func(t *testing.T) {
			defer func() { skipped = t.Skipped() }()
			shared.Get(t)
		})
		if !skipped {
			t.Error("expected the test to be skipped")
		}
	}
}
