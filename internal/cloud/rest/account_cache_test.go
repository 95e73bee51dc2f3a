// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"errors"
	"strconv"
	"testing"
)

func TestAccountsInUseAreKept(t *testing.T) {
	cache, built := NewAccountCache[*string](), 0
	get := func(fields ...string) *string {
		t.Helper()
		found, err := cache.GetOrBuild("team", fields, func(name string) (*string, error) { built++; return &name, nil })
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	favourite, neglected := get("0"), get("1")
	for n := 2; n < maxAccounts+1; n++ {
		get("0")
		get(strconv.Itoa(n))
	}
	if built != maxAccounts+1 {
		t.Errorf("%d accounts were built, want %d", built, maxAccounts+1)
	}
	if get("0") != favourite {
		t.Error("the account in use was dropped")
	}
	if get("1") == neglected {
		t.Error("the least recently used account was kept")
	}
}

// A user who may write Secrets in a namespace may write any number of them.
func TestOneNamespaceDropsOnlyItsOwnAccounts(t *testing.T) {
	cache := NewAccountCache[string]()
	built := map[string]int{}
	get := func(namespace, account string) {
		t.Helper()
		if _, err := cache.GetOrBuild(namespace, []string{account}, func(name string) (string, error) { built[namespace]++; return name, nil }); err != nil {
			t.Fatal(err)
		}
	}
	modest := []string{"a", "b", "c"}
	for _, namespace := range modest {
		get(namespace, namespace)
	}
	for n := range 3 * maxAccounts {
		get("greedy", strconv.Itoa(n))
	}
	for _, namespace := range modest {
		if get(namespace, namespace); built[namespace] != 1 {
			t.Errorf("the account of %s was built %d times, want once", namespace, built[namespace])
		}
	}
	if get("greedy", strconv.Itoa(3*maxAccounts-1)); built["greedy"] != 3*maxAccounts {
		t.Error("the newest account was dropped, want the oldest of its namespace to be")
	}
	if got := len(cache.known); got > maxAccounts {
		t.Errorf("%d accounts are kept, want at most %d", got, maxAccounts)
	}
}

// A field may contain any bytes that a Secret can contain.
func TestAccountsDifferByEachField(t *testing.T) {
	cache := NewAccountCache[string]()
	names := map[string]bool{}
	for _, fields := range [][]string{{"a", "b"}, {"ab"}, {"a", "b", ""}, {"", "a", "b"}, {"a\x00b"}, {"a\x00", "b"}, {"a", "\x00b"}, {"1:a1:b"}} {
		name, err := cache.GetOrBuild("team", fields, func(name string) (string, error) { return name, nil })
		if err != nil || names[name] {
			t.Errorf("%q: found %v, and known: %t; want a separate account", fields, err, names[name])
		}
		names[name] = true
	}
}

func TestAnAccountThatCannotBeBuiltIsNotKept(t *testing.T) {
	cache := NewAccountCache[string]()
	refused := errors.New("refused")
	if _, err := cache.GetOrBuild("team", []string{"a"}, func(string) (string, error) { return "", refused }); !errors.Is(err, refused) {
		t.Errorf("found %v, want the error of the build", err)
	}
	if found, err := cache.GetOrBuild("team", []string{"a"}, func(string) (string, error) { return "built", nil }); found != "built" || err != nil {
		t.Errorf("found %q and %v, want it to be built again", found, err)
	}
}
