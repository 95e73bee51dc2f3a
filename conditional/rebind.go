// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// clientFields are the places in a reconciler that hold a part of a manager, such as its client. A reconciler receives
// the events of the current scope's cache, and must read from the same cache. The client of the outer manager reads from
// another cache, which may not contain the object of an event yet.
type clientFields []clientField

type clientField struct {
	path  string
	place reflect.Value
	take  func(manager.Manager) any
}

// managerParts returns the parts of a manager that a scope has its own version of. The last ones matter only where
// they can be replaced: a client that controller-runtime has created with them keeps them, and reads nothing from a
// cache.
func managerParts() (parts []func(manager.Manager) any, first int) {
	return []func(manager.Manager) any{
		func(m manager.Manager) any { return m },
		func(m manager.Manager) any { return m.GetClient() },
		func(m manager.Manager) any { return m.GetAPIReader() },
		func(m manager.Manager) any { return m.GetCache() },
		func(m manager.Manager) any { return m.GetRESTMapper() },
		func(m manager.Manager) any { return m.GetHTTPClient() },
	}, 4
}

// findClientFields returns the places in a reconciler and in its handlers, and in objects to which they point, that
// hold mgr or a part of it. It returns an error if one of them cannot be set. Variables captured by closures are not
// found.
func findClientFields(mgr manager.Manager, holders ...any) (clientFields, error) {
	f := clientFinder{mgr: mgr, seen: map[visitedPointer]bool{}}
	for _, holder := range holders {
		f.visit(reflect.ValueOf(holder), fmt.Sprintf("%T", holder), false)
	}
	if len(f.stuck) > 0 {
		return nil, fmt.Errorf("expected a pointer to a reconciler whose clients are in exported fields, found %s, "+
			"which cannot be replaced at every start: export the field, or make the reconciler in the function of conditional.Setup",
			strings.Join(f.stuck, ", and "))
	}
	return f.found, nil
}

type clientFinder struct {
	mgr   manager.Manager
	seen  map[visitedPointer]bool
	found clientFields
	stuck []string // stuck holds places that cannot be replaced
}

type visitedPointer struct {
	at uintptr
	of reflect.Type
}

// visit examines one place; inLibrary is true below a type of controller-runtime.
func (f *clientFinder) visit(v reflect.Value, path string, inLibrary bool) {
	if f.takePart(v, path, inLibrary) {
		return
	}
	switch kind := v.Kind(); {
	case kind == reflect.Interface:
		f.visit(v.Elem(), path, inLibrary)
	case kind == reflect.Pointer:
		at := visitedPointer{v.Pointer(), v.Type()}
		if !v.IsNil() && !f.seen[at] {
			f.seen[at] = true
			f.visit(v.Elem(), path, inLibrary)
		}
	case kind == reflect.Struct:
		if of := v.Type().PkgPath(); !isForeign(of) {
			for meta, place := range v.Fields() {
				f.visit(place, path+"."+meta.Name, inLibrary || strings.HasPrefix(of, controllerRuntime))
			}
		}
	case (kind == reflect.Slice || kind == reflect.Array || kind == reflect.Map) && mayHold(v.Type().Elem()):
		for key, element := range v.Seq2() {
			f.visit(element, fmt.Sprintf("%s[%v]", path, key), inLibrary)
		}
	case kind == reflect.Func:
		if name := yieldsClient(v); name != "" {
			f.stuck = append(f.stuck, fmt.Sprintf("the function %s in %s", name, path))
		}
	}
}

// takePart reports whether a place holds a part of the manager.
func (f *clientFinder) takePart(v reflect.Value, path string, inLibrary bool) bool {
	parts, first := managerParts()
	for i, take := range parts {
		switch {
		case !holdsPart(v, take(f.mgr)):
			continue
		case v.CanSet():
			f.found = append(f.found, clientField{path, v, take})
		case i < first || !inLibrary:
			f.stuck = append(f.stuck, fmt.Sprintf("the manager's %T in %s", take(f.mgr), path))
		}
		return true
	}
	return false
}

const controllerRuntime = "sigs.k8s.io/controller-runtime/"

// isForeign is true for packages whose types hold no client of a manager, or none that reads for a reconciler:
// recorders, loggers, servers, clientsets. Some of them change while they are examined.
func isForeign(pkg string) bool {
	if below, ok := strings.CutPrefix(pkg, controllerRuntime); ok {
		return !strings.HasPrefix(below, "pkg/client") && !strings.HasPrefix(below, "pkg/reconcile")
	}
	switch first, _, _ := strings.Cut(pkg, "/"); first {
	case "k8s.io", "context", "crypto", "io", "log", "net", "os", "reflect", "sync", "testing", "time":
		return true
	}
	return strings.HasPrefix(pkg, "github.com/go-logr/") || strings.HasPrefix(pkg, "github.com/prometheus/")
}

// mayHold avoids visiting the elements of lists of numbers and strings.
func mayHold(of reflect.Type) bool {
	return slices.Contains([]reflect.Kind{
		reflect.Interface, reflect.Pointer, reflect.Struct, reflect.Slice, reflect.Array, reflect.Map, reflect.Func,
	}, of.Kind())
}

// yieldsClient returns the name of a function that returns a part of a manager, or is a method of such a part: the
// receiver that it is bound to cannot be determined.
func yieldsClient(f reflect.Value) string {
	if f.IsNil() {
		return ""
	}
	name := "func"
	if known := runtime.FuncForPC(f.Pointer()); known != nil {
		name = known.Name()
	}
	for _, of := range []string{"cache", "client", "cluster", "manager"} {
		if strings.HasPrefix(name, controllerRuntime+"pkg/"+of+".") && strings.HasSuffix(name, "-fm") {
			return name
		}
	}
	if f.Type().NumIn() > 0 {
		return ""
	}
	for out := range f.Type().Outs() {
		switch out {
		case reflect.TypeFor[client.Client](), reflect.TypeFor[client.Reader](), reflect.TypeFor[cache.Cache](), reflect.TypeFor[meta.RESTMapper](),
			reflect.TypeFor[manager.Manager](), reflect.TypeFor[cluster.Cluster]():
			return name
		}
	}
	return ""
}

// holdsPart compares identities: the parts of a manager are pointers.
func holdsPart(place reflect.Value, part any) bool {
	// A field usually has an interface type; the pointer in the interface is compared.
	if place.Kind() == reflect.Interface {
		place = place.Elem()
	}
	want := reflect.ValueOf(part)
	return place.Kind() == reflect.Pointer && want.Kind() == reflect.Pointer &&
		place.Type() == want.Type() && !place.IsNil() && place.Pointer() == want.Pointer()
}

// addresses returns the addresses of the places.
func (fs clientFields) addresses() (all []uintptr) {
	for _, f := range fs {
		all = append(all, f.place.Addr().Pointer())
	}
	return all
}

// bindTo stores the matching part of mgr in every place.
func (fs clientFields) bindTo(mgr manager.Manager) error {
	var errs []error
	for _, f := range fs {
		part := reflect.ValueOf(f.take(mgr))
		if !part.Type().AssignableTo(f.place.Type()) {
			errs = append(errs, fmt.Errorf("expected field %s of the reconciler to take a %s, found type %s: give it an interface type of controller-runtime", f.path, part.Type(), f.place.Type()))
			continue
		}
		f.place.Set(part)
	}
	return errors.Join(errs...)
}
