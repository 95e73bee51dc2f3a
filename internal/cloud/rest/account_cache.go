// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
)

// maxAccounts is how many accounts are kept: far more than one hub has.
const maxAccounts = 256

// AccountCache keeps what is known of accounts, with their tokens. It is safe for concurrent use.
type AccountCache[T any] struct {
	mu    sync.Mutex
	known map[string]*keptAccount[T]
	// uses counts how often any account was asked for.
	uses int
}

type keptAccount[T any] struct {
	account T
	// namespace is the first that asked for the account, and lastUse by how many uses of any account it was used last.
	namespace string
	lastUse   int
}

// NewAccountCache returns an empty cache.
func NewAccountCache[T any]() *AccountCache[T] {
	return &AccountCache[T]{known: map[string]*keptAccount[T]{}}
}

// GetOrBuild returns the account that has these fields, which may be secrets, or builds it. It has a name that holds none of them. Accounts of
// different kinds need a first field that says which. One account is built at a time: two of one project would both log in.
func (a *AccountCache[T]) GetOrBuild(namespace string, fields []string, build func(name string) (T, error)) (T, error) {
	name := HashFields(fields...)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.uses++
	if found := a.known[name]; found != nil {
		found.lastUse = a.uses
		return found.account, nil
	}
	account, err := build(name)
	if err != nil {
		return account, err
	}
	a.known[name] = &keptAccount[T]{account, namespace, a.uses}
	if len(a.known) > maxAccounts {
		a.dropOne()
	}
	return account, nil
}

// dropOne drops an account of the namespace that has most, so that whoever writes many Secrets drops nobody else's: of these, the one that
// was not used for longest.
func (a *AccountCache[T]) dropOne() {
	counts := map[string]int{}
	for _, kept := range a.known {
		counts[kept.namespace]++
	}
	dropped := ""
	for name, kept := range a.known {
		other := a.known[dropped]
		if other == nil || cmp.Or(cmp.Compare(counts[other.namespace], counts[kept.namespace]), cmp.Compare(kept.lastUse, other.lastUse)) < 0 {
			dropped = name
		}
	}
	delete(a.known, dropped)
}

// HashFields returns a name that holds none of the fields, which may be secrets, and that no other fields have.
func HashFields(fields ...string) string {
	hash := sha256.New()
	for _, field := range fields {
		_, _ = fmt.Fprintf(hash, "%d:%s", len(field), field) // A hash takes everything.
	}
	return hex.EncodeToString(hash.Sum(nil))
}
