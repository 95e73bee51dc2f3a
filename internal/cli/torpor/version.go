// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/torpor-dev/torpor/internal/buildinfo"
	"github.com/torpor-dev/torpor/internal/cli/completion"
	"github.com/torpor-dev/torpor/internal/leaderelection/lease"
	"github.com/torpor-dev/torpor/internal/leaderelection/leasereader"
)

// versions is the output of the command version.
type versions struct {
	Client buildinfo.BuildVersion `json:"client"`
	// Manager is the active manager. It is nil if it is unknown.
	Manager *managerVersion `json:"manager,omitempty"`
	// Unknown is the reason why Manager or its version is unknown.
	Unknown string `json:"managerUnknown,omitempty"`
}

type managerVersion struct {
	// Version is the version of the managers. During an upgrade it lists several versions, separated by commas.
	Version string `json:"version,omitempty"`
	// Namespace is the namespace of the installation.
	Namespace string `json:"namespace"`
}

func (a *commands) newVersionCommand() *cobra.Command {
	var output string
	var clientOnly bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of the plugin and of the active manager",
		Long: `Print the versions of the plugin and of the active manager. Each manager records its version in the Leases of the parts that it leads, which the Role
torpor-installation-viewer allows to read. The exit code is 0 if the version of the manager is unknown.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := validateOutput(output, "json", "yaml"); err != nil {
				return err
			}
			found := versions{Client: buildinfo.ReadVersion()}
			if !clientOnly {
				a.findManager(cmd.Context(), &found)
			}
			if output != "" {
				return a.writeData(output, found)
			}
			return a.writeVersions(found, clientOnly)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, yaml, or empty for text")
	cmd.Flags().BoolVar(&clientOnly, "client", false, "only the version of the plugin; the API server is not called")
	completion.OfferValues(cmd, "output", "json", "yaml")
	return cmd
}

// findManager reads the version of the active manager, or the reason why it is unknown.
func (a *commands) findManager(ctx context.Context, into *versions) {
	kube, err := a.connect()
	if err != nil {
		into.Unknown = err.Error()
		return
	}
	acting, err := leasereader.FindActing(ctx, kube, a.clock.Now())
	switch {
	case acting.DescribeEnd() != "":
		into.Unknown = acting.DescribeEnd()
	case acting.Installation != "":
		into.Manager = &managerVersion{Namespace: acting.Installation, Version: strings.Join(acting.ListVersions(), ", ")}
		switch {
		case into.Manager.Version != "":
		case err != nil:
			into.Unknown = err.Error()
		default:
			into.Unknown = "the manager has not recorded its version"
		}
	case err != nil && !k8serrors.IsNotFound(err):
		into.Unknown = err.Error()
	default:
		into.Unknown = fmt.Sprintf("no manager holds the Lease %s/%s", lease.Namespace, lease.Name)
	}
}

func (a *commands) writeVersions(found versions, clientOnly bool) error {
	v := found.Client
	lines := []string{fmt.Sprintf("client\t%s, commit %s of %s, %s", v.Version, v.Commit, v.Date, v.Go)}
	switch m := found.Manager; {
	case clientOnly:
	case m == nil:
		lines = append(lines, "manager\tunknown: "+formatCell(found.Unknown))
	case m.Version == "":
		lines = append(lines, fmt.Sprintf("manager\tunknown, in namespace %s: %s", formatCell(m.Namespace), formatCell(found.Unknown)))
	default:
		lines = append(lines, fmt.Sprintf("manager\t%s, in namespace %s", m.Version, formatCell(m.Namespace)))
	}
	return a.writeAligned(lines)
}
