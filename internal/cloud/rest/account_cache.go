// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
)

// maxAccounts is the maximum number of cached accounts. It is far larger than the number of accounts on one hub.
const maxAccounts = 256

// AccountCache stores the state of accounts, including their tokens. It is safe for concurrent use.
type AccountCache[T any] struct {
	mu    sync.Mutex
	known map[string]*keptAccount[T]
	// uses counts the lookups of all accounts.
	uses int
}

type keptAccount[T any] struct {
	account T
	// namespace is the first namespace that requested the account. lastUse is the value of uses at the last lookup of
	// the account.
	namespace string
	lastUse   int
}

// NewAccountCache returns an empty cache.
func NewAccountCache[T any]() *AccountCache[T] {
	return &AccountCache[T]{known: map[string]*keptAccount[T]{}}
}

// GetOrBuild returns the account with these fields, or builds it. The fields may be secrets, but the account's name
// does not reveal them. For accounts of different kinds, the first field must be the kind. Accounts are built one at a
// time, because two accounts for one project would each log in.
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

// dropOne drops the least recently used account of the namespace with the most accounts. A namespace therefore never
// displaces the accounts of namespaces that have fewer.
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

// HashFields returns a name that is unique to the fields and does not reveal them. The fields may be secrets.
func HashFields(fields ...string) string {
	hash := sha256.New()
	for _, field := range fields {
		_, _ = fmt.Fprintf(hash, "%d:%s", len(field), field) // Writing to a hash never fails.
	}
	return hex.EncodeToString(hash.Sum(nil))
}
