// SPDX-License-Identifier: Apache-2.0

package actuatortest

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// PermissionsOf returns the permissions that the calls need. table lists the permissions of every operation; the list
// is empty for an operation that needs no permission.
func PermissionsOf(t *testing.T, calls map[string]int, table map[string][]string) map[string]bool {
	t.Helper()
	needed := map[string]bool{}
	for operation := range calls {
		permissions, isKnown := table[operation]
		if !isKnown {
			t.Errorf("expected an operation of the table, found a call of %q", operation)
		}
		for _, permission := range permissions {
			needed[permission] = true
		}
	}
	return needed
}

// ExpectDocumented compares the needed permissions with the permissions documented on the platform's page. pattern is a
// regular expression that matches a permission on this page.
func ExpectDocumented(t *testing.T, platform, pattern string, needed map[string]bool) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "clouds", platform+".md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, permission := range regexp.MustCompile(pattern).FindAllString(string(page), -1) {
		documented[permission] = true
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(needed)), slices.Sorted(maps.Keys(documented))); diff != "" {
		t.Errorf("permissions (-needed by the calls +documented):\n%s", diff)
	}
}

// HibernateAndResume stops machines twice and then starts them twice, as a hibernation and a resume do.
func HibernateAndResume(t *testing.T, cloud Cloud, ids []string) {
	t.Helper()
	orders := cloud.Actuator()
	for _, order := range []func() error{
		func() error { return orders.Stop(t.Context(), cloud.Target(), ids) },
		func() error { return orders.Start(t.Context(), cloud.Target(), ids) },
	} {
		for range 2 {
			if _, err := orders.Observe(t.Context(), cloud.Target()); err != nil {
				t.Fatal(err)
			}
			if err := order(); err != nil {
				t.Fatal(err)
			}
			cloud.Settle(t)
		}
	}
}
