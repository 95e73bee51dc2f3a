// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/torpor-dev/torpor/hack/release/artifacts"
	"github.com/torpor-dev/torpor/hack/release/krew"
)

// registries holds the names under which the image and the chart are published, without tags.
type registries struct{ image, chart string }

func artifactsCommand() *cobra.Command {
	o := artifacts.Options{Root: os.DirFS(".")}
	var to registries
	var push bool
	var outputs string
	var platforms []string
	cmd := &cobra.Command{
		Use: "artifacts", Short: "Build every artifact of a version, and check that none is missing", Args: cobra.NoArgs,
		Long: `Build every artifact of a version into a folder of its name, print their sizes and digests, and check that none is
missing. A dry run needs no tag, publishes nothing, and signs the checksums with a temporary key.`,
		Example: `  release artifacts --dry-run
  release artifacts --dry-run --platforms linux/amd64
  release artifacts --version v1.0.0 --push`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, platform := range platforms {
				m, err := krew.ParseMachine(platform)
				if err != nil {
					return err
				}
				o.Machines = append(o.Machines, m)
			}
			o.Image = to.image
			o.Compile = programCompiler{".", filepath.Join(o.Folder, "programs")}.compile
			r, err := o.Build(cmd.Context())
			printArtifacts(cmd.OutOrStdout(), r)
			if err != nil || !push {
				return err
			}
			return publish(cmd.Context(), cmd.OutOrStdout(), r, to, outputs)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Folder, "dir", ".cache/release", "output folder")
	f.StringVar(&o.Version, "version", "", "version such as v1.0.0, which is the tag of the commit")
	f.BoolVar(&o.IsDryRun, "dry-run", false,
		"build the newest version in CHANGELOG.md from any commit, and sign the checksums with a temporary key")
	f.StringVar(&to.image, "image", "ghcr.io/torpor-dev/torpor", "name of the image, without a tag")
	f.StringVar(&to.chart, "chart", "ghcr.io/torpor-dev/charts/torpor", "name of the chart, without a tag")
	f.StringVar(&o.Downloads, "address", downloads, "address of the releases, to which the version is added")
	f.BoolVar(&push, "push", false, "push the image, its bills of materials and the chart")
	f.StringVar(&outputs, "outputs", "", "file to which the digests of the pushed image and chart are appended")
	f.StringSliceVar(&platforms, "platforms", nil,
		"platforms for which a dry run builds, such as linux/amd64; empty means all; the image needs a Linux platform")
	cmd.MarkFlagsMutuallyExclusive("platforms", "push")
	cmd.MarkFlagsOneRequired("version", "dry-run")
	cmd.MarkFlagsMutuallyExclusive("dry-run", "push")
	return cmd
}

func printArtifacts(out io.Writer, r artifacts.Release) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ARTIFACT\tBYTES\tDIGEST")
	var all int64
	for _, a := range r.Artifacts {
		fmt.Fprintf(w, "%s\t%d\t%s\n", a.Name, a.Size, a.Digest)
		all += a.Size
	}
	_ = w.Flush() // Flush fails only if a write to the output fails.
	fmt.Fprintf(out, "%d artifacts of %s with %d bytes in %s\n", len(r.Artifacts), r.Version, all, r.Folder)
}

// publish pushes the image and the chart, and writes their digests for later steps of the workflow.
func publish(ctx context.Context, out io.Writer, r artifacts.Release, to registries, outputs string) error {
	image, err := r.Image.Push(ctx, to.image+":"+r.Version)
	if err != nil {
		return err
	}
	chart, err := r.Chart.Push(ctx, to.chart)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "pushed %s\npushed %s\n", image, chart)
	if outputs == "" {
		return nil
	}
	file, err := os.OpenFile(outputs, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write the digests: %w", err)
	}
	_, imageDigest, _ := strings.Cut(image, "@")
	_, chartDigest, _ := strings.Cut(chart, "@")
	if _, err := fmt.Fprintf(file, "image=%s\nchart=%s\n", imageDigest, chartDigest); err != nil {
		_ = file.Close()
		return fmt.Errorf("write the digests: %w", err)
	}
	return file.Close()
}
