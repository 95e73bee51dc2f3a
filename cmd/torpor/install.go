// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/torpor-dev/torpor/config"
	"github.com/torpor-dev/torpor/config/crd"
	"github.com/torpor-dev/torpor/internal/admin/crds"
	"github.com/torpor-dev/torpor/internal/buildinfo"
	"github.com/torpor-dev/torpor/internal/cli/exit"
)

const installTimeout = time.Minute

func installCommand() *cobra.Command {
	var kubeconfig string
	var dryRun bool
	var manifests config.ManifestOptions
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install Torpor's CustomResourceDefinitions, or print the manifests of a manager with --image",
		Long: `Install Torpor's CustomResourceDefinitions that the hub does not have, and update those that Torpor installed. Definitions of
another project, such as Hive, MOCO or Korifi, are never changed: Torpor works with them, and prints the fields that they lack
and who wrote them. docs/install-beside-upstream.md explains the consequences.

With --image the command prints the manifests of a manager for kubectl apply, and contacts no hub. They include the
CustomResourceDefinitions of Torpor's own kinds; torpor install without --image installs the others.

Exit codes: 0 if every definition is Torpor's, 4 if some are another project's, 1 after an error.`,
		Example: `  # Print the state of each definition and the changes that an installation would make
  torpor install --dry-run

  # Install a manager that stops the workloads of namespaces by schedules, and records requesters
  torpor install --features slumber,workloads --image registry.example/torpor:v0.1.0 | kubectl apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if manifests.Image != "" || len(manifests.Features) > 0 {
				return printManifests(cmd.OutOrStdout(), manifests)
			}
			discardLibraryLogs()
			cfg, err := loadKubeconfig(kubeconfig, "hub")
			if err != nil {
				return err
			}
			clients, err := clientset.NewForConfig(cfg)
			if err != nil {
				return fmt.Errorf("create a client of the hub: %w", err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), installTimeout)
			defer cancel()
			return installCRDs(ctx, clients.ApiextensionsV1().CustomResourceDefinitions(), cmd.OutOrStdout(), dryRun)
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the hub; empty uses KUBECONFIG, then the cluster in which the program runs")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print the state of each definition and the changes that an installation would make")
	cmd.Flags().StringVar(&manifests.Image, "image", "", "print the manifests of a manager with this image, and install nothing")
	cmd.Flags().StringSliceVar(&manifests.Features, "features", nil,
		"features of the printed manifests: "+strings.Join(config.Features(), ", ")+"; empty means all")
	cmd.Flags().StringVar(&manifests.Record, "record", config.RecordWebhook,
		"how the printed manifests record requesters: policy (needs Kubernetes 1.36), webhook or off")
	return cmd
}

func printManifests(out io.Writer, o config.ManifestOptions) error {
	data, err := config.RenderManifests(o)
	if errors.Is(err, config.ErrManifests) {
		return exit.Error{Code: exit.Usage, Err: err}
	}
	if err != nil {
		return err
	}
	if _, err := out.Write(data); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// installCRDs installs missing definitions and updates Torpor's own, unless dryRun is set. It compares every definition
// before it writes the first one.
func installCRDs(ctx context.Context, hub apiextensionsclient.CustomResourceDefinitionInterface, out io.Writer, dryRun bool) error {
	files, err := fs.Glob(crd.Files, "*.yaml")
	if err != nil {
		return fmt.Errorf("list the definitions: %w", err)
	}
	var found []definition
	for _, file := range files {
		d, err := readCRD(ctx, hub, file)
		if err != nil {
			return err
		}
		if d.judgement, err = crds.JudgeCRD(d.ours, d.served); err != nil {
			return fmt.Errorf("compare %s: %w", d.ours.Name, err)
		}
		found = append(found, d)
	}
	foreign := 0
	for _, d := range found {
		text := d.judgement.String()
		switch {
		case d.judgement.State == crds.Foreign:
			foreign++
		case d.judgement.MayInstall() && dryRun:
			text += "; would be installed"
		case d.judgement.MayInstall():
			if err := writeCRD(ctx, hub, d.served, crds.PrepareCRD(d.ours, d.served, programVersion())); err != nil {
				return err
			}
			text += "; installed"
		}
		if _, err := fmt.Fprintln(out, text); err != nil {
			return fmt.Errorf("print: %w", err)
		}
	}
	if foreign > 0 {
		return exit.Error{Code: exit.Refused, Err: fmt.Errorf(
			"%d definitions belong to another project and were not changed; see docs/install-beside-upstream.md", foreign)}
	}
	return nil
}

// definition is one of Torpor's CustomResourceDefinitions, together with the served definition, which may be nil, and
// the result of their comparison.
type definition struct {
	ours, served *apiextensionsv1.CustomResourceDefinition
	judgement    crds.Judgement
}

func readCRD(ctx context.Context, hub apiextensionsclient.CustomResourceDefinitionInterface, file string) (definition, error) {
	data, err := crd.Files.ReadFile(file)
	if err != nil {
		return definition{}, fmt.Errorf("read %s: %w", file, err)
	}
	d := definition{ours: &apiextensionsv1.CustomResourceDefinition{}}
	if err := yaml.Unmarshal(data, d.ours); err != nil {
		return definition{}, fmt.Errorf("parse %s: %w", file, err)
	}
	d.served, err = hub.Get(ctx, d.ours.Name, metav1.GetOptions{})
	if k8serrors.IsNotFound(err) {
		d.served, err = nil, nil
	}
	if err != nil {
		return definition{}, fmt.Errorf("read %s from the hub: %w", d.ours.Name, err)
	}
	return d, nil
}

// writeCRD writes a definition. It fails if the served definition has changed since the comparison.
func writeCRD(ctx context.Context, hub apiextensionsclient.CustomResourceDefinitionInterface, served, prepared *apiextensionsv1.CustomResourceDefinition) error {
	var err error
	if served == nil {
		_, err = hub.Create(ctx, prepared, metav1.CreateOptions{FieldManager: crds.Torpor})
	} else {
		_, err = hub.Update(ctx, prepared, metav1.UpdateOptions{FieldManager: crds.Torpor})
	}
	if k8serrors.IsConflict(err) || k8serrors.IsAlreadyExists(err) {
		return errors.Join(fmt.Errorf("install %s: another client changed this definition at the same time; run the command again", prepared.Name), err)
	}
	if err != nil {
		return fmt.Errorf("install %s: %w", prepared.Name, err)
	}
	return nil
}

// programVersion returns the version of the build as a valid label value.
func programVersion() string {
	keep := func(r rune) rune {
		if strings.ContainsRune(".-_", r) || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return -1
	}
	const longest = 63
	version := strings.Map(keep, buildinfo.ReadVersion().Version)
	return strings.Trim(version[:min(longest, len(version))], ".-_")
}
