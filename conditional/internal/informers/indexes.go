// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxEndedIndexes limits the indexes of ended leases in one informer. client-go cannot remove an index. When an
// informer has that many, the next lease gets a new informer.
const maxEndedIndexes = 8

// fieldPrefix is the prefix that controller-runtime adds to a field to form the name of its index.
const fieldPrefix = "field:"

// ErrBorrowed is returned for an index in an informer that does not belong to the pool. The index would outlive the
// lease.
var ErrBorrowed = errors.New("the informer belongs to a plain controller")

// FieldIndex is an index of a kind: the arguments of IndexField.
type FieldIndex struct {
	Object  client.Object
	Field   string
	Extract client.IndexerFunc
	// OfManager is true for an index that all leases have. An informer has it once.
	OfManager bool
}

// AppendIndex appends an index. It returns an error if the field already has one.
func AppendIndex(all []*FieldIndex, i *FieldIndex) ([]*FieldIndex, error) {
	if hasField(all, i.Field) {
		return all, fmt.Errorf("expected one index of %T by field %s, found another index by this field: indexer conflict", i.Object, i.Field)
	}
	return append(all, i), nil
}

// MergeIndexes appends the indexes of others to all. It skips fields that already have an index.
func MergeIndexes(all, others []*FieldIndex) []*FieldIndex {
	others = slices.DeleteFunc(slices.Clone(others), func(i *FieldIndex) bool { return hasField(all, i.Field) })
	return slices.Concat(all, others)
}

func hasField(all []*FieldIndex, field string) bool {
	return slices.ContainsFunc(all, func(i *FieldIndex) bool { return i.Field == field })
}

// AddIndex adds an index. Unless it is an index of the manager, only this lease can use it. It may be added at any
// time.
func (l *Lease) AddIndex(ctx context.Context, i *FieldIndex) error {
	name := fieldPrefix + i.Field
	return l.addIndex(name, i, func(suffix string) error {
		extract := i.Extract
		if !i.OfManager {
			extract = func(obj client.Object) []string {
				if l.isEnded.Load() {
					return nil
				}
				return i.Extract(obj)
			}
		}
		return l.entry.cache.IndexField(ctx, i.Object, i.Field+suffix, extract)
	})
}

// AddIndexers adds indexes that only this lease can use.
func (l *Lease) AddIndexers(indexers toolscache.Indexers) error {
	for name, extract := range indexers {
		err := l.addIndex(name, nil, func(suffix string) error {
			return l.entry.informer.AddIndexers(toolscache.Indexers{name + suffix: func(obj any) ([]string, error) {
				if l.isEnded.Load() {
					return nil, nil
				}
				return extract(obj)
			}})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// addIndex adds an index with a new name, unless the informer has this index of the manager already. The names of an
// index differ between leases, because two leases may index the same field in different ways.
func (l *Lease) addIndex(name string, i *FieldIndex, add func(suffix string) error) error {
	e := l.entry
	if e.isBorrowed {
		return ErrBorrowed
	}
	e.indexing.Lock()
	defer e.indexing.Unlock()
	isOfManager := i != nil && i.OfManager
	inInformer, found := e.ofManager[i]
	if !found {
		suffix := fmt.Sprintf("#%d", e.indexCount)
		e.indexCount++
		if !isOfManager {
			l.own.Add(1)
		}
		if err := add(suffix); err != nil {
			return err
		}
		inInformer = name + suffix
	}
	if isOfManager {
		e.ofManager[i] = inInformer
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names[name] = inInformer
	return nil
}

// end disables the functions of the lease's indexes, so that no function of an ended scope is called, and returns the
// number of these indexes. Existing values remain until the object changes or the informer ends.
func (l *Lease) end() int {
	l.isEnded.Store(true)
	return int(l.own.Load())
}

// nameInInformer returns the name in the informer for an index of the lease.
func (l *Lease) nameInInformer(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found, ok := l.names[name]; ok {
		return found
	}
	return name
}

// leaseReader finds the indexes of its lease by their fields.
type leaseReader struct {
	client.Reader
	lease *Lease
}

func (r leaseReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var all client.ListOptions
	if all.ApplyOptions(opts); all.FieldSelector == nil {
		return r.Reader.List(ctx, list, opts...)
	}
	var err error
	all.FieldSelector, err = all.FieldSelector.Transform(func(field, value string) (string, string, error) {
		return strings.TrimPrefix(r.lease.nameInInformer(fieldPrefix+field), fieldPrefix), value, nil
	})
	if err != nil {
		return fmt.Errorf("find the index of the field: %w", err)
	}
	if len(all.FieldSelector.Requirements()) > 1 { // controller-runtime reads the map without a lock.
		r.lease.entry.indexing.RLock()
		defer r.lease.entry.indexing.RUnlock()
	}
	return r.Reader.List(ctx, list, &all)
}

// Indexer returns the informer's store, in which the indexes have the names that the lease uses.
func (l *Lease) Indexer(store toolscache.Indexer) toolscache.Indexer { return leaseIndexer{store, l} }

type leaseIndexer struct {
	toolscache.Indexer
	lease *Lease
}

func (i leaseIndexer) Index(name string, obj any) ([]any, error) {
	return i.Indexer.Index(i.lease.nameInInformer(name), obj)
}

func (i leaseIndexer) IndexKeys(name, value string) ([]string, error) {
	return i.Indexer.IndexKeys(i.lease.nameInInformer(name), value)
}

func (i leaseIndexer) ListIndexFuncValues(name string) []string {
	return i.Indexer.ListIndexFuncValues(i.lease.nameInInformer(name))
}

func (i leaseIndexer) ByIndex(name, value string) ([]any, error) {
	return i.Indexer.ByIndex(i.lease.nameInInformer(name), value)
}

// GetIndexers returns a copy, because client-go's map changes when other leases begin.
func (i leaseIndexer) GetIndexers() toolscache.Indexers {
	i.lease.entry.indexing.RLock()
	defer i.lease.entry.indexing.RUnlock()
	found := maps.Clone(i.Indexer.GetIndexers())
	i.lease.mu.Lock()
	defer i.lease.mu.Unlock()
	for name, inInformer := range i.lease.names {
		found[name] = found[inInformer]
	}
	return found
}

// AddIndexers adds indexes to the lease.
func (i leaseIndexer) AddIndexers(indexers toolscache.Indexers) error {
	return i.lease.AddIndexers(indexers)
}
