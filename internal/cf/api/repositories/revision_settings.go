// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/process"
)

// GetRevisionSettings returns the settings of a revision's processes, keyed by process type. It reads them as the
// caller. A revision that never had an LRP has no settings.
func (s *Store) GetRevisionSettings(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, revision korifiv1alpha1.Restart) (map[string]process.RevisionSettings, error) {
	all := map[string]process.RevisionSettings{}
	for processType, name := range revision.Settings {
		var secret corev1.Secret
		if err := caller.Client.Get(ctx, client.ObjectKey{Namespace: app.Namespace, Name: name}, &secret); err != nil {
			return nil, apierrors.FromError(err, "Settings of the revision")
		}
		settings, err := process.ReadSettings(&secret)
		if err != nil {
			return nil, err
		}
		all[processType] = settings
	}
	return all, nil
}

// RestoreSettings restores the environment, commands, ports and health checks of an earlier revision. It writes only
// settings that differ.
func (s *Store) RestoreSettings(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, settings map[string]process.RevisionSettings) error {
	if len(settings) == 0 {
		return nil
	}
	processes, err := s.ListProcessesOfApp(ctx, app)
	if err != nil {
		return err
	}
	if err := s.restoreEnvironment(ctx, caller, app, process.FindAppEnvironment(settings)); err != nil {
		return err
	}
	for _, p := range processes {
		if wanted, known := settings[p.Spec.ProcessType]; known {
			if err := s.restoreProcess(ctx, caller, p, wanted); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) restoreEnvironment(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, wanted map[string][]byte) error {
	current, err := s.GetEnvironment(ctx, caller, app)
	if err != nil {
		return err
	}
	changes := map[string]*string{}
	for name := range current {
		if _, kept := wanted[name]; !kept {
			changes[name] = nil
		}
	}
	for name, value := range wanted {
		if found, ok := current[name]; !ok || !bytes.Equal([]byte(found), value) {
			changes[name] = new(string(value))
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return s.SetEnvironment(ctx, caller, app, changes)
}

func (s *Store) restoreProcess(ctx context.Context, caller *authorization.Caller, p *korifiv1alpha1.CFProcess, wanted process.RevisionSettings) error {
	if p.Spec.Command == wanted.Command && p.Spec.HealthCheck == wanted.HealthCheck && slices.Equal(p.Spec.Ports, wanted.Ports) {
		return nil
	}
	check := wanted.HealthCheck
	_, err := patch(ctx, s, caller, p.DeepCopy(), jsonObject{"spec": jsonObject{"command": wanted.Command, "ports": wanted.Ports, "healthCheck": jsonObject{
		"type": check.Type, "data": jsonObject{
			"httpEndpoint": check.Data.HTTPEndpoint, "timeoutSeconds": check.Data.TimeoutSeconds, "invocationTimeoutSeconds": check.Data.InvocationTimeoutSeconds,
		},
	}}})
	if err != nil {
		return fmt.Errorf("restore the process %s: %w", p.Spec.ProcessType, err)
	}
	return nil
}
