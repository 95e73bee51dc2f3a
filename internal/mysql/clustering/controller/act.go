// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	"github.com/torpor-dev/torpor/internal/mysql/sqlclient"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// These are the keys of log lines.
const (
	keyInstance = "instance"
	keyError    = "error"
	keyAction   = "action"
)

// errNoPassword is returned if accounts cannot be created, because the Secret lacks their passwords.
var errNoPassword = errors.New("the cluster's Secret lacks passwords")

// act performs the action of a plan. Most actions that take long continue after the pass. A failed action is recorded
// in the history, and the pass ends normally: the next plans decide when to retry. A promotion is written together with
// the status.
func (c Controller) act(ctx context.Context, seen *observation, plan clustering.Plan) error {
	if seen.IsBeingDeleted {
		c.conns.forgetCluster(client.ObjectKeyFromObject(seen.cluster))
		return nil
	}
	switch plan.Do {
	case clustering.Nothing{}:
		return nil
	case clustering.EndStop{}:
		return c.removeAnnotations(ctx, seen.cluster, listEnding(seen.switches))
	case clustering.RemoveLeftovers{}:
		return c.removeAnnotations(ctx, seen.cluster, listLeftovers(seen.cluster, seen.switches))
	}
	// The MySQLCluster is read from the API server, not from a cache. Otherwise an action could run after a stop was
	// recorded, or be repeated for an instance that is no longer the primary.
	if err := reconcile.RequireUnchanged(ctx, c.live, seen.cluster, &mocov1beta2.MySQLCluster{}); err != nil {
		return err
	}
	action := fmt.Sprintf("%T%v", plan.Do, plan.Do)
	if len(clustering.TargetInstances(plan.Do)) > 0 {
		log.FromContext(ctx).Info("Acting", keyAction, action)
	}
	err := c.perform(ctx, seen, plan.Do)
	failure := ""
	if err != nil {
		failure = describeError(err)
		log.FromContext(ctx).Info("Action failed", keyAction, action, keyError, failure)
	}
	if ctx.Err() == nil { // If the pass has ended, the result of the action is unknown.
		seen.clusterConns.recordResult(plan.Do, c.Clock.Now(), failure)
	}
	if err != nil {
		return &reconcile.RefusedError{Message: failure, Err: err}
	}
	return nil
}

func (c Controller) perform(ctx context.Context, seen *observation, do clustering.Action) error {
	switch do := do.(type) {
	case clustering.Nothing, clustering.PromoteInStatus, clustering.EndStop, clustering.RemoveLeftovers:
		return nil
	case clustering.SetRole, clustering.SetProtection, clustering.ClearDemote, clustering.ClearReclone, clustering.PrepareRotation, clustering.PromotePasswords, clustering.EndRotation:
		return c.writeObjects(ctx, seen, do)
	case clustering.DiscardData:
		return seen.discardData(ctx, do)
	case clustering.KillConnections:
		return seen.killConnections(ctx, do)
	case clustering.CancelPending:
		return seen.cancelPending(ctx, do)
	case clustering.StopIO:
		return seen.stopIO(ctx, do)
	case clustering.SetReadOnly:
		return seen.callServer(ctx, do.Index, do, (*sqlclient.Server).SetReadOnly)
	case clustering.MakeWritable:
		return seen.makeWritable(ctx, do)
	case clustering.StartIO:
		return seen.callServer(ctx, do.Index, do, (*sqlclient.Server).StartReceiving)
	case clustering.RestartSQL:
		return seen.callServer(ctx, do.Index, do, (*sqlclient.Server).StartApplying)
	case clustering.ConfigurePrimary:
		return seen.becomeSource(ctx, do)
	case clustering.ConfigureReplica:
		return seen.configureReplica(ctx, do)
	case clustering.CloneFrom:
		return seen.cloneFrom(ctx, do)
	case clustering.FinishCopy:
		return seen.finishCopy(ctx, do)
	case clustering.FollowOutside:
		return seen.followOutside(ctx, do)
	case clustering.RestoreDurability:
		return seen.restoreDurability(ctx, do)
	case clustering.RenewChannel:
		return seen.renewChannel(ctx, do)
	case clustering.ReloadCertificate:
		return seen.callServer(ctx, do.Index, do, (*sqlclient.Server).ReloadCertificate)
	case clustering.RenewAccounts, clustering.RetainPasswords, clustering.DiscardPasswords, clustering.TakeOverAccounts:
		return seen.writeAccounts(ctx, do)
	}
	return nil
}

// writeAccounts changes the accounts in the primary.
func (s *observation) writeAccounts(ctx context.Context, do clustering.Action) error {
	switch do := do.(type) {
	case clustering.RenewAccounts:
		return s.renewAccounts(ctx, do)
	case clustering.RetainPasswords:
		return s.retainPasswords(ctx, do)
	case clustering.DiscardPasswords:
		return s.discardPasswords(ctx, do)
	case clustering.TakeOverAccounts:
		return s.takeOverAccounts(ctx, do)
	case clustering.Nothing, clustering.PromoteInStatus, clustering.EndStop, clustering.RemoveLeftovers, clustering.KillConnections, clustering.CancelPending,
		clustering.StopIO, clustering.StartIO, clustering.SetReadOnly, clustering.MakeWritable, clustering.RestartSQL, clustering.ConfigurePrimary,
		clustering.ConfigureReplica, clustering.CloneFrom, clustering.RestoreDurability, clustering.RenewChannel, clustering.ReloadCertificate,
		clustering.DiscardData, clustering.FinishCopy, clustering.FollowOutside, clustering.SetRole, clustering.SetProtection, clustering.ClearDemote,
		clustering.ClearReclone, clustering.PrepareRotation, clustering.PromotePasswords, clustering.EndRotation:
	}
	return nil
}

// writeObjects performs the actions that write objects of the API server.
func (c Controller) writeObjects(ctx context.Context, seen *observation, do clustering.Action) error {
	switch do := do.(type) {
	case clustering.SetRole:
		return c.setRole(ctx, seen, do)
	case clustering.SetProtection:
		return c.setProtection(ctx, seen, do)
	case clustering.ClearDemote:
		return c.patchPod(ctx, seen, do.Index, "annotations", map[string]any{mocov1beta2.DemoteAnnotation: nil})
	case clustering.ClearReclone:
		return c.patchPod(ctx, seen, do.Index, "annotations", map[string]any{mocov1beta2.RecloneAnnotation: nil})
	case clustering.PrepareRotation:
		return c.prepareRotation(ctx, seen)
	case clustering.PromotePasswords:
		return c.promotePasswords(ctx, seen)
	case clustering.EndRotation:
		return c.endRotation(ctx, seen, do)
	case clustering.Nothing, clustering.PromoteInStatus, clustering.EndStop, clustering.RemoveLeftovers, clustering.KillConnections, clustering.CancelPending,
		clustering.StopIO, clustering.StartIO, clustering.SetReadOnly, clustering.MakeWritable, clustering.RestartSQL, clustering.ConfigurePrimary,
		clustering.ConfigureReplica, clustering.CloneFrom, clustering.RestoreDurability, clustering.RenewChannel, clustering.ReloadCertificate,
		clustering.RenewAccounts, clustering.RetainPasswords, clustering.DiscardPasswords, clustering.DiscardData, clustering.FinishCopy, clustering.FollowOutside,
		clustering.TakeOverAccounts:
	}
	return nil
}

func (s *observation) makeWritable(ctx context.Context, do clustering.MakeWritable) error {
	return s.runAction(ctx, do.Index, do, func(ctx context.Context, server *sqlclient.Server) error {
		return server.SetWritable(ctx, s.facts[do.Index].SemiSync, do.WaitFor)
	})
}

func (s *observation) becomeSource(ctx context.Context, do clustering.ConfigurePrimary) error {
	return s.runAction(ctx, do.Index, do, func(ctx context.Context, server *sqlclient.Server) error {
		return server.BecomeSource(ctx, s.facts[do.Index].SemiSync, do.WaitFor)
	})
}

func (s *observation) restoreDurability(ctx context.Context, do clustering.RestoreDurability) error {
	return s.runAction(ctx, do.Index, do, func(ctx context.Context, server *sqlclient.Server) error {
		return server.RestoreDurability(ctx, s.facts[do.Index].SemiSync, s.facts[do.Index].Weakened)
	})
}

func (s *observation) discardData(ctx context.Context, do clustering.DiscardData) error {
	return s.runAction(ctx, do.Index, do, func(ctx context.Context, server *sqlclient.Server) error {
		return server.DiscardTransactions(ctx, s.facts[do.Index].Version)
	})
}

// callServer is like runAction, for actions that need only the server.
func (s *observation) callServer(ctx context.Context, i int, do clustering.Action, call func(*sqlclient.Server, context.Context) error) error {
	return s.runAction(ctx, i, do, func(ctx context.Context, server *sqlclient.Server) error { return call(server, ctx) })
}

// runAction runs statements that later passes may find pending.
func (s *observation) runAction(ctx context.Context, i int, do clustering.Action, run func(context.Context, *sqlclient.Server) error) error {
	conn := s.conns[i]
	if conn == nil {
		return errNoConnection
	}
	return s.clusterConns.startAction(ctx, i, do, func(ctx context.Context) error { return run(ctx, conn.server) })
}

// runBeside runs statements in an instance in which another action may still run.
func (s *observation) runBeside(ctx context.Context, i int, run func(context.Context, *sqlclient.Server) error) error {
	return s.runBesideWithin(ctx, i, readTimeout, run)
}

func (s *observation) runBesideWithin(ctx context.Context, i int, timeout time.Duration, run func(context.Context, *sqlclient.Server) error) error {
	if s.conns[i] == nil {
		return errNoConnection
	}
	// The server's connection pool keeps one connection free for these statements, even while an action hangs.
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return run(ctx, s.conns[i].server)
}

func (s *observation) cancelPending(ctx context.Context, do clustering.CancelPending) error {
	s.clusterConns.interruptAction(ctx, do.Index)
	return s.runBeside(ctx, do.Index, func(ctx context.Context, server *sqlclient.Server) error { return server.CancelStatements(ctx) })
}

// killConnections kills the client sessions and then, if requested, ends their waits for acknowledgements.
func (s *observation) killConnections(ctx context.Context, do clustering.KillConnections) error {
	semiSync := s.facts[do.Index].SemiSync
	return s.runBeside(ctx, do.Index, func(ctx context.Context, server *sqlclient.Server) error {
		err := server.KillConnections(ctx, mysqlusers.SystemUsers())
		if err != nil || !do.EndWaits || semiSync.Waiting == 0 {
			return err
		}
		return server.EndCommitWaits(ctx, semiSync)
	})
}

// fenceTimeout is longer than the two seconds that MySQL takes to stop a thread whose login to the source hangs.
const fenceTimeout = 2 * readTimeout

// stopIO fences all instances in parallel, because the old primary may still get acknowledgements until the last one is
// fenced.
func (s *observation) stopIO(ctx context.Context, do clustering.StopIO) error {
	failures := make([]error, len(do.Indexes))
	var all sync.WaitGroup
	for at, i := range do.Indexes {
		all.Go(func() {
			s.clusterConns.interruptAction(ctx, i)
			failures[at] = s.runBesideWithin(ctx, i, fenceTimeout, func(ctx context.Context, server *sqlclient.Server) error {
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

func (s *observation) configureReplica(ctx context.Context, do clustering.ConfigureReplica) error {
	from, err := s.sourceOf(do.Index, do.Source, mysqlusers.ReplicationUser)
	if err != nil {
		return err
	}
	semiSync := s.facts[do.Index].SemiSync
	return s.runAction(ctx, do.Index, do, func(ctx context.Context, server *sqlclient.Server) error {
		return server.FollowSource(ctx, semiSync, from)
	})
}

func (s *observation) renewChannel(ctx context.Context, do clustering.RenewChannel) error {
	from, err := s.sourceOf(do.Index, s.Primary, mysqlusers.ReplicationUser)
	if err == nil {
		from.As.Password, err = s.acceptedPassword(mysqlusers.ReplicationUser)
	}
	if err != nil {
		return err
	}
	return s.runAction(ctx, do.Index, do, func(ctx context.Context, server *sqlclient.Server) error { return server.RenewChannel(ctx, from) })
}

// sourceOf returns the parameters with which one instance connects to another as its source.
func (s *observation) sourceOf(i, source int, user string) (sqlclient.ReplicationSource, error) {
	password, err := s.password(user)
	own, its := s.Instances[i].TLSSecret, s.Instances[source].TLSSecret
	return sqlclient.ReplicationSource{
		Host: s.Instances[source].Host, Port: sqlclient.Port, As: sqlclient.Account{Name: user, Password: password}, IsAcknowledged: true,
		IsEncrypted: own != "" && its != "", IsVerified: own != "" && own == its,
	}, err
}

// renewAccounts creates missing accounts and grants the current privileges to the others. Accounts with expired
// passwords can log in again afterwards.
func (s *observation) renewAccounts(ctx context.Context, do clustering.RenewAccounts) error {
	passwords, err := s.allPasswords()
	if err != nil {
		return err
	}
	return s.runAction(ctx, do.Index, do, func(ctx context.Context, server *sqlclient.Server) error {
		semiSync := s.facts[do.Index].SemiSync
		if err := server.ReviveAccounts(ctx, semiSync, mysqlusers.Names()); err != nil {
			return err
		}
		return server.ChangeAccounts(ctx, semiSync, mysqlusers.BuildStatements(passwords, s.requiresTLS))
	})
}

// allPasswords returns the passwords of all accounts.
func (s *observation) allPasswords() (map[string][]byte, error) {
	secret, err := s.readSecret()
	if err != nil {
		return nil, err
	}
	if missing := mysqlusers.MissingPasswordKeys(secret.Data); len(missing) > 0 {
		return nil, fmt.Errorf("%w: %v", errNoPassword, missing)
	}
	return secret.Data, nil
}

func (s *observation) cloneFrom(ctx context.Context, do clustering.CloneFrom) error {
	if do.Donor == clustering.NoInstance {
		return s.runAction(ctx, do.Index, do, func(ctx context.Context, server *sqlclient.Server) error {
			return server.CloneFrom(ctx, s.outsideSource())
		})
	}
	from, err := s.sourceOf(do.Index, do.Donor, mysqlusers.DonorUser)
	if err != nil {
		return err
	}
	if s.conns[do.Donor] == nil {
		return errNoConnection
	}
	from.Host, from.Port = s.conns[do.Donor].address, sqlclient.AdminPort
	err = s.runBeside(ctx, do.Donor, func(ctx context.Context, donor *sqlclient.Server) error { return donor.AllowClonePackets(ctx) })
	if err != nil {
		return err
	}
	return s.runAction(ctx, do.Index, do, func(ctx context.Context, server *sqlclient.Server) error { return server.CloneFrom(ctx, from) })
}

// setRole changes the role label of the Pod. Before it adds a label, it kills all client sessions, because they may
// have connected under another label.
func (c Controller) setRole(ctx context.Context, seen *observation, do clustering.SetRole) error {
	if do.Role != clustering.RoleNone && seen.Instances[do.Index].Reachable {
		err := seen.runBeside(ctx, do.Index, func(ctx context.Context, s *sqlclient.Server) error {
			return s.KillConnections(ctx, mysqlusers.SystemUsers())
		})
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

// setProtection sets or removes the annotation that prevents the deletion of a Pod.
func (c Controller) setProtection(ctx context.Context, seen *observation, do clustering.SetProtection) error {
	annotation := map[string]any{mocov1beta2.PreventDeleteAnnotation: nil}
	if do.Protected {
		annotation[mocov1beta2.PreventDeleteAnnotation] = "true"
	}
	return c.patchPod(ctx, seen, do.Index, "annotations", annotation)
}

// patchPod changes labels or annotations of the observed Pod, and never those of a later Pod with the same name.
func (c Controller) patchPod(ctx context.Context, seen *observation, i int, field string, change map[string]any) error {
	pod := seen.pods[i]
	if pod == nil {
		return errNoConnection
	}
	// The API server rejects a patch that changes the UID, so the UID works as a precondition. Unlike the resource
	// version, it does not change with every report of the kubelet.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, field: change}})
	if err != nil {
		return fmt.Errorf("write the patch: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	after := pod.DeepCopy()
	if err := c.client.Patch(ctx, after, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("patch the Pod: %w", err)
	}
	seen.clusterConns.markPodVersionStale(i, pod.ResourceVersion, after.ResourceVersion)
	return nil
}

// describeError returns a stable text about an error, without secrets.
func describeError(err error) string {
	wrong, isSecret := errors.AsType[secretError](err)
	switch {
	case isSecret && wrong.cause == nil:
		return wrong.problem
	case isSecret:
		return wrong.problem + ": " + describeError(wrong.cause)
	case errors.Is(err, errBusy), errors.Is(err, errNoConnection), errors.Is(err, errClosed), errors.Is(err, errNoPassword):
		return err.Error()
	case k8serrors.ReasonForError(err) != "":
		return "the API server returned " + string(k8serrors.ReasonForError(err))
	default:
		return sqlclient.DescribeError(err)
	}
}
