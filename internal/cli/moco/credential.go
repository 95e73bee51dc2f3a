// SPDX-License-Identifier: Apache-2.0

package moco

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/cli/exit"
)

const defaultUser = "moco-readonly"

// passwordKeys are the keys of passwords in the cluster's Secret, by the users of an instance.
func passwordKeys() map[string]string {
	return map[string]string{
		"moco-admin": "ADMIN_PASSWORD", "moco-agent": "AGENT_PASSWORD", "moco-repl": "REPLICATION_PASSWORD",
		"moco-clone-donor": "CLONE_DONOR_PASSWORD", "moco-exporter": "EXPORTER_PASSWORD", "moco-backup": "BACKUP_PASSWORD",
		defaultUser: "READONLY_PASSWORD", "moco-writable": "WRITABLE_PASSWORD",
	}
}

func (a *commands) newCredentialCommand() *cobra.Command {
	var user, format string
	cmd := &cobra.Command{
		Use:   "credential NAME",
		Short: "Print the password of a MySQL user",
		Example: `  # For a client of your own
  kubectl moco credential -u moco-writable test

  # As an options file
  kubectl moco credential --format mycnf test > my.cnf`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeClusterNames(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "plain" && format != "mycnf" {
				return exit.WrongUsage("--format: expected plain or mycnf, found %q", format)
			}
			password, err := a.readPassword(cmd, args[0], user)
			if err != nil {
				return err
			}
			if format == "plain" {
				fmt.Fprintln(a.Out, password)
				return nil
			}
			escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(password)
			fmt.Fprintf(a.Out, "[client]\nuser=\"%s\"\npassword=\"%s\"\n", user, escaped)
			return nil
		},
	}
	cmd.Flags().StringVarP(&user, "mysql-user", "u", defaultUser, "whose: "+strings.Join(slices.Sorted(maps.Keys(passwordKeys())), ", "))
	cmd.Flags().StringVar(&format, "format", "plain", "plain or mycnf")
	return cmd
}

func (a *commands) readPassword(cmd *cobra.Command, name, user string) (string, error) {
	key, known := passwordKeys()[user]
	if !known {
		return "", exit.WrongUsage("--mysql-user: expected one of %q, found %q", slices.Sorted(maps.Keys(passwordKeys())), user)
	}
	kube, c, err := a.openCluster(cmd.Context(), name)
	if err != nil {
		return "", err
	}
	var secret corev1.Secret
	if err := kube.Get(cmd.Context(), client.ObjectKey{Namespace: c.Namespace, Name: c.ChildName()}, &secret); err != nil {
		return "", fmt.Errorf("%s: read its Secret %s: %w", describeCluster(c), c.ChildName(), err)
	}
	password, found := secret.Data[key]
	if !found {
		return "", fmt.Errorf("%s: expected the key %s in its Secret %s, found none", describeCluster(c), key, secret.Name)
	}
	return string(password), nil
}
