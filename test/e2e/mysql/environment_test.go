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
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	clusteringcontroller "github.com/torpor-dev/torpor/internal/mysql/clustering/controller"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqlpods"
)

const (
	size       = 3
	sqlTimeout = 20 * time.Second
)

// checkCondition returns an error unless a condition has the wanted state, such as "True Healthy".
func checkCondition(ctx context.Context, c *mysqlpods.PodCluster, kind, want string) error {
	cluster, err := c.GetMySQLCluster(ctx)
	if err != nil {
		return err
	}
	return checkConditionOf(cluster, kind, want)
}

func checkConditionOf(cluster *mocov1beta2.MySQLCluster, kind, want string) error {
	found := meta.FindStatusCondition(cluster.Status.Conditions, kind)
	if found == nil {
		return errors.New("there is no such condition")
	}
	is := string(found.Status) + " " + found.Reason
	return testenv.ErrorIf(is != want, "found %s: %s", is, found.Message)
}

func waitUntilHealthy(t *testing.T, c *mysqlpods.PodCluster) {
	t.Helper()
	testenv.Eventually(t, "the cluster is healthy", func() error { return checkCondition(t.Context(), c, mocov1beta2.HealthyCondition, "True Healthy") })
}

func startHealthyCluster(t *testing.T, instances int, options mysqlpods.ClusterOptions) (*mysqlpods.PodCluster, *testenv.Process) {
	t.Helper()
	env := testenv.Start(t)
	c := mysqlpods.StartCluster(t, env, instances, options)
	c.CreateMySQLCluster(t)
	p := startManager(t, c)
	waitUntilHealthy(t, c)
	c.WaitForCurrentAccounts(t, primaryIndex(t, c))
	c.CreateRowsTable(t, primaryIndex(t, c))
	return c, p
}

func primaryIndex(t *testing.T, c *mysqlpods.PodCluster) int {
	t.Helper()
	cluster, err := c.GetMySQLCluster(t.Context())
	testenv.ExpectNoError(t, err)
	return cluster.Status.CurrentPrimaryIndex
}

// These are environment variables of the test's binary when it runs as a manager. Real instances have DNS names, but
// the test's instances do not.
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

// runManager runs the manager with the clustering controller until SIGTERM.
func runManager(kubeconfig string, hosts []string) error {
	logger := funcr.New(func(_, args string) {
		message, rest, _ := strings.Cut(args, `"controller"=`)
		_, rest, _ = strings.Cut(rest, `"reconcileID"=`) // The log omits the name of the only cluster.
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
		return fmt.Errorf("create the manager: %w", err)
	}
	host := func(_ *mocov1beta2.MySQLCluster, i int, _ *corev1.Pod) string { return hosts[i] }
	if err := (clusteringcontroller.Controller{HostOf: host, Clock: clock.RealClock{}, Metrics: clusteringcontroller.NewMetrics()}).SetupWithManager(mgr); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return mgr.Start(ctx)
}

func startManager(t *testing.T, c *mysqlpods.PodCluster) *testenv.Process {
	t.Helper()
	self, err := os.Executable()
	testenv.ExpectNoError(t, err)
	return testenv.StartProcess(t, self, nil, []string{envHub + "=" + c.Env.KubeconfigPath(t), envHosts + "=" + strings.Join(c.PodAddresses(), ",")})
}
