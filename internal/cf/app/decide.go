// SPDX-License-Identifier: Apache-2.0

// Package app decides which processes to create for an app, when to end its stop, which builds and packages to delete,
// and what the status of the app reports. It is pure; package controller observes and acts.
package app

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/stop/savings"
)

// These are the defaults of a process that is created because the app has no process of its type.
const (
	memoryMB = 1024
	diskMB   = 1024
)

// Observed is an app with the objects that belong to it.
type Observed struct {
	App       *korifiv1alpha1.CFApp
	Processes []korifiv1alpha1.CFProcess
	LRPs      []eiriniv1.LRP
	// Droplet is the app's current droplet, or nil.
	Droplet *korifiv1alpha1.Droplet
	// Builds and Packages are the app's builds and packages, except those that are being deleted.
	Builds   []korifiv1alpha1.CFBuild
	Packages []korifiv1alpha1.CFPackage
	// Stops is the record of the stops that spec.desiredState has requested.
	Stops stoprecord.Records
	// Scheduled is the current stop by a Slumber, or nil.
	Scheduled *torporv1alpha1.ScheduledStop
	// Moment is the time of the observation. The savings are computed from it.
	Moment savings.Moment
}

// shouldRun reports whether the app should run: its spec requests a start, and no Slumber stops it.
func (o Observed) shouldRun() bool {
	return o.App.Spec.DesiredState == korifiv1alpha1.StartedState && o.Scheduled == nil
}

// Plan holds the processes to create, and the builds and packages to delete.
type Plan struct {
	Create          []*korifiv1alpha1.CFProcess
	ExpiredBuilds   []*korifiv1alpha1.CFBuild
	ExpiredPackages []*korifiv1alpha1.CFPackage
	// EndsStop is true if the app must be started, because its stop has reached its end time.
	EndsStop bool
}

// Decide returns the plan for an app. Every app needs a web process, and a process for each other process type of its
// current droplet.
func Decide(o Observed) Plan {
	processTypes := []string{korifiv1alpha1.WebProcess}
	if o.Droplet != nil {
		for _, t := range o.Droplet.ProcessTypes {
			processTypes = append(processTypes, t.Type)
		}
	}
	p := Plan{EndsStop: endsStop(o)}
	p.ExpiredBuilds, p.ExpiredPackages = planRetention(o)
	for i, processType := range processTypes {
		exists := func(p korifiv1alpha1.CFProcess) bool { return p.Spec.ProcessType == processType }
		if !slices.ContainsFunc(o.Processes, exists) && !slices.Contains(processTypes[:i], processType) {
			p.Create = append(p.Create, buildProcess(o.App, processType))
		}
	}
	return p
}

func buildProcess(app *korifiv1alpha1.CFApp, processType string) *korifiv1alpha1.CFProcess {
	name := revision.ProcessName(app.Name, processType)
	return &korifiv1alpha1.CFProcess{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: app.Namespace, Name: name,
			Labels: map[string]string{
				korifiv1alpha1.GUIDLabel: name, korifiv1alpha1.AppGUIDLabel: app.Name,
				korifiv1alpha1.ProcessTypeLabel: processType, korifiv1alpha1.SpaceGUIDLabel: app.Namespace,
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(app, korifiv1alpha1.CFAppKind())},
		},
		Spec: korifiv1alpha1.CFProcessSpec{
			AppRef: korifiv1alpha1.Reference{Name: app.Name}, ProcessType: processType,
			MemoryMB: memoryMB, DiskQuotaMB: diskMB,
		},
	}
}
