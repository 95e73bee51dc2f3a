// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/torpor-dev/torpor/conditional"
	"github.com/torpor-dev/torpor/conditional/bench/terminal"
	"github.com/torpor-dev/torpor/conditional/bench/world"
)

// bed is what every trial lies on.
type bed struct {
	Sizes

	cfg      *rest.Config // of what is measured
	counter  *world.Counter
	log      logr.Logger
	cluster  *world.Cluster
	progress *terminal.Progress
}

// manager returns one without servers.
func (b *bed) manager() (manager.Manager, error) {
	mgr, err := ctrl.NewManager(b.cfg, ctrl.Options{
		Scheme: runtime.NewScheme(), Metrics: server.Options{BindAddress: "0"}, Logger: b.log,
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("make a manager: %w", err)
	}
	return mgr, nil
}

// within does something while the manager runs.
func within(ctx context.Context, mgr manager.Manager, do func(context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := mgr.Start(ctx)
		end(fmt.Errorf("the manager has ended: %w", err))
		ended <- err
	}()
	var err error
	select {
	case <-mgr.Elected():
		err = do(ctx)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	end(nil)
	return errors.Join(err, <-ended)
}

// options are those of every group of the bench.
func options(name string) []conditional.Option {
	return []conditional.Option{conditional.Name(name), conditional.RestartLimit(1<<30, wait.Backoff{Duration: time.Second})}
}

// awaitPhase waits for a group.
func awaitPhase(ctx context.Context, g *conditional.Group, phase conditional.Phase) error {
	ctx, cancel := context.WithTimeout(ctx, world.Patience)
	defer cancel()
	if err := g.Wait(ctx, phase); err != nil {
		status := g.Status()
		return fmt.Errorf("%w; its condition is %s (%s), its error %q", err, status.Condition.State, status.Condition.Message, status.Error)
	}
	return nil
}

// awaitAbsence waits until every group knows that its kind is not served.
func awaitAbsence(ctx context.Context, groups []*conditional.Group) error {
	ctx, cancel := context.WithTimeout(ctx, world.Patience)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for _, g := range groups {
		for g.Status().Condition.State != conditional.False {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return fmt.Errorf("wait until group %s knows that its kind is absent, it knows %+v: %w", g.Status().Name, g.Status().Condition, context.Cause(ctx))
			}
		}
	}
	return nil
}

// watched is how many objects there are of a kind that is served all the time.
const watched = 10

// prepare installs the CRD of a kind, with its objects, and returns a manager.
func (b *bed) prepare(ctx context.Context, kind schema.GroupVersionKind) (manager.Manager, error) {
	b.progress.Say("install %s with %d objects", kind.Kind, watched)
	history, err := b.cluster.Watch(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.cluster.Install(ctx, kind); err != nil {
		return nil, err
	}
	if _, err := history.Established(ctx, kind); err != nil {
		return nil, err
	}
	for i := range watched {
		if err := b.cluster.Create(ctx, kind, fmt.Sprintf("object-%d", i)); err != nil {
			return nil, err
		}
	}
	return b.manager()
}

// seconds is never negative: two watches of one event may come in either order.
func seconds(from, to time.Time) float64 { return max(to.Sub(from).Seconds(), 0) }
