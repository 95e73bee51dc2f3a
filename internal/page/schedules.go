// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

const (
	slumberKind        = "Slumber"
	clusterSlumberKind = "ClusterSlumber"
	// slumberControllers is the name of the group of the Slumber controllers.
	slumberControllers = "slumber"
)

// addSchedules adds to a mapper the kinds that the schedules tab reads and writes, and returns the mapper.
func addSchedules(mapper *meta.DefaultRESTMapper) *meta.DefaultRESTMapper {
	mapper.Add(torporv1alpha1.SlumberKind(), meta.RESTScopeNamespace)
	mapper.Add(torporv1alpha1.ClusterSlumberKind(), meta.RESTScopeRoot)
	mapper.Add(namespaceKind(), meta.RESTScopeRoot)
	return mapper
}

func namespaceKind() schema.GroupVersionKind { return corev1.SchemeGroupVersion.WithKind("Namespace") }

// listedSchedule is a Slumber or ClusterSlumber, as last observed. It is immutable.
type listedSchedule struct {
	metav1.ObjectMeta
	// slumber is the Slumber, or a Slumber view of the ClusterSlumber. ofCluster is the ClusterSlumber, or nil for a
	// Slumber.
	slumber   *torporv1alpha1.Slumber
	ofCluster *torporv1alpha1.ClusterSlumber
	// schedule is valid if err is nil.
	schedule slumber.Schedule
	err      error
}

// GetObjectKind implements runtime.Object, as informers require.
func (l *listedSchedule) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. It returns the schedule itself, which is never changed.
func (l *listedSchedule) DeepCopyObject() runtime.Object { return l }

func (l *listedSchedule) kind() string {
	if l.ofCluster != nil {
		return clusterSlumberKind
	}
	return slumberKind
}

// zone returns the name of the time zone. The default is UTC.
func (l *listedSchedule) zone() string { return cmp.Or(l.slumber.Spec.TimeZone, "UTC") }

// listSchedule returns the entry for a Slumber or ClusterSlumber, or nil for other objects.
func listSchedule(obj any) *listedSchedule {
	l := &listedSchedule{}
	switch o := obj.(type) {
	case *torporv1alpha1.Slumber:
		l.slumber = o
	case *torporv1alpha1.ClusterSlumber:
		l.slumber, l.ofCluster = slumber.ViewOf(o), o
		l.ofCluster.ManagedFields = nil
		l.Name = o.Name
	default:
		return nil
	}
	l.slumber.ManagedFields = nil
	name := cmp.Or(l.Name, l.slumber.Name)
	l.ObjectMeta = l.slumber.ObjectMeta
	l.Name = name
	l.schedule, l.err = slumber.ParseSchedule(l.slumber.Spec)
	return l
}

// scheduleSource watches one kind of schedules in one namespace or in all namespaces.
type scheduleSource struct {
	kind     string
	store    cache.Store
	informer cache.Controller

	mu sync.Mutex
	// unseen is the reason why the schedules cannot be watched, or "" if they can be watched.
	unseen string
}

// newScheduleSources returns sources for the Slumbers in the namespaces and for ClusterSlumbers. They do not run yet.
func newScheduleSources(kube client.WithWatch, namespaces []string) []*scheduleSource {
	newClusterSlumbers := func() client.ObjectList { return &torporv1alpha1.ClusterSlumberList{} }
	newSlumbers := func() client.ObjectList { return &torporv1alpha1.SlumberList{} }
	sources := []*scheduleSource{
		newScheduleSource(kube, clusterSlumberKind, "", &torporv1alpha1.ClusterSlumber{}, newClusterSlumbers),
	}
	for _, namespace := range namespaces {
		sources = append(sources, newScheduleSource(kube, slumberKind, namespace, &torporv1alpha1.Slumber{}, newSlumbers))
	}
	return sources
}

func newScheduleSource(
	kube client.WithWatch, kind, namespace string, one client.Object, newList func() client.ObjectList,
) *scheduleSource {
	s := &scheduleSource{kind: kind}
	options := func(o metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{Namespace: namespace, Raw: &o}
	}
	s.store, s.informer = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				list := newList()
				err := kube.List(ctx, list, options(o))
				s.setUnseen(describeUnseenSchedules(kind, err))
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				events, err := kube.Watch(ctx, newList(), options(o))
				s.setUnseen(describeUnseenSchedules(kind, err))
				return events, err
			},
		},
		ObjectType: one,
		Transform: func(obj any) (any, error) {
			if l := listSchedule(obj); l != nil {
				return l, nil
			}
			return obj, nil // A transform may get an object that it has already returned.
		},
		Handler: cache.ResourceEventHandlerFuncs{},
	})
	return s
}

// run watches until ctx is cancelled. The page shows errors; the informer would log them repeatedly.
func (s *scheduleSource) run(ctx context.Context) {
	s.informer.RunWithContext(klog.NewContext(ctx, logr.Discard()))
}

func (s *scheduleSource) setUnseen(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unseen = why
}

// describe returns the reason why the schedules are missing or outdated, or "" if they are current.
func (s *scheduleSource) describe() (why string, isMissing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unseen == "" && !s.informer.HasSynced() {
		return "the " + s.kind + "s are being read; load the page again", true
	}
	return s.unseen, s.unseen != "" && s.unseen != outdatedSchedules
}

// outdatedSchedules is the reason for a failed list or watch, after which the schedules may be outdated.
const outdatedSchedules = "the API server did not answer as expected; the schedules may be outdated"

func describeUnseenSchedules(kind string, err error) string {
	switch {
	case err == nil:
		return ""
	case kinds.IsKindNotServed(err), meta.IsNoMatchError(err):
		return "the API server does not serve " + kind + "s; install the feature slumber"
	case k8serrors.IsForbidden(err):
		return "torpor manager may not list " + kind + "s; install the feature slumber"
	default:
		return outdatedSchedules
	}
}

// list returns the schedules that are watched.
func (s *scheduleSource) list() (all []*listedSchedule) {
	if _, isMissing := s.describe(); isMissing {
		return nil
	}
	for _, obj := range s.store.List() {
		if l, ok := obj.(*listedSchedule); ok {
			all = append(all, l)
		}
	}
	return all
}

// seenSchedules contains the schedules that a caller may list, and the reasons why other schedules are missing.
type seenSchedules struct {
	all        []*listedSchedule
	namespaces []string
	warnings   []string
}

// reviewSchedules returns the schedules that the caller may list.
func (s *Server) reviewSchedules(ctx context.Context, caller *authorization.Caller) (seen seenSchedules, err error) {
	reasons := map[string]bool{}
	var slumbers, ofCluster []*listedSchedule
	for _, source := range s.sources {
		if why, _ := source.describe(); why != "" {
			reasons[why] = true
		}
		if source.kind == slumberKind {
			slumbers = append(slumbers, source.list()...)
		} else {
			ofCluster = append(ofCluster, source.list()...)
		}
	}
	if len(ofCluster) > 0 {
		mayList, err := caller.May(ctx, listPermission("clusterslumbers"))
		if err != nil {
			return seen, fmt.Errorf("review the right to list ClusterSlumbers: %w", err)
		}
		if mayList {
			seen.all = ofCluster
		} else {
			reasons["you may not list ClusterSlumbers: ClusterSlumbers that stop your objects are not shown"] = true
		}
	}
	surplus, err := s.addSlumbers(ctx, caller, &seen, slumbers)
	if err != nil {
		return seen, err
	}
	if surplus > 0 {
		reasons[fmt.Sprintf(
			"you may not list Slumbers in all namespaces, and the page checks a limited number of namespaces: %d namespaces were not checked", surplus)] = true
	}
	seen.warnings = slices.Sorted(maps.Keys(reasons))
	return seen, nil
}

func listPermission(resource string) authorization.Permission {
	return authorization.Permission{Verb: "list", Group: torporv1alpha1.GroupVersion().Group, Resource: resource}
}

// addSlumbers adds the Slumbers that the caller may list, and returns the number of namespaces that were not reviewed.
func (s *Server) addSlumbers(
	ctx context.Context, caller *authorization.Caller, seen *seenSchedules, slumbers []*listedSchedule,
) (surplus int, err error) {
	var namespaces []string
	for _, l := range slumbers {
		namespaces = append(namespaces, l.Namespace)
	}
	slices.Sort(namespaces)
	allowed, surplus, err := s.reviewSlumbers(ctx, caller, slices.Compact(namespaces))
	if err != nil {
		return 0, err
	}
	for _, l := range slumbers {
		if allowed[l.Namespace] {
			seen.all = append(seen.all, l)
		}
	}
	seen.namespaces = slices.Sorted(maps.Keys(allowed))
	return surplus, nil
}

// reviewSlumbers returns the namespaces in which the caller may list Slumbers, and the number of namespaces that were
// not reviewed.
func (s *Server) reviewSlumbers(
	ctx context.Context, caller *authorization.Caller, namespaces []string,
) (allowed map[string]bool, surplus int, err error) {
	permission := listPermission("slumbers")
	isEverywhere, err := caller.May(ctx, permission)
	if err != nil {
		return nil, 0, fmt.Errorf("review the right to list Slumbers: %w", err)
	}
	if surplus = len(namespaces) - maxReviewedNamespaces; isEverywhere || surplus < 0 {
		surplus = 0
	}
	allowed, err = caller.AllowedNamespaces(ctx, namespaces[:len(namespaces)-surplus], permission)
	if err != nil {
		return nil, 0, fmt.Errorf("review the right to list Slumbers: %w", err)
	}
	return allowed, surplus, nil
}

// find returns a schedule that the caller may list, or nil if there is no such schedule.
func (seen seenSchedules) find(kind, namespace, name string) *listedSchedule {
	for _, l := range seen.all {
		if l.kind() == kind && l.Namespace == namespace && l.Name == name {
			return l
		}
	}
	return nil
}

// describeScheduleGap returns the reason why no controller acts on a schedule, or "" if none is known.
func describeScheduleGap(acting lease.Acting, l *listedSchedule) string {
	if gap := acting.DescribeGap(slumberControllers, l.Namespace); gap != nil {
		return "No controller acts on these " + l.kind() + "s: " + gap.String()
	}
	return ""
}
