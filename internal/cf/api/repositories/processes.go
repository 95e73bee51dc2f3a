// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"cmp"
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

const (
	defaultMemoryMB = 1024
	defaultDiskMB   = 1024
)

// GetProcess returns a process that is visible to the caller.
func (s *Store) GetProcess(ctx context.Context, caller *authorization.Caller, guid string) (*korifiv1alpha1.CFProcess, error) {
	return find[*korifiv1alpha1.CFProcess](ctx, s, caller, guid, cacheLookup{
		list: &korifiv1alpha1.CFProcessList{}, noun: "process", resource: processesResource, resourceType: ProcessResourceType,
	})
}

// ListProcesses returns the processes in the given spaces in no particular order. The result must not be changed,
// because it shares objects with the cache.
func (s *Store) ListProcesses(spaces []string) ([]*korifiv1alpha1.CFProcess, error) {
	return listInSpaces[*korifiv1alpha1.CFProcess](s.processes, spaces)
}

// ListProcessesOfApp returns the processes of an app, the web process first. Processes of one type are sorted by age,
// because only the oldest runs. They are visible to every caller that may see the app.
func (s *Store) ListProcessesOfApp(ctx context.Context, app *korifiv1alpha1.CFApp) ([]*korifiv1alpha1.CFProcess, error) {
	found, err := listOfApp[*korifiv1alpha1.CFProcess](ctx, s, app, "list processes", &korifiv1alpha1.CFProcessList{})
	slices.SortFunc(found, func(a, b *korifiv1alpha1.CFProcess) int {
		isOther := func(p *korifiv1alpha1.CFProcess) int {
			if p.Spec.ProcessType == korifiv1alpha1.WebProcess {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(isOther(a), isOther(b)), cmp.Compare(a.Spec.ProcessType, b.Spec.ProcessType), revision.CompareByAge(a, b))
	})
	return found, err
}

// GetProcessByType returns the oldest process of an app that has the given type.
func (s *Store) GetProcessByType(ctx context.Context, app *korifiv1alpha1.CFApp, processType string) (*korifiv1alpha1.CFProcess, error) {
	processes, err := s.ListProcessesOfApp(ctx, app)
	if err != nil {
		return nil, err
	}
	for _, process := range processes {
		if process.Spec.ProcessType == processType {
			return process, nil
		}
	}
	return nil, apierrors.NewNotFound(ProcessResourceType)
}

// CreateProcess creates a process. If the app's controller has just created the process, it returns the existing one.
func (s *Store) CreateProcess(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, processType string) (*korifiv1alpha1.CFProcess, error) {
	process := &korifiv1alpha1.CFProcess{ObjectMeta: ownedByApp(app, revision.ProcessName(app.Name, processType))}
	process.Labels[korifiv1alpha1.ProcessGUIDLabel], process.Labels[korifiv1alpha1.ProcessTypeLabel] = process.Name, processType
	process.Spec = korifiv1alpha1.CFProcessSpec{
		AppRef: korifiv1alpha1.Reference{Name: app.Name}, ProcessType: processType, MemoryMB: defaultMemoryMB, DiskQuotaMB: defaultDiskMB,
	}
	err := caller.Client.Create(ctx, process)
	if client.IgnoreAlreadyExists(err) != nil {
		return nil, apierrors.FromError(err, ProcessResourceType)
	}
	if err != nil {
		if err := getLive(ctx, caller, client.ObjectKeyFromObject(process), process); err != nil {
			return nil, err
		}
	}
	s.WaitForCache(ctx, process)
	return process, nil
}

// PatchProcessMessage describes a change to a process. A nil field remains unchanged.
type PatchProcessMessage struct {
	Instances           *int32
	MemoryMB, DiskMB    *int64
	Command             *string
	CheckType, Endpoint *string
	Timeout, Invocation *int32
	Ports               *[]int32
	Metadata            *payloads.Metadata
}

// PatchProcess changes a process with a single patch.
func (s *Store) PatchProcess(ctx context.Context, caller *authorization.Caller, process *korifiv1alpha1.CFProcess, message PatchProcessMessage) (*korifiv1alpha1.CFProcess, error) {
	spec, check, data := jsonObject{}, jsonObject{}, jsonObject{}
	setIfGiven(spec, "desiredInstances", message.Instances)
	setIfGiven(spec, "memoryMB", message.MemoryMB)
	setIfGiven(spec, "diskQuotaMB", message.DiskMB)
	setIfGiven(spec, "command", message.Command)
	setIfGiven(spec, "ports", message.Ports)
	setIfGiven(check, "type", message.CheckType)
	setIfGiven(data, "httpEndpoint", message.Endpoint)
	setIfGiven(data, "timeoutSeconds", message.Timeout)
	setIfGiven(data, "invocationTimeoutSeconds", message.Invocation)
	if len(data) > 0 {
		check["data"] = data
	}
	if len(check) > 0 {
		spec["healthCheck"] = check
	}
	return patchCopy(ctx, s, caller, process, specAndMetadata(spec, message.Metadata))
}

func setIfGiven[T any](into jsonObject, key string, value *T) {
	if value != nil {
		into[key] = *value
	}
}
