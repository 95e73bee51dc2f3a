// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	"github.com/torpor-dev/torpor/internal/mysql/sqlclient"
)

// Keys of log lines.
const (
	keyInstance = "instance"
	keyError    = "error"
	keyAction   = "action"
)

// errNoSource is told until clusters can be copied from outside.
var errNoSource = errors.New("a copy from outside is not supported; remove spec.replicationSourceSecretName")

// act performs the one effect of a plan and does not wait for long. It returns why it failed, in words that are stable and
// free of secrets; empty if it did not. A promotion is written with the status.
func (c Controller) act(ctx context.Context, seen *observation, do clustering.Action) string {
	if len(clustering.TargetInstances(do)) > 0 {
		log.FromContext(ctx).Info("Acting", keyAction, fmt.Sprintf("%T%v", do, do))
	}
	err := c.perform(ctx, seen, do)
	if err == nil {
		return ""
	}
	log.FromContext(ctx).Info("Act failed", keyAction, fmt.Sprintf("%T%v", do, do), keyError, describe(err))
	return describe(err)
}

func (c Controller) perform(ctx context.Context, seen *observation, do clustering.Action) error {
	switch do := do.(type) {
	case clustering.Nothing, clustering.PromoteInStatus:
		return nil
	case clustering.SetRole:
		return c.setRole(ctx, seen, do)
	case clustering.ClearDemote:
		return c.patchPod(ctx, seen, do.Index, "annotations", map[string]any{mocov1beta2.DemoteAnnotation: nil})
	case clustering.KillConnections:
		return seen.cutOff(ctx, do.Index)
	case clustering.CancelPending:
		seen.crew.interrupt(ctx, do.Index)
		return seen.beside(ctx, do.Index, func(ctx context.Context, s *sqlclient.Server) error { return s.CancelStatements(ctx) })
	case clustering.StopIO:
		return seen.stopIO(ctx, do)
	case clustering.SetReadOnly:
		return seen.sql(ctx, do.Index, do, func(ctx context.Context, s *sqlclient.Server) error { return s.SetReadOnly(ctx) })
	case clustering.MakeWritable:
		return seen.sql(ctx, do.Index, do, func(ctx context.Context, s *sqlclient.Server) error {
			return s.SetWritable(ctx, seen.facts[do.Index].SemiSync, do.WaitFor)
		})
	case clustering.StartIO:
		return seen.sql(ctx, do.Index, do, func(ctx context.Context, s *sqlclient.Server) error { return s.StartReceiving(ctx) })
	case clustering.RestartSQL:
		return seen.sql(ctx, do.Index, do, func(ctx context.Context, s *sqlclient.Server) error { return s.StartApplying(ctx) })
	case clustering.ConfigurePrimary:
		return seen.sql(ctx, do.Index, do, func(ctx context.Context, s *sqlclient.Server) error {
			return s.BecomeSource(ctx, seen.facts[do.Index].SemiSync, do.WaitFor)
		})
	case clustering.ConfigureReplica:
		return seen.follow(ctx, do)
	case clustering.CloneFrom:
		return seen.clone(ctx, do)
	}
	return nil
}

// sql runs an act that others may find pending.
func (s *observation) sql(ctx context.Context, i int, do clustering.Action, run func(context.Context, *sqlclient.Server) error) error {
	m := s.members[i]
	if m == nil {
		return errNoConnection
	}
	return s.crew.start(ctx, i, do, func(ctx context.Context) error { return run(ctx, m.server) })
}

// beside runs an act that may come while another one runs.
func (s *observation) beside(ctx context.Context, i int, run func(context.Context, *sqlclient.Server) error) error {
	if s.members[i] == nil {
		return errNoConnection
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return run(ctx, s.members[i].server)
}

// cutOff ends the sessions of clients, and of a replica that was the primary also their waits for acknowledgements.
func (s *observation) cutOff(ctx context.Context, i int) error {
	return s.beside(ctx, i, func(ctx context.Context, server *sqlclient.Server) error {
		err := server.KillConnections(ctx, systemUsers())
		if err != nil || i == s.Primary || s.facts[i].SemiSync.Waiting == 0 {
			return err
		}
		return server.EndCommitWaits(ctx, s.facts[i].SemiSync)
	})
}

// stopIO fences all at once.
func (s *observation) stopIO(ctx context.Context, do clustering.StopIO) error {
	failures := make([]error, len(do.Indexes))
	var all sync.WaitGroup
	for at, i := range do.Indexes {
		all.Go(func() {
			s.crew.interrupt(ctx, i)
			failures[at] = s.beside(ctx, i, func(ctx context.Context, server *sqlclient.Server) error {
				if err := server.CancelStatements(ctx); err != nil {
					return err
				}
				return server.StopReceiving(ctx)
			})
		})
	}
	all.Wait()
	return errors.Join(failures...)
}

func (s *observation) follow(ctx context.Context, do clustering.ConfigureReplica) error {
	password, err := s.password(replicationKey)
	if err != nil {
		return err
	}
	like, host := s.facts[do.Index].SemiSync, s.Instances[do.Source].Host
	return s.sql(ctx, do.Index, do, func(ctx context.Context, server *sqlclient.Server) error {
		return server.FollowSource(ctx, like, host, sqlclient.Account{Name: replicationUser, Password: password}, true)
	})
}

func (s *observation) clone(ctx context.Context, do clustering.CloneFrom) error {
	if do.Donor == clustering.NoInstance {
		return errNoSource
	}
	password, err := s.password(donorKey)
	if err != nil {
		return err
	}
	if s.members[do.Donor] == nil {
		return errNoConnection
	}
	donor := s.members[do.Donor].address
	return s.sql(ctx, do.Index, do, func(ctx context.Context, server *sqlclient.Server) error {
		return server.CloneFrom(ctx, donor, sqlclient.Account{Name: donorUser, Password: password})
	})
}

// setRole changes the label. Sessions that came under another one are ended before one is added.
func (c Controller) setRole(ctx context.Context, seen *observation, do clustering.SetRole) error {
	if do.Role != clustering.RoleNone && seen.Instances[do.Index].Reachable {
		err := seen.beside(ctx, do.Index, func(ctx context.Context, s *sqlclient.Server) error { return s.KillConnections(ctx, systemUsers()) })
		if err != nil {
			return err
		}
	}
	label := map[string]any{mocov1beta2.RoleLabel: nil}
	if do.Role != clustering.RoleNone {
		label[mocov1beta2.RoleLabel] = string(do.Role)
	}
	return c.patchPod(ctx, seen, do.Index, "labels", label)
}

// patchPod changes labels or annotations of the Pod that was observed, and of none that has taken its name since.
func (c Controller) patchPod(ctx context.Context, seen *observation, i int, what string, change map[string]any) error {
	pod := seen.pods[i]
	if pod == nil {
		return errNoConnection
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, what: change}})
	if err != nil {
		return fmt.Errorf("write the patch: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	after := pod.DeepCopy()
	if err := c.client.Patch(ctx, after, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("patch the Pod: %w", err)
	}
	seen.crew.replaced(i, pod.ResourceVersion, after.ResourceVersion)
	return nil
}

// systemUsers are not clients: their sessions stay when clients are cut off.
func systemUsers() []string {
	return []string{adminUser, replicationUser, donorUser, "moco-agent", "moco-exporter"}
}

// describe says what went wrong in words that are stable and free of secrets.
func describe(err error) string {
	switch {
	case errors.Is(err, errBusy), errors.Is(err, errNoConnection), errors.Is(err, errClosed), errors.Is(err, errNoSource):
		return err.Error()
	case k8serrors.ReasonForError(err) != "":
		return "the API server answered " + string(k8serrors.ReasonForError(err))
	default:
		return sqlclient.DescribeError(err)
	}
}
