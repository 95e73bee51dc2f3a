// SPDX-License-Identifier: Apache-2.0

// Package moco implements the plugin `kubectl moco`, with which users stop, start and inspect parts of MySQLClusters.
// It writes annotations, on which the controllers act, and reads statuses. testdata/*.txtar specify its behaviour.
package moco

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/connection"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
)

// Streams are the input and output of a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

type commands struct {
	Streams
	clock   clock.WithTicker
	connect func() (*kubeClient, error)
}

// Plugin is the kubectl plugin `kubectl moco`.
type Plugin struct {
	root           *cobra.Command
	stderr         io.Writer
	commandStarted bool
}

// NewPlugin returns the plugin with these streams.
func NewPlugin(s Streams) *Plugin {
	a := &commands{Streams: s, clock: clock.RealClock{}}
	p := &Plugin{root: a.newRootCommand(), stderr: s.Err}
	// An error that occurs before a command starts is a usage error.
	p.root.PersistentPreRun = func(*cobra.Command, []string) { p.commandStarted = true }
	p.root.SetIn(s.In)
	p.root.SetOut(s.Out)
	p.root.SetErr(s.Err)
	return p
}

// Run runs a command line without the program's name, and returns one of the exit codes that the help lists.
func (p *Plugin) Run(ctx context.Context, args []string) int {
	p.root.SetArgs(args)
	err := p.root.ExecuteContext(ctx)
	if err != nil && !p.commandStarted {
		err = exit.WrongUsage("%w; see kubectl moco --help", err)
	}
	for _, each := range exit.SplitErrors(err) {
		if text := each.Error(); text != "" {
			fmt.Fprintln(p.stderr, "error:", text)
		}
	}
	return int(exit.CodeOf(err))
}

func (a *commands) newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:         "kubectl-moco",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl moco"},
		Short:       "Stop, start and inspect MySQLClusters",
		Long: `Stop and start the clustering or the reconciliation of MySQLClusters, and see what is stopped, since when and why.

Exit codes:
  0  done, or nothing to do
  1  failed
  2  wrong usage
  3  timed out: requested, but not reached yet
  4  refused, because it would do harm; nothing was changed
The command mysql returns the exit code of the mysql client.`,
		Example: `  # Stop clustering for some minutes, and wait until nothing changes the instances any more
  kubectl moco stop clustering test --reason "compare replicas" --until 40m --wait

  # Show stopped parts, since when, why and the next step
  kubectl moco status

  # Start it again
  kubectl moco start clustering test --wait`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	a.connect = newConnector(root, a.Err)
	root.AddCommand(a.newStopCommand(), a.newStartCommand(), a.newStatusCommand(), a.newSwitchoverCommand(), a.newRecloneCommand(), a.newMysqlCommand(), a.newCredentialCommand(), a.newRotateCommand(), a.newChecksumCommand())
	return root
}

func newGroupCommand(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: func(cmd *cobra.Command, args []string) error {
		var names []string
		for _, c := range below {
			names = append(names, c.Name())
		}
		return exit.WrongUsage("expected one of %q after %q, found %q; see %s --help", names, cmd.Name(), args, cmd.CommandPath())
	}}
	cmd.AddCommand(below...)
	return cmd
}

// fieldManager is the field manager of the plugin's writes; the controller shows it as the requester.
const fieldManager = "kubectl-moco"

// kubeClient is a client of the API server with the command's namespace.
type kubeClient struct {
	client.Client
	config    *rest.Config
	namespace string
}

// newConnector adds kubectl's flags and returns a function that connects with the values of these flags.
func newConnector(root *cobra.Command, warnings io.Writer) func() (*kubeClient, error) {
	load := connection.AddFlags(root, fieldManager, warnings)
	return func() (*kubeClient, error) {
		cfg, namespace, err := load()
		if err != nil {
			return nil, err
		}
		return newKubeClient(cfg, namespace)
	}
}

func newKubeClient(cfg *rest.Config, namespace string) (*kubeClient, error) {
	known := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(known), mocov1beta2.AddToScheme(known)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	// The kinds below are mapped without discovery, which would cost a dozen requests.
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(mocov1beta2.MySQLClusterKind(), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	if err := connection.AddLease(known, mapper); err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{Scheme: known, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	return &kubeClient{Client: client.WithFieldOwner(c, fieldManager), config: cfg, namespace: namespace}, nil
}

type clusterNotFoundError string

func (e clusterNotFoundError) Error() string {
	return fmt.Sprintf("expected MySQLCluster %q, found none; kubectl moco status lists the MySQLClusters of the namespace", string(e))
}

func (a *commands) openCluster(ctx context.Context, name string) (*kubeClient, *mocov1beta2.MySQLCluster, error) {
	kube, err := a.connect()
	if err != nil {
		return nil, nil, err
	}
	c, err := kube.getCluster(ctx, name)
	return kube, c, err
}

func (kube *kubeClient) getCluster(ctx context.Context, name string) (*mocov1beta2.MySQLCluster, error) {
	var found mocov1beta2.MySQLCluster
	err := kube.Get(ctx, client.ObjectKey{Namespace: kube.namespace, Name: name}, &found)
	if k8serrors.IsNotFound(err) && !connection.IsKindNotServed(err) {
		return nil, clusterNotFoundError(kube.namespace + "/" + name)
	}
	if err != nil {
		return nil, explainAPIError(fmt.Sprintf("read MySQLCluster %q", kube.namespace+"/"+name), err)
	}
	statusannotation.RestoreStatus(&found)
	return &found, nil
}

func (kube *kubeClient) listClusters(ctx context.Context, with ...client.ListOption) ([]mocov1beta2.MySQLCluster, error) {
	var found mocov1beta2.MySQLClusterList
	if err := kube.List(ctx, &found, append(with, client.InNamespace(kube.namespace))...); err != nil {
		return nil, explainAPIError(fmt.Sprintf("list the MySQLClusters of namespace %q", kube.namespace), err)
	}
	for i := range found.Items {
		statusannotation.RestoreStatus(&found.Items[i])
	}
	return found.Items, nil
}

// explainAPIError adds the next step if the API server does not serve the kind.
func explainAPIError(what string, err error) error {
	if connection.IsKindNotServed(err) {
		return fmt.Errorf("%s: expected the API server to serve %s, found that it does not; install the CRD", what, mocov1beta2.GroupVersion())
	}
	return fmt.Errorf("%s: %w", what, err)
}

func describeCluster(c *mocov1beta2.MySQLCluster) string {
	return fmt.Sprintf("MySQLCluster %q", c.Namespace+"/"+c.Name)
}

// clusterSelection selects clusters by their names or by their labels.
type clusterSelection struct{ selector string }

func (p *clusterSelection) addSelectorFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&p.selector, "selector", "l", "", "labels of the MySQLClusters, such as team=a, instead of names")
}

func (p *clusterSelection) clusterNames(ctx context.Context, kube *kubeClient, cmd *cobra.Command, args []string) ([]string, error) {
	if !cmd.Flags().Changed("selector") {
		return slices.Compact(slices.Sorted(slices.Values(args))), nil
	}
	selector, err := p.parseSelector()
	if err != nil {
		return nil, err
	}
	found, err := kube.listClusters(ctx, client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("expected MySQLClusters with the labels %q in namespace %q, found none", p.selector, kube.namespace)
	}
	return namesOf(found), nil
}

// parseSelector returns an error for an empty selector, which would select every cluster and is more likely an unset
// variable.
func (p *clusterSelection) parseSelector() (labels.Selector, error) {
	selector, err := labels.Parse(p.selector)
	if err != nil {
		return nil, exit.WrongUsage("--selector: expected labels such as team=a, found %q: %w", p.selector, err)
	}
	if selector.Empty() {
		return nil, exit.WrongUsage("--selector: expected labels such as team=a, found none")
	}
	return selector, nil
}

func (p *clusterSelection) validateArgs(cmd *cobra.Command, validateArgs []string) error {
	bySelector := cmd.Flags().Changed("selector")
	switch {
	case bySelector && len(validateArgs) > 0:
		return fmt.Errorf("expected names or --selector, found both")
	case !bySelector && len(validateArgs) == 0:
		return fmt.Errorf("expected the name of a MySQLCluster or --selector, found neither")
	default:
		return nil
	}
}

func namesOf(clusters []mocov1beta2.MySQLCluster) []string {
	var names []string
	for i := range clusters {
		names = append(names, clusters[i].Name)
	}
	return names
}

// completeClusterNames completes the names of clusters in a shell. A command accepts at most limit names. 0 means no
// limit.
func (a *commands) completeClusterNames(limit int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if limit > 0 && len(args) >= limit {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		kube, err := a.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		found, err := kube.listClusters(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		names := slices.DeleteFunc(namesOf(found), func(name string) bool { return slices.Contains(args, name) })
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
