// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	"k8s.io/utils/lru"
)

// maxAccounts is how many accounts are kept: far more than one hub has.
const maxAccounts = 256

// AccountCache keeps what is known of accounts, with their tokens. It is safe for concurrent use.
type AccountCache[T any] struct {
	mu    sync.Mutex
	known *lru.Cache
}

// NewAccountCache returns an empty cache.
func NewAccountCache[T any]() *AccountCache[T] { return &AccountCache[T]{known: lru.New(maxAccounts)} }

// GetOrBuild returns the account that has these fields, which may be secrets, or builds it. It has a name that holds none of them. Accounts of
// different kinds need a first field that says which. One account is built at a time: two of one project would both log in.
func (a *AccountCache[T]) GetOrBuild(fields []string, build func(name string) (T, error)) (T, error) {
	name := HashFields(fields...)
	a.mu.Lock()
	defer a.mu.Unlock()
	if found, ok := a.known.Get(name); ok {
		if account, isAccount := found.(T); isAccount {
			return account, nil
		}
	}
	account, err := build(name)
	if err == nil {
		a.known.Add(name, account)
	}
	return account, err
}

// HashFields returns a name that holds none of the fields, which may be secrets, and that no other fields have.
func HashFields(fields ...string) string {
	hash := sha256.New()
	for _, field := range fields {
		_, _ = fmt.Fprintf(hash, "%d:%s", len(field), field) // A hash takes everything.
	}
	return hex.EncodeToString(hash.Sum(nil))
}
