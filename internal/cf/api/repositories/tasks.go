// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
)

// GetTask returns a task that is visible to the caller.
func (s *Store) GetTask(ctx context.Context, caller *authorization.Caller, guid string) (*korifiv1alpha1.CFTask, error) {
	return find[*korifiv1alpha1.CFTask](ctx, s, caller, guid, cacheLookup{
		list: &korifiv1alpha1.CFTaskList{}, noun: "task", resource: tasksResource, resourceType: TaskResourceType,
	})
}

// ListTasks returns the tasks in the given spaces, oldest first.
func (s *Store) ListTasks(ctx context.Context, spaces []string) ([]*korifiv1alpha1.CFTask, error) {
	return listOfSpaces[*korifiv1alpha1.CFTask](ctx, s, spaces, "list tasks", func() client.ObjectList { return &korifiv1alpha1.CFTaskList{} })
}

// ListTasksOfApp returns the tasks of an app, oldest first.
func (s *Store) ListTasksOfApp(ctx context.Context, app *korifiv1alpha1.CFApp) ([]*korifiv1alpha1.CFTask, error) {
	return listOfApp[*korifiv1alpha1.CFTask](ctx, s, app, "list tasks", &korifiv1alpha1.CFTaskList{})
}

// CreateTask creates a task, which runs a command once. It returns when the task has its number, or after cacheTimeout.
func (s *Store) CreateTask(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, spec korifiv1alpha1.CFTaskSpec, m *payloads.Metadata) (*korifiv1alpha1.CFTask, error) {
	spec.AppRef = corev1.LocalObjectReference{Name: app.Name}
	wanted := &korifiv1alpha1.CFTask{ObjectMeta: ownedByApp(app, uuid.NewString()), Spec: spec}
	setMetadata(wanted, m)
	made, err := create(ctx, s, caller, wanted)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cacheTimeout)
	defer cancel()
	err = s.WatchUntil(ctx, made.Name, func() (bool, error) {
		var cached korifiv1alpha1.CFTask
		if err := s.cache.Get(ctx, client.ObjectKeyFromObject(made), &cached); err != nil || cached.Status.SequenceID == 0 {
			return false, client.IgnoreNotFound(err)
		}
		made = &cached
		return true, nil
	})
	return made, err
}

// CancelTask requests the cancellation of a task.
func (s *Store) CancelTask(ctx context.Context, caller *authorization.Caller, task *korifiv1alpha1.CFTask) (*korifiv1alpha1.CFTask, error) {
	return patch(ctx, s, caller, task.DeepCopy(), jsonObject{"spec": jsonObject{"canceled": true}})
}
