// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/clustering/controller"
	"github.com/torpor-dev/torpor/internal/testenv"
	"github.com/torpor-dev/torpor/internal/testenv/mysqlpods"
)

// The environment of the test's binary as a manager. Real instances have names in DNS, which these have not.
const (
	envHub   = "TORPOR_TEST_MANAGER_HUB"
	envHosts = "TORPOR_TEST_MANAGER_HOSTS"
)

func TestMain(m *testing.M) {
	if kubeconfig := os.Getenv(envHub); kubeconfig != "" {
		if err := runManager(kubeconfig, strings.Split(os.Getenv(envHosts), ",")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// runManager is the manager with the clustering controller, until SIGTERM.
func runManager(kubeconfig string, hosts []string) error {
	logger := funcr.New(func(_, args string) {
		message, rest, _ := strings.Cut(args, `"controller"=`)
		_, rest, _ = strings.Cut(rest, `"reconcileID"=`) // There is one cluster only.
		fmt.Fprintln(os.Stderr, time.Now().UTC().Format("15:04:05.000"), message, rest)
	}, funcr.Options{Verbosity: 1})
	log.SetLogger(logger)
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	cfg.QPS, cfg.Burst = 200, 400
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), mocov1beta2.AddToScheme(known)); err != nil {
		return err
	}
	mgr, err := manager.New(cfg, manager.Options{Scheme: known, Logger: logger, Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	host := func(_ *mocov1beta2.MySQLCluster, i int, _ *corev1.Pod) string { return hosts[i] }
	if err := (controller.Controller{HostOf: host, Clock: clock.RealClock{}, Metrics: controller.NewMetrics()}).SetupWithManager(mgr); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return mgr.Start(ctx)
}

// startManager runs this binary as a manager of the cluster.
func startManager(t *testing.T, c *mysqlpods.PodCluster) *testenv.Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return testenv.StartProcess(t, self, nil, []string{envHub + "=" + c.Env.KubeconfigPath(t), envHosts + "=" + strings.Join(c.PodAddresses(), ",")})
}
