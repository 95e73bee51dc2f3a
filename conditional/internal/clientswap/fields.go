// SPDX-License-Identifier: Apache-2.0

// Package clientswap moves a reconciler from one manager to the next. A reconciler that was made with the client of the
// outer manager must read from the cache whose events it gets, which is that of the present scope; otherwise it
// misses objects that the other cache has not seen yet.
package clientswap

import (
	"fmt"
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// ClientFields are the fields of a reconciler that hold a part of a manager.
type ClientFields []clientField

type clientField struct {
	name  string
	place reflect.Value
	take  func(manager.Manager) any
}

// managerParts are the parts of a manager that a scope has of its own.
func managerParts() []func(manager.Manager) any {
	return []func(manager.Manager) any{
		func(m manager.Manager) any { return m },
		func(m manager.Manager) any { return m.GetClient() },
		func(m manager.Manager) any { return m.GetAPIReader() },
		func(m manager.Manager) any { return m.GetCache() },
		func(m manager.Manager) any { return m.GetRESTMapper() },
		func(m manager.Manager) any { return m.GetHTTPClient() },
	}
}

// FindFields returns the fields of r, and of the structs in it, that hold mgr or something that mgr hands out. It returns an
// error when one of them cannot be set. What is behind further pointers or in closures is not seen.
func FindFields(r any, mgr manager.Manager) (ClientFields, error) {
	top := reflect.ValueOf(r)
	if top.Kind() == reflect.Pointer {
		top = top.Elem()
	}
	if top.Kind() != reflect.Struct {
		return nil, nil
	}
	found := findInStruct(top, "", mgr)
	for _, f := range found {
		if !f.place.CanSet() {
			return nil, fmt.Errorf("expected a pointer to a reconciler whose clients are in exported fields, found %T with the manager's %T in %s, "+
				"which cannot be replaced at every start: export the field, or make the reconciler in the function of conditional.Setup",
				r, f.take(mgr), f.name)
		}
	}
	return found, nil
}

func findInStruct(in reflect.Value, path string, mgr manager.Manager) ClientFields {
	var found ClientFields
	for meta, place := range in.Fields() {
		name := path + meta.Name
		if place.Kind() == reflect.Struct {
			found = append(found, findInStruct(place, name+".", mgr)...)
			continue
		}
		for _, take := range managerParts() {
			if holdsPart(place, take(mgr)) {
				found = append(found, clientField{name, place, take})
				break
			}
		}
	}
	return found
}

// holdsPart compares identities: what a manager hands out are pointers.
func holdsPart(place reflect.Value, part any) bool {
	// A field has the type of an interface as a rule; what counts is the pointer in it.
	if place.Kind() == reflect.Interface {
		place = place.Elem()
	}
	want := reflect.ValueOf(part)
	return place.Kind() == reflect.Pointer && want.Kind() == reflect.Pointer &&
		place.Type() == want.Type() && !place.IsNil() && place.Pointer() == want.Pointer()
}

// BindTo puts into every field what mgr has in its place.
func (fs ClientFields) BindTo(mgr manager.Manager) error {
	for _, f := range fs {
		part := reflect.ValueOf(f.take(mgr))
		if !part.Type().AssignableTo(f.place.Type()) {
			return fmt.Errorf("expected field %s of the reconciler to take a %s, found type %s: give it an interface type of controller-runtime", f.name, part.Type(), f.place.Type())
		}
		f.place.Set(part)
	}
	return nil
}
