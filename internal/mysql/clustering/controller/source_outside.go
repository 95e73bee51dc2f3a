// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"

	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	"github.com/torpor-dev/torpor/internal/mysql/sqlclient"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
)

// observeSource reads the Secret that describes the external server. The Secret must be in the cluster's namespace, so
// a user cannot make the manager read a Secret from another namespace.
func (c Controller) observeSource(ctx context.Context, seen *observation) {
	name := seen.cluster.Spec.SourceSecretName()
	if name == "" {
		return
	}
	secret, err := c.readSecret(ctx, seen.cluster, name)
	if err != nil {
		seen.SourceProblem = err.Error()
		return
	}
	source, problems := clustering.ParseOutsideSource(secret.Data)
	if len(problems) > 0 {
		seen.SourceProblem = fmt.Sprintf("the Secret %s: %s", name, strings.Join(problems, "; "))
		return
	}
	seen.outside = source
}

// leadsOutside reports whether a channel replicates from the external server that the Secret describes.
func (s *observation) leadsOutside(channel *sqlclient.ReplicationFacts) bool {
	return s.outside.Host != "" && channel != nil && channel.SourceHost == s.outside.Host && channel.SourcePort == s.outside.Port &&
		channel.SourceUser == s.outside.User && channel.PasswordHash == hashPassword(s.outside.Password)
}

func (s *observation) outsideSource() sqlclient.ReplicationSource {
	return sqlclient.ReplicationSource{
		Host: s.outside.Host, Port: s.outside.Port, As: sqlclient.Account{Name: s.outside.User, Password: s.outside.Password},
	}
}

// finishCopy runs the user's SQL in the copy of the external server. The pass waits until the SQL has run, because the
// status then reports a complete copy.
func (s *observation) finishCopy(ctx context.Context, do clustering.FinishCopy) error {
	if s.outside.AfterClone == "" {
		return nil
	}
	return s.runBesideWithin(ctx, do.Index, actionTimeout, func(ctx context.Context, server *sqlclient.Server) error {
		return server.RunUnlogged(ctx, s.outside.AfterClone)
	})
}

func (s *observation) takeOverAccounts(ctx context.Context, do clustering.TakeOverAccounts) error {
	passwords, err := s.allPasswords()
	if err != nil {
		return err
	}
	statements := strings.Join(mysqlusers.BuildTakeOverStatements(passwords, s.requiresTLS), ";")
	return s.runAction(ctx, do.Index, do, func(ctx context.Context, server *sqlclient.Server) error {
		return server.RunUnlogged(ctx, statements)
	})
}

func (s *observation) followOutside(ctx context.Context, do clustering.FollowOutside) error {
	semiSync := s.facts[do.Index].SemiSync
	return s.runAction(ctx, do.Index, do, func(ctx context.Context, server *sqlclient.Server) error {
		return server.FollowSource(ctx, semiSync, s.outsideSource())
	})
}
