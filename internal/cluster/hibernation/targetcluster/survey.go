// SPDX-License-Identifier: Apache-2.0

package targetcluster

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/torpor-dev/torpor/internal/httpguard"
	"github.com/torpor-dev/torpor/internal/stop/preflight"
)

// surveyTimeout limits all reads of a survey, because a stop may wait for it.
const surveyTimeout = 3 * time.Second

// ReadSurvey reads the problems that may affect a stop of the cluster, after a poll. Lists that cannot be read are
// skipped and noted in the survey. Other objects that cannot be read are only skipped.
func (c *ClusterClient) ReadSurvey(ctx context.Context, look *Look) *preflight.Survey {
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()
	clock := look.Date
	if clock.IsZero() {
		clock = look.At
	}
	s := preflight.NewSurvey(clock)
	s.AddServingCertificate(c.date.expiry)
	for _, list := range preflight.Lists() {
		if s.Skips(list) || look.PausesHealthChecks && slices.Contains(preflight.HealthCheckPaths(), list.Path) {
			continue
		}
		err := c.readSurveyList(ctx, s, list)
		if err == nil || k8serrors.IsNotFound(err) { // A kind that is not served has no items.
			continue
		}
		s.SkipList(list)
		if !IsLasting(err) && !k8serrors.IsForbidden(err) {
			s.NoteCut()
		}
	}
	for _, name := range s.Services() {
		if service, err := c.readObject(ctx, preflight.ServicePath(name)); err == nil {
			s.AddService(name, service)
		}
	}
	if signer, err := c.readObject(ctx, preflight.SignerPath); err == nil {
		s.AddSigner(signer)
	}
	if status, err := c.readObject(ctx, preflight.AutoscalerStatusPath); err == nil {
		s.AddAutoscalerStatus(status)
	}
	if ctx.Err() != nil {
		s.NoteCut()
	}
	return s
}

// readSurveyList reads a list in the first version that is served.
func (c *ClusterClient) readSurveyList(ctx context.Context, s *preflight.Survey, list preflight.SurveyList) error {
	var err error
	for _, path := range list.Paths() {
		err = c.listSelected(ctx, listQuery{path: path, selector: list.Selector}, func(item []byte) error {
			s.AddItem(list, item)
			return nil
		})
		if !k8serrors.IsNotFound(err) {
			return err
		}
	}
	return err
}

// readObject reads one object. An object larger than preflight.MaxItemBytes is an error.
func (c *ClusterClient) readObject(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.callTimeout)
	defer cancel()
	body, err := c.rest.Get().AbsPath(path).MaxRetries(0).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("query the server: %w", err)
	}
	defer func() { _ = body.Close() }()
	object, err := io.ReadAll(io.LimitReader(body, preflight.MaxItemBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the response: %w", err)
	case len(object) > preflight.MaxItemBytes:
		return nil, httpguard.ErrAnswerTooLarge
	}
	return object, nil
}
